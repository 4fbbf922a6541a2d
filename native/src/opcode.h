// Parser of tcgen05.mma opcodes, whose shape and types come from an instruction descriptor.
#ifndef SPTC_OPCODE_H
#define SPTC_OPCODE_H

#include <string>

#include "tables.h"

namespace sptc {

struct Opcode {
    int kind;  // index in table KINDS of the `.kind::` of the opcode
    bool sparse, weight_stationary, shifts_a;
    int cta_group;   // number of CTAs; 0 if the opcode does not state it
    int scale_size;  // number of block scales of a row of A or a column of B; 0 if the kind has none
    std::string scale_word, collector;
    const OpcodeShapes *shapes;  // shapes that an instruction descriptor may select; nullptr without .cta_group

    const Kind &of_kind() const { return KINDS[kind]; }
};

// Stores a qualifier of `text` in `part`; throws if `part` already has a qualifier.
void take(std::string &part, const std::string &word, const std::string &text);

// Parses a tcgen05.mma opcode as the assembler does; error messages quote `text`, which contains the opcode.
Opcode parse_opcode(const std::string &opcode, const std::string &text, bool requires_cta_group);

// Returns the PTX text of an opcode.
std::string spelled(const Opcode &opcode);

}  // namespace sptc

#endif

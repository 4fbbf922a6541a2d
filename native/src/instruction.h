// PTX text to a row of the table of instructions.
#ifndef SPTC_INSTRUCTION_H
#define SPTC_INSTRUCTION_H

#include <stdexcept>
#include <string>

#include "opcode.h"

namespace sptc {

// What the interface turns into a status and a sentence.
class Error : public std::runtime_error {
  public:
    Error(int status, const std::string &sentence) : std::runtime_error(sentence), status(status) {}
    const int status;
};

struct Instruction {
    const Form *form;
    const Numerics *numerics;
    int m, n;
    int mux;  // index into Rule::missing

    const Rule &rule() const { return RULES[form->rule]; }
    bool sparse() const { return form->sparsity != Sparsity::DENSE; }
    const Format &a() const { return FORMATS[form->a]; }
    const Format &b() const { return FORMATS[form->b]; }
    const Format &d() const { return FORMATS[form->d]; }
};

// Finds the instruction that a text names on an architecture. Qualifiers may stand in any order, types keep theirs; of
// `tcgen05.mma` shape and types follow in parentheses, as an instruction descriptor gives them.
Instruction parse(const std::string &text, const std::string &architecture);

// Whether a text is that of tcgen05 alone, with neither shape nor types.
bool names_opcode(const std::string &text);

// An opcode of tcgen05 on an architecture that has it.
struct OpcodeOn : Opcode {
    const Architecture *architecture;
};

OpcodeOn parse_opcode_on(const std::string &text, const std::string &architecture);

// Whether a set in MULTIPLES has a number.
bool has_multiple(int number, int value);

// Whether a descriptor may ask for M rows and N columns.
bool allows(const OpcodeShapes &shapes, int m, int n);

// The instruction that a descriptor makes of an opcode; `types` are those of D, A and B, all numbers in FORMATS.
Instruction described(const OpcodeOn &opcode, int m, int n, const int *types, bool satfinite, int scale_format);

// The instruction as PTX spells it, with its defaults.
std::string spelled(const Instruction &instruction);

}  // namespace sptc

#endif

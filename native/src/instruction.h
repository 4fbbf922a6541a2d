// Parser of PTX instruction texts.
#ifndef SPTC_INSTRUCTION_H
#define SPTC_INSTRUCTION_H

#include <stdexcept>
#include <string>

#include "opcode.h"
#include "sptc.h"
#include "text.h"

namespace sptc {

// Exception with a status and a message for the C interface.
class Error : public std::runtime_error {
  public:
    template <typename... Parts>
    explicit Error(int status, const Parts &...parts) : std::runtime_error(joined(parts...)), status(status) {}
    const int status;
};

template <typename... Parts>
[[noreturn]] void refuse_value(const Parts &...parts) {
    throw Error(SPTC_BAD_VALUE, parts...);
}

template <typename... Parts>
[[noreturn]] void refuse_instruction(const Parts &...parts) {
    throw Error(SPTC_NO_INSTRUCTION, parts...);
}

struct Instruction {
    const Form *form;
    const Numerics *numerics;
    int m, n;
    int mux;  // type of the multiplexers that select B, the first index of Rule::missing

    const Rule &rule() const { return RULES[form->rule]; }
    bool sparse() const { return form->sparsity != Sparsity::DENSE; }
    const Format &a() const { return FORMATS[form->a]; }
    const Format &b() const { return FORMATS[form->b]; }
    const Format &d() const { return FORMATS[form->d]; }
};

// Parses an instruction text for an architecture. The qualifiers may be in any order; the order of the types is fixed.
// The text of a `tcgen05.mma` ends in its shape and types, in parentheses.
Instruction parse(const std::string &text, const std::string &architecture);

// Returns whether a text is an opcode of tcgen05 without shape and types.
bool names_opcode(const std::string &text);

// An opcode of tcgen05, and an architecture that supports it.
struct OpcodeOn : Opcode {
    const Architecture *architecture;
};

OpcodeOn parse_opcode_on(const std::string &text, const std::string &architecture);

// Returns whether the set of multiples of 8 in row `number` of table MULTIPLES contains a value.
bool has_multiple(int number, int value);

// Returns whether the shapes of an opcode allow M rows and N columns.
bool allows(const OpcodeShapes &shapes, int m, int n);

// Returns the instruction of a tcgen05 opcode with the shape and types of a descriptor. `types` are the indices in
// FORMATS of the types of D, A and B.
Instruction described(const OpcodeOn &opcode, int m, int n, const int *types, bool satfinite, int scale_format);

// Returns the PTX text of an instruction, including qualifiers with default values.
std::string spelled(const Instruction &instruction);

}  // namespace sptc

#endif

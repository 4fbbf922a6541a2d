// Parser of PTX instructions.
#ifndef SPTC_INSTRUCTION_H
#define SPTC_INSTRUCTION_H

#include <stdexcept>
#include <string>

#include "opcode.h"
#include "sptc.h"
#include "text.h"

namespace sptc {

// Error with a status and a message for the C interface.
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
    int mux;  // multiplexers, as an index into Rule::missing

    const Rule &rule() const { return RULES[form->rule]; }
    bool sparse() const { return form->sparsity != Sparsity::DENSE; }
    const Format &a() const { return FORMATS[form->a]; }
    const Format &b() const { return FORMATS[form->b]; }
    const Format &d() const { return FORMATS[form->d]; }
};

// Parses an instruction for an architecture. The order of qualifiers is free, that of types is not. Shape and types of
// `tcgen05.mma` follow in parentheses.
Instruction parse(const std::string &text, const std::string &architecture);

// Whether a text is an opcode of tcgen05 without shape and types.
bool names_opcode(const std::string &text);

// An opcode of tcgen05 on an architecture that has it.
struct OpcodeOn : Opcode {
    const Architecture *architecture;
};

OpcodeOn parse_opcode_on(const std::string &text, const std::string &architecture);

// Whether set `number` of MULTIPLES contains a value.
bool has_multiple(int number, int value);

// Whether a descriptor may have M rows and N columns.
bool allows(const OpcodeShapes &shapes, int m, int n);

// Returns the instruction of an opcode with a descriptor; `types` of D, A and B are indices in FORMATS.
Instruction described(const OpcodeOn &opcode, int m, int n, const int *types, bool satfinite, int scale_format);

// Returns the PTX text of an instruction, with its defaults.
std::string spelled(const Instruction &instruction);

}  // namespace sptc

#endif

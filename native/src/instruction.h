// PTX text to a row of the table of instructions.
#ifndef SPTC_INSTRUCTION_H
#define SPTC_INSTRUCTION_H

#include <stdexcept>
#include <string>

#include "tables.h"

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

// The instruction as PTX spells it, with its defaults.
std::string spelled(const Instruction &instruction);

}  // namespace sptc

#endif

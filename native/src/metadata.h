// Metadata that an instruction leaves undefined: what is taken of it, and what is said.
#ifndef SPTC_METADATA_H
#define SPTC_METADATA_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "instruction.h"

namespace sptc {

enum class Policy { STRICT, SOFTWARE, SILICON };

// The first of an instruction's nibbles, row by row, that a policy does not take, or as many as there are. `stored` are
// the elements of A in their containers, which only SOFTWARE looks at.
size_t first_undefined(const Instruction &instruction, Policy policy, const std::vector<uint8_t> &nibbles,
                       const std::vector<uint8_t> &stored);

// Throws for a nibble that is undefined: number `index` of matrix `matrix`, from `where` and its lowest bit on.
[[noreturn]] void refuse_nibble(const Instruction &instruction, const std::string &matrix, size_t index,
                                const std::string &where, int low_bit, int nibble);

}  // namespace sptc

#endif

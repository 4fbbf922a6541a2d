// Checks for metadata nibbles that an instruction leaves undefined.
#ifndef SPTC_METADATA_H
#define SPTC_METADATA_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "instruction.h"

namespace sptc {

enum class Policy { STRICT, SOFTWARE, SILICON };

// Returns the row-major index of the first metadata nibble that `policy` rejects; without such a nibble, returns the
// number of nibbles. Policy SOFTWARE also accepts a nibble of 0 whose elements of A, taken from `stored`, are zero.
size_t first_undefined(const Instruction &instruction, Policy policy, const std::vector<uint8_t> &nibbles,
                       const std::vector<uint8_t> &stored);

// Throws the error that nibble `index` of `matrix`, stored at bit `low_bit` of the place `where`, is undefined.
[[noreturn]] void refuse_nibble(const Instruction &instruction, const std::string &matrix, size_t index,
                                const std::string &where, int low_bit, int nibble);

}  // namespace sptc

#endif

// Operands in shared memory, found through matrix descriptors.
#ifndef SPTC_SHARED_H
#define SPTC_SHARED_H

#include <cstdint>
#include <string>
#include <vector>

#include "tables.h"

namespace sptc {

// A decoded 64-bit matrix descriptor; offsets in bytes.
struct Descriptor {
    int64_t start, leading_offset, stride_offset;
    int base_offset;
    const Swizzle *swizzle;
};

// Splits a descriptor into its fields; `name` is the operand's, for messages.
Descriptor decode_descriptor(uint64_t value, Family family, const std::string &name);

// Byte addresses of the elements of an operand: row by row of A, column by column of B, each along K.
// `mn_major`: neighbours in memory are neighbours in M or N, not in K. Refuses what reaches beyond `bytes`.
std::vector<int32_t> addresses(const Descriptor &descriptor, int mn, int k, int element_bits, bool mn_major,
                               size_t bytes, const std::string &name);

}  // namespace sptc

#endif

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

// Lines of an operand, rows of A or columns of B, behind the first ones, and how its elements lie.
struct Extent {
    int first_line, lines, k;
    int element_bits, unit_elements;
    bool mn_major;  // neighbours in memory are neighbours in M or N, not in K
};

// Where the elements of an operand start, in bits: line by line, each along K. Refuses what reaches beyond `bytes`.
std::vector<int32_t> bit_addresses(const Descriptor &descriptor, const Extent &extent, size_t bytes,
                                   const std::string &name);

}  // namespace sptc

#endif

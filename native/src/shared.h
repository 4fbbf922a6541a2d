// Operands in shared memory, addressed by matrix descriptors.
#ifndef SPTC_SHARED_H
#define SPTC_SHARED_H

#include <cstdint>
#include <string>
#include <vector>

#include "tables.h"

namespace sptc {

// A decoded 64-bit matrix descriptor. Start address, leading offset and stride offset are in bytes; the base offset
// counts rows of 128 bytes.
struct Descriptor {
    int64_t start, leading_offset, stride_offset;
    int base_offset;
    const Swizzle *swizzle;
};

// Decodes a matrix descriptor; error messages use `name`, the name of the operand.
Descriptor decode_descriptor(uint64_t value, Family family, const std::string &name);

// Encodes a matrix descriptor, the inverse of `decode_descriptor`.
uint64_t encode_descriptor(int64_t start, int64_t leading_offset, int64_t stride_offset, const std::string &swizzle,
                           int base_offset, Family family);

// Range of lines of an operand (rows of A or columns of B) from `first_line` on, and the order of their elements.
struct Extent {
    int first_line, lines, k;
    int element_bits, unit_elements;
    bool mn_major;  // whether elements that are contiguous in memory are contiguous in M or N instead of K
};

// Returns the bit addresses of the elements of each row of A or column of B; throws if one is beyond `bytes` bytes.
std::vector<int32_t> bit_addresses(const Descriptor &descriptor, const Extent &extent, size_t bytes,
                                   const std::string &name);

}  // namespace sptc

#endif

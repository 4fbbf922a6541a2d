// Checks that functions of the interface share.
#ifndef SPTC_CHECKS_H
#define SPTC_CHECKS_H

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "instruction.h"
#include "sptc.h"

namespace sptc {

inline void require(const void *pointer, const char *name) {
    if (!pointer) throw Error(SPTC_NULL, std::string(name) + " must not be NULL.");
}

// The product of sizes, none of which is negative.
inline size_t product(const char *name, std::initializer_list<int64_t> sizes) {
    size_t total = 1;
    for (int64_t size : sizes)
        if (__builtin_mul_overflow(total, size_t(size), &total))
            throw Error(SPTC_BAD_SHAPE, std::string(name) + " would have more bytes than there are addresses.");
    return total;
}

template <typename Buffer>
void require_bytes(const Buffer &buffer, size_t bytes, const char *name) {
    if (bytes) require(buffer.data, name);
    if (buffer.bytes < bytes)
        throw Error(SPTC_SHORT_BUFFER, std::string(name) + " must have " + std::to_string(bytes) + " bytes, not " +
                                           std::to_string(buffer.bytes) + ".");
}

inline void require_none(const sptc_input &buffer, const char *name) {
    if (buffer.data) throw Error(SPTC_SUPERFLUOUS, std::string("the instruction takes no ") + name + ".");
}

inline void check_range(const char *name, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most)
        throw Error(SPTC_BAD_VALUE, std::string(name) + " must be " + std::to_string(least) +
                                        (most > least ? " to " + std::to_string(most) : "") + ", not " +
                                        std::to_string(value) + ".");
}

inline void check_count(const char *name, int64_t count) {
    if (count < 0)
        throw Error(SPTC_BAD_SHAPE, std::string(name) + " must not be negative, not " + std::to_string(count) + ".");
}

// Bytes of an image of shared memory; so many, a stride apart or all in one place, must be there.
inline size_t image_bytes(const sptc_input &smem, size_t stride, int64_t count) {
    if (count) require(smem.data, "smem");
    const size_t images = stride ? size_t(count) : 1;
    size_t end = 0;
    if (images && __builtin_mul_overflow(images - 1, stride, &end)) end = SIZE_MAX;
    const size_t image = stride ? std::min(stride, smem.bytes) : smem.bytes;
    if (count && (end > smem.bytes || image > smem.bytes - end))
        throw Error(SPTC_SHORT_BUFFER, "smem has " + std::to_string(smem.bytes) + " bytes, too few for " +
                                           std::to_string(images) + " images " + std::to_string(stride) +
                                           " bytes apart.");
    return image;
}

}  // namespace sptc

#endif

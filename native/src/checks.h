// Checks of the arguments that callers of the C interface pass.
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
    if (!pointer) throw Error(SPTC_NULL, name, " must not be NULL.");
}

// Returns the product of sizes, which must not be negative; throws if the product overflows.
inline size_t product(const char *name, std::initializer_list<int64_t> sizes) {
    size_t total = 1;
    for (int64_t size : sizes)
        if (__builtin_mul_overflow(total, size_t(size), &total))
            throw Error(SPTC_BAD_SHAPE, name, " would be larger than the address space.");
    return total;
}

template <typename Buffer>
void require_bytes(const Buffer &buffer, size_t bytes, const char *name) {
    if (bytes) require(buffer.data, name);
    if (buffer.bytes < bytes)
        throw Error(SPTC_SHORT_BUFFER, name, " must have ", bytes, " bytes, not ", buffer.bytes, ".");
}

inline void require_none(const sptc_input &buffer, const char *name) {
    if (buffer.data) throw Error(SPTC_SUPERFLUOUS, "the instruction takes no ", name, ".");
}

inline void check_range(const char *name, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most)
        refuse_value(name, " must be ", least, most > least ? " to " + std::to_string(most) : "", ", not ", value, ".");
}

inline void check_count(const char *name, int64_t count) {
    if (count < 0) throw Error(SPTC_BAD_SHAPE, name, " must not be negative, not ", count, ".");
}

// Returns the size in bytes of one shared-memory image. Throws if `smem` is too short for `count` images at a distance
// of `stride` bytes; if `stride` is 0, there is only one image. If `count` is 0, `smem` may be absent.
inline size_t image_bytes(const sptc_input &smem, size_t stride, int64_t count) {
    if (!count) return size_t(1) << 30;  // more bytes than a descriptor can address
    require(smem.data, "smem");
    const size_t images = stride ? size_t(count) : 1;
    size_t end = 0;
    if (__builtin_mul_overflow(images - 1, stride, &end)) end = SIZE_MAX;
    const size_t image = stride ? std::min(stride, smem.bytes) : smem.bytes;
    if (end > smem.bytes || image > smem.bytes - end)
        throw Error(SPTC_SHORT_BUFFER, "smem has ", smem.bytes, " bytes, which is too few for ", images,
                    " images at a distance of ", stride, " bytes.");
    return image;
}

}  // namespace sptc

#endif

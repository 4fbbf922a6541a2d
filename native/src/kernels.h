// Kernels multiply a row of A by a block of columns of B along a part of K. They are compiled for each instruction set.
#ifndef SPTC_KERNELS_H
#define SPTC_KERNELS_H

#include <cstdint>

#include "records.h"

namespace sptc {

// Parameters of a step.
struct Window {
    Numerics numerics;
    int slots;             // kept products of a step
    int steps;             // number of steps in the stretch of K
    int product_down;      // bits of a product below the last bit kept, before any alignment
    int group_up;          // zero bits below the scaled sum of a group, in units of the last bit kept
    int least_c_exponent;  // smallest exponent of a nonzero number of the accumulator's format
    bool scaled, saturates;
};

// Raw numbers of the kept elements of a row, in the order of the steps, and the row of B that each is multiplied by.
struct RowOfA {
    const int32_t *significands, *exponents;
    const int32_t *offsets;  // offset into the block of B
    const int32_t *scale_significands, *scale_exponents;
    bool special;  // whether any element is Inf or NaN
};

// Raw numbers of a block of columns of B, `stride` of them in a row; the last row is zero.
struct BlockOfB {
    const int32_t *significands, *exponents;
    const int32_t *scale_significands, *scale_exponents;  // one row of scales for each scale of A
    int stride;
    bool special;
};

// Adds products to the `stride` accumulators `d`: f32 codes (also for f16 numbers) or integers.
using RowKernel = void (*)(const Window &, const RowOfA &, const BlockOfB &, int32_t *d);

// Fields of a code with Inf and NaN, and its lowest bit in the container.
struct Encoding {
    int fraction_bits, exponent_bits, bias, low_bit;
};

// Decodes elements to raw numbers, significands shifted left by `up`; returns whether one is Inf or NaN.
template <typename Container>
using DecodeKernel = bool (*)(const Encoding &, const Container *, int64_t count, int up, int32_t *significands,
                              int32_t *exponents);

struct Kernels {
    const char *name;
    int lanes;  // granularity of `stride` in columns
    RowKernel fused, grouped, emulated, integer;
    DecodeKernel<uint16_t> decode_16;
    DecodeKernel<uint32_t> decode_32;
};

extern const Kernels portable_kernels;
#if defined(__x86_64__)
extern const Kernels avx2_kernels, avx512_kernels;
#endif

constexpr int32_t CANONICAL_NAN = 0x7FFFFFFF, INFINITY_F32 = 0x7F800000;

}  // namespace sptc

#endif

// Kernels: functions that multiply a row of A by a block of columns of B along a part of K. The kernels are compiled
// once for each instruction set of the processor.
#ifndef SPTC_KERNELS_H
#define SPTC_KERNELS_H

#include <cstdint>

#include "records.h"

namespace sptc {

// Parameters of a kernel call. They are the same for all steps (rounded sums) along K that the call computes.
struct Window {
    Numerics numerics;
    int slots;             // number of products per step (rounded sum)
    int steps;             // number of steps (rounded sums) along K in the kernel call
    int group_up;          // left shift after which a group's scaled sum has `alignment_bits` fraction bits
    int least_c_exponent;  // smallest exponent of a nonzero number in the accumulator's format
    bool scaled, saturates;
};

// Decoded stored elements of a row of A in the order of the sums, and for each element the row of B it multiplies.
// `elements` has f32 codes for the methods FUSED and EMULATED, and signed significands otherwise.
struct RowOfA {
    const int32_t *elements;
    const int16_t *exponents;
    const int32_t *offsets;  // for each element of A, offset in BlockOfB::elements of the row of B that it multiplies
    const int32_t *scale_significands, *scale_exponents;
    bool special;  // whether any element is Inf or NaN
};

// Decoded elements of a block of columns of B, `stride` elements per row. A row of zeros follows the rows of B, and may
// be followed by rows that are spliced from halves of two elements of B.
struct BlockOfB {
    const int32_t *elements;
    const int16_t *exponents;
    const int32_t *scale_significands, *scale_exponents;  // block scales of B, one row per block along K
    int stride;
    bool special;
};

// Multiplies a row of A by a block of columns of B and adds the products to the `stride` accumulators at `d`, which are
// integers or f32 codes (f32 codes also for f16 accumulators).
using RowKernel = void (*)(const Window &, const RowOfA &, const BlockOfB &, int32_t *d);

// Field widths and bias of a format with Inf and NaN, and the lowest bit of a code in its container.
struct Encoding {
    int fraction_bits, exponent_bits, bias, low_bit;
};

// Decodes elements to f32 codes and exponents; returns whether any element is Inf or NaN.
template <typename Container>
using DecodeKernel = bool (*)(const Encoding &, const Container *, int64_t count, int32_t *elements,
                              int16_t *exponents);

struct Kernels {
    const char *name;
    int lanes;  // columns of B per vector; the stride of a BlockOfB is a multiple of this number
    RowKernel fused, grouped, emulated, integer;
    DecodeKernel<uint16_t> decode_16;
    DecodeKernel<uint32_t> decode_32;
};

extern const Kernels portable_kernels;
#if defined(__x86_64__)
extern const Kernels avx2_kernels, avx512_kernels;
#endif

// Returns the kernels that are fastest on this processor for a number of columns.
const Kernels &kernels_for(int64_t columns);

// Returns the set of compute functions with the given name; nullptr if none has it or this processor cannot run it.
const Kernels *kernels_named(const char *name);

constexpr int32_t CANONICAL_NAN = 0x7FFFFFFF, INFINITY_F32 = 0x7F800000;

}  // namespace sptc

#endif

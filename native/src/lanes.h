// Vectors of outputs in the vector extension of GCC and Clang. Their width is that of the instruction set for which the
// including file is compiled.
#ifndef SPTC_LANES_H
#define SPTC_LANES_H

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "records.h"

namespace sptc {
namespace {  // unnamed namespace, so that each instruction set has separate code

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
#elif defined(__AVX2__)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif
constexpr int LANES = VECTOR_BYTES / 4;

typedef int32_t Ints __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t Words __attribute__((vector_size(VECTOR_BYTES)));
// Vectors of half as many lanes: 32-bit elements in half the bytes, or 64-bit elements in the same number of bytes.
typedef int32_t HalfInts __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef float HalfFloats __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef int64_t Longs __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t LongWords __attribute__((vector_size(VECTOR_BYTES)));
typedef double Doubles __attribute__((vector_size(VECTOR_BYTES)));

template <typename To, typename From>
inline To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

inline Ints load(const int32_t *from) {
    Ints lanes;
    std::memcpy(&lanes, from, sizeof lanes);
    return lanes;
}

inline void store(int32_t *to, Ints lanes) { std::memcpy(to, &lanes, sizeof lanes); }

inline Ints larger(Ints one, Ints other) { return one > other ? one : other; }

inline Ints smaller(Ints one, Ints other) { return one < other ? one : other; }

inline HalfInts half(Ints lanes, int which) {
    HalfInts part;
    std::memcpy(&part, reinterpret_cast<const char *>(&lanes) + which * sizeof part, sizeof part);
    return part;
}

inline Ints joined(HalfInts low, HalfInts high) {
    Ints lanes;
    std::memcpy(&lanes, &low, sizeof low);
    std::memcpy(reinterpret_cast<char *>(&lanes) + sizeof low, &high, sizeof high);
    return lanes;
}

// Shifts a number right and truncates it toward zero. The number's magnitude must be below 2^31; the shift amount of a nonzero
// number must not be negative.
inline Ints truncated(Ints number, Ints shift) {
#if defined(__AVX512F__)
    const __m512i shifted = _mm512_srlv_epi32(_mm512_abs_epi32((__m512i)number), (__m512i)shift);
    const __mmask16 negative = _mm512_movepi32_mask((__m512i)number);
    return (Ints)_mm512_mask_sub_epi32(shifted, negative, _mm512_setzero_si512(), shifted);
#elif defined(__AVX2__)
    const __m256i shifted = _mm256_srlv_epi32(_mm256_abs_epi32((__m256i)number), (__m256i)shift);
    return (Ints)_mm256_sign_epi32(shifted, (__m256i)number);
#else
    const Ints sign = number >> 31, magnitude = (number ^ sign) - sign;
    return ((magnitude >> (smaller(shift, Ints{} + 31) & 31)) ^ sign) - sign;
#endif
}

inline Longs truncated(Longs number, Longs shift) {
    const Longs sign = number < 0, magnitude = (number ^ sign) - sign;  // each lane of a true comparison is -1
    return ((magnitude >> (shift < 63 ? shift : Longs{} + 63)) ^ sign) - sign;
}

// Returns 2^exponent, which must be a normal double.
inline Doubles power_of_two(HalfInts exponent) {
    return bits_as<Doubles>((__builtin_convertvector(exponent, Longs) + 1023) << 52);
}

// Converts an integer below 2^51 to a double, exactly, with instructions that AVX2 provides.
inline Doubles as_double(Longs number) {
    constexpr double MIDDLE = 6755399441055744.0;  // 1.5 * 2^52, whose last bit has the weight 1
    return bits_as<Doubles>(number + bits_as<Longs>(Doubles{} + MIDDLE)) - MIDDLE;
}

// Rounds exact sums once, and returns f32 codes. A zero result is positive.
inline HalfInts rounded(Doubles exact, Rounding rounding) {
    const LongWords bits = bits_as<LongWords>(exact);
    const LongWords sign = bits & (uint64_t(1) << 63);
    const Doubles magnitude = bits_as<Doubles>(bits ^ sign);
    Doubles result;
    if (rounding == Rounding::RNE_F16) {
        // Adding a large number and subtracting it again rounds the magnitude to the last bit that is kept.
        constexpr double LEAST_NORMAL = 1.0 / 16384, ABOVE = 1.5 * double(int64_t(1) << 42), TOO_LARGE = 65536.0;
        const Doubles power = bits_as<Doubles>(bits & (uint64_t(0x7FF) << 52));
        const Doubles large = (power > LEAST_NORMAL ? power : Doubles{} + LEAST_NORMAL) * ABOVE;
        result = (magnitude + large) - large;
        result = result < TOO_LARGE ? result : Doubles{} + __builtin_inf();
    } else if (rounding == Rounding::RNE_F32) {
        result = magnitude;  // the conversion to f32 at the end rounds the result
    } else {
        // A subnormal result is truncated at the last fraction bit of the smallest normal number. The smallest normal
        // number is therefore added before the truncation and subtracted after it.
        constexpr double LEAST_NORMAL = 1.17549435082228750797e-38;
        const uint64_t dropped = rounding == Rounding::RZ_F32 ? 29 : 39;
        const Doubles added = magnitude < LEAST_NORMAL ? Doubles{} + LEAST_NORMAL : Doubles{};
        const LongWords kept = bits_as<LongWords>(magnitude + added) >> dropped << dropped;
        result = bits_as<Doubles>(kept) - added;
    }
    const Doubles with_sign = bits_as<Doubles>(bits_as<LongWords>(result) | sign);
    return bits_as<HalfInts>(__builtin_convertvector(with_sign, HalfFloats) + 0.0f);
}

}  // namespace
}  // namespace sptc

#endif

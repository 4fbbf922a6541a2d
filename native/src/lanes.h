// Vectors of outputs in the vector extension of GCC and Clang. The width of the vectors is that of the instruction set
// for which the including file is compiled.
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
typedef float Floats __attribute__((vector_size(VECTOR_BYTES)));
typedef int16_t Shorts __attribute__((vector_size(VECTOR_BYTES / 2)));  // vector of LANES 16-bit integers
// Vectors of half as many lanes: 32-bit elements in half the bytes, or 64-bit elements in the same number of bytes.
typedef int32_t HalfInts __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef float HalfFloats __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef int64_t Longs __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t LongWords __attribute__((vector_size(VECTOR_BYTES)));
typedef double Doubles __attribute__((vector_size(VECTOR_BYTES)));

template <typename To>
inline To loaded(const void *from) {
    To to;
    std::memcpy(&to, from, sizeof to);
    return to;
}

template <typename To, typename From>
inline To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "both types must have the same size");
    return loaded<To>(&from);
}

inline Ints load(const int32_t *from) { return loaded<Ints>(from); }
inline Shorts load(const int16_t *from) { return loaded<Shorts>(from); }
inline void store(int32_t *to, Ints lanes) { std::memcpy(to, &lanes, sizeof lanes); }

template <typename Lanes>
inline Lanes larger(Lanes one, Lanes other) {
    return one > other ? one : other;
}

inline Ints smaller(Ints one, Ints other) { return one < other ? one : other; }

// Returns whether any bit of any lane is set.
inline bool any(Ints lanes) {
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)lanes, (__m512i)lanes);
#elif defined(__AVX2__)
    return !_mm256_testz_si256((__m256i)lanes, (__m256i)lanes);
#else
    const Longs words = bits_as<Longs>(lanes);
    return (words[0] | words[1]) != 0;
#endif
}

inline Ints widened(Shorts lanes) { return __builtin_convertvector(lanes, Ints); }

inline HalfInts half(Ints lanes, int which) {
    return loaded<HalfInts>(reinterpret_cast<const int32_t *>(&lanes) + which * LANES / 2);
}

inline Ints joined(HalfInts low, HalfInts high) {
    Ints lanes;
    std::memcpy(&lanes, &low, sizeof low);
    std::memcpy(reinterpret_cast<char *>(&lanes) + sizeof low, &high, sizeof high);
    return lanes;
}

// Shifts a number right and truncates it toward zero.
inline Longs truncated(Longs number, Longs shift) {
    const Longs sign = number < 0, magnitude = (number ^ sign) - sign;  // a true comparison sets a lane to -1
    return ((magnitude >> (shift < 63 ? shift : Longs{} + 63)) ^ sign) - sign;
}

// Truncates numbers with magnitudes below 2^31 to integers.
inline Doubles truncated(Doubles number) {
#if defined(__AVX512F__)
    return (Doubles)_mm512_roundscale_pd((__m512d)number, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__)
    return (Doubles)_mm256_round_pd((__m256d)number, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
#else
    return __builtin_convertvector(__builtin_convertvector(number, HalfInts), Doubles);
#endif
}

// Returns 2^exponent, which must be a normal double.
inline Doubles power_of_two(HalfInts exponent) {
    return bits_as<Doubles>((__builtin_convertvector(exponent, Longs) + 1023) << 52);
}

// Returns 2^exponent, which must be a normal f32.
inline Floats power_of_two(Ints exponent) {
    return bits_as<Floats>((exponent + 127) << 23);  // f32 fields: sign 31, exponent 30:23, fraction 22:0
}

// Converts an integer below 2^51 to a double, exactly, with instructions that AVX2 provides.
inline Doubles as_double(Longs number) {
    constexpr double MIDDLE = 6755399441055744.0;  // 1.5 * 2^52, a double whose last bit has the weight 1
    return bits_as<Doubles>(number + bits_as<Longs>(Doubles{} + MIDDLE)) - MIDDLE;
}

// Converts integers with a magnitude below 2^31 to f32, rounded toward zero.
inline Floats toward_zero(Ints number) {
    const Ints sign = number >> 31, magnitude = (number ^ sign) - sign;
    // An f32 cannot hold bit r and lower bits. If r is 0, rounding to nearest drops them, as truncation does. The
    // highest bit of `magnitude >> 24` is at the place of r, so the AND below sets r to 0:
    //   magnitude        1xxxxxxxxxxxxxxxxxxxxxxx rxxxxxx
    //   magnitude >> 24                           1xxxxxx
    const Floats kept = __builtin_convertvector(magnitude & ~(magnitude >> 24), Floats);
    return bits_as<Floats>(bits_as<Ints>(kept) | (number & INT32_MIN));
}

// Rounds exact sums once, and returns f32 codes. A zero result is positive.
inline HalfInts rounded(Doubles exact, Rounding rounding) {
    const LongWords bits = bits_as<LongWords>(exact);
    const LongWords sign = bits & (uint64_t(1) << 63);
    const Doubles magnitude = bits_as<Doubles>(bits ^ sign);
    Doubles result;
    if (rounding == Rounding::RNE_F16) {
        // Adding and subtracting a large 1.5 * 2^n rounds the magnitude to the last fraction bit of an f16.
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

// Decoded operands: a signed significand and an exponent, for any format.
#ifndef SPTC_RAW_H
#define SPTC_RAW_H

#include <cstdint>

#include "records.h"

namespace sptc {

struct Kernels;

// Exponents that mark zero, Inf and NaN, whose significands are zero. Each of these exponents
// is below the exponent floor of all numerics, even after the exponents of block scales are added.
// The sum of two of these exponents fits into 16 bits.
constexpr int32_t EXPONENT_OF_ZERO = -16000, EXPONENT_OF_INFINITY = -16001, EXPONENT_OF_NEGATIVE_INFINITY = -16002,
                  EXPONENT_OF_NAN = -16003;

struct Raw {
    int32_t significand, exponent;
};

// This function is static because the linker must not replace it by a copy compiled for another instruction set.
static inline bool is_special(int32_t exponent) { return exponent < EXPONENT_OF_ZERO; }

// Decodes stored elements to the numbers and exponents that the kernel of a summation method reads.
class Decoder {
  public:
    Decoder(const Format &format, int container_bits, int low_bit, Method method);

    // Number of fraction bits of a significand.
    int fraction_bits() const { return format_.fraction_bits; }

    // Decodes `count` elements; returns whether any element is Inf or NaN.
    bool decode(const Kernels &kernels, const void *containers, int64_t count, int32_t *elements,
                int16_t *exponents) const;

  private:
    Format format_;
    int container_bits_, low_bit_;
    int32_t element_of_byte_[256];  // decoded elements that are stored in 8 bits, by the value of the byte
    int16_t exponent_of_byte_[256];
};

// Decodes a code of a format; the significand of an integer is its value.
Raw decode_code(const Format &format, uint32_t code);

}  // namespace sptc

#endif

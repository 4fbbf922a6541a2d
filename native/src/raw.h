// Decoded operands: a signed significand and an exponent, for any format.
#ifndef SPTC_RAW_H
#define SPTC_RAW_H

#include <cstdint>

#include "records.h"

namespace sptc {

struct Kernels;

// Exponents that mark zero, Inf and NaN, whose significands are zero. Each of these exponents
// is below the exponent floor of all numerics, even after the exponents of block scales are added.
constexpr int32_t EXPONENT_OF_ZERO = -20000, EXPONENT_OF_INFINITY = -20001, EXPONENT_OF_NEGATIVE_INFINITY = -20002,
                  EXPONENT_OF_NAN = -20003;

struct Raw {
    int32_t significand, exponent;
};

// This function is static because the linker must not replace it by a copy compiled for another instruction set.
static inline bool is_special(int32_t exponent) { return exponent < EXPONENT_OF_ZERO; }

// Decodes elements in containers to significands, shifted left by `up`, and exponents.
class Decoder {
  public:
    Decoder(const Format &format, int container_bits, int low_bit, bool as_f16);

    // Number of fraction bits of a significand.
    int fraction_bits() const { return format_.fraction_bits; }

    // Decodes `count` elements; returns whether any element is Inf or NaN.
    bool decode(const Kernels &kernels, const void *containers, int64_t count, int up, int32_t *significands,
                int32_t *exponents) const;

    // Decodes one element; container bits outside the element are ignored.
    Raw decode(uint32_t container) const;

  private:
    Format format_;
    int container_bits_, low_bit_;
    Raw of_byte_[256];  // decoded value of each byte, if containers are bytes
};

// Decodes a code of a format; the significand of an integer is its value.
Raw decode_code(const Format &format, uint32_t code);

}  // namespace sptc

#endif

#include "raw.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "kernels.h"
#include "tables.h"

namespace sptc {

namespace {

const Format &f16_format() {
    return *std::find_if(std::begin(FORMATS), std::end(FORMATS),
                         [](const Format &format) { return std::strcmp(format.name, "f16") == 0; });
}

// Converts a decoded number to the significand and exponent of its f16 code. A subnormal e4m3 becomes a normal f16.
Raw widened(Raw narrow, const Format &format, const Format &f16) {
    if (narrow.exponent <= EXPONENT_OF_ZERO) return narrow;
    int32_t significand = narrow.significand * (1 << (f16.fraction_bits - format.fraction_bits)),
            exponent = narrow.exponent;
    const int32_t one = 1 << f16.fraction_bits;
    while ((significand < 0 ? -significand : significand) < one && exponent > f16.minimum_exponent()) {
        significand *= 2;
        --exponent;
    }
    return {significand, exponent};
}

}  // namespace

Raw decode_code(const Format &format, uint32_t code) {
    if (format.is_integer()) {
        const int unused = 32 - format.bits;
        const uint32_t high = code << unused;
        return {format.is_signed ? int32_t(high) >> unused : int32_t(high >> unused), 0};
    }
    const uint32_t fraction_mask = (1u << format.fraction_bits) - 1, top = (1u << format.exponent_bits) - 1;
    const uint32_t fraction = code & fraction_mask, field = code >> format.fraction_bits & top;
    const bool negative = format.is_signed && code >> (format.bits - 1) & 1;
    if (format.specials == Specials::IEEE_TOP && field == top) {
        if (fraction) return {0, EXPONENT_OF_NAN};
        return {0, negative ? EXPONENT_OF_NEGATIVE_INFINITY : EXPONENT_OF_INFINITY};
    }
    if (format.specials == Specials::NAN_TOP && field == top && fraction == fraction_mask) return {0, EXPONENT_OF_NAN};
    const bool subnormal = format.subnormals && field == 0;
    const int32_t magnitude = int32_t(fraction | (subnormal ? 0u : 1u << format.fraction_bits));
    if (magnitude == 0) return {0, EXPONENT_OF_ZERO};
    return {negative ? -magnitude : magnitude, (subnormal ? 1 : int32_t(field)) - format.bias};
}

Decoder::Decoder(const Format &format, int container_bits, int low_bit, Method method)
    : format_(format), container_bits_(container_bits), low_bit_(low_bit), element_of_byte_{}, exponent_of_byte_{} {
    const bool as_f16 = method == Method::EMULATED;
    if (as_f16) format_ = f16_format();
    if (container_bits > 8) return;
    const uint32_t mask = (1u << format.bits) - 1;
    for (uint32_t byte = 0; byte < 256; ++byte) {
        Raw raw = decode_code(format, byte >> low_bit & mask);
        if (as_f16) raw = widened(raw, format, format_);
        element_of_byte_[byte] = raw.significand;
        exponent_of_byte_[byte] = int16_t(raw.exponent);
        if (method == Method::GROUPED || method == Method::INTEGER) continue;
        const float value = std::ldexp(float(raw.significand), raw.exponent - format_.fraction_bits);
        std::memcpy(&element_of_byte_[byte], &value, sizeof value);
    }
}

bool Decoder::decode(const Kernels &kernels, const void *containers, int64_t count, int32_t *elements,
                     int16_t *exponents) const {
    const Encoding encoding{format_.fraction_bits, format_.exponent_bits, format_.bias, low_bit_};
    if (container_bits_ == 16)
        return kernels.decode_16(encoding, static_cast<const uint16_t *>(containers), count, elements, exponents);
    if (container_bits_ == 32)
        return kernels.decode_32(encoding, static_cast<const uint32_t *>(containers), count, elements, exponents);
    const uint8_t *bytes = static_cast<const uint8_t *>(containers);
    bool special = false;
    for (int64_t i = 0; i < count; ++i) {
        elements[i] = element_of_byte_[bytes[i]];
        exponents[i] = exponent_of_byte_[bytes[i]];
        special |= is_special(exponents[i]);
    }
    return special;
}

}  // namespace sptc

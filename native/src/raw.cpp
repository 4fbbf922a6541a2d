#include "raw.h"

#include <algorithm>
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

Decoder::Decoder(const Format &format, int container_bits, int low_bit, bool as_f16)
    : format_(format), container_bits_(container_bits), low_bit_(low_bit), of_byte_{} {
    if (as_f16) format_ = f16_format();
    if (container_bits > 8) return;
    const uint32_t mask = (1u << format.bits) - 1;
    for (uint32_t byte = 0; byte < 256; ++byte) {
        const Raw raw = decode_code(format, byte >> low_bit & mask);
        of_byte_[byte] = as_f16 ? widened(raw, format, format_) : raw;
    }
}

Raw Decoder::decode(uint32_t container) const {
    return container_bits_ <= 8 ? of_byte_[container & 255] : decode_code(format_, container >> low_bit_);
}

bool Decoder::decode(const Kernels &kernels, const void *containers, int64_t count, int up, int32_t *significands,
                     int32_t *exponents) const {
    const Encoding encoding{format_.fraction_bits, format_.exponent_bits, format_.bias, low_bit_};
    if (container_bits_ == 16)
        return kernels.decode_16(encoding, static_cast<const uint16_t *>(containers), count, up, significands,
                                 exponents);
    if (container_bits_ == 32)
        return kernels.decode_32(encoding, static_cast<const uint32_t *>(containers), count, up, significands,
                                 exponents);
    const uint8_t *bytes = static_cast<const uint8_t *>(containers);
    bool special = false;
    for (int64_t i = 0; i < count; ++i) {
        const Raw raw = of_byte_[bytes[i]];
        significands[i] = raw.significand * (1 << up);
        exponents[i] = raw.exponent;
        special |= is_special(raw.exponent);
    }
    return special;
}

}  // namespace sptc

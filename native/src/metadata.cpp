#include "metadata.h"

#include <algorithm>
#include <cstring>

#include "raw.h"
#include "sptc.h"

namespace sptc {

size_t first_undefined(const Instruction &instruction, Policy policy, const std::vector<uint8_t> &nibbles,
                       const std::vector<uint8_t> &stored) {
    const Form &form = *instruction.form;
    const size_t bytes = size_t(std::max(1, form.container_bits / 8)), slots = size_t(form.stored_in_chunk);
    const auto is_zero = [&](size_t chunk) {
        for (size_t slot = chunk * slots; slot < (chunk + 1) * slots; ++slot) {
            uint32_t code = 0;
            std::memcpy(&code, &stored[slot * bytes], bytes);
            const Raw raw = decode_code(instruction.a(), code >> form.low_bit_a);
            if (raw.significand || is_special(raw.exponent)) return false;
        }
        return true;
    };
    for (size_t index = 0; index < nibbles.size(); ++index) {
        const int nibble = nibbles[index];
        if (instruction.rule().legal >> nibble & 1) continue;
        if (policy == Policy::SOFTWARE && nibble == 0 && is_zero(index)) continue;
        return index;
    }
    return nibbles.size();
}

void refuse_nibble(const Instruction &instruction, const std::string &matrix, size_t index, const std::string &where,
                   int low_bit, int nibble) {
    const size_t chunks = size_t(instruction.form->chunks);
    const Rule &rule = instruction.rule();
    std::string binary;
    for (int bit = 3; bit >= 0; --bit) binary += char('0' + (nibble >> bit & 1));
    throw Error(SPTC_UNDEFINED_METADATA, "undefined metadata at ", matrix, ", row ", index / chunks, ", chunk ",
                index % chunks, " (", where, ", bits ", low_bit + 3, ":", low_bit, "): nibble 0b", binary,
                " breaks the ", rule.name, " rule, ", rule.meaning, ".");
}

}  // namespace sptc

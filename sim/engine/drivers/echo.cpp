// Library of stand-ins for arrays of dot-product units. A stand-in has the timing of an array, but returns a hash of
// its operands. At most `most` results are in flight in a stand-in.
#include <cstdint>
#include <deque>

#include "configuration.h"
#include "hash.h"

namespace {

struct Operands {
    const uint32_t *words;
    uint32_t field(int offset, int width) const {
        uint64_t both = words[offset / 32] >> offset % 32;
        if (offset % 32 + width > 32) both |= uint64_t(words[offset / 32 + 1]) << (32 - offset % 32);
        return uint32_t(both & ((uint64_t(1) << width) - 1));
    }
    uint32_t a(int lane, int place) const { return words[at_a / 32 + 4 * lane + place]; }
    uint32_t b(int lane, int place) const { return words[at_b / 32 + 4 * lane + place]; }
    uint32_t c(int lane, int place) const { return words[at_c / 32 + 4 * lane + place]; }
    uint32_t e(int lane) const { return words[at_e / 32 + lane]; }
    uint32_t control() const { return field(at_control, control_bits); }
    bool is_long() const { return field(at_long, 1); }
    bool sparse() const { return field(at_control + at_sparse, 1); }
    bool half() const { return field(at_control + at_result_code, result_code_bits) == f16; }
    bool wide() const { return wide_codes >> field(at_control, 4) & 1; }
    bool scaled() const { return field(at_control + at_scale, scale_bits) != 0; }
    // Metadata nibbles of a row, gathered from the registers of mma.sp.
    uint64_t metadata(int row) const {
        const int quad = 4 * (row % 8), upper = row / 8;
        const uint64_t selector = field(at_selector, 2), low = selector & 1;
        const auto half_word = [&](int lane) { return uint64_t(e(quad + lane) >> 16 * upper & 0xffff); };
        if (!sparse()) return 0;
        if (wide()) return is_long() ? half_word(2 * low) | half_word(2 * low + 1) << 16 : half_word(selector);
        return is_long() ? e(quad + upper) | uint64_t(e(quad + 2 + upper)) << 32 : e(quad + upper + 2 * low);
    }
    uint32_t scales(uint32_t word, int byte) const {
        if (!scaled()) return 0;
        const uint32_t first = word >> 8 * byte, size = field(at_scale_size, 2);
        if (size == 0) return first & 0xff;
        if (size == 2) return first;
        return (first & 0xff) * 0x101 | (first >> 8 & 0xff) * 0x1010000;
    }
    uint32_t of_row(int row) const {
        uint32_t hash = 0x5eed;
        for (int word = 0; word < 8; ++word)
            hash = fold(hash, word < 4 || is_long() ? a(4 * (row % 8) + word % 4, 2 * (word / 4) + row / 8) : 0);
        const uint64_t nibbles = metadata(row);
        hash = fold(fold(hash, uint32_t(nibbles)), uint32_t(nibbles >> 32));
        const int lane = 4 * (row % 8) + row / 8 + 2 * field(at_thread_a, 1);
        return fold(hash, scales(words[at_scale_a / 32 + lane], field(at_byte_a, 2)));
    }
    uint32_t of_column(int column) const {
        const int there = (sparse() ? 8 : 4) * (is_long() ? 2 : 1);
        uint32_t hash = 0x5eed;
        for (int word = 0; word < 16; ++word) hash = fold(hash, word < there ? b(4 * column + word % 4, word / 4) : 0);
        return fold(hash, scales(words[at_scale_b / 32 + 4 * column + field(at_thread_b, 2)], field(at_byte_b, 2)));
    }
};

struct Entry {
    int64_t due;
    uint32_t words[result_words];
};

struct Array {
    std::deque<Entry> entries;
    int64_t cycle = 0, free_at = 0;
    bool ready = false, valid = false;

    void take(const Operands &of) {
        entries.push_back({cycle + latency, {}});
        uint32_t *words = entries.back().words;
        uint32_t rows[16];
        for (int row = 0; row < 16; ++row) rows[row] = of.of_row(row);
        for (int column = 0; column < 8; ++column) {
            const uint32_t of_column = of.of_column(column);
            for (int row = 0; row < 16; ++row) {
                const int lane = 4 * (row % 8) + column / 2, h = row / 8, side = column % 2;
                const uint32_t c = of.half() ? of.c(lane, h) >> 16 * side & 0xffff : of.c(lane, 2 * h + side);
                const uint32_t hash = fold(fold(fold(rows[row], of_column), of.control()), c);
                if (of.half())
                    words[4 * lane + h] |= ((hash ^ hash >> 16) & 0xffff) << 16 * side;
                else
                    words[4 * lane + 2 * h + side] = hash;
                if (column == 0) words[128 + row / 2] |= (fold(rows[row], of_column) & 0xffff) << 16 * (row % 2);
            }
        }
    }

    void clock(const uint32_t *step, uint32_t *result) {
        const uint32_t shakes = Operands{step}.field(at_operands, 3);
        if (shakes & 4) {
            *this = Array();
        } else {
            if (valid && shakes & 2) entries.pop_front();
            if (ready && shakes & 1) {
                take(Operands{step});
                free_at = cycle + interval;
            }
        }
        ++cycle;
        ready = cycle >= free_at && entries.size() < most;
        valid = !entries.empty() && cycle >= entries.front().due;
        for (int word = 0; word < result_words; ++word)
            result[word] = valid ? entries.front().words[word] : fold(word, uint32_t(cycle));
        result[result_words] = ready | valid << 1;
    }
};

}  // namespace

extern "C" void *units_create() { return new std::deque<Array>; }
extern "C" void units_destroy(void *arrays) { delete static_cast<std::deque<Array> *>(arrays); }
extern "C" void *units_add(void *arrays) { return &static_cast<std::deque<Array> *>(arrays)->emplace_back(); }
extern "C" void units_clock(void *, void *array, const uint32_t *step, uint32_t *result) {
    static_cast<Array *>(array)->clock(step, result);
}

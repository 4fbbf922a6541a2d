#include "product.h"

#include <algorithm>
#include <cfenv>

#include "parallel.h"

namespace sptc {

namespace {

// Size of a block of B: rows (along K) and columns. The block stays in the cache while rows of A are multiplied by it.
constexpr int STRETCH = 128, COLUMNS = 128;
constexpr int64_t ROWS = 256;
constexpr int F32_FRACTION_BITS = 23;

// Sets the default floating-point environment until the end of the scope, since a program may have set its threads to
// replace subnormal numbers by zero.
class DefaultFloats {
  public:
    DefaultFloats() {
        std::fegetenv(&before);
        std::fesetenv(FE_DFL_ENV);
    }
    ~DefaultFloats() { std::fesetenv(&before); }
    DefaultFloats(const DefaultFloats &) = delete;
    DefaultFloats &operator=(const DefaultFloats &) = delete;

  private:
    std::fenv_t before;
};

int64_t divided(int64_t number, int64_t by) { return number / by + (number % by != 0); }

// Converts an f16 code to the f32 code of the same number.
int32_t widened(uint16_t code) {
    const int32_t sign = int32_t(code & 0x8000) << 16;
    int32_t field = code >> 10 & 31, fraction = code & 1023;
    if (field == 31) return sign | INFINITY_F32 | fraction << 13;
    if (field == 0) {
        if (fraction == 0) return sign;
        for (field = 1; !(fraction & 1024); --field) fraction <<= 1;
        fraction &= 1023;
    }
    return sign | (field + 112) << 23 | fraction << 13;
}

// Converts an f32 code to f16. The number must be one that f16 can represent.
uint16_t narrowed(int32_t code) {
    const int32_t magnitude = code & INT32_MAX;
    const uint16_t sign = uint16_t(uint32_t(code) >> 16 & 0x8000);
    if (magnitude > INFINITY_F32) return 0x7FFF;
    const int32_t field = (magnitude >> 23) - 112;
    if (field >= 31) return sign | 0x7C00;
    if (field > 0) return uint16_t(sign | field << 10 | (magnitude >> 13 & 1023));
    const int32_t significand = (magnitude & 0x7FFFFF) | 0x800000;
    return field < -10 ? sign : uint16_t(sign | significand >> (14 - field));
}

}  // namespace

// Work buffers of one thread, for one block of D at a time.
struct Product::Scratch {
    std::vector<int32_t> b_elements, b_scale_significands, b_scale_exponents;
    std::vector<int32_t> a_elements, a_scale_significands, a_scale_exponents, offsets;
    std::vector<int32_t> ordered_elements, ordered_offsets, results;
    std::vector<int16_t> a_exponents, b_exponents, ordered_exponents;
    int32_t unit_offsets[16][4] = {};  // for each nibble and element, offset of the selected row of B; none if < 0
    bool b_special = false, a_special = false, spliced_special = false;
};

// A block of D: a range of rows and a range of columns of one matrix of the batch.
struct Product::Block {
    int64_t tile, first_row, rows, first_column;
    int columns, stride;
};

Product::Product(const Instruction &instruction)
    : instruction_(instruction),
      form_(*instruction.form),
      a_(instruction.a(), form_.container_bits, form_.low_bit_a, instruction.numerics->method),
      b_(instruction.b(), form_.container_bits, form_.low_bit_b, instruction.numerics->method),
      group_up_(0),
      panel_k_(form_.k * std::max(1, STRETCH / form_.k)),
      group_(0),
      scale_{},
      selected_{} {
    const Numerics &numerics = *instruction.numerics;
    if (form_.scale_size) {
        const Format &format = FORMATS[form_.scale_format];
        for (uint32_t code = 0; code < 256; ++code)
            scale_[code] = decode_code(format, code & ((1u << format.bits) - 1));
        group_ = numerics.method == Method::GROUPED ? BLOCK_GROUP : std::min(numerics.step, form_.stored_k);
        group_up_ = numerics.alignment_bits - a_.fraction_bits() - b_.fraction_bits() - 2 * format.fraction_bits;
    }
    for (int slot = 0; slot < form_.stored_k; ++slot) order_.push_back(slot);
    if (numerics.method == Method::EMULATED)
        std::stable_sort(order_.begin(), order_.end(), [](int one, int other) { return (one & 2) < (other & 2); });
    for (int nibble = 0; instruction.sparse() && nibble < 16; ++nibble) {
        const int missing = instruction.rule().missing[instruction.mux][nibble];
        Selected &selected = selected_[nibble];
        selected.whole = form_.stored_in_chunk > 1 || (!missing && (nibble == 0b0100 || nibble == 0b1110));
        const int in_unit = form_.stored_in_chunk / 2;  // number of stored elements that share a metadata index
        for (int slot = 0; slot < form_.stored_in_chunk; ++slot) {
            const int side = in_unit ? slot / in_unit : 0, index = side ? nibble >> 2 : nibble & 3;
            selected.unit[slot] = in_unit ? int8_t(index * in_unit + slot % in_unit) : int8_t(nibble >> 3);
            if (in_unit && missing >> side & 1) selected.unit[slot] = -1;
        }
    }
}

RowKernel Product::kernel(const Kernels &kernels) const {
    switch (instruction_.numerics->method) {
        case Method::FUSED: return kernels.fused;
        case Method::GROUPED: return kernels.grouped;
        case Method::EMULATED: return kernels.emulated;
        case Method::INTEGER: break;
    }
    return kernels.integer;
}

Window Product::window(int k) const {
    const Numerics &numerics = *instruction_.numerics;
    Window window{};
    window.numerics = numerics;
    window.slots = std::min(numerics.step, form_.stored_k);
    if (numerics.method == Method::EMULATED) window.slots = form_.stored_k / 2;
    if (numerics.method == Method::INTEGER) window.slots = form_.stored_k;
    window.steps = k / form_.k * (form_.stored_k / window.slots);
    window.group_up = group_up_;
    window.least_c_exponent = FORMATS[form_.c].minimum_exponent();
    window.scaled = form_.scale_size != 0;
    window.saturates = form_.satfinite;
    return window;
}

void Product::decode_columns(const Matrices &matrices, const Kernels &kernels, const Block &block, int64_t first_k,
                             int k, Scratch &scratch) const {
    // Number of additional rows of B, whose elements are spliced from 16-bit halves of two elements of B.
    const size_t spare = form_.stored_in_chunk == 1 ? size_t(k / 2) : 0;
    const size_t stride = size_t(block.stride), size = (size_t(k) + 1 + spare) * stride;
    scratch.b_elements.resize(size);
    scratch.b_exponents.resize(size);
    scratch.b_special = false;
    const char *b = static_cast<const char *>(matrices.b) +
                    ((block.tile * matrices.k + first_k) * matrices.n + block.first_column) * operand_bytes();
    const bool at_once = block.stride == matrices.n;
    for (int row = 0; row < k; row += at_once ? k : 1) {
        int32_t *elements = &scratch.b_elements[size_t(row) * stride];
        int16_t *exponents = &scratch.b_exponents[size_t(row) * stride];
        const int64_t count = at_once ? k * int64_t(block.columns) : block.columns;
        scratch.b_special |= b_.decode(kernels, b + row * matrices.n * operand_bytes(), count, elements, exponents);
        if (at_once) continue;
        std::fill(elements + block.columns, elements + block.stride, 0);
        std::fill(exponents + block.columns, exponents + block.stride, int16_t(EXPONENT_OF_ZERO));
    }
    std::fill_n(&scratch.b_elements[size_t(k) * stride], stride, 0);
    std::fill_n(&scratch.b_exponents[size_t(k) * stride], stride, int16_t(EXPONENT_OF_ZERO));
    for (int nibble = 0; nibble < 16; ++nibble)
        for (int slot = 0; slot < 4; ++slot)
            scratch.unit_offsets[nibble][slot] = selected_[nibble].unit[slot] * block.stride;
    if (!group_) return;
    const int groups = k / form_.k * (form_.stored_k / group_), dense = instruction_.sparse() ? 2 : 1;
    scratch.b_scale_significands.assign(size_t(groups) * size_t(block.stride), 0);
    scratch.b_scale_exponents.assign(size_t(groups) * size_t(block.stride), 0);
    const int64_t spans = matrices.k / form_.span;
    for (int group = 0; group < groups; ++group)
        for (int column = 0; column < block.columns; ++column) {
            const int64_t span = (first_k + int64_t(group) * group_ * dense) / form_.span;
            const uint8_t *code =
                matrices.scale_b + (block.tile * matrices.n + block.first_column + column) * spans + span;
            const size_t place = size_t(group) * size_t(block.stride) + size_t(column);
            scratch.b_scale_significands[place] = scale_[*code].significand;
            scratch.b_scale_exponents[place] = scale_[*code].exponent;
            scratch.b_special |= is_special(scale_[*code].exponent);
        }
}

// Writes a row of elements, each spliced from the two 16-bit halves of B that a nibble selects; returns whether any is
// Inf or NaN.
bool Product::spliced(const Matrices &matrices, const Kernels &kernels, const Block &block, int64_t first_k, int chunk,
                      int nibble, int row, Scratch &scratch) const {
    const int missing = instruction_.rule().missing[instruction_.mux][nibble];
    const uint32_t *b = static_cast<const uint32_t *>(matrices.b) +
                        (block.tile * matrices.k + first_k + 2 * chunk) * matrices.n + block.first_column;
    const auto half = [&](int unit, int column) {
        return b[(unit >> 1) * matrices.n + column] >> 16 * (unit & 1) & 0xFFFF;
    };
    uint32_t codes[COLUMNS] = {};
    for (int column = 0; column < block.columns; ++column) {
        const uint32_t low = missing & 1 ? 0 : half(nibble & 3, column);
        const uint32_t high = missing & 2 ? 0 : half(nibble >> 2, column);
        codes[column] = low | high << 16;
    }
    const size_t first = size_t(row) * size_t(block.stride);
    return b_.decode(kernels, codes, block.stride, &scratch.b_elements[first], &scratch.b_exponents[first]);
}

// Computes, for each stored element of A, the offset of the row of B by which the element is multiplied. A metadata
// nibble must describe two or four stored elements, so that the nibble selects whole elements of B.
template <int STORED>
void Product::select_whole(const uint8_t *nibbles, const Block &block, int k, Scratch &scratch) const {
    const int32_t zero = k * block.stride, chunk_offset = 2 * STORED * block.stride;
    int32_t *offsets = scratch.offsets.data();
    for (int32_t start = 0; start < zero; start += chunk_offset) {
        const int32_t *unit_offsets = scratch.unit_offsets[*nibbles++ & 15];
        for (int slot = 0; slot < STORED; ++slot)
            *offsets++ = unit_offsets[slot] < 0 ? zero : start + unit_offsets[slot];
    }
}

void Product::select(const uint8_t *nibbles, const Matrices &matrices, const Kernels &kernels, const Block &block,
                     int64_t first_k, int k, Scratch &scratch) const {
    if (form_.stored_in_chunk == 2) return select_whole<2>(nibbles, block, k, scratch);
    if (form_.stored_in_chunk == 4) return select_whole<4>(nibbles, block, k, scratch);
    scratch.spliced_special = false;
    for (int chunk = 0; chunk < k / 2; ++chunk) {
        const int nibble = nibbles[chunk] & 15;
        int row = 2 * chunk + selected_[nibble].unit[0];
        if (!selected_[nibble].whole) {
            row = k + 1 + chunk;
            scratch.spliced_special |= spliced(matrices, kernels, block, first_k, chunk, nibble, row, scratch);
        }
        scratch.offsets[size_t(chunk)] = row * block.stride;
    }
}

// Decodes all rows of a block of A, for a range of K.
void Product::decode_rows(const Matrices &matrices, const Kernels &kernels, const Block &block, int64_t first_k, int k,
                          Scratch &scratch) const {
    const int per_k = instruction_.sparse() ? 2 : 1;
    const int64_t stored_k = matrices.k / per_k, stored = k / per_k;
    const int64_t first = (block.tile * matrices.m + block.first_row) * stored_k + first_k / per_k;
    const char *a = static_cast<const char *>(matrices.a) + first * operand_bytes();
    scratch.a_elements.resize(size_t(block.rows * stored));
    scratch.a_exponents.resize(size_t(block.rows * stored));
    scratch.offsets.resize(size_t(stored));
    scratch.a_special = false;
    const bool at_once = stored == stored_k;
    for (int64_t row = 0; row < block.rows; row += at_once ? block.rows : 1)
        scratch.a_special |=
            a_.decode(kernels, a + row * stored_k * operand_bytes(), at_once ? block.rows * stored : stored,
                      &scratch.a_elements[size_t(row * stored)], &scratch.a_exponents[size_t(row * stored)]);
    if (!instruction_.sparse())
        for (int slot = 0; slot < stored; ++slot) scratch.offsets[size_t(slot)] = slot * block.stride;
}

// Returns the elements of a row of A, the offsets of their rows of B, and block scales, in the order of the steps.
RowOfA Product::row_of_a(const Matrices &matrices, const Kernels &kernels, const Block &block, int64_t row,
                         int64_t first_k, int k, Scratch &scratch) const {
    const int per_k = instruction_.sparse() ? 2 : 1, stored = k / per_k;
    const int64_t line = block.tile * matrices.m + block.first_row + row;
    const int32_t *elements = &scratch.a_elements[size_t(row * stored)];
    const int16_t *exponents = &scratch.a_exponents[size_t(row * stored)];
    if (instruction_.sparse()) {
        const int logical = 2 * form_.stored_in_chunk;
        select(matrices.nibbles + line * (matrices.k / logical) + first_k / logical, matrices, kernels, block, first_k,
               k, scratch);
    }
    const int32_t *offsets = scratch.offsets.data();
    if (instruction_.numerics->method == Method::EMULATED) {
        const auto ordered = [&](const auto *from, auto &into) {
            into.resize(size_t(stored));
            for (int slot = 0; slot < stored; ++slot) {
                const int in_instruction = slot % form_.stored_k;
                into[size_t(slot)] = from[slot - in_instruction + order_[size_t(in_instruction)]];
            }
            return into.data();
        };
        elements = ordered(elements, scratch.ordered_elements);
        exponents = ordered(exponents, scratch.ordered_exponents);
        offsets = ordered(offsets, scratch.ordered_offsets);
    }
    bool special = scratch.a_special && std::any_of(exponents, exponents + stored, is_special);
    const int groups = group_ ? stored / group_ : 0;
    scratch.a_scale_significands.resize(size_t(groups));
    scratch.a_scale_exponents.resize(size_t(groups));
    for (int group = 0; group < groups; ++group) {
        const int64_t span = (first_k + int64_t(group) * group_ * per_k) / form_.span;
        const Raw scale = scale_[matrices.scale_a[line * (matrices.k / form_.span) + span]];
        scratch.a_scale_significands[size_t(group)] = scale.significand;
        scratch.a_scale_exponents[size_t(group)] = scale.exponent;
        special |= is_special(scale.exponent);
    }
    return {elements, exponents, offsets, scratch.a_scale_significands.data(), scratch.a_scale_exponents.data(),
            special};
}

void Product::compute(const Matrices &matrices, const Kernels &kernels, const Block &block, Scratch &scratch) const {
    const RowKernel row_kernel = kernel(kernels);
    const bool half = result_bytes() == 2;
    scratch.results.resize(size_t(block.rows * block.stride));
    for (int64_t row = 0; row < block.rows; ++row) {
        const int64_t first = (block.tile * matrices.m + block.first_row + row) * matrices.n + block.first_column;
        int32_t *d = &scratch.results[size_t(row * block.stride)];
        if (half)
            std::transform(static_cast<const uint16_t *>(matrices.c) + first,
                           static_cast<const uint16_t *>(matrices.c) + first + block.columns, d, widened);
        else
            std::copy_n(static_cast<const int32_t *>(matrices.c) + first, block.columns, d);
        std::fill(d + block.columns, d + block.stride, 0);
    }
    for (int64_t first_k = 0; first_k < matrices.k; first_k += panel_k_) {
        const int k = int(std::min<int64_t>(panel_k_, matrices.k - first_k));
        const Window steps = window(k);
        decode_columns(matrices, kernels, block, first_k, k, scratch);
        decode_rows(matrices, kernels, block, first_k, k, scratch);
        for (int64_t row = 0; row < block.rows; ++row) {
            const RowOfA a = row_of_a(matrices, kernels, block, row, first_k, k, scratch);
            row_kernel(steps, a,
                       {scratch.b_elements.data(), scratch.b_exponents.data(), scratch.b_scale_significands.data(),
                        scratch.b_scale_exponents.data(), block.stride, scratch.b_special || scratch.spliced_special},
                       &scratch.results[size_t(row * block.stride)]);
        }
    }
    for (int64_t row = 0; row < block.rows; ++row) {
        const int64_t first = (block.tile * matrices.m + block.first_row + row) * matrices.n + block.first_column;
        const int32_t *d = &scratch.results[size_t(row * block.stride)];
        if (half)
            std::transform(d, d + block.columns, static_cast<uint16_t *>(matrices.d) + first, narrowed);
        else
            std::copy_n(d, block.columns, static_cast<int32_t *>(matrices.d) + first);
    }
}

void Product::multiply(const Matrices &matrices, const Kernels &kernels, int threads) const {
    if (!matrices.batch || !matrices.m || !matrices.n) return;
    const int64_t columns = divided(matrices.n, COLUMNS), rows = divided(matrices.m, ROWS);
    in_parallel(matrices.batch * columns * rows, threads, [&] {
        return [&, scratch = Scratch{}](int64_t number) mutable {
            const DefaultFloats environment;
            Block block{};
            block.tile = number / (columns * rows);
            block.first_column = number / rows % columns * COLUMNS;
            block.first_row = number % rows * ROWS;
            block.rows = std::min(ROWS, matrices.m - block.first_row);
            block.columns = int(std::min<int64_t>(COLUMNS, matrices.n - block.first_column));
            block.stride = int(divided(block.columns, kernels.lanes)) * kernels.lanes;
            compute(matrices, kernels, block, scratch);
        };
    });
}

}  // namespace sptc

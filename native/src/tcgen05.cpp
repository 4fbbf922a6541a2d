#include "tcgen05.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "parallel.h"
#include "product.h"

namespace sptc {

namespace {

void put_element(std::vector<uint8_t> &matrix, size_t index, uint32_t code, size_t bytes) {
    std::memcpy(&matrix[index * bytes], &code, bytes);  // on a little-endian processor, copies the low bytes of `code`
}

// Returns an element of shared memory in the low bits of a 32-bit word.
uint32_t shared_element(const uint8_t *memory, int32_t bit, int bits) {
    uint32_t code = 0;
    std::memcpy(&code, memory + bit / 8, size_t((bit + bits - 1) / 8 - bit / 8 + 1));
    return code >> bit % 8 & (0xFFFFFFFFu >> (32 - bits));
}

int element_bits(const Format &format) { return format.bits + format.ignored_low_bits; }

// Multiplies an accumulator by 2^-exponent; returns false if the accumulator is or would become subnormal. Zeros, Infs
// and NaNs do not change.
bool scale_down(uint32_t &code, const Format &format, int exponent) {
    const uint32_t top = (1u << format.exponent_bits) - 1, field = code >> format.fraction_bits & top;
    const bool is_zero = (code & ((1u << (format.bits - 1)) - 1)) == 0;
    if (is_zero || field == top) return true;
    if (field <= uint32_t(exponent)) return false;
    code -= uint32_t(exponent) << format.fraction_bits;
    return true;
}

// Matrices of one image of tensor memory and shared memory. A, C, D, metadata and block scales have the parts of all
// CTAs, one CTA after another; B contains the columns of all CTAs.
struct Tile {
    std::vector<uint8_t> a, b, c, d, nibbles, scale_a, scale_b;
};

class Execution {
  public:
    explicit Execution(const TensorInstruction &placed)
        : placed_(placed),
          instruction_(placed.descriptor.instruction),
          form_(*instruction_.form),
          product_(instruction_),
          ctas_(placed.opcode.cta_group),
          rows_(placed.descriptor.layout->rows) {}

    void check(int64_t image, Tile &tile) const;
    void compute(int64_t image, const Kernels &kernels, int threads, Tile &tile) const;

  private:
    const uint32_t *tensor(int64_t image, int cta) const { return placed_.tmem + (image * ctas_ + cta) * TENSOR_WORDS; }
    const uint8_t *shared(int64_t image, int cta) const {
        return placed_.smem + size_t(image) * placed_.smem_stride + size_t(cta) * placed_.smem_bytes;
    }

    void check_copies(const char *name, const TensorMap &where, const uint32_t *memory) const;
    void check_metadata(int64_t image, const Tile &tile) const;
    void check_accumulator(int64_t image) const;
    void gather_a(int64_t image, Tile &tile) const;
    void gather_b(int64_t image, Tile &tile) const;
    void gather_c(int64_t image, Tile &tile) const;
    void gather_bytes(int64_t image, const TensorMap &where, std::vector<uint8_t> &into) const;
    void scatter_d(const Tile &tile, int cta, uint32_t *memory) const;
    void shift_rows(uint32_t *memory) const;

    const TensorInstruction &placed_;
    const Instruction &instruction_;
    const Form &form_;
    Product product_;
    int ctas_, rows_;
};

// Checks that all copies of an operand in tensor memory are equal: which copy the hardware reads is not documented.
void Execution::check_copies(const char *name, const TensorMap &where, const uint32_t *memory) const {
    for (int32_t copy : where.copies)
        for (size_t index = 0; copy && index < where.words.size(); ++index) {
            if (where.element(memory, index) == where.element(memory, index, copy)) continue;
            const int lane = TensorMap::lane(where.words[index]);
            refuse_value(name, " of ", spelled(placed_.opcode), " must be the same in its ", where.copies.size(),
                         " copies in tensor memory; those at lanes ", lane, " and ", lane + copy, ", column ",
                         TensorMap::column(where.words[index]), ", differ.");
        }
}

void Execution::check_metadata(int64_t image, const Tile &tile) const {
    const size_t index = first_undefined(instruction_, placed_.policy, tile.nibbles, tile.a);
    if (index == tile.nibbles.size()) return;
    const size_t place = index % placed_.e.words.size();
    const int32_t word = placed_.e.words[place];
    refuse_nibble(
        instruction_, "image " + std::to_string(image), index,
        "lane " + std::to_string(TensorMap::lane(word)) + ", column " + std::to_string(TensorMap::column(word)),
        placed_.e.low_bits[place], tile.nibbles[index]);
}

void Execution::check_accumulator(int64_t image) const {
    for (int cta = 0; cta < ctas_; ++cta)
        for (size_t index = 0; index < placed_.d.words.size(); ++index) {
            uint32_t code = placed_.d.element(tensor(image, cta), index);
            if (!scale_down(code, instruction_.d(), placed_.scale_input_d))
                refuse_value("scale_input_d of ", spelled(placed_.opcode), " must not be ", placed_.scale_input_d,
                             ", which makes an element of D subnormal: no public source states how a subnormal number "
                             "is normalised or rounded.");
        }
}

void Execution::check(int64_t image, Tile &tile) const {
    for (const auto &[name, where] : placed_.inputs())
        for (int cta = 0; cta < ctas_; ++cta) check_copies(name, *where, tensor(image, cta));
    if (instruction_.sparse() && placed_.policy != Policy::SILICON) {
        gather_bytes(image, placed_.e, tile.nibbles);
        if (placed_.policy == Policy::SOFTWARE) gather_a(image, tile);
        check_metadata(image, tile);
    }
    if (placed_.adds && placed_.scale_input_d) check_accumulator(image);
}

void Execution::gather_a(int64_t image, Tile &tile) const {
    const size_t of_cta = size_t(rows_) * size_t(form_.stored_k), bytes = size_t(product_.operand_bytes());
    const bool in_shared = !placed_.a_shared.empty();
    const int bits = in_shared ? element_bits(instruction_.a()) : form_.container_bits;
    const int up = bits < form_.container_bits ? form_.low_bit_a : 0;
    // The products are negated by negating A, not B: measurements of wgmma show that the hardware negates after the
    // selection of B, which may combine halves of two elements.
    const uint32_t sign = placed_.descriptor.negates ? 1u << (form_.low_bit_a + instruction_.a().bits - 1) : 0;
    tile.a.resize(size_t(ctas_) * of_cta * bytes);
    for (int cta = 0; cta < ctas_; ++cta)
        for (size_t index = 0; index < of_cta; ++index) {
            const uint32_t code = in_shared ? shared_element(shared(image, cta), placed_.a_shared[index], bits)
                                            : placed_.a.element(tensor(image, cta), index);
            put_element(tile.a, size_t(cta) * of_cta + index, (code << up) ^ sign, bytes);
        }
}

// Gathers B from shared memory. Each CTA of a pair holds half of the columns.
void Execution::gather_b(int64_t image, Tile &tile) const {
    const size_t n = size_t(instruction_.n), k = size_t(form_.k), bytes = size_t(product_.operand_bytes());
    const size_t columns = n / size_t(ctas_);
    const int bits = element_bits(instruction_.b()), up = bits < form_.container_bits ? form_.low_bit_b : 0;
    tile.b.resize(n * k * bytes);
    for (size_t column = 0; column < n; ++column) {
        const uint8_t *memory = shared(image, int(column / columns));
        const bool zero = !placed_.mask.zero.empty() && placed_.mask.zero[column];
        const int32_t *places = &placed_.b_shared[column % columns * k];
        for (size_t index = 0; index < k; ++index) {
            const uint32_t code = zero ? 0 : shared_element(memory, places[index], bits) << up;
            put_element(tile.b, index * n + column, code, bytes);
        }
    }
}

void Execution::gather_c(int64_t image, Tile &tile) const {
    const size_t of_cta = placed_.d.words.size(), bytes = size_t(product_.result_bytes());
    tile.c.assign(size_t(ctas_) * of_cta * bytes, 0);
    tile.d.resize(tile.c.size());
    for (int cta = 0; cta < ctas_ && placed_.adds; ++cta)
        for (size_t index = 0; index < of_cta; ++index) {
            uint32_t code = placed_.d.element(tensor(image, cta), index);
            if (placed_.scale_input_d) scale_down(code, instruction_.d(), placed_.scale_input_d);
            put_element(tile.c, size_t(cta) * of_cta + index, code, bytes);
        }
}

// Gathers metadata nibbles or block scales of all CTAs, one CTA after another.
void Execution::gather_bytes(int64_t image, const TensorMap &where, std::vector<uint8_t> &into) const {
    const size_t of_cta = where.words.size();
    into.resize(size_t(ctas_) * of_cta);
    for (int cta = 0; cta < ctas_; ++cta)
        for (size_t index = 0; index < of_cta; ++index)
            into[size_t(cta) * of_cta + index] = uint8_t(where.element(tensor(image, cta), index));
}

// Writes D to tensor memory; a result of 16 bits leaves the high half of its word unchanged.
void Execution::scatter_d(const Tile &tile, int cta, uint32_t *memory) const {
    const size_t of_cta = placed_.d.words.size(), bytes = size_t(product_.result_bytes());
    for (size_t index = 0; index < of_cta; ++index) {
        const int32_t word = placed_.d.words[index];
        if (placed_.disabled[TensorMap::lane(word)]) continue;
        std::memcpy(&memory[word], &tile.d[(size_t(cta) * of_cta + index) * bytes], bytes);
    }
}

// Shifts the columns of A in tensor memory by one lane: each lane except the last of a partition takes the words of the
// next lane.
void Execution::shift_rows(uint32_t *memory) const {
    const int first = TensorMap::column(placed_.a.words.front()), last = TensorMap::column(placed_.a.words.back());
    for (int lane = 0; lane < TENSOR_LANES; ++lane) {
        uint32_t *words = memory + lane * TENSOR_COLUMNS + first;
        if (lane % PARTITION != PARTITION - 1) std::copy_n(words + TENSOR_COLUMNS, last - first + 1, words);
    }
}

void Execution::compute(int64_t image, const Kernels &kernels, int threads, Tile &tile) const {
    gather_a(image, tile);
    gather_b(image, tile);
    gather_c(image, tile);
    gather_bytes(image, placed_.e, tile.nibbles);
    gather_bytes(image, placed_.scale_a, tile.scale_a);
    gather_bytes(image, placed_.scale_b, tile.scale_b);
    uint32_t *result = placed_.result + image * ctas_ * TENSOR_WORDS;
    if (result != tensor(image, 0)) std::copy_n(tensor(image, 0), size_t(ctas_) * TENSOR_WORDS, result);
    for (int cta = 0; cta < ctas_; ++cta) {  // multiply for each CTA, since each CTA has its own block scales of B
        const auto part = [&](std::vector<uint8_t> &whole) {
            return whole.data() + whole.size() / size_t(ctas_) * size_t(cta);
        };
        product_.multiply({1, rows_, instruction_.n, form_.k, part(tile.a), tile.b.data(), part(tile.c), part(tile.d),
                           part(tile.nibbles), part(tile.scale_a), part(tile.scale_b)},
                          kernels, threads);
        uint32_t *memory = result + cta * TENSOR_WORDS;
        scatter_d(tile, cta, memory);
        if (placed_.opcode.shifts_a) shift_rows(memory);
    }
}

}  // namespace

void compute(const TensorInstruction &placed, const Kernels &kernels, int threads) {
    const Execution execution(placed);
    in_parallel(placed.images, threads,
                [&] { return [&, tile = Tile{}](int64_t image) mutable { execution.check(image, tile); }; });
    const int of_image = int(std::max<int64_t>(1, threads / std::max<int64_t>(1, placed.images)));
    in_parallel(placed.images, threads, [&] {
        return [&, tile = Tile{}](int64_t image) mutable { execution.compute(image, kernels, of_image, tile); };
    });
}

}  // namespace sptc

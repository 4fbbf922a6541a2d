#include "registers.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "parallel.h"
#include "sptc.h"

namespace sptc {

namespace {

// Number of executions of an instruction whose matrices a thread gathers before it multiplies them as one batch.
constexpr int64_t TILES = 16;

struct Place {
    int thread, element;
};

Place place_of(int number, int row, int column) {
    const Places &places = PLACES[number];
    return {sum_of_bits(places.thread_of_row, row) + sum_of_bits(places.thread_of_column, column),
            sum_of_bits(places.element_of_row, row) + sum_of_bits(places.element_of_column, column)};
}

// Returns the positions of a matrix with elements of `bits` bits as runs of adjacent elements. Longer runs are copied
// with fewer instructions.
Runs runs(int number, int rows, int columns, int elements_of_a_thread, int bits) {
    Runs result;
    result.bits = bits;
    for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column) {
            const Place place = place_of(number, row, column);
            result.positions.push_back(place.thread * elements_of_a_thread + place.element);
        }
    result.elements = result.positions.size();
    std::vector<int32_t> &at = result.positions;
    const auto pairs = [&at] {
        for (size_t index = 0; index + 1 < at.size(); index += 2)
            if (at[index] % 2 || at[index + 1] != at[index] + 1) return false;
        return at.size() % 2 == 0;
    };
    for (; bits >= 8 && result.bits < 64 && pairs(); result.bits *= 2) {
        for (size_t index = 0; index < at.size() / 2; ++index) at[index] = at[2 * index] / 2;
        at.resize(at.size() / 2);
    }
    return result;
}

void split(int number, int rows, int columns, std::vector<int32_t> &threads, std::vector<int32_t> &elements) {
    for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column) {
            const Place place = place_of(number, row, column);
            threads.push_back(place.thread);
            elements.push_back(place.element);
        }
}

// Gathers a matrix from registers; each copy moves one run of adjacent elements.
template <typename Run>
void take(const uint8_t *registers, const Runs &runs, uint8_t *matrix) {
    for (int32_t position : runs.positions) {
        std::memcpy(matrix, registers + size_t(position) * sizeof(Run), sizeof(Run));
        matrix += sizeof(Run);
    }
}

// Copies a matrix to the registers of all threads. Each copy moves one run of adjacent elements.
template <typename Run>
void put(const uint8_t *matrix, const Runs &runs, uint8_t *registers) {
    for (int32_t position : runs.positions) {
        std::memcpy(registers + size_t(position) * sizeof(Run), matrix, sizeof(Run));
        matrix += sizeof(Run);
    }
}

void take(const uint32_t *registers, const Runs &runs, uint8_t *matrix) {
    const uint8_t *bytes = reinterpret_cast<const uint8_t *>(registers);
    switch (runs.bits) {
        case 4:
            for (int32_t position : runs.positions) *matrix++ = bytes[position / 2] >> 4 * (position & 1) & 15;
            break;
        case 8: return take<uint8_t>(bytes, runs, matrix);
        case 16: return take<uint16_t>(bytes, runs, matrix);
        case 32: return take<uint32_t>(bytes, runs, matrix);
        default: return take<uint64_t>(bytes, runs, matrix);
    }
}

// Scatters results, which have at least 16 bits, to registers.
void put(const uint8_t *matrix, const Runs &runs, uint32_t *registers) {
    uint8_t *bytes = reinterpret_cast<uint8_t *>(registers);
    switch (runs.bits) {
        case 16: return put<uint16_t>(matrix, runs, bytes);
        case 32: return put<uint32_t>(matrix, runs, bytes);
        default: return put<uint64_t>(matrix, runs, bytes);
    }
}

// Gathers elements from bit addresses in an image of shared memory. The addresses form `columns` lines of equal length;
// each line becomes a column of the matrix.
template <typename Element>
void take_shared(const uint8_t *image, const std::vector<int32_t> &addresses, size_t columns, uint8_t *into) {
    const size_t length = addresses.size() / columns;
    for (size_t column = 0; column < columns; ++column)
        for (size_t index = 0; index < length; ++index)
            std::memcpy(into + (index * columns + column) * sizeof(Element),
                        image + addresses[column * length + index] / 8, sizeof(Element));
}

void take_shared(const uint8_t *image, const std::vector<int32_t> &addresses, size_t columns, int bits, uint8_t *into) {
    if (bits == 32) return take_shared<uint32_t>(image, addresses, columns, into);
    if (bits == 16) return take_shared<uint16_t>(image, addresses, columns, into);
    return take_shared<uint8_t>(image, addresses, columns, into);
}

void take_scales(const uint32_t *data, const std::vector<int32_t> &threads, const std::vector<int32_t> &bytes,
                 ScaleIds ids, int lanes_a_thread_id, uint8_t *into) {
    const uint8_t *from = reinterpret_cast<const uint8_t *>(data);
    for (size_t index = 0; index < threads.size(); ++index)
        into[index] = from[4 * (threads[index] + lanes_a_thread_id * ids.thread) + bytes[index] + ids.byte];
}

}  // namespace

// Matrices of a batch: a thread gathers the matrices of several executions of an instruction, then multiplies them.
struct Registers::Tiles {
    std::vector<uint8_t> a, b, c, d, nibbles, scale_a, scale_b;
};

Registers::Registers(const Instruction &instruction) : instruction_(instruction), legal_{} {
    const Form &form = *instruction.form;
    if (!form.threads) return;
    const int per_register = 32 / form.container_bits, per_result = 32 / instruction.d().bits;
    a_registers_ = instruction.m * form.stored_k / (per_register * form.threads);
    d_registers_ = instruction.m * instruction.n / (per_result * form.threads);
    a_ = runs(form.places[0], instruction.m, form.stored_k, a_registers_ * per_register, form.container_bits);
    if (form.places[1] >= 0) {
        b_registers_ = form.k * instruction.n / (per_register * form.threads);
        b_ = runs(form.places[1], form.k, instruction.n, b_registers_ * per_register, form.container_bits);
    }
    d_ = runs(form.places[2], instruction.m, instruction.n, d_registers_ * per_result, instruction.d().bits);
    if (instruction.sparse()) {
        split(form.places[3], instruction.m, form.chunks, e_thread_, e_bit_);
        // Registers with metadata contain eight nibbles each.
        e_whole_ = e_thread_;
        std::sort(e_whole_.begin(), e_whole_.end());
        e_whole_.erase(std::unique(e_whole_.begin(), e_whole_.end()), e_whole_.end());
        for (int byte = 0; byte < 256; ++byte)
            legal_[byte] = instruction.rule().legal >> (byte & 15) & instruction.rule().legal >> (byte >> 4) & 1;
    }
    if (form.scale_size) {
        split(form.places[4], instruction.m, form.scale_size, scale_a_thread_, scale_a_byte_);
        split(form.places[5], instruction.n, form.scale_size, scale_b_thread_, scale_b_byte_);
    }
}

void Registers::nibbles(const uint32_t *e, int selector, uint8_t *into) const {
    const int lanes = selector * instruction_.form->lanes_a_selector;
    for (size_t index = 0; index < e_thread_.size(); ++index)
        into[index] = e[e_thread_[index] + lanes] >> e_bit_[index] & 15;
}

void Registers::check(const TileOperands &operands, int64_t tile, Tiles &tiles) const {
    const Form &form = *instruction_.form;
    const uint32_t *e = operands.e + size_t(tile) * size_t(form.threads) + operands.selector * form.lanes_a_selector;
    const auto is_legal = [&](int32_t thread) {
        const uint32_t word = e[thread];
        return legal_[word & 255] & legal_[word >> 8 & 255] & legal_[word >> 16 & 255] & legal_[word >> 24];
    };
    if (std::all_of(e_whole_.begin(), e_whole_.end(), is_legal)) return;
    tiles.nibbles.resize(e_thread_.size());
    nibbles(operands.e + size_t(tile) * size_t(form.threads), operands.selector, tiles.nibbles.data());
    if (operands.policy == Policy::SOFTWARE) {
        tiles.a.resize(a_.elements * size_t(std::max(1, form.container_bits / 8)));
        gather_a(operands, tile, tiles.a.data());
    }
    const size_t index = first_undefined(instruction_, operands.policy, tiles.nibbles, tiles.a);
    if (index == tiles.nibbles.size()) return;
    const int thread = e_thread_[index] + operands.selector * form.lanes_a_selector;
    refuse_nibble(instruction_, "tile " + std::to_string(tile), index, "lane " + std::to_string(thread), e_bit_[index],
                  tiles.nibbles[index]);
}

void Registers::gather_a(const TileOperands &operands, int64_t tile, uint8_t *into) const {
    const Form &form = *instruction_.form;
    if (operands.a) {
        const size_t registers = size_t(form.threads) * size_t(a_registers_);
        take(operands.a + size_t(tile) * registers, a_, into);
    } else {
        take_shared(operands.smem + tile * operands.smem_stride, operands.a_addresses, 1, form.container_bits, into);
    }
}

void Registers::gather(const TileOperands &operands, int64_t tile, Tiles &tiles, size_t place) const {
    const Form &form = *instruction_.form;
    const size_t threads = size_t(form.threads), number = size_t(tile);
    const size_t bytes = size_t(std::max(1, form.container_bits / 8));
    uint8_t *a = &tiles.a[place * a_.elements * bytes];
    gather_a(operands, tile, a);
    if (operands.e) nibbles(operands.e + number * threads, operands.selector, &tiles.nibbles[place * e_thread_.size()]);
    // Negate A, not B, to negate the products: measurements show that the hardware negates after it has selected
    // elements of B. A selected element may consist of halves of two elements.
    if (operands.negates)
        for (size_t index = 0; index < a_.elements; ++index) a[index * bytes + bytes - 1] ^= 0x80;
    const size_t b_elements = size_t(form.k) * size_t(instruction_.n);
    uint8_t *b = &tiles.b[place * b_elements * bytes];
    if (operands.b) {
        take(operands.b + number * threads * size_t(b_registers_), b_, b);
    } else {
        take_shared(operands.smem + tile * operands.smem_stride, operands.b_addresses, size_t(instruction_.n),
                    form.container_bits, b);
    }
    const size_t result_bytes = size_t(instruction_.d().bits / 8);
    uint8_t *c = &tiles.c[place * d_.elements * result_bytes];
    if (operands.adds)
        take(operands.c + number * threads * size_t(d_registers_), d_, c);
    else
        std::memset(c, 0, d_.elements * result_bytes);
    if (form.scale_size) {
        take_scales(operands.scale_a + number * threads, scale_a_thread_, scale_a_byte_, operands.ids_a,
                    form.lanes_a_thread_id_a, &tiles.scale_a[place * scale_a_thread_.size()]);
        take_scales(operands.scale_b + number * threads, scale_b_thread_, scale_b_byte_, operands.ids_b,
                    form.lanes_a_thread_id_b, &tiles.scale_b[place * scale_b_thread_.size()]);
    }
}

void Registers::compute_some(const TileOperands &operands, const Product &product, const Kernels &kernels,
                             int64_t first, int64_t count, Tiles &tiles) const {
    const Form &form = *instruction_.form;
    const size_t bytes = size_t(product.operand_bytes()), result_bytes = size_t(product.result_bytes());
    const size_t some = size_t(count), results = some * d_.elements * result_bytes;
    tiles.a.resize(some * a_.elements * bytes);
    tiles.b.resize(some * size_t(form.k) * size_t(instruction_.n) * bytes);
    tiles.c.resize(results);
    tiles.d.resize(results);
    tiles.nibbles.resize(some * e_thread_.size());
    tiles.scale_a.resize(some * scale_a_thread_.size());
    tiles.scale_b.resize(some * scale_b_thread_.size());
    for (size_t place = 0; place < some; ++place) gather(operands, first + int64_t(place), tiles, place);
    product.multiply({count, instruction_.m, instruction_.n, form.k, tiles.a.data(), tiles.b.data(), tiles.c.data(),
                      tiles.d.data(), tiles.nibbles.data(), tiles.scale_a.data(), tiles.scale_b.data()},
                     kernels, 1);
    for (size_t place = 0; place < some; ++place) {
        const uint8_t *from = &tiles.d[place * d_.elements * result_bytes];
        uint32_t *into = operands.d + (size_t(first) + place) * size_t(form.threads) * size_t(d_registers_);
        put(from, d_, into);
    }
}

void Registers::compute(const TileOperands &operands, const Product &product, const Kernels &kernels,
                        int threads) const {
    const int64_t pieces = operands.count / TILES + (operands.count % TILES != 0);
    if (operands.e && operands.policy != Policy::SILICON)  // check all metadata before any result is written
        in_parallel(pieces, threads, [&] {
            return [&, tiles = Tiles{}](int64_t number) mutable {
                const int64_t end = std::min(operands.count, (number + 1) * TILES);
                for (int64_t tile = number * TILES; tile < end; ++tile) check(operands, tile, tiles);
            };
        });
    in_parallel(pieces, threads, [&] {
        return [&, tiles = Tiles{}](int64_t number) mutable {
            const int64_t first = number * TILES;
            compute_some(operands, product, kernels, first, std::min(TILES, operands.count - first), tiles);
        };
    });
}

}  // namespace sptc

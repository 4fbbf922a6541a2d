#include "registers.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "parallel.h"
#include "sptc.h"

namespace sptc {

namespace {

// Tiles that a thread gathers before it multiplies them.
constexpr int64_t TILES = 16;

int sum_of_bits(const uint16_t *strides, int number) {
    int sum = 0;
    for (int bit = 0; number >> bit; ++bit)
        if (number >> bit & 1) sum += strides[bit];
    return sum;
}

struct Place {
    int thread, element;
};

Place place_of(int number, int row, int column) {
    const Places &places = PLACES[number];
    return {sum_of_bits(places.thread_of_row, row) + sum_of_bits(places.thread_of_column, column),
            sum_of_bits(places.element_of_row, row) + sum_of_bits(places.element_of_column, column)};
}

// Places of the elements of a matrix in what all threads hold together.
std::vector<int32_t> positions(int number, int rows, int columns, int elements_of_a_thread) {
    std::vector<int32_t> found;
    for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column) {
            const Place place = place_of(number, row, column);
            found.push_back(place.thread * elements_of_a_thread + place.element);
        }
    return found;
}

void split(int number, int rows, int columns, std::vector<int32_t> &threads, std::vector<int32_t> &elements) {
    for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column) {
            const Place place = place_of(number, row, column);
            threads.push_back(place.thread);
            elements.push_back(place.element);
        }
}

template <typename Element>
void take(const uint32_t *registers, const std::vector<int32_t> &positions, uint8_t *into) {
    const uint8_t *bytes = reinterpret_cast<const uint8_t *>(registers);
    for (size_t index = 0; index < positions.size(); ++index)
        std::memcpy(into + index * sizeof(Element), bytes + size_t(positions[index]) * sizeof(Element), sizeof(Element));
}

void take_elements(const uint32_t *registers, const std::vector<int32_t> &positions, int bits, uint8_t *into) {
    if (bits == 32) return take<uint32_t>(registers, positions, into);
    if (bits == 16) return take<uint16_t>(registers, positions, into);
    if (bits == 8) return take<uint8_t>(registers, positions, into);
    const uint8_t *bytes = reinterpret_cast<const uint8_t *>(registers);
    for (size_t index = 0; index < positions.size(); ++index)
        into[index] = bytes[positions[index] / 2] >> 4 * (positions[index] & 1) & 15;
}

void take_scales(const uint32_t *data, const std::vector<int32_t> &threads, const std::vector<int32_t> &bytes,
                 ScaleIds ids, int lanes_a_thread_id, uint8_t *into) {
    const uint8_t *from = reinterpret_cast<const uint8_t *>(data);
    for (size_t index = 0; index < threads.size(); ++index)
        into[index] = from[4 * (threads[index] + lanes_a_thread_id * ids.thread) + bytes[index] + ids.byte];
}

}  // namespace

// Matrices of some tiles.
struct Registers::Tiles {
    std::vector<uint8_t> a, b, c, d, nibbles, scale_a, scale_b;
};

Registers::Registers(const Instruction &instruction) : instruction_(instruction), zero_{} {
    const Form &form = *instruction.form;
    if (!form.threads) return;
    const int per_register = 32 / form.container_bits, per_result = 32 / instruction.d().bits;
    a_registers_ = instruction.m * form.stored_k / (per_register * form.threads);
    d_registers_ = instruction.m * instruction.n / (per_result * form.threads);
    a_ = positions(form.places[0], instruction.m, form.stored_k, a_registers_ * per_register);
    if (form.places[1] >= 0) {
        b_registers_ = form.k * instruction.n / (per_register * form.threads);
        b_ = positions(form.places[1], form.k, instruction.n, b_registers_ * per_register);
    }
    d_ = positions(form.places[2], instruction.m, instruction.n, d_registers_ * per_result);
    if (instruction.sparse()) split(form.places[3], instruction.m, form.chunks, e_thread_, e_bit_);
    if (form.scale_size) {
        split(form.places[4], instruction.m, form.scale_size, scale_a_thread_, scale_a_byte_);
        split(form.places[5], instruction.n, form.scale_size, scale_b_thread_, scale_b_byte_);
    }
    const Decoder decoder(instruction.a(), form.container_bits, form.low_bit_a, false);
    for (uint32_t byte = 0; byte < 256 && form.container_bits <= 8; ++byte) {
        const Raw raw = decoder.decode(byte);
        zero_[byte] = raw.significand == 0 && !is_special(raw.exponent);
    }
}

void Registers::nibbles(const uint32_t *e, int selector, uint8_t *into) const {
    const int lanes = selector * instruction_.form->lanes_a_selector;
    for (size_t index = 0; index < e_thread_.size(); ++index)
        into[index] = e[e_thread_[index] + lanes] >> e_bit_[index] & 15;
}

void Registers::check(const Held &held, int64_t tile, Tiles &tiles) const {
    const Form &form = *instruction_.form;
    const Rule &rule = instruction_.rule();
    const int bytes = std::max(1, form.container_bits / 8) * form.stored_in_chunk;
    tiles.nibbles.resize(e_thread_.size());
    nibbles(held.e + size_t(tile) * size_t(form.threads), held.selector, tiles.nibbles.data());
    if (held.policy == Policy::SOFTWARE) {
        tiles.a.resize(a_.size() * size_t(std::max(1, form.container_bits / 8)));
        gather_a(held, tile, tiles.a.data());
    }
    const auto is_zero = [&](size_t chunk) {
        const uint8_t *stored = tiles.a.data() + chunk * size_t(bytes);
        if (form.container_bits <= 8) return std::all_of(stored, stored + bytes, [this](uint8_t byte) { return zero_[byte]; });
        uint32_t any = 0;
        for (int index = 0; index < form.stored_in_chunk; ++index) {
            uint32_t code = 0;
            std::memcpy(&code, stored + index * form.container_bits / 8, size_t(form.container_bits / 8));
            any |= (code & ~(1u << (form.container_bits - 1))) >> form.low_bit_a;
        }
        return any == 0;
    };
    for (size_t index = 0; index < e_thread_.size(); ++index) {
        const int nibble = tiles.nibbles[index];
        if (rule.legal >> nibble & 1) continue;
        if (held.policy == Policy::SOFTWARE && nibble == 0 && is_zero(index)) continue;
        const int low = e_bit_[index], thread = e_thread_[index] + held.selector * form.lanes_a_selector;
        std::string binary;
        for (int bit = 3; bit >= 0; --bit) binary += char('0' + (nibble >> bit & 1));
        const size_t chunks = size_t(form.chunks);
        throw Error(SPTC_UNDEFINED_METADATA,
                    "undefined metadata at tile " + std::to_string(tile) + ", row " + std::to_string(index / chunks) +
                        ", chunk " + std::to_string(index % chunks) + " (lane " + std::to_string(thread) + ", bits " +
                        std::to_string(low + 3) + ":" + std::to_string(low) + "): nibble 0b" + binary + " breaks the " +
                        rule.name + " rule, " + rule.meaning + ".");
    }
}

void Registers::gather_a(const Held &held, int64_t tile, uint8_t *into) const {
    const Form &form = *instruction_.form;
    const size_t bytes = size_t(std::max(1, form.container_bits / 8));
    if (held.a) {
        const size_t registers = size_t(form.threads) * size_t(a_registers_);
        take_elements(held.a + size_t(tile) * registers, a_, form.container_bits, into);
    } else {
        for (size_t index = 0; index < a_.size(); ++index)
            std::memcpy(into + index * bytes, held.smem + tile * held.smem_stride + held.a_addresses[index], bytes);
    }
}

void Registers::gather(const Held &held, int64_t tile, Tiles &tiles, size_t place) const {
    const Form &form = *instruction_.form;
    const size_t threads = size_t(form.threads), number = size_t(tile);
    const size_t bytes = size_t(std::max(1, form.container_bits / 8));
    const uint8_t *image = held.smem ? held.smem + tile * held.smem_stride : nullptr;
    uint8_t *a = &tiles.a[place * a_.size() * bytes];
    gather_a(held, tile, a);
    if (held.e)
        nibbles(held.e + number * threads, held.selector, &tiles.nibbles[place * e_thread_.size()]);
    // The sign of the products, as measured, is that of A: behind the selection, where two elements may be spliced.
    if (held.negates)
        for (size_t index = 0; index < a_.size(); ++index) a[index * bytes + bytes - 1] ^= 0x80;
    const size_t b_elements = size_t(form.k) * size_t(instruction_.n);
    uint8_t *b = &tiles.b[place * b_elements * bytes];
    if (held.b) {
        take_elements(held.b + number * threads * size_t(b_registers_), b_, form.container_bits, b);
    } else {
        for (int column = 0; column < instruction_.n; ++column)  // addresses are column by column
            for (int k = 0; k < form.k; ++k)
                std::memcpy(b + (size_t(k) * size_t(instruction_.n) + size_t(column)) * bytes,
                            image + held.b_addresses[size_t(column) * size_t(form.k) + size_t(k)], bytes);
    }
    const size_t result_bytes = size_t(instruction_.d().bits / 8);
    uint8_t *c = &tiles.c[place * d_.size() * result_bytes];
    if (held.adds)
        take_elements(held.c + number * threads * size_t(d_registers_), d_, instruction_.d().bits, c);
    else
        std::memset(c, 0, d_.size() * result_bytes);
    if (form.scale_size) {
        take_scales(held.scale_a + number * threads, scale_a_thread_, scale_a_byte_, held.ids_a, 2,
                    &tiles.scale_a[place * scale_a_thread_.size()]);
        take_scales(held.scale_b + number * threads, scale_b_thread_, scale_b_byte_, held.ids_b, 1,
                    &tiles.scale_b[place * scale_b_thread_.size()]);
    }
}

void Registers::compute_some(const Held &held, const Product &product, const Kernels &kernels, int64_t first,
                             int64_t count, Tiles &tiles) const {
    const Form &form = *instruction_.form;
    const size_t bytes = size_t(product.operand_bytes()), result_bytes = size_t(product.result_bytes());
    const size_t some = size_t(count), results = some * d_.size() * result_bytes;
    tiles.a.resize(some * a_.size() * bytes);
    tiles.b.resize(some * size_t(form.k) * size_t(instruction_.n) * bytes);
    tiles.c.resize(results);
    tiles.d.resize(results);
    tiles.nibbles.resize(some * e_thread_.size());
    tiles.scale_a.resize(some * scale_a_thread_.size());
    tiles.scale_b.resize(some * scale_b_thread_.size());
    for (size_t place = 0; place < some; ++place) gather(held, first + int64_t(place), tiles, place);
    const Matrices matrices{count, instruction_.m, instruction_.n, form.k, tiles.a.data(), tiles.b.data(), tiles.c.data(),
                            tiles.d.data(), tiles.nibbles.data(), tiles.scale_a.data(), tiles.scale_b.data()};
    product.multiply(matrices, kernels, 1);
    uint8_t *into = reinterpret_cast<uint8_t *>(held.d + size_t(first) * size_t(form.threads * d_registers_));
    const size_t of_tile = size_t(form.threads * d_registers_) * 4;
    for (size_t place = 0; place < some; ++place)
        for (size_t index = 0; index < d_.size(); ++index)
            std::memcpy(into + place * of_tile + size_t(d_[index]) * result_bytes,
                        &tiles.d[(place * d_.size() + index) * result_bytes], result_bytes);
}

void Registers::compute(const Held &held, const Product &product, const Kernels &kernels, int threads) const {
    const int64_t pieces = held.count / TILES + (held.count % TILES != 0);
    if (held.e && held.policy != Policy::SILICON)  // before anything is written
        in_parallel(pieces, threads, [&] {
            return [&, tiles = Tiles{}](int64_t number) mutable {
                const int64_t end = std::min(held.count, (number + 1) * TILES);
                for (int64_t tile = number * TILES; tile < end; ++tile) check(held, tile, tiles);
            };
        });
    in_parallel(pieces, threads, [&] {
        return [&, tiles = Tiles{}](int64_t number) mutable {
            const int64_t first = number * TILES;
            compute_some(held, product, kernels, first, std::min(TILES, held.count - first), tiles);
        };
    });
}

}  // namespace sptc

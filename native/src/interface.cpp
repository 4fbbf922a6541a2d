// The C interface: arguments are checked here, exceptions end here.
#include "sptc.h"

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "checks.h"
#include "dispatch.h"
#include "instruction.h"
#include "product.h"
#include "registers.h"
#include "shared.h"
#include "tcgen05.h"

using sptc::check_count;
using sptc::check_range;
using sptc::Error;
using sptc::product;
using sptc::require;
using sptc::require_bytes;
using sptc::require_none;

struct sptc_instruction {
    std::string error, text;
    std::unique_ptr<sptc::OpcodeOn> opcode;  // of tcgen05 without shape and types; then there is nothing else
    std::unique_ptr<sptc::Instruction> instruction;
    std::unique_ptr<sptc::Product> product;
    std::unique_ptr<sptc::Registers> registers;
    const sptc::Kernels *kernels = nullptr;  // the fastest if none are chosen
    sptc::Numerics numerics;                 // if they are not those of the architecture
};

namespace {

// Runs a function and turns what it throws into a status and a sentence.
template <typename Work>
sptc_status checked(sptc_instruction *handle, Work work) noexcept {
    if (!handle) return SPTC_NULL;
    try {
        try {
            handle->error.clear();
            work();
            return SPTC_OK;
        } catch (const Error &error) {
            handle->error = error.what();
            return sptc_status(error.status);
        } catch (const std::bad_alloc &) {
            return SPTC_NO_MEMORY;
        } catch (const std::exception &error) {
            handle->error = std::string("the work cannot be done: ") + error.what() + ".";
            return SPTC_FAILED;
        }
    } catch (...) {  // the sentence itself found no memory
        return SPTC_NO_MEMORY;
    }
}

const sptc::Instruction &opened(const sptc_instruction *handle) {
    if (handle->opcode)
        throw Error(SPTC_NO_INSTRUCTION, handle->text + " has the shape and types of its instruction descriptor.");
    if (!handle->instruction) throw Error(SPTC_NO_INSTRUCTION, "this handle was opened for no instruction.");
    return *handle->instruction;
}

void check(const sptc_matrices &given, const sptc::Instruction &instruction, const sptc::Product &by) {
    const sptc::Form &form = *instruction.form;
    if (given.batch < 0 || given.m < 0 || given.n < 0 || given.k < form.k || given.k % form.k)
        throw Error(SPTC_BAD_SHAPE, "batch, m and n must not be negative, and k must be a multiple of " +
                                        std::to_string(form.k) + ", not " + std::to_string(given.batch) + ", " +
                                        std::to_string(given.m) + ", " + std::to_string(given.n) + " and " +
                                        std::to_string(given.k) + ".");
    const int64_t stored = instruction.sparse() ? given.k / 2 : given.k;
    require_bytes(given.a, product("a", {given.batch, given.m, stored, by.operand_bytes()}), "a");
    require_bytes(given.b, product("b", {given.batch, given.k, given.n, by.operand_bytes()}), "b");
    const size_t results = product("d", {given.batch, given.m, given.n, by.result_bytes()});
    require_bytes(given.c, results, "c");
    require_bytes(given.d, results, "d");
    if (instruction.sparse())
        require_bytes(given.nibbles, product("nibbles", {given.batch, given.m, given.k / form.k, form.chunks}),
                      "nibbles");
    else
        require_none(given.nibbles, "nibbles");
    if (form.scale_size) {
        const int64_t spans = given.k / form.span;
        require_bytes(given.scale_a, product("scale_a", {given.batch, given.m, spans}), "scale_a");
        require_bytes(given.scale_b, product("scale_b", {given.batch, given.n, spans}), "scale_b");
    } else {
        require_none(given.scale_a, "scale_a");
        require_none(given.scale_b, "scale_b");
    }
}

void check_threads(int threads) {
    constexpr int MOST = 1024;
    if (threads < 1 || threads > MOST)
        throw Error(SPTC_BAD_VALUE,
                    "threads must be 1 to " + std::to_string(MOST) + ", not " + std::to_string(threads) + ".");
}

// An instruction of a family, opened.
const sptc::Instruction &opened_as(const sptc_instruction *handle, sptc::Family family, const char *name) {
    const sptc::Instruction &instruction = opened(handle);
    if (instruction.form->family != family)
        throw Error(SPTC_NO_INSTRUCTION, handle->text + " is no " + name + " instruction.");
    return instruction;
}

// Registers of all threads of some tiles; nullptr for those that are not expected.
template <typename Buffer>
uint32_t *registers_of(const Buffer &buffer, int64_t tiles, const sptc::Instruction &instruction, int registers,
                       const char *name) {
    require_bytes(buffer, product(name, {tiles, instruction.form->threads, registers, 4}), name);
    return static_cast<uint32_t *>(const_cast<void *>(buffer.data));
}

// What mma and wgmma share.
sptc::Held held_metadata(const sptc::Instruction &instruction, int64_t tiles, const sptc_input &e, int32_t selector,
                         int32_t policy) {
    sptc::Held held{};
    check_count("tiles", tiles);
    held.count = tiles;
    held.adds = true;
    check_range("metadata", policy, SPTC_STRICT, SPTC_SILICON);
    held.policy = sptc::Policy(policy);
    check_range("selector", selector, 0, instruction.form->selectors - 1);
    held.selector = selector;
    if (instruction.sparse())
        held.e = registers_of(e, tiles, instruction, 1, "e");
    else
        require_none(e, "e");
    return held;
}

const uint32_t *scales(const sptc_mma_operands &given, const sptc_input &data, const sptc::Instruction &instruction,
                       const char *name, int byte, int thread, int threads) {
    const sptc::Form &form = *instruction.form;
    if (!form.scale_size) {
        require_none(data, name);
        return nullptr;
    }
    const std::string of = std::string(" of ") + name;
    check_range(("the thread id" + of).c_str(), thread, 0, threads - 1);
    check_range(("the byte id" + of).c_str(), byte, 0, 4 - form.scale_size);
    if (byte % form.scale_size)
        throw Error(SPTC_BAD_VALUE, "the byte id" + of + " must be a multiple of " + std::to_string(form.scale_size) +
                                        ", not " + std::to_string(byte) + ".");
    return registers_of(data, given.tiles, instruction, 1, name);
}

sptc::Held held_by(const sptc_mma_operands &given, const sptc::Instruction &instruction, const sptc::Registers &of) {
    sptc::Held held = held_metadata(instruction, given.tiles, given.e, given.selector, given.metadata);
    held.a = registers_of(given.a, given.tiles, instruction, of.a_registers(), "a");
    held.b = registers_of(given.b, given.tiles, instruction, of.b_registers(), "b");
    held.c = registers_of(given.c, given.tiles, instruction, of.d_registers(), "c");
    held.d = registers_of(given.d, given.tiles, instruction, of.d_registers(), "d");
    held.scale_a = scales(given, given.scale_a, instruction, "scale_a", given.byte_a, given.thread_a, 2);
    held.scale_b = scales(given, given.scale_b, instruction, "scale_b", given.byte_b, given.thread_b, 4);
    held.ids_a = {given.byte_a, given.thread_a};
    held.ids_b = {given.byte_b, given.thread_b};
    return held;
}

sptc::Held held_by(const sptc_wgmma_operands &given, const sptc::Instruction &instruction, const sptc::Registers &of) {
    const sptc::Form &form = *instruction.form;
    sptc::Held held = held_metadata(instruction, given.tiles, given.e, given.selector, given.metadata);
    const int least_scale = instruction.a().is_integer() ? 1 : -1, most_trans = form.container_bits == 16 ? 1 : 0;
    const bool shared_a = !given.a.data;
    for (const auto &[name, value] : {std::pair("imm_scale_a", given.imm_scale_a), {"imm_scale_b", given.imm_scale_b}})
        if (value != 1 && value != least_scale)
            throw Error(SPTC_BAD_VALUE, std::string(name) + " must be 1" + (least_scale < 0 ? " or -1" : "") +
                                            ", not " + std::to_string(value) + ".");
    check_range("scale_d", given.scale_d, 0, 1);
    check_range("imm_trans_a", given.imm_trans_a, 0, shared_a ? most_trans : 0);
    check_range("imm_trans_b", given.imm_trans_b, 0, most_trans);
    held.adds = given.scale_d != 0;
    held.negates = given.imm_scale_a != given.imm_scale_b;
    if (held.adds) held.c = registers_of(given.c, given.tiles, instruction, of.d_registers(), "c");
    held.d = registers_of(given.d, given.tiles, instruction, of.d_registers(), "d");
    held.smem = static_cast<const uint8_t *>(given.smem.data);
    const size_t image = sptc::image_bytes(given.smem, given.smem_stride, given.tiles);
    held.smem_stride = int64_t(given.smem_stride);
    const auto found = [&](uint64_t descriptor, int mn, int k, int unit, int32_t transposed, const char *name) {
        const sptc::Extent extent{0, mn, k, form.container_bits, unit, transposed != 0};
        return sptc::bit_addresses(sptc::decode_descriptor(descriptor, form.family, name), extent, image, name);
    };
    if (shared_a)
        held.a_addresses = found(given.a_descriptor, instruction.m, form.stored_k, form.unit_a, given.imm_trans_a, "a");
    else
        held.a = registers_of(given.a, given.tiles, instruction, of.a_registers(), "a");
    held.b_addresses = found(given.b_descriptor, instruction.n, form.k, form.unit_b, given.imm_trans_b, "b");
    return held;
}

// The kernels that were chosen, or the fastest.
const sptc::Kernels &kernels_of(const sptc_instruction *handle, int64_t columns) {
    return handle->kernels ? *handle->kernels : sptc::kernels_for(columns);
}

}  // namespace

sptc_status sptc_open(int abi, const char *text, const char *architecture, sptc_instruction **instruction) {
    if (!instruction) return SPTC_NULL;
    *instruction = new (std::nothrow) sptc_instruction;
    if (!*instruction) return SPTC_NO_MEMORY;
    return checked(*instruction, [&] {
        if (abi != SPTC_ABI)
            throw Error(SPTC_FOREIGN_ABI, "the caller was compiled for version " + std::to_string(abi) +
                                              " of the interface, and this library has version " +
                                              std::to_string(SPTC_ABI) + ".");
        require(text, "text");
        require(architecture, "architecture");
        if (sptc::names_opcode(text)) {
            auto opcode = std::make_unique<sptc::OpcodeOn>(sptc::parse_opcode_on(text, architecture));
            (*instruction)->text = sptc::spelled(*opcode);
            (*instruction)->opcode = std::move(opcode);
            return;
        }
        auto parsed = std::make_unique<sptc::Instruction>(sptc::parse(text, architecture));
        (*instruction)->product = std::make_unique<sptc::Product>(*parsed);
        (*instruction)->registers = std::make_unique<sptc::Registers>(*parsed);
        (*instruction)->text = sptc::spelled(*parsed);
        (*instruction)->instruction = std::move(parsed);
    });
}

void sptc_close(sptc_instruction *instruction) { delete instruction; }

const char *sptc_last_error(const sptc_instruction *instruction) {
    return instruction ? instruction->error.c_str() : "there is no handle.";
}

const char *sptc_text(const sptc_instruction *instruction) { return instruction ? instruction->text.c_str() : ""; }

sptc_status sptc_choose_kernels(sptc_instruction *instruction, const char *name) {
    return checked(instruction, [&] {
        require(name, "name");
        const sptc::Kernels *kernels = *name ? sptc::kernels_named(name) : nullptr;
        if (*name && !kernels)
            throw Error(SPTC_NO_KERNELS, "this processor runs no kernels of the name '" +
                                             std::string(name).substr(0, 40) +
                                             "'; there are portable, avx2 and avx512.");
        instruction->kernels = kernels;
    });
}

sptc_status sptc_set_numerics(sptc_instruction *instruction, int products, int alignment_bits, int zero_exponent,
                              const char *rounding) {
    return checked(instruction, [&] {
        require(rounding, "rounding");
        const sptc::Instruction &of = opened(instruction);
        sptc::Numerics changed = *of.numerics;
        if (changed.method != sptc::Method::FUSED)
            throw Error(SPTC_BAD_VALUE, "the numerics of this kind of instruction cannot be changed.");
        check_range("products", products, 1, of.form->scale_size ? changed.step : 32);
        check_range("alignment_bits", alignment_bits, 1, 25);
        check_range("zero_exponent", zero_exponent, -200, 4);
        if (products & (products - 1)) throw Error(SPTC_BAD_VALUE, "products must be a power of two.");
        using Named = std::pair<const char *, sptc::Rounding>;
        const bool half = of.d().bits == 16;
        const Named f32[] = {{"RZ-f32", sptc::Rounding::RZ_F32},
                             {"RZ-E8M13", sptc::Rounding::RZ_E8M13},
                             {"RNE-f32", sptc::Rounding::RNE_F32}},
                    f16[] = {{"RNE-f16", sptc::Rounding::RNE_F16}};
        bool found = false;
        for (const Named *one = half ? f16 : f32, *end = half ? std::end(f16) : std::end(f32); one != end; ++one)
            if (std::string(rounding) == one->first) changed.rounding = one->second, found = true;
        if (!found)
            throw Error(SPTC_BAD_VALUE, std::string("rounding must be ") +
                                            (half ? "RNE-f16" : "RZ-f32, RZ-E8M13 or RNE-f32") + ", not '" +
                                            std::string(rounding).substr(0, 40) + "'.");
        changed.step = products, changed.alignment_bits = alignment_bits, changed.zero_exponent = zero_exponent;
        instruction->numerics = changed;
        instruction->instruction->numerics = &instruction->numerics;
        instruction->product = std::make_unique<sptc::Product>(*instruction->instruction);
    });
}

sptc_status sptc_get_shape(sptc_instruction *instruction, sptc_shape *shape) {
    return checked(instruction, [&] {
        require(shape, "shape");
        const sptc::Instruction &of = opened(instruction);
        const sptc::Form &form = *of.form;
        *shape = {};
        shape->m = of.m, shape->n = of.n, shape->k = form.k;
        shape->stored_k = form.stored_k, shape->chunks = form.chunks, shape->selectors = form.selectors;
        shape->threads = form.threads;
        shape->a_registers = instruction->registers->a_registers();
        shape->b_registers = instruction->registers->b_registers();
        shape->d_registers = instruction->registers->d_registers();
        shape->operand_bytes = instruction->product->operand_bytes();
        shape->result_bytes = instruction->product->result_bytes();
        shape->operand_bits = form.container_bits;
        shape->scales = form.scale_size;
        shape->defined_nibbles = of.sparse() ? of.rule().legal : 0;
    });
}

sptc_status sptc_multiply(sptc_instruction *instruction, const sptc_matrices *matrices, int threads) {
    return checked(instruction, [&] {
        require(matrices, "matrices");
        check_threads(threads);
        const sptc::Instruction &of = opened(instruction);
        check(*matrices, of, *instruction->product);
        const sptc::Matrices given{matrices->batch,
                                   matrices->m,
                                   matrices->n,
                                   matrices->k,
                                   matrices->a.data,
                                   matrices->b.data,
                                   matrices->c.data,
                                   matrices->d.data,
                                   static_cast<const uint8_t *>(matrices->nibbles.data),
                                   static_cast<const uint8_t *>(matrices->scale_a.data),
                                   static_cast<const uint8_t *>(matrices->scale_b.data)};
        instruction->product->multiply(given, kernels_of(instruction, matrices->n), threads);
    });
}

sptc_status sptc_mma(sptc_instruction *instruction, const sptc_mma_operands *operands, int threads) {
    return checked(instruction, [&] {
        require(operands, "operands");
        check_threads(threads);
        const sptc::Instruction &of = opened_as(instruction, sptc::Family::MMA, "mma");
        instruction->registers->compute(held_by(*operands, of, *instruction->registers), *instruction->product,
                                        kernels_of(instruction, of.n), threads);
    });
}

sptc_status sptc_wgmma(sptc_instruction *instruction, const sptc_wgmma_operands *operands, int threads) {
    return checked(instruction, [&] {
        require(operands, "operands");
        check_threads(threads);
        const sptc::Instruction &of = opened_as(instruction, sptc::Family::WGMMA, "wgmma");
        instruction->registers->compute(held_by(*operands, of, *instruction->registers), *instruction->product,
                                        kernels_of(instruction, of.n), threads);
    });
}

sptc_status sptc_tcgen05(sptc_instruction *instruction, const sptc_tcgen05_operands *operands, int threads) {
    return checked(instruction, [&] {
        require(operands, "operands");
        check_threads(threads);
        if (!instruction->opcode) {
            opened(instruction);
            throw Error(SPTC_NO_INSTRUCTION, instruction->text + " is no opcode of tcgen05 without shape and types.");
        }
        const sptc::TensorInstruction placed = sptc::placed(*operands, *instruction->opcode);
        sptc::compute(placed, kernels_of(instruction, placed.descriptor.instruction.n), threads);
    });
}

sptc_status sptc_metadata(sptc_instruction *instruction, int64_t tiles, sptc_input e, int32_t selector,
                          sptc_output nibbles, sptc_output defined) {
    return checked(instruction, [&] {
        const sptc::Instruction &of = opened(instruction);
        const sptc::Form &form = *of.form;
        if (!of.sparse() || !form.threads)
            throw Error(SPTC_NO_INSTRUCTION, instruction->text + " takes no metadata from registers.");
        const sptc::Held held = held_metadata(of, tiles, e, selector, SPTC_STRICT);
        const size_t of_tile = size_t(of.m) * size_t(form.chunks);
        const size_t bytes = product("nibbles", {tiles, of.m, form.chunks});
        if (nibbles.data) require_bytes(nibbles, bytes, "nibbles");
        if (defined.data) require_bytes(defined, bytes, "defined");
        std::vector<uint8_t> found(of_tile);
        for (size_t tile = 0; tile < size_t(tiles); ++tile) {
            instruction->registers->nibbles(held.e + tile * size_t(form.threads), selector, found.data());
            for (size_t index = 0; index < of_tile; ++index) {
                const size_t place = tile * of_tile + index;
                if (nibbles.data) static_cast<uint8_t *>(nibbles.data)[place] = found[index];
                if (defined.data) static_cast<uint8_t *>(defined.data)[place] = of.rule().legal >> found[index] & 1;
            }
        }
    });
}

// Implements the C interface: checks arguments, and converts exceptions to statuses.
#include "sptc.h"

#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "checks.h"
#include "instruction.h"
#include "product.h"
#include "registers.h"
#include "shared.h"
#include "tcgen05.h"

using namespace sptc;

struct sptc_instruction {
    std::string error, text;
    std::unique_ptr<OpcodeOn> opcode;  // set for a tcgen05 opcode without shape; then the next three pointers are null
    std::unique_ptr<Instruction> instruction;
    std::unique_ptr<Product> product;
    std::unique_ptr<Registers> registers;
    const Kernels *kernels = nullptr;  // set of kernels that the caller chose; null: the fastest set
    Numerics numerics;                 // numerics that the caller chose; unused if the caller chose none
};

namespace {

// Calls a function and converts an exception to a status and an error message.
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
            handle->error = std::string("the computation failed: ") + error.what() + ".";
            return SPTC_FAILED;
        }
    } catch (...) {  // there is not enough memory for the error message
        return SPTC_NO_MEMORY;
    }
}

const Instruction &opened(const sptc_instruction *handle) {
    if (handle->opcode)
        refuse_instruction(handle->text,
                           " is an opcode without shape and types, which only an instruction descriptor states.");
    if (!handle->instruction) refuse_instruction("this handle has no instruction, since sptc_open() failed.");
    return *handle->instruction;
}

void check(const sptc_matrices &matrices, const Instruction &instruction, const Product &multiplier) {
    const Form &form = *instruction.form;
    if (matrices.batch < 0 || matrices.m < 0 || matrices.n < 0 || matrices.k < form.k || matrices.k % form.k)
        throw Error(SPTC_BAD_SHAPE, "batch, m and n must not be negative, and k must be a multiple of ", form.k,
                    ", not ", matrices.batch, ", ", matrices.m, ", ", matrices.n, " and ", matrices.k, ".");
    const int64_t stored = instruction.sparse() ? matrices.k / 2 : matrices.k;
    require_bytes(matrices.a, product("a", {matrices.batch, matrices.m, stored, multiplier.operand_bytes()}), "a");
    require_bytes(matrices.b, product("b", {matrices.batch, matrices.k, matrices.n, multiplier.operand_bytes()}), "b");
    const size_t results = product("d", {matrices.batch, matrices.m, matrices.n, multiplier.result_bytes()});
    require_bytes(matrices.c, results, "c");
    require_bytes(matrices.d, results, "d");
    if (instruction.sparse())
        require_bytes(matrices.nibbles,
                      product("nibbles", {matrices.batch, matrices.m, matrices.k / form.k, form.chunks}), "nibbles");
    else
        require_none(matrices.nibbles, "nibbles");
    if (form.scale_size) {
        const int64_t spans = matrices.k / form.span;
        require_bytes(matrices.scale_a, product("scale_a", {matrices.batch, matrices.m, spans}), "scale_a");
        require_bytes(matrices.scale_b, product("scale_b", {matrices.batch, matrices.n, spans}), "scale_b");
    } else {
        require_none(matrices.scale_a, "scale_a");
        require_none(matrices.scale_b, "scale_b");
    }
}

void check_threads(int threads) {
    constexpr int MOST = 1024;
    if (threads < 1 || threads > MOST) refuse_value("threads must be 1 to ", MOST, ", not ", threads, ".");
}

// Checks the size of an array with the registers of all threads for a whole batch, and returns a pointer to it.
template <typename Buffer>
uint32_t *registers_of(const Buffer &buffer, int64_t tiles, const Instruction &instruction, int registers,
                       const char *name) {
    require_bytes(buffer, product(name, {tiles, instruction.form->threads, registers, 4}), name);
    return static_cast<uint32_t *>(const_cast<void *>(buffer.data));
}

// Checks and returns operands of mma and wgmma: size of the batch, metadata, selector, policy for undefined metadata.
TileOperands metadata_operands(const Instruction &instruction, int64_t tiles, const sptc_input &e, int32_t selector,
                               int32_t policy) {
    TileOperands operands{};
    check_count("tiles", tiles);
    operands.count = tiles;
    operands.adds = true;
    check_range("metadata", policy, SPTC_STRICT, SPTC_SILICON);
    operands.policy = Policy(policy);
    check_range("selector", selector, 0, instruction.form->selectors - 1);
    operands.selector = selector;
    if (instruction.sparse())
        operands.e = registers_of(e, tiles, instruction, 1, "e");
    else
        require_none(e, "e");
    return operands;
}

const uint32_t *scales(const sptc_mma_operands &mma, const sptc_input &data, const Instruction &instruction,
                       const char *name, int byte, int thread, int threads) {
    const Form &form = *instruction.form;
    if (!form.scale_size) {
        require_none(data, name);
        return nullptr;
    }
    const std::string suffix = std::string(" of ") + name;
    check_range(("the thread id" + suffix).c_str(), thread, 0, threads - 1);
    check_range(("the byte id" + suffix).c_str(), byte, 0, 4 - form.scale_size);
    if (byte % form.scale_size)
        refuse_value("the byte id", suffix, " must be a multiple of ", form.scale_size, ", not ", byte, ".");
    return registers_of(data, mma.tiles, instruction, 1, name);
}

TileOperands operands_from(const sptc_mma_operands &mma, const Instruction &instruction, const Registers &registers) {
    TileOperands operands = metadata_operands(instruction, mma.tiles, mma.e, mma.selector, mma.metadata);
    operands.a = registers_of(mma.a, mma.tiles, instruction, registers.a_registers(), "a");
    operands.b = registers_of(mma.b, mma.tiles, instruction, registers.b_registers(), "b");
    operands.c = registers_of(mma.c, mma.tiles, instruction, registers.d_registers(), "c");
    operands.d = registers_of(mma.d, mma.tiles, instruction, registers.d_registers(), "d");
    operands.scale_a = scales(mma, mma.scale_a, instruction, "scale_a", mma.byte_a, mma.thread_a, 2);
    operands.scale_b = scales(mma, mma.scale_b, instruction, "scale_b", mma.byte_b, mma.thread_b, 4);
    operands.ids_a = {mma.byte_a, mma.thread_a};
    operands.ids_b = {mma.byte_b, mma.thread_b};
    return operands;
}

TileOperands operands_from(const sptc_wgmma_operands &wgmma, const Instruction &instruction,
                           const Registers &registers) {
    const Form &form = *instruction.form;
    TileOperands operands = metadata_operands(instruction, wgmma.tiles, wgmma.e, wgmma.selector, wgmma.metadata);
    const int least_scale = instruction.a().is_integer() ? 1 : -1, most_trans = form.container_bits == 16 ? 1 : 0;
    const bool shared_a = !wgmma.a.data;
    for (const auto &[name, value] : {std::pair("imm_scale_a", wgmma.imm_scale_a), {"imm_scale_b", wgmma.imm_scale_b}})
        if (value != 1 && value != least_scale)
            refuse_value(name, " must be 1", least_scale < 0 ? " or -1" : "", ", not ", value, ".");
    check_range("scale_d", wgmma.scale_d, 0, 1);
    check_range("imm_trans_a", wgmma.imm_trans_a, 0, shared_a ? most_trans : 0);
    check_range("imm_trans_b", wgmma.imm_trans_b, 0, most_trans);
    operands.adds = wgmma.scale_d != 0;
    operands.negates = wgmma.imm_scale_a != wgmma.imm_scale_b;
    if (operands.adds) operands.c = registers_of(wgmma.c, wgmma.tiles, instruction, registers.d_registers(), "c");
    operands.d = registers_of(wgmma.d, wgmma.tiles, instruction, registers.d_registers(), "d");
    operands.smem = static_cast<const uint8_t *>(wgmma.smem.data);
    const size_t image = image_bytes(wgmma.smem, wgmma.smem_stride, wgmma.tiles);
    operands.smem_stride = int64_t(wgmma.smem_stride);
    const auto addresses = [&](uint64_t descriptor, int mn, int k, int unit, int32_t transposed, const char *name) {
        const Extent extent{0, mn, k, form.container_bits, unit, transposed != 0};
        return bit_addresses(decode_descriptor(descriptor, form.family, name), extent, image, name);
    };
    if (shared_a)
        operands.a_addresses =
            addresses(wgmma.a_descriptor, instruction.m, form.stored_k, form.unit_a, wgmma.imm_trans_a, "a");
    else
        operands.a = registers_of(wgmma.a, wgmma.tiles, instruction, registers.a_registers(), "a");
    operands.b_addresses = addresses(wgmma.b_descriptor, instruction.n, form.k, form.unit_b, wgmma.imm_trans_b, "b");
    return operands;
}

// Returns the kernels that the caller chose, or the fastest kernels for the number of columns if none were chosen.
const Kernels &kernels_of(const sptc_instruction *handle, int64_t columns) {
    return handle->kernels ? *handle->kernels : kernels_for(columns);
}

// Executes a batch of an mma or wgmma instruction; fails if the handle's instruction does not belong to `family`.
template <typename Operands>
sptc_status compute_tiles(sptc_instruction *handle, const Operands *operands, int threads, Family family) {
    return checked(handle, [&] {
        require(operands, "operands");
        check_threads(threads);
        const Instruction &instruction = opened(handle);
        if (instruction.form->family != family)
            refuse_instruction(handle->text, " is no ", family == Family::MMA ? "mma" : "wgmma", " instruction.");
        handle->registers->compute(operands_from(*operands, instruction, *handle->registers), *handle->product,
                                   kernels_of(handle, instruction.n), threads);
    });
}

}  // namespace

sptc_status sptc_open(int abi, const char *text, const char *architecture, sptc_instruction **instruction) {
    if (!instruction) return SPTC_NULL;
    *instruction = new (std::nothrow) sptc_instruction;
    if (!*instruction) return SPTC_NO_MEMORY;
    return checked(*instruction, [&] {
        if (abi != SPTC_ABI)
            throw Error(SPTC_FOREIGN_ABI, "the caller was compiled for version ", abi,
                        " of the interface, and this library has version ", SPTC_ABI, ".");
        require(text, "text");
        require(architecture, "architecture");
        if (names_opcode(text)) {
            auto opcode = std::make_unique<OpcodeOn>(parse_opcode_on(text, architecture));
            (*instruction)->text = spelled(*opcode);
            (*instruction)->opcode = std::move(opcode);
            return;
        }
        auto parsed = std::make_unique<Instruction>(parse(text, architecture));
        (*instruction)->product = std::make_unique<Product>(*parsed);
        (*instruction)->registers = std::make_unique<Registers>(*parsed);
        (*instruction)->text = spelled(*parsed);
        (*instruction)->instruction = std::move(parsed);
    });
}

void sptc_close(sptc_instruction *instruction) { delete instruction; }

const char *sptc_last_error(const sptc_instruction *instruction) {
    return instruction ? instruction->error.c_str() : "the handle is NULL.";
}

const char *sptc_text(const sptc_instruction *instruction) { return instruction ? instruction->text.c_str() : ""; }

sptc_status sptc_choose_kernels(sptc_instruction *instruction, const char *name) {
    return checked(instruction, [&] {
        require(name, "name");
        const Kernels *kernels = *name ? kernels_named(name) : nullptr;
        if (*name && !kernels)
            throw Error(SPTC_NO_KERNELS, "this processor runs no kernels named '", std::string(name).substr(0, 40),
                        "'; the names are portable, avx2 and avx512.");
        instruction->kernels = kernels;
    });
}

sptc_status sptc_set_numerics(sptc_instruction *instruction, int products, int alignment_bits, int zero_exponent,
                              int group, const char *rounding) {
    return checked(instruction, [&] {
        require(rounding, "rounding");
        const Instruction &of = opened(instruction);
        Numerics changed = *of.numerics;
        const bool fused = changed.method == Method::FUSED;
        if (!fused && changed.method != Method::GROUPED)
            refuse_value("the numerics of this kind of instruction cannot be changed.");
        check_range("products", products, fused ? 1 : changed.step, fused && !of.form->scale_size ? 32 : changed.step);
        check_range("alignment_bits", alignment_bits, fused ? 1 : changed.alignment_bits,
                    fused ? 25 : changed.alignment_bits);
        check_range("zero_exponent", zero_exponent, -282, 4);
        if (group != BLOCK_GROUP && (fused || group != PART_OF_GROUP))
            refuse_value("group must be 16 products, or 4 if groups of products have block scales.");
        if (products & (products - 1)) refuse_value("products must be a power of two.");
        using Named = std::map<std::string, Rounding>;
        const bool half = of.d().bits == 16;
        const Named f16 = {{"RNE-f16", Rounding::RNE_F16}};
        const Named f32 = {
            {"RZ-f32", Rounding::RZ_F32}, {"RZ-E8M13", Rounding::RZ_E8M13}, {"RNE-f32", Rounding::RNE_F32}};
        const Named &named = half ? f16 : f32;
        const auto chosen = named.find(rounding);
        if (chosen == named.end())
            refuse_value("rounding must be ", half ? "RNE-f16" : "RZ-f32, RZ-E8M13 or RNE-f32", ", not '",
                         std::string(rounding).substr(0, 40), "'.");
        changed.rounding = chosen->second;
        changed.step = products, changed.alignment_bits = alignment_bits, changed.zero_exponent = zero_exponent;
        changed.group = group;
        instruction->numerics = changed;
        instruction->instruction->numerics = &instruction->numerics;
        instruction->product = std::make_unique<Product>(*instruction->instruction);
    });
}

sptc_status sptc_get_shape(sptc_instruction *instruction, sptc_shape *shape) {
    return checked(instruction, [&] {
        require(shape, "shape");
        const Instruction &parsed = opened(instruction);
        const Form &form = *parsed.form;
        *shape = {};
        shape->m = parsed.m, shape->n = parsed.n, shape->k = form.k;
        shape->stored_k = form.stored_k, shape->chunks = form.chunks, shape->selectors = form.selectors;
        shape->threads = form.threads;
        shape->a_registers = instruction->registers->a_registers();
        shape->b_registers = instruction->registers->b_registers();
        shape->d_registers = instruction->registers->d_registers();
        shape->operand_bytes = instruction->product->operand_bytes();
        shape->result_bytes = instruction->product->result_bytes();
        shape->operand_bits = form.container_bits;
        shape->scales = form.scale_size;
        shape->defined_nibbles = parsed.sparse() ? parsed.rule().legal : 0;
    });
}

sptc_status sptc_multiply(sptc_instruction *instruction, const sptc_matrices *matrices, int threads) {
    return checked(instruction, [&] {
        require(matrices, "matrices");
        check_threads(threads);
        const Instruction &parsed = opened(instruction);
        check(*matrices, parsed, *instruction->product);
        instruction->product->multiply(
            {matrices->batch, matrices->m, matrices->n, matrices->k, matrices->a.data, matrices->b.data,
             matrices->c.data, matrices->d.data, static_cast<const uint8_t *>(matrices->nibbles.data),
             static_cast<const uint8_t *>(matrices->scale_a.data),
             static_cast<const uint8_t *>(matrices->scale_b.data)},
            kernels_of(instruction, matrices->n), threads);
    });
}

sptc_status sptc_mma(sptc_instruction *instruction, const sptc_mma_operands *operands, int threads) {
    return compute_tiles(instruction, operands, threads, Family::MMA);
}

sptc_status sptc_wgmma(sptc_instruction *instruction, const sptc_wgmma_operands *operands, int threads) {
    return compute_tiles(instruction, operands, threads, Family::WGMMA);
}

sptc_status sptc_tcgen05(sptc_instruction *instruction, const sptc_tcgen05_operands *operands, int threads) {
    return checked(instruction, [&] {
        require(operands, "operands");
        check_threads(threads);
        if (!instruction->opcode) {
            opened(instruction);
            refuse_instruction(instruction->text, " is no opcode of tcgen05 without shape and types.");
        }
        const TensorInstruction placed = sptc::placed(*operands, *instruction->opcode);
        compute(placed, kernels_of(instruction, placed.descriptor.instruction.n), threads);
    });
}

sptc_status sptc_encode_descriptor(sptc_instruction *instruction, uint32_t start, uint32_t leading_offset,
                                   uint32_t stride_offset, const char *swizzle, int base_offset, uint64_t *descriptor) {
    return checked(instruction, [&] {
        require(swizzle, "swizzle");
        require(descriptor, "descriptor");
        const auto family = instruction->opcode ? Family::TCGEN05 : opened(instruction).form->family;
        if (family == Family::MMA) refuse_instruction(instruction->text, " has no operand in shared memory.");
        *descriptor = encode_descriptor(start, leading_offset, stride_offset, swizzle, base_offset, family);
    });
}

sptc_status sptc_metadata(sptc_instruction *instruction, int64_t tiles, sptc_input e, int32_t selector,
                          sptc_output nibbles, sptc_output defined) {
    return checked(instruction, [&] {
        const Instruction &parsed = opened(instruction);
        const Form &form = *parsed.form;
        if (!parsed.sparse() || !form.threads)
            refuse_instruction(instruction->text, " takes no metadata from registers.");
        const TileOperands operands = metadata_operands(parsed, tiles, e, selector, SPTC_STRICT);
        const size_t tile_size = size_t(parsed.m) * size_t(form.chunks);
        const size_t bytes = product("nibbles", {tiles, parsed.m, form.chunks});
        if (nibbles.data) require_bytes(nibbles, bytes, "nibbles");
        if (defined.data) require_bytes(defined, bytes, "defined");
        std::vector<uint8_t> gathered(tile_size);
        for (size_t tile = 0; tile < size_t(tiles); ++tile) {
            instruction->registers->nibbles(operands.e + tile * size_t(form.threads), selector, gathered.data());
            for (size_t index = 0; index < tile_size; ++index) {
                const size_t place = tile * tile_size + index;
                if (nibbles.data) static_cast<uint8_t *>(nibbles.data)[place] = gathered[index];
                if (defined.data)
                    static_cast<uint8_t *>(defined.data)[place] = parsed.rule().legal >> gathered[index] & 1;
            }
        }
    });
}

// The C interface: arguments are checked here, exceptions end here.
#include "sptc.h"

#include <memory>
#include <new>
#include <string>
#include <system_error>

#include "dispatch.h"
#include "instruction.h"
#include "product.h"

using sptc::Error;

struct sptc_instruction {
    std::string error, text;
    std::unique_ptr<sptc::Instruction> instruction;
    std::unique_ptr<sptc::Product> product;
    const sptc::Kernels *kernels = nullptr;  // the fastest if none are chosen
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

void require(const void *pointer, const char *name) {
    if (!pointer) throw Error(SPTC_NULL, std::string(name) + " must not be NULL.");
}

const sptc::Instruction &opened(const sptc_instruction *handle) {
    if (!handle->instruction) throw Error(SPTC_NO_INSTRUCTION, "this handle was opened for no instruction.");
    return *handle->instruction;
}

// The product of sizes, none of which is negative.
size_t product(const char *name, std::initializer_list<int64_t> sizes) {
    size_t total = 1;
    for (int64_t size : sizes)
        if (__builtin_mul_overflow(total, size_t(size), &total))
            throw Error(SPTC_BAD_SHAPE, std::string(name) + " would have more bytes than there are addresses.");
    return total;
}

template <typename Buffer>
void require_bytes(const Buffer &buffer, size_t bytes, const char *name) {
    if (bytes) require(buffer.data, name);
    if (buffer.bytes < bytes)
        throw Error(SPTC_SHORT_BUFFER, std::string(name) + " must have " + std::to_string(bytes) + " bytes, not " +
                                           std::to_string(buffer.bytes) + ".");
}

void require_none(const sptc_input &buffer, const char *name) {
    if (buffer.data) throw Error(SPTC_SUPERFLUOUS, std::string("the instruction takes no ") + name + ".");
}

// Registers of a thread that hold so many elements together with the others.
int registers(int elements, int bits, int threads) { return threads ? elements * bits / (32 * threads) : 0; }

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
        require_bytes(given.nibbles, product("nibbles", {given.batch, given.m, given.k / form.k, form.chunks}), "nibbles");
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
        throw Error(SPTC_BAD_VALUE, "threads must be 1 to " + std::to_string(MOST) + ", not " + std::to_string(threads) + ".");
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
        auto parsed = std::make_unique<sptc::Instruction>(sptc::parse(text, architecture));
        (*instruction)->product = std::make_unique<sptc::Product>(*parsed);
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
            throw Error(SPTC_NO_KERNELS, "this processor runs no kernels of the name '" + std::string(name).substr(0, 40) +
                                             "'; there are portable, avx2 and avx512.");
        instruction->kernels = kernels;
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
        shape->a_registers = registers(of.m * form.stored_k, form.container_bits, form.threads);
        if (form.family == sptc::Family::MMA)
            shape->b_registers = registers(of.n * form.k, form.container_bits, form.threads);
        shape->d_registers = registers(of.m * of.n, of.d().bits, form.threads);
        shape->operand_bytes = instruction->product->operand_bytes();
        shape->result_bytes = instruction->product->result_bytes();
        shape->scales = form.scale_size;
    });
}

sptc_status sptc_multiply(sptc_instruction *instruction, const sptc_matrices *matrices, int threads) {
    return checked(instruction, [&] {
        require(matrices, "matrices");
        check_threads(threads);
        check(*matrices, opened(instruction), *instruction->product);
        const sptc::Matrices given{
            matrices->batch, matrices->m, matrices->n, matrices->k, matrices->a.data, matrices->b.data,
            matrices->c.data, matrices->d.data, static_cast<const uint8_t *>(matrices->nibbles.data),
            static_cast<const uint8_t *>(matrices->scale_a.data), static_cast<const uint8_t *>(matrices->scale_b.data)};
        const sptc::Kernels &kernels = instruction->kernels ? *instruction->kernels : sptc::kernels_for(matrices->n);
        instruction->product->multiply(given, kernels, threads);
    });
}

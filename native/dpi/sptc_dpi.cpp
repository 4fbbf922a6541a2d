// Implements the DPI imports of sptc_dpi.svh with the C interface of libsptc.
#include <svdpi.h>

#include <cstring>
#include <vector>

#include "sptc.h"

namespace {

sptc_instruction *handle_of(void *instruction) { return static_cast<sptc_instruction *>(instruction); }

// Returns the total size in bytes of the elements of a SystemVerilog open array.
size_t bytes_of(svOpenArrayHandle array) {
    return size_t(svSize(array, 1)) * size_t(svSizeOfArray(array) / svSize(array, 1));
}

sptc_input input_of(svOpenArrayHandle array) { return {svGetArrayPtr(array), bytes_of(array)}; }

sptc_input input_if(bool taken, svOpenArrayHandle array) { return taken ? input_of(array) : sptc_input{nullptr, 0}; }

// Unpacks `count` elements of a bit vector, each into a container of one or more bytes.
std::vector<uint8_t> containers(const svBitVecVal *bits, int count, int element_bits) {
    std::vector<uint8_t> elements(size_t(count) * size_t(element_bits < 8 ? 1 : element_bits / 8));
    if (element_bits >= 8) {
        std::memcpy(elements.data(), bits, elements.size());
        return elements;
    }
    for (int index = 0; index < count; ++index)
        elements[size_t(index)] = uint8_t(bits[index * element_bits / 32] >> (index * element_bits % 32) & 15);
    return elements;
}

}  // namespace

extern "C" {

void *sptc_dpi_open(const char *text, const char *architecture) {
    sptc_instruction *instruction = nullptr;
    sptc_open(SPTC_ABI, text, architecture, &instruction);
    return instruction;
}

void sptc_dpi_close(void *instruction) { sptc_close(handle_of(instruction)); }

const char *sptc_dpi_error(void *instruction) { return sptc_last_error(handle_of(instruction)); }

int sptc_dpi_step(void *instruction, const svBitVecVal *a, const svBitVecVal *b, const svBitVecVal *nibbles,
                  const svBitVecVal *scale_a, const svBitVecVal *scale_b, const svBitVecVal *c, svBitVecVal *d,
                  svBitVecVal *illegal) {
    constexpr int BITS_OF_A = 256;
    sptc_shape shape;
    *d = *illegal = 0;
    if (const sptc_status status = sptc_get_shape(handle_of(instruction), &shape)) return status;
    if (shape.stored_k * shape.operand_bits > BITS_OF_A) return SPTC_BAD_SHAPE;
    const std::vector<uint8_t> row = containers(a, shape.stored_k, shape.operand_bits);
    const std::vector<uint8_t> column = containers(b, shape.k, shape.operand_bits);
    const std::vector<uint8_t> metadata = containers(nibbles, shape.chunks, 4);
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
        if (!(shape.defined_nibbles >> metadata[size_t(chunk)] & 1)) *illegal |= svBitVecVal(1) << chunk;
    sptc_matrices matrices{};
    matrices.batch = matrices.m = matrices.n = 1;
    matrices.k = shape.k;
    matrices.a = {row.data(), row.size()};
    matrices.b = {column.data(), column.size()};
    matrices.c = {c, size_t(shape.result_bytes)};
    if (shape.chunks) matrices.nibbles = {metadata.data(), metadata.size()};
    if (shape.scales) {
        matrices.scale_a = {scale_a, size_t(shape.scales)};
        matrices.scale_b = {scale_b, size_t(shape.scales)};
    }
    matrices.d = {d, size_t(shape.result_bytes)};
    return sptc_multiply(handle_of(instruction), &matrices, 1);
}

int sptc_dpi_mma(void *instruction, const svOpenArrayHandle a, const svOpenArrayHandle b, const svOpenArrayHandle c,
                 const svOpenArrayHandle e, int selector, int metadata, const svOpenArrayHandle scale_a,
                 const svOpenArrayHandle scale_b, const svOpenArrayHandle scale_ids, const svOpenArrayHandle d) {
    sptc_shape shape;
    if (const sptc_status status = sptc_get_shape(handle_of(instruction), &shape)) return status;
    sptc_mma_operands operands{};
    operands.tiles = 1;
    operands.a = input_of(a), operands.b = input_of(b), operands.c = input_of(c);
    operands.e = input_if(shape.chunks != 0, e);
    operands.selector = selector, operands.metadata = metadata;
    operands.scale_a = input_if(shape.scales != 0, scale_a), operands.scale_b = input_if(shape.scales != 0, scale_b);
    if (shape.scales) {
        const int *ids = static_cast<const int *>(svGetArrayPtr(scale_ids));
        if (!ids || svSize(scale_ids, 1) < 4) return SPTC_SHORT_BUFFER;
        operands.byte_a = ids[0], operands.thread_a = ids[1], operands.byte_b = ids[2], operands.thread_b = ids[3];
    }
    operands.d = {svGetArrayPtr(d), bytes_of(d)};
    return sptc_mma(handle_of(instruction), &operands, 1);
}

int sptc_dpi_metadata(void *instruction, const svOpenArrayHandle e, int selector, const svOpenArrayHandle undefined) {
    sptc_shape shape;
    if (const sptc_status status = sptc_get_shape(handle_of(instruction), &shape)) return status;
    if (bytes_of(undefined) < size_t(shape.m) * sizeof(uint32_t)) return SPTC_SHORT_BUFFER;
    std::vector<uint8_t> defined(size_t(shape.m) * size_t(shape.chunks));
    const sptc_output flags{defined.data(), defined.size()};
    if (const sptc_status status =
            sptc_metadata(handle_of(instruction), 1, input_of(e), selector, sptc_output{nullptr, 0}, flags))
        return status;
    uint32_t *rows = static_cast<uint32_t *>(svGetArrayPtr(undefined));
    for (int row = 0; row < shape.m; ++row) {
        rows[row] = 0;
        for (int chunk = 0; chunk < shape.chunks; ++chunk)
            rows[row] |= uint32_t(!defined[size_t(row * shape.chunks + chunk)]) << chunk;
    }
    return SPTC_OK;
}

int sptc_dpi_wgmma(void *instruction, svBit a_in_registers, const svOpenArrayHandle a, uint64_t a_descriptor,
                   uint64_t b_descriptor, const svOpenArrayHandle e, int selector, int metadata,
                   const svOpenArrayHandle smem, svBit scale_d, const svOpenArrayHandle d) {
    sptc_shape shape;
    if (const sptc_status status = sptc_get_shape(handle_of(instruction), &shape)) return status;
    sptc_wgmma_operands operands{};
    operands.tiles = 1;
    operands.c = input_of(d);
    operands.a = input_if(a_in_registers != 0, a);
    operands.a_descriptor = a_descriptor, operands.b_descriptor = b_descriptor;
    operands.e = input_if(shape.chunks != 0, e);
    operands.selector = selector, operands.metadata = metadata;
    operands.smem = input_of(smem);
    operands.scale_d = scale_d;
    operands.imm_scale_a = operands.imm_scale_b = 1;
    operands.d = {svGetArrayPtr(d), bytes_of(d)};
    return sptc_wgmma(handle_of(instruction), &operands, 1);
}
}

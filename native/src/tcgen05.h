// Executes tcgen05.mma: gathers matrices from tensor memory and shared memory, and scatters results to tensor memory.
#ifndef SPTC_TCGEN05_H
#define SPTC_TCGEN05_H

#include <cstdint>
#include <utility>
#include <vector>

#include "descriptor.h"
#include "kernels.h"
#include "metadata.h"
#include "sptc.h"
#include "tensor.h"

namespace sptc {

// A tcgen05.mma with checked operands, for a batch of images (contents) of tensor memory and shared memory. The
// TensorMap of an operand that is not in tensor memory is empty.
struct TensorInstruction {
    OpcodeOn opcode;
    InstructionDescriptor descriptor;
    TensorMap d, a, e, scale_a, scale_b;
    std::vector<int32_t> a_shared, b_shared;  // bit addresses of A and B in a CTA's shared memory
    ColumnMask mask;
    bool disabled[TENSOR_LANES];
    bool adds;
    int scale_input_d;
    Policy policy;
    // Memories of `images` executions: tensor memory before (`tmem`) and after (`result`) each, and shared memory.
    int64_t images;
    const uint32_t *tmem;
    uint32_t *result;
    const uint8_t *smem;
    size_t smem_stride, smem_bytes;  // bytes from one shared-memory image to the next, and bytes of one CTA's image

    // Returns names and tensor-memory positions of the operands that the instruction reads but does not write.
    std::vector<std::pair<const char *, const TensorMap *>> inputs() const {
        return {{"a", &a}, {"e", &e}, {"scale_a", &scale_a}, {"scale_b", &scale_b}};
    }
};

// Checks all operands of a tcgen05.mma except the contents of the memories.
TensorInstruction placed(const sptc_tcgen05_operands &arguments, const OpcodeOn &opcode);

// Computes all memory images on `threads` threads. If the contents of an image are invalid, throws before any write.
void compute(const TensorInstruction &instruction, const Kernels &kernels, int threads);

}  // namespace sptc

#endif

// tcgen05.mma: operands in tensor memory and shared memory as matrices, and results back.
#ifndef SPTC_TCGEN05_H
#define SPTC_TCGEN05_H

#include <cstdint>
#include <vector>

#include "descriptor.h"
#include "kernels.h"
#include "metadata.h"
#include "sptc.h"
#include "tensor.h"

namespace sptc {

// An instruction with all that it says checked, for any images; what it does not take is empty.
struct TensorInstruction {
    OpcodeOn opcode;
    InstructionDescriptor descriptor;
    TensorMap d, a, e, scale_a, scale_b;
    std::vector<int32_t> a_shared, b_shared;  // addresses in bits, in a CTA's shared memory
    ColumnMask mask;
    bool disabled[TENSOR_LANES];
    bool adds;
    int scale_input_d;
    Policy policy;
    // The images.
    int64_t images;
    const uint32_t *tmem;
    uint32_t *result;
    const uint8_t *smem;
    size_t smem_stride, smem_bytes;  // from an image to the next, and of a CTA
};

// Checks operands, but for what the images hold.
TensorInstruction placed(const sptc_tcgen05_operands &given, const OpcodeOn &opcode);

// Computes all images on so many threads; throws for the first that is refused, before anything is written.
void compute(const TensorInstruction &instruction, const Kernels &kernels, int threads);

}  // namespace sptc

#endif

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

// A tcgen05.mma with checked operands, for all images of tensor memory and shared memory. Maps of absent operands are
// empty.
struct TensorInstruction {
    OpcodeOn opcode;
    InstructionDescriptor descriptor;
    TensorMap d, a, e, scale_a, scale_b;
    std::vector<int32_t> a_shared, b_shared;  // bit addresses in the shared memory of a CTA
    ColumnMask mask;
    bool disabled[TENSOR_LANES];
    bool adds;
    int scale_input_d;
    Policy policy;
    // Contents of the memories of all images.
    int64_t images;
    const uint32_t *tmem;
    uint32_t *result;
    const uint8_t *smem;
    size_t smem_stride, smem_bytes;  // distance between images in bytes, and size of one CTA's image in bytes

    // Returns the names and maps of the operands in tensor memory that are only read.
    std::vector<std::pair<const char *, const TensorMap *>> inputs() const {
        return {{"a", &a}, {"e", &e}, {"scale_a", &scale_a}, {"scale_b", &scale_b}};
    }
};

// Checks all operands of a tcgen05.mma except the contents of the memories.
TensorInstruction placed(const sptc_tcgen05_operands &arguments, const OpcodeOn &opcode);

// Computes all images on `threads` threads; throws before anything is written if an image is refused.
void compute(const TensorInstruction &instruction, const Kernels &kernels, int threads);

}  // namespace sptc

#endif

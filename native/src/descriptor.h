// Decoders of the instruction descriptor of tcgen05.mma, and of the zero-column mask descriptor of its `.ws` variants.
#ifndef SPTC_DESCRIPTOR_H
#define SPTC_DESCRIPTOR_H

#include <cstdint>
#include <vector>

#include "instruction.h"

namespace sptc {

struct InstructionDescriptor {
    Instruction instruction;
    const Layout *layout;
    int selector;
    bool negates, transpose_a, transpose_b;  // whether the products are negated, and whether A and B are transposed
    int scale_id_a, scale_id_b, max_shift;
};

InstructionDescriptor decode_instruction_descriptor(const OpcodeOn &opcode, uint32_t value);

// Number of columns of B to skip, and mask of the columns that are zero; an empty mask means that no column is zero.
struct ColumnMask {
    int shift = 0;
    std::vector<bool> zero;
};

ColumnMask decode_column_mask(uint64_t value, const OpcodeOn &opcode, const InstructionDescriptor &descriptor);

}  // namespace sptc

#endif

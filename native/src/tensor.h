// Placement of operands in tensor memory.
#ifndef SPTC_TENSOR_H
#define SPTC_TENSOR_H

#include <cstdint>
#include <string>
#include <vector>

#include "descriptor.h"

namespace sptc {

constexpr int TENSOR_WORDS = TENSOR_LANES * TENSOR_COLUMNS;  // tensor memory of a CTA in 32-bit words, lane by lane

// Positions of the elements of a matrix in tensor memory, row by row: word, and lowest bit in the word.
struct TensorMap {
    int bits = 0;
    std::vector<int32_t> words;
    std::vector<uint8_t> low_bits;
    std::vector<int32_t> copies;  // distance in lanes of each copy of the matrix from the first copy; 0 for the first

    static int lane(int32_t word) { return word / TENSOR_COLUMNS; }
    static int column(int32_t word) { return word % TENSOR_COLUMNS; }
    uint32_t element(const uint32_t *memory, size_t index, int copy = 0) const {
        return memory[words[index] + copy * TENSOR_COLUMNS] >> low_bits[index] & (0xFFFFFFFFu >> (32 - bits));
    }
};

// Returns the lane of a tensor-memory address; throws if the address is outside tensor memory.
int lane_of(const char *name, uint64_t address);

// Returns the positions of D in the tensor memory of a CTA: the CTA's rows and all columns.
TensorMap accumulator_map(const InstructionDescriptor &descriptor, uint64_t address);
// Returns the positions of A in the tensor memory of a CTA: the CTA's rows and the stored columns.
TensorMap a_map(const InstructionDescriptor &descriptor, uint64_t address);
// Returns the positions of the metadata nibbles of a CTA's rows in its tensor memory.
TensorMap metadata_map(const InstructionDescriptor &descriptor, uint64_t address);
// Returns the positions of block scales in the tensor memory of a CTA: scales of the CTA's rows of A, or of all columns
// of B. The columns are divided into `parts` parts, whose scales are in successive groups of lanes.
TensorMap scale_map(const char *name, int lines, int size, int scale_id, uint64_t address, int parts);

}  // namespace sptc

#endif

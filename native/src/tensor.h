// Places of operands in tensor memory.
#ifndef SPTC_TENSOR_H
#define SPTC_TENSOR_H

#include <cstdint>
#include <string>
#include <vector>

#include "descriptor.h"

namespace sptc {

constexpr int TENSOR_WORDS = TENSOR_LANES * TENSOR_COLUMNS;  // of a CTA, lane by lane

// Where the elements of a matrix lie, row by row: word, and lowest bit in it.
struct TensorMap {
    int bits = 0;
    std::vector<int32_t> words;
    std::vector<uint8_t> low_bits;
    std::vector<int32_t> copies;  // lanes from the first copy to each of them, itself included

    static int lane(int32_t word) { return word / TENSOR_COLUMNS; }
    static int column(int32_t word) { return word % TENSOR_COLUMNS; }
    uint32_t element(const uint32_t *memory, size_t index, int copy = 0) const {
        return memory[words[index] + copy * TENSOR_COLUMNS] >> low_bits[index] & (0xFFFFFFFFu >> (32 - bits));
    }
};

// Lane of an address, which must lie in tensor memory.
int lane_of(const char *name, uint64_t address);

// D: its rows in a CTA, and all its columns.
TensorMap accumulator_map(const InstructionDescriptor &descriptor, uint64_t address);
// A: its rows in a CTA, and its stored columns.
TensorMap a_map(const InstructionDescriptor &descriptor, uint64_t address);
// Metadata: the nibbles of the rows in a CTA.
TensorMap metadata_map(const InstructionDescriptor &descriptor, uint64_t address);
// Block scales of the rows of A in a CTA, or of all columns of B, which lie in parts one below the other.
TensorMap scale_map(const char *name, int lines, int size, int scale_id, uint64_t address, int parts);

}  // namespace sptc

#endif

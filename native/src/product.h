// Products of matrices of codes (bit patterns of elements). The work is divided into blocks for the kernels.
#ifndef SPTC_PRODUCT_H
#define SPTC_PRODUCT_H

#include <cstdint>
#include <vector>

#include "instruction.h"
#include "kernels.h"
#include "raw.h"

namespace sptc {

// Matrices of a batch, contiguous and row-major; elements are in containers of 1, 2 or 4 bytes.
struct Matrices {
    int64_t batch, m, n, k;
    const void *a, *b, *c;
    void *d;
    const uint8_t *nibbles, *scale_a, *scale_b;
};

// Multiplies matrices by one instruction; stores tables that depend on the instruction, but not on the operands.
class Product {
  public:
    explicit Product(const Instruction &instruction);

    // Computes D = A B + C on `threads` threads: repeats the instruction along K with the same accumulators.
    void multiply(const Matrices &matrices, const Kernels &kernels, int threads) const;

    // Number of bytes that store one element: of A or B, and of C or D.
    int operand_bytes() const { return form_.container_bits <= 8 ? 1 : form_.container_bits / 8; }
    int result_bytes() const { return instruction_.d().bits / 8; }

  private:
    struct Scratch;
    struct Block;

    void compute(const Matrices &matrices, const Kernels &kernels, const Block &block, Scratch &scratch) const;
    void decode_columns(const Matrices &matrices, const Kernels &kernels, const Block &block, int64_t first_k, int k,
                        Scratch &scratch) const;
    void decode_rows(const Matrices &matrices, const Kernels &kernels, const Block &block, int64_t first_k, int k,
                     Scratch &scratch) const;
    RowOfA row_of_a(const Matrices &matrices, const Kernels &kernels, const Block &block, int64_t row, int64_t first_k,
                    int k, Scratch &scratch) const;
    void select(const uint8_t *nibbles, const Matrices &matrices, const Kernels &kernels, const Block &block,
                int64_t first_k, int k, Scratch &scratch) const;
    template <int STORED>
    void select_whole(const uint8_t *nibbles, const Block &block, int k, Scratch &scratch) const;
    bool spliced(const Matrices &matrices, const Kernels &kernels, const Block &block, int64_t first_k, int chunk,
                 int nibble, int row, Scratch &scratch) const;
    RowKernel kernel(const Kernels &kernels) const;
    Window window(int k) const;

    Instruction instruction_;
    const Form &form_;
    Decoder a_, b_;
    int group_up_;            // left shift after which a group's scaled sum has `alignment_bits` fraction bits
    int panel_k_;             // length along K that one kernel call multiplies
    int group_;               // number of products that share a block scale; 0 without block scales
    Raw scale_[256];          // decoded block scale of each code
    std::vector<int> order_;  // stored elements of a row of A in the order in which steps sum their products
    struct Selected {
        int8_t unit[4];  // for each stored element of a chunk, selected row of B; -1 if the multiplexer selects none
        bool whole;      // whether whole elements of B are selected, not elements spliced from two halves
    } selected_[16];
};

}  // namespace sptc

#endif

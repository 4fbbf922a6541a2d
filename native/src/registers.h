// Reads the matrices of mma and wgmma from registers and shared memory, and writes results to registers.
#ifndef SPTC_REGISTERS_H
#define SPTC_REGISTERS_H

#include <cstdint>
#include <string>
#include <vector>

#include "metadata.h"
#include "product.h"

namespace sptc {

// byte-id and thread-id of A or B: first byte of the block scales in a register, and threads with such registers.
struct ScaleIds {
    int byte, thread;
};

// Checked operands for a batch of executions of an instruction; the registers of each execution are stored thread by
// thread. Operands that the instruction does not have are nullptr.
struct TileOperands {
    int64_t count;
    const uint32_t *a, *b, *c, *e, *scale_a, *scale_b;
    uint32_t *d;
    int selector;
    ScaleIds ids_a, ids_b;
    Policy policy;
    // For wgmma only: shared memory, its number of bytes per execution, and addresses of A and B in these bytes.
    const uint8_t *smem;
    int64_t smem_stride;
    std::vector<int32_t> a_addresses, b_addresses;
    bool adds, negates;
};

// Positions of the runs of adjacent elements of a matrix, row by row, in the registers of all threads.
struct Runs {
    int bits = 0;                    // number of bits in a run of adjacent elements
    size_t elements = 0;             // number of elements of the matrix
    std::vector<int32_t> positions;  // register position of each run of elements, in units of the run size
};

// Executes an mma or wgmma instruction: operands in registers or shared memory, results in registers.
class Registers {
  public:
    explicit Registers(const Instruction &instruction);

    int a_registers() const { return a_registers_; }
    int b_registers() const { return b_registers_; }
    int d_registers() const { return d_registers_; }

    // Executes a batch on `threads` threads. If `operands.policy` does not accept a metadata nibble, throws an error
    // for the first such nibble before any result is written.
    void compute(const TileOperands &operands, const Product &product, const Kernels &kernels, int threads) const;

    // Gathers the metadata nibbles of one execution of the instruction, row by row.
    void nibbles(const uint32_t *e, int selector, uint8_t *into) const;

  private:
    struct Tiles;

    void gather(const TileOperands &operands, int64_t tile, Tiles &tiles, size_t place) const;
    void gather_a(const TileOperands &operands, int64_t tile, uint8_t *into) const;
    void check(const TileOperands &operands, int64_t tile, Tiles &tiles) const;
    void compute_some(const TileOperands &operands, const Product &product, const Kernels &kernels, int64_t first,
                      int64_t count, Tiles &tiles) const;

    Instruction instruction_;
    int a_registers_ = 0, b_registers_ = 0, d_registers_ = 0;
    Runs a_, b_, d_;
    // Register positions: thread and lowest bit of every metadata nibble; thread and byte of every block scale.
    std::vector<int32_t> e_thread_, e_bit_, scale_a_thread_, scale_a_byte_, scale_b_thread_, scale_b_byte_;
    std::vector<int32_t> e_whole_;  // threads whose registers hold metadata, eight nibbles each, for selector 0
    bool legal_[256];               // for each value of a metadata byte, whether both nibbles are defined
};

}  // namespace sptc

#endif

// What threads and shared memory hold, as matrices, and results back into registers.
#ifndef SPTC_REGISTERS_H
#define SPTC_REGISTERS_H

#include <cstdint>
#include <string>
#include <vector>

#include "metadata.h"
#include "product.h"

namespace sptc {

// Where the block scales of one operand lie: the first byte of a register, and which threads hold it.
struct ScaleIds {
    int byte, thread;
};

// Operands of a batch of tiles, all checked; registers of a tile thread by thread. What an instruction does not take is
// nullptr.
struct Held {
    int64_t count;
    const uint32_t *a, *b, *c, *e, *scale_a, *scale_b;
    uint32_t *d;
    int selector;
    ScaleIds ids_a, ids_b;
    Policy policy;
    // Of wgmma: an image, the bytes from one tile's to the next, and addresses in it.
    const uint8_t *smem;
    int64_t smem_stride;
    std::vector<int32_t> a_addresses, b_addresses;
    bool adds, negates;
};

// Where runs of a matrix, row by row, lie in the registers of all threads.
struct Runs {
    int bits = 0;                    // of a run: a whole element at least, unless that has 4
    size_t elements = 0;             // in all
    std::vector<int32_t> positions;  // of each run, counted in runs
};

// Places of an instruction's operands, and what computes with them.
class Registers {
  public:
    explicit Registers(const Instruction &instruction);

    int a_registers() const { return a_registers_; }
    int b_registers() const { return b_registers_; }
    int d_registers() const { return d_registers_; }

    // Computes tiles on so many threads; throws for the first nibble that the policy does not take.
    void compute(const Held &held, const Product &product, const Kernels &kernels, int threads) const;

    // Gathers the metadata of a tile: m rows of nibbles.
    void nibbles(const uint32_t *e, int selector, uint8_t *into) const;

  private:
    struct Tiles;

    void gather(const Held &held, int64_t tile, Tiles &tiles, size_t place) const;
    void gather_a(const Held &held, int64_t tile, uint8_t *into) const;
    void check(const Held &held, int64_t tile, Tiles &tiles) const;
    void compute_some(const Held &held, const Product &product, const Kernels &kernels, int64_t first, int64_t count,
                      Tiles &tiles) const;

    Instruction instruction_;
    int a_registers_ = 0, b_registers_ = 0, d_registers_ = 0;
    Runs a_, b_, d_;
    // Of every nibble: thread, and lowest bit; of every scale: thread, and byte.
    std::vector<int32_t> e_thread_, e_bit_, scale_a_thread_, scale_a_byte_, scale_b_thread_, scale_b_byte_;
    std::vector<int32_t> e_whole_;  // threads that hold them, eight each, with selector 0
    bool legal_[256];               // bytes of two defined nibbles
};

}  // namespace sptc

#endif

// Computes D = A B with wgmma: a CTA has one or two warpgroups, each of which computes 64 x N elements of D. Tiles of A
// and B are loaded in two stages.
//
// compile_cuda.py defines multiply() and six constants. N: columns per warpgroup. WARPGROUPS: warpgroups per CTA.
// A_IN_REGISTERS: whether A is read from registers. SWIZZLE: 128 or 0 bytes. B_BYTES: bytes that an instruction reads
// from a stored row (along K) of B. D_REGISTERS: result registers per thread.
// A and B are stored with K along rows. An instruction reads 32 bytes of each row of A.

#include "tiles.h"

constexpr int A_BYTES = 32, STEPS = 4, THREADS = 128 * WARPGROUPS, ROWS = 64 * WARPGROUPS, ATOM = 128;
constexpr int ROW_A = STEPS * A_BYTES, ROW_B = STEPS * B_BYTES, STAGE = ROWS * ROW_A + N * ROW_B;

// Offset in bytes of a chunk of 16 bytes in a tile. A tile consists of rows of 128 bytes with swizzle, or of core
// matrices without swizzle.
template <int HEIGHT>
__device__ int place(int row, int chunk) {
    if (SWIZZLE) return chunk / 8 * HEIGHT * ATOM + row * ATOM + ((chunk ^ row) & 7) * 16;
    return (chunk * HEIGHT + row) * 16;
}

// Shared-memory descriptor of the part of a tile of HEIGHT rows that starts at row `first` and the given chunk.
template <int HEIGHT>
__device__ uint64_t descriptor(uint32_t tile, int first, int chunk) {
    if (SWIZZLE) {
        uint32_t start = tile + chunk / 8 * HEIGHT * ATOM + first * ATOM + chunk % 8 * 16;
        return (start & 0x3FFFF) >> 4 | 1ull << 16 | 8ull * ATOM / 16 << 32 | 1ull << 62;
    }
    return ((tile + (chunk * HEIGHT + first) * 16) & 0x3FFFF) >> 4 | 1ull * HEIGHT << 16 | 128ull / 16 << 32;
}

__device__ void load_stage(uint32_t stage, const uint8_t* a, int pitch_a, const uint8_t* b, int pitch_b) {
    copy_tile<ROWS, ROW_A, THREADS>(stage, a, pitch_a, place<ROWS>);
    copy_tile<N, ROW_B, THREADS>(stage + ROWS * ROW_A, b, pitch_b, place<N>);
}

// Kernel. `e`: metadata registers [tile of 64 rows][step along K][thread of a warpgroup].
extern "C" __global__ void __launch_bounds__(THREADS)
product(const uint8_t* a, const uint32_t* e, const uint8_t* b, uint32_t* d, int n, int steps) {
    extern __shared__ __align__(1024) uint8_t buffer[];
    const int thread = threadIdx.x % 128, group = threadIdx.x / 128, lane = thread % 32;
    const int own_row = thread / 32 * 16 + lane / 4, member = lane % 4;
    const int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * N;
    const int pitch_a = steps * A_BYTES, pitch_b = steps * B_BYTES;
    a += first_row * pitch_a;
    b += first_column * pitch_b;
    e += (first_row / 64 + group) * steps * 128 + thread;
    uint32_t sums[D_REGISTERS] = {};
    const uint32_t tiles = shared_address(buffer);
    load_stage(tiles, a, pitch_a, b, pitch_b);
    commit_copies();
    for (int step = 0; step < steps; step += STEPS) {
        const int next = step + STEPS;
        if (next < steps)
            load_stage(tiles + next / STEPS % 2 * STAGE, a + next * A_BYTES, pitch_a, b + next * B_BYTES, pitch_b);
        commit_copies();
        wait_for_copies();
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        const uint32_t tile_a = tiles + step / STEPS % 2 * STAGE, tile_b = tile_a + ROWS * ROW_A;
        uint32_t metadata[STEPS], left[STEPS][4];
        for (int s = 0; s < STEPS; s++) {
            metadata[s] = B_BYTES > 32 ? e[(step + s) * 128] : 0;
            for (int i = 0; A_IN_REGISTERS && i < 4; i++) {
                uint32_t at = tile_a + place<ROWS>(64 * group + own_row + i % 2 * 8, 2 * s + i / 2) + 4 * member;
                asm volatile("ld.shared.u32 %0, [%1];" : "=r"(left[s][i]) : "r"(at));
            }
        }
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int s = 0; s < STEPS; s++)
            multiply(sums, left[s], descriptor<ROWS>(tile_a, 64 * group, 2 * s),
                     descriptor<N>(tile_b, 0, s * B_BYTES / 16), metadata[s]);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads();
    }
    constexpr int WORDS = 4 * D_REGISTERS / N;  // words for the results in two adjacent columns
    for (int j = 0; j < N / 8; j++)
        for (int half = 0; half < 2; half++) {
            const int row = first_row + 64 * group + own_row + 8 * half, column = first_column + 8 * j + 2 * member;
            for (int w = 0; w < WORDS; w++)
                d[(row * n + column) / 2 * WORDS + w] = sums[(2 * j + half) * WORDS + w];
        }
}

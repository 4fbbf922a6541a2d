// Computes D = A B with mma: a CTA of four warps computes 64 x 64 elements of D, and loads tiles of A and B in two
// stages.
//
// compile_cuda.py defines multiply() and three constants. B_BYTES: bytes that an instruction reads from a stored row
// (along K) of B. D_REGISTERS: result registers per thread. SCALES: block scales of a row per instruction, 0 if there
// are none. A and B are stored with K along rows. An instruction reads 32 bytes of each row of A.

#include "tiles.h"

constexpr int TILE = 64, A_BYTES = 32, STEPS = 2, THREADS = 128;
constexpr int ROW_A = STEPS * A_BYTES, ROW_B = STEPS * B_BYTES, STAGE = TILE * (ROW_A + ROW_B);

// Offset in bytes of a chunk of 16 bytes in a tile. The chunks of each row are permuted, so that ldmatrix has no bank
// conflicts.
template <int BYTES>
__device__ int place(int row, int chunk) {
    constexpr int CHUNKS = BYTES / 16;
    return row * BYTES + ((chunk ^ (row * CHUNKS / 8)) & (CHUNKS - 1)) * 16;
}

__device__ void load_stage(uint32_t stage, const uint8_t* a, int pitch_a, const uint8_t* b, int pitch_b) {
    copy_tile<TILE, ROW_A, THREADS>(stage, a, pitch_a, place<ROW_A>);
    copy_tile<TILE, ROW_B, THREADS>(stage + TILE * ROW_A, b, pitch_b, place<ROW_B>);
}

// Return the block scales that one instruction reads for a row, in the low bytes of a word.
__device__ uint32_t scales_of(const uint8_t* scales, int row, int step, int steps) {
    uint32_t word = 0;
    for (int i = 0; i < SCALES; i++) word |= scales[(row * steps + step) * SCALES + i] << (8 * i);
    return word;
}

// Kernel. `e`: metadata registers [tile of 16 rows][step along K][lane of a warp].
extern "C" __global__ void __launch_bounds__(THREADS)
product(const uint8_t* a, const uint32_t* e, const uint8_t* b, const uint8_t* scales_a, const uint8_t* scales_b,
        uint32_t* d, int n, int steps) {
    __shared__ __align__(128) uint8_t buffer[2 * STAGE];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quad = lane / 4, member = lane % 4;
    const int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE, m0 = warp / 2 * 32, n0 = warp % 2 * 32;
    const int pitch_a = steps * A_BYTES, pitch_b = steps * B_BYTES;
    a += first_row * pitch_a;
    b += first_column * pitch_b;
    uint32_t sums[2][4][D_REGISTERS] = {};
    const uint32_t tiles = shared_address(buffer);
    load_stage(tiles, a, pitch_a, b, pitch_b);
    commit_copies();
    for (int step = 0; step < steps; step += STEPS) {
        const int next = step + STEPS;
        if (next < steps)
            load_stage(tiles + next / STEPS % 2 * STAGE, a + next * A_BYTES, pitch_a, b + next * B_BYTES, pitch_b);
        commit_copies();
        wait_for_copies();
        __syncthreads();
        const uint32_t tile_a = tiles + step / STEPS % 2 * STAGE, tile_b = tile_a + TILE * ROW_A;
        for (int s = 0; s < STEPS; s++) {
            uint32_t left[2][4], right[4][B_BYTES / 16];
            for (int i = 0; i < 2; i++) {
                uint32_t at = tile_a + place<ROW_A>(m0 + 16 * i + lane % 16, 2 * s + lane / 16);
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(left[i][0]), "=r"(left[i][1]), "=r"(left[i][2]), "=r"(left[i][3]) : "r"(at));
            }
            for (int j = 0; j < 4; j++)
                for (int half = 0; half < B_BYTES / 32; half++) {
                    int chunk = (s * B_BYTES / 32 + half) * 2 + lane / 8 % 2;
                    uint32_t at = tile_b + place<ROW_B>(n0 + 8 * j + lane % 8, chunk);
                    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                                 : "=r"(right[j][2 * half]), "=r"(right[j][2 * half + 1]) : "r"(at));
                }
            for (int i = 0; i < 2; i++) {
                const int row = first_row + m0 + 16 * i;
                const uint32_t metadata = B_BYTES > 32 ? e[(row / 16 * steps + step + s) * 32 + lane] : 0;
                const uint32_t of_a = scales_of(scales_a, row + quad + member % 2 * 8, step + s, steps);
                for (int j = 0; j < 4; j++) {
                    const uint32_t of_b = scales_of(scales_b, first_column + n0 + 8 * j + quad, step + s, steps);
                    multiply(sums[i][j], left[i], right[j], metadata, of_a, of_b);
                }
            }
        }
        __syncthreads();
    }
    constexpr int WORDS = D_REGISTERS / 2;  // words for the results in two adjacent columns
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int half = 0; half < 2; half++) {
                const int row = first_row + m0 + 16 * i + 8 * half + quad;
                const int column = first_column + n0 + 8 * j + 2 * member;
                for (int w = 0; w < WORDS; w++)
                    d[(row * n + column) / 2 * WORDS + w] = sums[i][j][half * WORDS + w];
            }
}

// Example in C++: multiplies a sparse f16 matrix A by B, as a chain of mma.sp along K, on all processor cores.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "sptc.h"

int main() {
    constexpr int64_t M = 256, N = 192, K = 512;
    const char *text = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32";
    sptc_instruction *opened = nullptr;
    const sptc_status status = sptc_open(SPTC_ABI, text, "sm_90", &opened);
    const std::unique_ptr<sptc_instruction, decltype(&sptc_close)> instruction(opened, sptc_close);
    if (status != SPTC_OK) return std::fprintf(stderr, "%s\n", sptc_last_error(opened)), 1;

    std::mt19937 random(1);
    std::vector<uint16_t> a(M * K / 2), b(K * N);
    for (auto *matrix : {&a, &b})
        for (uint16_t &code : *matrix) code = uint16_t(0x3800 | (random() & 0x87FF));  // f16 with magnitude 0.5 to 2
    const uint8_t legal[] = {0x4, 0x8, 0x9, 0xC, 0xD, 0xE};
    std::vector<uint8_t> nibbles(M * K / 4);
    for (uint8_t &nibble : nibbles) nibble = legal[random() % 6];
    std::vector<float> c(M * N), d(M * N);

    sptc_matrices matrices{};
    matrices.batch = 1, matrices.m = M, matrices.n = N, matrices.k = K;
    matrices.a = {a.data(), a.size() * sizeof a[0]};
    matrices.b = {b.data(), b.size() * sizeof b[0]};
    matrices.c = {c.data(), c.size() * sizeof c[0]};
    matrices.nibbles = {nibbles.data(), nibbles.size()};
    matrices.d = {d.data(), d.size() * sizeof d[0]};
    const unsigned cores = std::thread::hardware_concurrency();
    if (sptc_multiply(opened, &matrices, cores ? int(cores) : 1) != SPTC_OK)
        return std::fprintf(stderr, "%s\n", sptc_last_error(opened)), 1;
    std::printf("D[0][0] = %g, D[%d][%d] = %g\n", d[0], int(M - 1), int(N - 1), d[M * N - 1]);
    return 0;
}

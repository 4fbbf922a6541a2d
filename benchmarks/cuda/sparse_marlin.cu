// Multiply by a sparse matrix of 4-bit weights with the kernel of Sparse-Marlin. Arguments: rows of the weights, columns of
// the activations, depth, and weights per scale (-1: one scale per row).

#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

#include "marlin_cuda_kernel_nm.cu"

template <class T>
void* copied(const std::vector<T>& values) {
    void* device;
    cudaMalloc(&device, values.size() * sizeof(T));
    cudaMemcpy(device, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
    return device;
}

int main(int, char** arguments) {
    const int rows = atoi(arguments[1]), columns = atoi(arguments[2]), depth = atoi(arguments[3]);
    const int group = atoi(arguments[4]), groups = group < 0 ? 1 : depth / 2 / group;
    std::mt19937 random(1);
    std::vector<uint16_t> activations(columns * depth), metadata(rows * depth / 16), scales(groups * rows);
    std::vector<uint32_t> weights(rows * depth / 16);
    for (auto& code : activations) code = (random() & 0x83ff) | (11 + random() % 5) << 10;
    for (auto& code : scales) code = (random() & 0x3ff) | 8 << 10;
    for (auto& word : weights) word = random();
    for (auto& word : metadata)
        for (int chunk = 0; chunk < 4; chunk++) word |= "\x4\x8\xC\x9\xD\xE"[random() % 6] << 4 * chunk;
    const std::vector<uint16_t> result(columns * rows);
    return marlin::marlin_cuda_2_4(copied(activations), copied(weights), copied(metadata), copied(result),
                                   copied(scales), rows, columns, depth, copied(std::vector<int>(rows)), group, 0, 0,
                                   -1, -1, 4);
}

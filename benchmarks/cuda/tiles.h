// Asynchronous copies of tiles from global to shared memory, for the benchmark kernels in CUDA.

#include <cstdint>

__device__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ void copy16(uint32_t to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}

__device__ void commit_copies() { asm volatile("cp.async.commit_group;"); }

// Wait until all groups of copies except the newest are complete.
__device__ void wait_for_copies() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }

// Copy a tile of ROWS rows of BYTES bytes each, in chunks of 16 bytes. The rows start `pitch` bytes apart in global
// memory; each chunk goes to the offset place(row, chunk) in shared memory.
template <int ROWS, int BYTES, int THREADS, typename Place>
__device__ void copy_tile(uint32_t tile, const uint8_t* from, int pitch, Place place) {
    for (int i = threadIdx.x; i < ROWS * BYTES / 16; i += THREADS) {
        int row = i / (BYTES / 16), chunk = i % (BYTES / 16);
        copy16(tile + place(row, chunk), from + row * pitch + chunk * 16);
    }
}

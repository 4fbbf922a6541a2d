// Asynchronous copies of tiles to shared memory, for the kernels in this folder.

#include <cstdint>

__device__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ void copy16(uint32_t to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}

__device__ void commit_copies() { asm volatile("cp.async.commit_group;"); }

// Wait until at most the newest group of copies is pending.
__device__ void wait_for_copies() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }

// Copy ROWS rows of BYTES bytes, which are PITCH bytes apart, in chunks of 16 bytes to the offsets place(row, chunk).
template <int ROWS, int BYTES, int THREADS, typename Place>
__device__ void copy_tile(uint32_t tile, const uint8_t* from, int pitch, Place place) {
    for (int i = threadIdx.x; i < ROWS * BYTES / 16; i += THREADS) {
        int row = i / (BYTES / 16), chunk = i % (BYTES / 16);
        copy16(tile + place(row, chunk), from + row * pitch + chunk * 16);
    }
}

// CUDA runtime without a GPU, for benchmarks/cuda_programs.py: device memory is host memory, and each launch of a kernel
// calls a function of the script. Only what the recorded programs call exists. Every function of CUDA returns success.

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

struct Allocation {
    uint64_t address;  // address on the device, which kernels see
    std::vector<char> content;
};

struct Geometry {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};

// Functions of the script. A launch passes nine sides (grid, block, cluster), the bytes of dynamic shared memory and the
// addresses of the arguments. A tensor map passes the codes of its enumerations, and its arrays from the innermost axis.
using LaunchFunction = void (*)(const char*, const unsigned*, unsigned, void**);
using MapFunction = void (*)(void*, const int*, uint64_t, const uint64_t*, const uint64_t*, const uint32_t*);

LaunchFunction launch_function;
MapFunction map_function;
int capability;
std::vector<Allocation> allocations;
uint64_t next_address;
std::map<const void*, std::string> kernels;
std::vector<Geometry> geometries;

// Return the host address of device memory. Addresses of host memory are returned unchanged.
char* host(const void* pointer) {
    auto address = reinterpret_cast<uint64_t>(pointer);
    for (auto& each : allocations)
        if (address >= each.address && address - each.address <= each.content.size())
            return each.content.data() + (address - each.address);
    return static_cast<char*>(const_cast<void*>(pointer));
}

cudaError_t launch(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared, dim3 cluster) {
    const unsigned sides[] = {grid.x, grid.y, grid.z, block.x, block.y, block.z, cluster.x, cluster.y, cluster.z};
    launch_function(kernels.at(kernel).c_str(), sides, unsigned(shared), arguments);
    return cudaSuccess;
}

}  // namespace

extern "C" {

void start(int compute_capability, uint64_t first_address, LaunchFunction on_launch, MapFunction on_map) {
    capability = compute_capability;
    next_address = first_address;
    launch_function = on_launch;
    map_function = on_map;
}

int allocation(unsigned index, uint64_t* address, uint64_t* size, void** content) {
    if (index >= allocations.size()) return 0;
    *address = allocations[index].address;
    *size = allocations[index].content.size();
    *content = allocations[index].content.data();
    return 1;
}

// What the code that nvcc generates calls

void** __cudaRegisterFatBinary(void*) {
    static void* module;
    return &module;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
    kernels[function] = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
    *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
    return cudaSuccess;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    geometries.push_back({grid, block, shared, stream});
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    Geometry last = geometries.back();
    geometries.pop_back();
    *grid = last.grid, *block = last.block, *shared = last.shared;
    *static_cast<cudaStream_t*>(stream) = last.stream;
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                               cudaStream_t) {
    return launch(kernel, grid, block, arguments, shared, dim3(1, 1, 1));
}

// Launches and tensor maps

cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                             cudaStream_t) {
    return launch(kernel, grid, block, arguments, shared, dim3(1, 1, 1));
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
    dim3 cluster(1, 1, 1);
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) {
            auto& sides = config->attrs[i].val.clusterDim;
            cluster = dim3(sides.x, sides.y, sides.z);
        }
    return launch(kernel, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes, cluster);
}
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* sides, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t*, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
    const int codes[] = {int(type), int(rank), int(interleave), int(swizzle), int(fill)};
    map_function(map, codes, reinterpret_cast<uint64_t>(address), sides, strides, box);
    return CUDA_SUCCESS;
}
CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t count, CUstream) {
    for (size_t i = 0; i < count; i++)
        memcpy(host(reinterpret_cast<void*>(address)) + 4 * i, &value, 4);
    return CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
    bool known = !strcmp(name, "cuTensorMapEncodeTiled");
    *function = known ? reinterpret_cast<void*>(cuTensorMapEncodeTiled) : nullptr;
    if (result) *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* result) {
    return cudaGetDriverEntryPointByVersion(name, function, 0, flags, result);
}

// Memory

cudaError_t cudaMalloc(void** pointer, size_t size) {
    allocations.push_back({next_address, std::vector<char>(size)});
    *pointer = reinterpret_cast<void*>(next_address);
    next_address += (size + 511) / 512 * 512 + 512;
    return cudaSuccess;
}
cudaError_t cudaFree(void*) { return cudaSuccess; }
cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind) {
    memmove(host(to), host(from), size);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind, cudaStream_t) {
    return cudaMemcpy(to, from, size, kind);
}
cudaError_t cudaMemset(void* to, int value, size_t size) {
    memset(host(to), value, size);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t) { return cudaMemset(to, value, size); }

// The device: one with the sizes of an H100

cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    *properties = {};
    properties->major = capability / 10;
    properties->minor = capability % 10;
    properties->multiProcessorCount = 132;
    properties->warpSize = 32;
    properties->sharedMemPerBlockOptin = properties->sharedMemPerMultiprocessor = 227 << 10;
    properties->maxThreadsPerBlock = 1024;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    *value = attribute == cudaDevAttrMultiProcessorCount                ? 132
             : attribute == cudaDevAttrComputeCapabilityMajor           ? capability / 10
             : attribute == cudaDevAttrComputeCapabilityMinor           ? capability % 10
             : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin     ? 227 << 10
             : attribute == cudaDevAttrMaxSharedMemoryPerMultiprocessor ? 228 << 10
                                                                        : 1;
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
    *attributes = {};
    attributes->maxThreadsPerBlock = 1024;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDA_VERSION, cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* count, const void*, int, size_t, unsigned) {
    return *count = 1, cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveClusters(int* count, const void*, const cudaLaunchConfig_t*) {
    return *count = 66, cudaSuccess;
}

// Streams, events and errors

cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = nullptr, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* time, cudaEvent_t, cudaEvent_t) { return *time = 1, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "error"; }
const char* cudaGetErrorName(cudaError_t) { return "error"; }
CUresult cuGetErrorString(CUresult, const char** text) { return *text = "error", CUDA_SUCCESS; }
}

// Selects the fastest kernels for the processor that runs the library.
#include <cstring>

#include "kernels.h"

namespace sptc {

namespace {

bool is_here(const Kernels &kernels) {
#if defined(__x86_64__)
    if (&kernels == &avx2_kernels) return __builtin_cpu_supports("avx2");
    if (&kernels == &avx512_kernels)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
    return true;
}

const Kernels *const ALL[] = {
#if defined(__x86_64__)
    &avx512_kernels, &avx2_kernels,
#endif
    &portable_kernels};

}  // namespace

const Kernels &kernels_for(int64_t columns) {
    for (const Kernels *kernels : ALL)
        if (is_here(*kernels) && (kernels->lanes <= columns || kernels->lanes <= 8)) return *kernels;
    return portable_kernels;
}

const Kernels *kernels_named(const char *name) {
    for (const Kernels *kernels : ALL)
        if (std::strcmp(kernels->name, name) == 0 && is_here(*kernels)) return kernels;
    return nullptr;
}

}  // namespace sptc

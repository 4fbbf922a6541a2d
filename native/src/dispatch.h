// Selects the fastest kernels for the processor that runs the library.
#ifndef SPTC_DISPATCH_H
#define SPTC_DISPATCH_H

#include "kernels.h"

namespace sptc {

// Returns the kernels that are fastest on this processor for a number of columns.
const Kernels &kernels_for(int64_t columns);

// Returns the kernels with the given name; nullptr if no kernels have it, or if this processor cannot run them.
const Kernels *kernels_named(const char *name);

}  // namespace sptc

#endif

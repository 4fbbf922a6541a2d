// Choice of kernels for this processor.
#ifndef SPTC_DISPATCH_H
#define SPTC_DISPATCH_H

#include "kernels.h"

namespace sptc {

// Returns the fastest kernels of this processor for a number of columns.
const Kernels &kernels_for(int64_t columns);

// Returns kernels by name; nullptr if there are none, or this processor cannot run them.
const Kernels *kernels_named(const char *name);

}  // namespace sptc

#endif

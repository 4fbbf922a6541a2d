// Which of the compiled kernels this processor runs.
#ifndef SPTC_DISPATCH_H
#define SPTC_DISPATCH_H

#include "kernels.h"

namespace sptc {

// The fastest kernels of this processor for so many columns.
const Kernels &kernels_for(int64_t columns);

// Kernels by name; nullptr if there are none, or this processor lacks what they are compiled for.
const Kernels *kernels_named(const char *name);

}  // namespace sptc

#endif

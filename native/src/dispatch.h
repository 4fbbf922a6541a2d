// Choice of the kernels that this processor runs fastest.
#ifndef SPTC_DISPATCH_H
#define SPTC_DISPATCH_H

#include "kernels.h"

namespace sptc {

// Returns the kernels that are fastest on this processor for a number of columns.
const Kernels &kernels_for(int64_t columns);

// Returns the kernels with a name; nullptr if there are none, or if this processor cannot run them.
const Kernels *kernels_named(const char *name);

}  // namespace sptc

#endif

// Computes many results (steps) of a dot-product unit at once, with a generated C++ function.
#ifndef SPTC_COMPUTED_H
#define SPTC_COMPUTED_H

#include "vectors.h"

#include "function.h"

// Compute results for `count` unit inputs (steps), at most `lanes`. Each result is written in whole 32-bit words; bits
// above the width of the result port are zero.
inline void compute(size_t count, const uint32_t *const *steps, uint32_t *const *results) {
    Steps in[in_limbs], out[out_limbs];
    for (size_t lane = 0; lane < lanes; ++lane) {
        const uint32_t *step = steps[lane < count ? lane : 0];
        for (size_t limb = 0; limb < in_limbs; ++limb) in[limb][lane] = step[limb];
    }
    evaluate(in, out);
    for (size_t lane = 0; lane < count; ++lane)
        for (size_t limb = 0; limb < out_limbs; ++limb) results[lane][limb] = out[limb][lane];
}

#endif

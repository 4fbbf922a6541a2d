// Computes many steps together with the generated function of one step.
#ifndef SPTC_COMPUTED_H
#define SPTC_COMPUTED_H

#include "vectors.h"

#include "function.h"

// Compute up to `lanes` steps. A result is written as whole 32-bit words that cover its port; bits above the port are
// zero.
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

// Driver of a row that has no registers and a constant control word. It has the functions of `row.cpp`, and computes
// many steps at once.
#include "computed.h"
#include "configuration.h"

extern "C" void *row_create() { return nullptr; }
extern "C" void row_destroy(void *) {}

extern "C" void row_run(void *, size_t count, const uint32_t *steps, size_t, const uint8_t *, uint64_t *results) {
    for (size_t first = 0; first < count; first += lanes) {
        const size_t some = count - first < lanes ? count - first : lanes;
        const uint32_t *of_lane[lanes];
        uint32_t words[lanes][2] = {}, *answers[lanes];
        for (size_t lane = 0; lane < some; ++lane) {
            of_lane[lane] = steps + (first + lane) * step_words;
            answers[lane] = words[lane];
        }
        compute(some, of_lane, answers);
        for (size_t lane = 0; lane < some; ++lane)
            results[first + lane] = words[lane][0] | uint64_t(words[lane][1]) << 32;
    }
}

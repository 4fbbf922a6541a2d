// Inputs of a dot-product unit with metadata decoder for a batch of outputs: one input (step) for each output.
#ifndef SPTC_BATCH_H
#define SPTC_BATCH_H

#include "configuration.h"

// The input words of a step are the bitwise OR of the words of the output's row and the words of its column. The
// accumulator is the result of the previous step of the same output.
struct Batch {
    size_t tiles, rows, columns;
    const uint32_t *row_words;     // input words of each row; axes [tiles][rows][step_words]
    const uint32_t *column_words;  // input words of each column; axes [tiles][columns][step_words]
    const uint64_t *previous;      // previous result words; axes [tiles][rows][columns]; or null
    size_t threads;                // number of threads that may compute outputs at the same time

    size_t outputs() const { return tiles * rows * columns; }
    const uint32_t *row(size_t tile, size_t index) const { return row_words + (tile * rows + index) * step_words; }
    const uint32_t *column(size_t tile, size_t index) const {
        return column_words + (tile * columns + index) * step_words;
    }
};

// Return the overflow bit of a unit's result, shifted to its position in the control word of the next cycle.
inline uint32_t overflow_of(uint64_t previous) { return uint32_t(previous >> result_overflow & 1) << overflow_bit; }

#endif

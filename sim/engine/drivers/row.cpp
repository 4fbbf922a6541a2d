// Driver of a dot-product unit with metadata decoder: applies the inputs of each step and records the results.
#include <cstring>

#include "batch.h"
#include "model.h"

namespace {

template <bool is_clocked, typename Row>
void evaluate(Row &row, bool enabled) {
    if constexpr (is_clocked) {
        row.enable = enabled;
        rise(row);
    } else {
        row.eval();
    }
}

// Write the input words of one output of a batch. Outputs are counted matrix by matrix, and row by row in a matrix.
template <typename Words>
void compose(const Batch &batch, size_t output, Words &step) {
    const size_t line = output / batch.columns;
    const uint32_t *row = batch.row_words + line * step_words;
    const uint32_t *column = batch.column(line / batch.rows, output % batch.columns);
    uint32_t words[step_words];
    for (size_t word = 0; word < step_words; ++word) words[word] = row[word] | column[word];
    if (batch.previous) {
        words[c_word] = uint32_t(batch.previous[output]);
        words[control_word] |= overflow_of(batch.previous[output]);
    }
    static_assert(sizeof step == sizeof words, "a step must have whole 32-bit words");
    std::memcpy(&step, words, sizeof words);
}

}  // namespace

extern "C" void *row_create() {
    auto *row = new Driven;
    row->model.eval();  // record that the clock is low, so that the first high clock is a rising edge
    return row;
}
extern "C" void row_destroy(void *row) { delete static_cast<Driven *>(row); }

// Run a dot-product unit for `cycles` cycles. In each enabled cycle, the unit takes the next input (step) of the batch;
// without `enables`, every cycle is enabled. In a disabled cycle, the port has the complement of that input. After the
// last input, the port keeps its value, except that every disabled cycle inverts it. The result of every cycle is
// recorded after the clock edge.
extern "C" void row_run(void *handle, const Batch *batch, size_t cycles, const uint8_t *enables, uint64_t *results) {
    Model &row = static_cast<Driven *>(handle)->model;
    for (size_t cycle = 0, entered = 0; cycle < cycles; ++cycle) {
        const bool enabled = !enables || enables[cycle];
        if (entered < batch->outputs()) compose(*batch, entered, row.step);
        if (!enabled)
            for (size_t word = 0; word < step_words; ++word) row.step[word] = ~row.step[word];
        evaluate<is_clocked>(row, enabled);
        results[cycle] = row.result;
        entered += enabled;
    }
}

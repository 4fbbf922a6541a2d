// Driver of a row of dot-product units: applies steps and records results.
#include <cstring>

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

}  // namespace

extern "C" void *row_create() {
    auto *row = new Driven;
    row->model.eval();  // evaluate the model once with a low clock
    return row;
}
extern "C" void row_destroy(void *row) { delete static_cast<Driven *>(row); }

// Run a row of dot-product units for `cycles` cycles. In each enabled cycle, the next of `count` steps enters the row;
// if `enables` is null, every cycle is enabled. In a disabled cycle, the complement of the step is at the input. After
// the last step, the input keeps its value, except that every disabled cycle inverts it. The result of every cycle is
// recorded after the clock edge.
extern "C" void row_run(void *handle, size_t count, const uint32_t *steps, size_t cycles, const uint8_t *enables,
                        uint64_t *results) {
    Model &row = static_cast<Driven *>(handle)->model;
    constexpr size_t words = sizeof row.step / 4;
    for (size_t cycle = 0, entered = 0; cycle < cycles; ++cycle) {
        const bool enabled = !enables || enables[cycle];
        if (entered < count) std::memcpy(&row.step, steps + entered * words, sizeof row.step);
        if (!enabled)
            for (size_t word = 0; word < words; ++word) row.step[word] = ~row.step[word];
        evaluate<is_clocked>(row, enabled);
        results[cycle] = row.result;
        entered += enabled;
    }
}

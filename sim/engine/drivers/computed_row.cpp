// Driver of a dot-product unit without registers and with a constant control word. The driver exports the functions of
// `row.cpp`, but computes many outputs at once.
#include "batch.h"
#include "computed.h"

#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace {

// All rows of A or all columns of B of a matrix product: input words, number of rows or columns, and distance between
// the results of two consecutive rows or columns.
struct Lines {
    const uint32_t *words;
    size_t count, distance;
};

// Compute the outputs of up to `lanes` rows with all columns, or of up to `lanes` columns with all rows. Each vector
// lane computes one row or column of `in_lanes`, in ascending order from index `first` on. `previous` and `results`
// begin at the first output of the matrix.
void compute_lines(const Lines &in_lanes, size_t first, const Lines &others, const uint64_t *previous,
                   uint64_t *results) {
    const size_t count = in_lanes.count - first < lanes ? in_lanes.count - first : lanes;
    Steps common[in_limbs], in[in_limbs], out[out_limbs];
    for (size_t lane = 0; lane < lanes; ++lane) {
        const uint32_t *line = in_lanes.words + (first + (lane < count ? lane : 0)) * step_words;
        for (size_t limb = 0; limb < in_limbs; ++limb) common[limb][lane] = line[limb];
    }
    for (size_t other = 0; other < others.count; ++other) {
        const uint32_t *line = others.words + other * step_words;
        for (size_t limb = 0; limb < in_limbs; ++limb) in[limb] = common[limb] | all_of(line[limb]);
        const size_t place = first * in_lanes.distance + other * others.distance;
        if (previous)
            for (size_t lane = 0; lane < count; ++lane) {
                const uint64_t result = previous[place + lane * in_lanes.distance];
                in[c_word][lane] = uint32_t(result);
                in[control_word][lane] |= overflow_of(result);
            }
        evaluate(in, out);
        for (size_t lane = 0; lane < count; ++lane) {
            uint64_t result = out[0][lane];
            if constexpr (out_limbs > 1) result |= uint64_t(out[1][lane]) << 32;
            results[place + lane * in_lanes.distance] = result;
        }
    }
}

}  // namespace

extern "C" void *row_create() { return nullptr; }
extern "C" void row_destroy(void *) {}

extern "C" void row_run(void *, const Batch *batch, size_t, const uint8_t *, uint64_t *results) {
    const size_t rows = batch->rows, columns = batch->columns, lines = rows > columns ? rows : columns;
    const size_t groups = (lines + lanes - 1) / lanes;
    std::atomic<size_t> next{0};
    const auto serve = [&] {
        for (size_t group; (group = next++) < batch->tiles * groups;) {
            const size_t tile = group / groups, first = group % groups * lanes, output = tile * rows * columns;
            const Lines row_lines{batch->row(tile, 0), rows, columns}, column_lines{batch->column(tile, 0), columns, 1};
            const uint64_t *previous = batch->previous ? batch->previous + output : nullptr;
            compute_lines(rows > columns ? row_lines : column_lines, first, rows > columns ? column_lines : row_lines,
                          previous, results + output);
        }
    };
    std::vector<std::thread> others;
    try {
        while (others.size() + 1 < batch->threads) others.emplace_back(serve);
    } catch (const std::system_error &) {  // If no thread can be created, this thread computes everything.
    }
    serve();
    for (std::thread &other : others) other.join();
}

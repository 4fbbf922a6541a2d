// Library that simulates dot-product units by a generated function without registers. The library collects inputs of
// the units until a unit must return a result that is not computed yet. It then computes all collected inputs together.
#include <cstring>
#include <deque>
#include <vector>

#include "computed.h"
#include "configuration.h"

namespace {

struct Entry {
    uint32_t step[step_words], result[result_words];
    bool is_computed = true;
};

struct Unit {
    Entry entries[latency];
    size_t next = 0;
};

// Dot-product units, and pointers to the pipeline entries whose results are not yet computed.
struct Units {
    std::deque<Unit> all;
    std::vector<Entry *> waiting;

    void compute_all() {
        for (size_t first = 0; first < waiting.size(); first += lanes) {
            const size_t some = waiting.size() - first < lanes ? waiting.size() - first : lanes;
            const uint32_t *steps[lanes];
            uint32_t *results[lanes];
            for (size_t lane = 0; lane < some; ++lane) {
                steps[lane] = waiting[first + lane]->step;
                results[lane] = waiting[first + lane]->result;
                waiting[first + lane]->is_computed = true;
            }
            compute(some, steps, results);
        }
        waiting.clear();
    }
    void clock(Unit &unit, const uint32_t *step, uint32_t *result) {
        Entry &entry = unit.entries[unit.next];
        std::memcpy(entry.step, step, sizeof entry.step);
        entry.is_computed = false;
        waiting.push_back(&entry);
        unit.next = (unit.next + 1) % latency;
        const Entry &oldest = unit.entries[unit.next];
        if (!oldest.is_computed) compute_all();
        std::memcpy(result, oldest.result, sizeof oldest.result);
    }
};

}  // namespace

extern "C" void *units_create() { return new Units; }
extern "C" void units_destroy(void *units) { delete static_cast<Units *>(units); }
extern "C" void *units_add(void *units) { return &static_cast<Units *>(units)->all.emplace_back(); }
extern "C" void units_clock(void *units, void *unit, const uint32_t *step, uint32_t *result) {
    static_cast<Units *>(units)->clock(*static_cast<Unit *>(unit), step, result);
}

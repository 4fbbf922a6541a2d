// Library of dot-product units, each computed by a generated function without registers. Steps are collected until one
// result is due, and are then computed together. With two threads, an idle second thread computes collected steps as
// soon as there are as many as all units get in one cycle.
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>
#include <vector>

#include "computed.h"
#include "configuration.h"

namespace {

struct Entry {
    uint32_t step[step_words], result[result_words];
    std::atomic<bool> is_computed{true};
};

struct Unit {
    Entry entries[latency];
    size_t next = 0;
};

void compute_all(std::vector<Entry *> &waiting) {
    for (size_t first = 0; first < waiting.size(); first += lanes) {
        const size_t some = waiting.size() - first < lanes ? waiting.size() - first : lanes;
        const uint32_t *steps[lanes];
        uint32_t *results[lanes];
        for (size_t lane = 0; lane < some; ++lane) {
            steps[lane] = waiting[first + lane]->step;
            results[lane] = waiting[first + lane]->result;
        }
        compute(some, steps, results);
        for (size_t lane = 0; lane < some; ++lane)
            waiting[first + lane]->is_computed.store(true, std::memory_order_release);
    }
    waiting.clear();
}

// Dot-product units and their steps. A step that is not yet computed is in one of two lists: `waiting` belongs to the
// thread that clocks the units; `handed` belongs to the second thread while `busy` is true.
class Units {
  public:
    explicit Units(int threads) {
        if (threads > 1) other = std::thread([this] { serve(); });
    }
    ~Units() {
        ends = true;
        if (other.joinable()) other.join();
    }
    void *add() { return &all.emplace_back(); }
    void clock(Unit &unit, const uint32_t *step, uint32_t *result) {
        Entry &entry = unit.entries[unit.next];
        std::memcpy(entry.step, step, sizeof entry.step);
        entry.is_computed.store(false, std::memory_order_relaxed);
        waiting.push_back(&entry);
        if (other.joinable() && waiting.size() >= batch && !busy.load(std::memory_order_acquire)) {
            handed.swap(waiting);
            busy.store(true, std::memory_order_release);
        }
        unit.next = (unit.next + 1) % latency;
        const Entry &oldest = unit.entries[unit.next];
        while (!oldest.is_computed.load(std::memory_order_acquire)) {
            if (!busy.load(std::memory_order_acquire))
                compute_all(waiting);
            else
                std::this_thread::yield();  // the second thread may need this processor core to finish
        }
        std::memcpy(result, oldest.result, sizeof oldest.result);
    }

  private:
    std::deque<Unit> all;
    std::vector<Entry *> waiting, handed;
    std::atomic<bool> busy{false}, ends{false};
    std::thread other;

    void serve() {
        for (int idle = 0; !ends.load(std::memory_order_relaxed); ++idle) {
            if (busy.load(std::memory_order_acquire)) {
                compute_all(handed);
                busy.store(false, std::memory_order_release);
                idle = 0;
            } else if (idle > 100000) {
                std::this_thread::sleep_for(std::chrono::microseconds(50));
            }
        }
    }
};

}  // namespace

extern "C" void *units_create(int threads) { return new Units(threads); }
extern "C" void units_destroy(void *units) { delete static_cast<Units *>(units); }
extern "C" void *units_add(void *units) { return static_cast<Units *>(units)->add(); }
extern "C" void units_clock(void *units, void *unit, const uint32_t *step, uint32_t *result) {
    static_cast<Units *>(units)->clock(*static_cast<Unit *>(unit), step, result);
}

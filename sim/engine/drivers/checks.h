// Checks of the valid-ready protocol of streams, for the drivers of all components.
#ifndef SPTC_CHECKS_H
#define SPTC_CHECKS_H

#include <cstdint>
#include <cstring>
#include <deque>

// Counter of the consecutive cycles in which a stream waits. A waiting cycle in which `counts` is false is not counted.
class Waiting {
  public:
    // Record one cycle; return whether the stream has waited longer than `longest` cycles.
    bool exceeds(int64_t longest, bool waits, bool counts = true) {
        cycles = waits ? cycles + counts : 0;
        return cycles > longest;
    }

  private:
    int64_t cycles = 0;
};

// Checker of a stream of results: results come in order, no result is lost, invented or repeated, and a result stays
// valid and constant until it is accepted.
template <size_t bytes>
class Results {
  public:
    void forget() {
        due.clear();
        silence = Waiting();
        stays = false;
    }
    // Append an expected result. A null pointer stands for any result.
    void expect(const void *expected) { due.push_back(expected); }
    bool are_due() const { return !due.empty(); }
    // Check one cycle after its signals have settled. Return the violated rule, or null. An expected result may take up
    // to `longest` cycles to appear.
    const char *follow(bool valid, bool ready, const void *result, int64_t longest) {
        if (stays && !valid) return "withdraws a result before it is accepted";
        if (stays && std::memcmp(result, before, bytes) != 0) return "changes a result before it is accepted";
        if (valid && due.empty()) return "gives a result although no result is due";
        if (valid && due.front() && std::memcmp(result, due.front(), bytes) != 0) return "gives a wrong result";
        if (silence.exceeds(longest, !valid && !due.empty())) return "gives no result for too long";
        stays = valid && !ready;
        if (stays) std::memcpy(before, result, bytes);
        if (valid && ready) due.pop_front();
        return nullptr;
    }

  private:
    std::deque<const void *> due;
    Waiting silence;
    bool stays = false;
    char before[bytes] = {};
};

#endif

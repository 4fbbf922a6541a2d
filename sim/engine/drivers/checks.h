// Rules that streams keep, whatever the component.
#ifndef SPTC_CHECKS_H
#define SPTC_CHECKS_H

#include <cstdint>
#include <cstring>
#include <deque>

// Cycles in a row, or all of those that count, in which something waits.
class Waiting {
  public:
    // Return whether that is longer than it may be.
    bool exceeds(int64_t longest, bool waits, bool counts = true) {
        cycles = waits ? cycles + counts : 0;
        return cycles > longest;
    }

  private:
    int64_t cycles = 0;
};

// Results of so many bytes: in order, none lost, invented or twice; one that is not taken stays.
template <size_t bytes>
class Results {
  public:
    void forget() {
        due.clear();
        silence = Waiting();
        stays = false;
    }
    // A result is due behind those that are; null for any.
    void expect(const void *expected) { due.push_back(expected); }
    bool are_due() const { return !due.empty(); }
    // Follow a settled cycle; return the rule that it breaks, null for none. A result may take so many cycles.
    const char *follow(bool valid, bool ready, const void *result, int64_t longest) {
        if (stays && !valid) return "withdraws a result before it is taken";
        if (stays && std::memcmp(result, before, bytes) != 0) return "changes a result before it is taken";
        if (valid && due.empty()) return "gives a result that nothing asked for";
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

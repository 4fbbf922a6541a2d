// A component that answers each item with one result: items with gaps, stalls of results, and resets.
#include "checks.h"
#include "model.h"

extern "C" void *stream_create() { return new Driven; }
extern "C" void stream_destroy(void *driven) { delete static_cast<Driven *>(driven); }

// Run so many cycles from reset on; return the rule that is broken, null for none, and how many items were taken.
extern "C" const char *stream_run(void *driven, const char *items, const char *expected, int64_t count,
                                  const uint16_t *pattern, int64_t cycles, int64_t longest_wait, int64_t *taken) {
    auto &[model, ports] = *static_cast<Driven *>(driven);
    constexpr size_t in_bytes = sizeof ports.i_payload, out_bytes = sizeof ports.o_payload;
    Results<out_bytes> results;
    Waiting closed;
    int64_t next = 0;
    bool offers = false, stalled = false, moved = false;
    *taken = 0;
    for (int64_t cycle = 0; cycle < cycles && (next < count || offers || results.are_due()); ++cycle) {
        uint16_t now = pattern[cycle];
        if (stalled && now & pattern_meet) now = pattern_offer | pattern_take;
        if (moved && now & pattern_meet_reset) now = pattern_reset;
        const bool in_reset = now & pattern_reset;
        if (!offers && !in_reset && next < count && now & pattern_offer) {
            std::memcpy(&ports.i_payload, items + next++ * in_bytes, in_bytes);
            offers = true;
        }
        ports.i_valid = offers && !in_reset;
        ports.o_ready = !in_reset && now & pattern_take;
        ports.rst = in_reset;
        ports.clk = 0;
        model.eval();
        const bool takes = ports.i_valid && ports.i_ready;
        if (in_reset) {
            results.forget();
            closed = Waiting();
        } else {
            if (takes) results.expect(expected + (next - 1) * out_bytes);
            const char *broken = results.follow(ports.o_valid, ports.o_ready, &ports.o_payload, longest_wait);
            if (broken) return broken;
            if (closed.exceeds(longest_wait, offers && !takes, ports.o_ready)) return "takes no item for too long";
        }
        stalled = ports.o_valid && !ports.o_ready;
        moved = takes || ports.o_valid;
        offers &= !takes;
        *taken += takes;
        ports.clk = 1;
        model.eval();
    }
    return nullptr;
}

// Driver of a component with one result per input payload: offers inputs with gaps, stalls results, and resets the
// component.
#include "checks.h"
#include "units.h"

extern "C" void *stream_create(const Library *library) { return new Top(*library); }
extern "C" void stream_destroy(void *stream) { delete static_cast<Top *>(stream); }

// Run from reset until every input has its result, but at most `cycles` cycles. Return the violated rule, or null.
// `taken` is the number of accepted inputs. If `expected` is null, no results are compared; if `recorded` is null, no
// results are recorded; if `accepted` is null, no cycle numbers of acceptance are recorded. A run that is recorded must
// have no resets, because an input that a reset drops has no result.
extern "C" const char *stream_run(void *handle, const char *items, const char *expected, char *recorded,
                                  int64_t *accepted, int64_t *done, int64_t count, const uint16_t *pattern,
                                  int64_t pattern_cycles, int64_t cycles, int64_t longest_wait, int64_t *taken) {
    evaluated = static_cast<Top *>(handle);
    auto &[model, ports] = static_cast<Driven &>(*evaluated);
    constexpr size_t in_bytes = sizeof ports.i_payload, out_bytes = sizeof ports.o_payload;
    reset(model);
    Results<out_bytes> results;
    Waiting closed;
    int64_t next = 0, completed = 0;
    bool offers = false, stalled = false, moved = false;
    *taken = 0;
    for (int64_t cycle = 0; cycle < cycles && (next < count || offers || results.are_due()); ++cycle) {
        uint16_t now = pattern[cycle % pattern_cycles];
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
        const bool takes = ports.i_valid && ports.i_ready, gives = ports.o_valid && ports.o_ready;
        if (in_reset) {
            results.forget();
            closed = Waiting();
        } else {
            if (takes) results.expect(expected ? expected + (next - 1) * out_bytes : nullptr);
            const char *broken = results.follow(ports.o_valid, ports.o_ready, &ports.o_payload, longest_wait);
            if (broken) return broken;
            if (closed.exceeds(longest_wait, offers && !takes, ports.o_ready)) return "accepts no item for too long";
            if (takes && accepted) accepted[next - 1] = cycle;
            if (gives && recorded) {
                std::memcpy(recorded + completed * out_bytes, &ports.o_payload, out_bytes);
                done[completed++] = cycle;
            }
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

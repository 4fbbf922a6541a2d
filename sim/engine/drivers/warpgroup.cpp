// Driver of a warpgroup: offers commands, accumulators and mma instructions, and records results and cycle numbers. The
// driver models shared memory, which returns data in the next cycle, and the registers that hold accumulators.
#include "checks.h"
#include "hash.h"
#include "units.h"

namespace {

constexpr uint32_t memory_units = 1u << 14, half = memory_units / 2;

// A command of a warpgroup. `image` has the contents of the half of shared memory that contains `first_unit`, or of all
// shared memory if `image` is larger than one half. A negative number `reads` or `ready` is not checked.
struct Command {
    const uint32_t *payload, *image, *c, *expected;  // `c` is null if C is the previous multiplication's result
    uint32_t *results;
    int32_t operation, pending, panels, first_unit, image_units;
    int32_t reads;  // number of cycles in which shared memory is read
    int32_t ready;  // for a command that runs alone: cycles from its acceptance to acceptance of its first C
    int64_t taken, done;
};

// An mma instruction. If `after` is not negative, C is the result of the earlier instruction `after` of the same tensor
// core, and the instruction is offered at least `surroundings` cycles after that result.
struct Instruction {
    const uint32_t *payload, *expected;
    uint32_t *result;
    int32_t after, surroundings;
    int32_t interval;  // cycles from the start of the mma until its tensor core has room; negative: not checked
    int64_t taken, done;
};

struct Array {
    Instruction *instructions;
    int32_t count, issued, answered;

    // Return the next instruction if its accumulators are available, else null.
    const Instruction *next(int64_t cycle) const {
        if (issued == count) return nullptr;
        const Instruction &instruction = instructions[issued];
        if (instruction.after < 0) return &instruction;
        const Instruction &before = instructions[instruction.after];
        return instruction.after < answered && cycle >= before.done + instruction.surroundings ? &instruction : nullptr;
    }
};

struct Work {
    Command *commands;
    Array *arrays;
    const uint16_t *pattern;
    int64_t count, pattern_cycles;
    int64_t cycles;                         // maximum number of cycles of the run
    int64_t patience;                       // maximum number of cycles without a transfer
    int64_t longest_wait, longest_silence;  // longest waits in cycles: for a stream transfer, and for an mma result
    int64_t ends_with_commands;             // whether the run ends after the commands, even if an mma is unfinished
    int64_t compares;                       // whether `outputs` has expected hashes, to compare with
    int64_t accepted;                       // number of accepted accumulator panels (eight columns of C)
    uint32_t *outputs;                      // for each cycle without reset, hash of all outputs; null: no hashes

    // Return the index of the first multiplication from command `place` on; `count` if there is none.
    int64_t multiplication_from(int64_t place) const {
        while (place < count && commands[place].operation != multiply) ++place;
        return place;
    }
};

struct Group : Top {
    using Top::Top;

    uint32_t memory[memory_units][4];
};

// State of one run of the warpgroup.
class Run {
  public:
    Run(Group &group, Work &work) : model(group.model), ports(group.ports), memory(group.memory), work(work) {
        work.accepted = 0;
        forget();
    }

    const char *all_cycles();

  private:
    Model &model;
    Ports &ports;
    uint32_t (&memory)[memory_units][4];
    Work &work;
    int64_t cycle = 0, last_transfer = 0;
    // Indices of commands. `next`: the next command to offer; `reading` and `writing`: the multiplications whose
    // accumulators and whose results come next; `before`: the multiplication before `reading`.
    int64_t next = 0, reading, writing, before;
    int32_t panel_read, panel_written;
    bool offers, offers_c, alone;
    int offered, turn = 0;  // offered: tensor core that is offered an mma, or -1; turn: tensor core to try first
    // Whether shared memory was read in the previous cycle, and the addresses of that read.
    bool reads;
    uint32_t addresses[rows];
    // Expected results of commands, and of the mma instructions of each tensor core.
    Results<sizeof Ports::o_payload> results;
    Results<warp_words * 4> of_mma[warps];
    std::deque<int64_t> marks;  // for each pending commit group, number of finished multiplications that completes it
    int64_t issued, finished, times_read, reads_due, since_alone, ready_alone;
    int64_t since[warps], interval[warps];  // cycles since a tensor core's last mma, and minimum cycles between mma
    Waiting closed, starved;

    void forget();
    void drive(uint16_t now, bool in_reset);
    void offer_instruction(uint16_t now, bool blind);
    const char *check();
    const char *check_arrays();
    uint32_t hash_of_outputs() const;
    const char *take(Command &command);
    const char *move();

    bool is_idle() const { return writing >= next; }
    bool are_arrays_idle() const {
        for (const auto &due : of_mma)
            if (due.are_due()) return false;
        return true;
    }
    bool ended() const {
        for (int core = 0; core < warps && !work.ends_with_commands; ++core)
            if (work.arrays[core].answered < work.arrays[core].count) return false;
        return next == work.count && writing == work.count;
    }
};

// Clear the state of the run as a reset clears the warpgroup. The run continues with the next command.
void Run::forget() {
    reading = writing = work.multiplication_from(next);
    before = work.count;
    panel_read = panel_written = 0;
    offers = offers_c = alone = reads = false;
    offered = -1;
    results.forget();
    marks.clear();
    issued = finished = times_read = reads_due = 0;
    since_alone = -1;
    for (int core = 0; core < warps; ++core) {
        of_mma[core].forget();
        work.arrays[core].answered = work.arrays[core].issued;
        since[core] = interval[core] = 0;
    }
    closed = starved = Waiting();
}

// Set the input ports: data read from shared memory, and offers of commands, accumulators and mma instructions.
void Run::drive(uint16_t now, bool in_reset) {
    // If shared memory was not read in the previous cycle, the data ports carry noise.
    for (int row = 0; row < rows; ++row) {
        void *data = ports.memory_data[row];
        if (reads)
            std::memcpy(data, memory[addresses[row]], 16);
        else
            std::memset(data, int(cycle), 16);
    }
    const Command *command = next < work.count ? &work.commands[next] : nullptr;
    const bool large = command && command->image_units > int(half);
    const bool waits = command && command->operation == multiply && (large || alone) && !is_idle();
    offers = command && !in_reset && !waits && (offers || now & pattern_offer);
    if (offers) std::memcpy(&ports.i_payload, command->payload, sizeof ports.i_payload);
    ports.i_valid = offers;
    bool may = reading < next && !in_reset && (offers_c || now & pattern_offer_c);
    if (may && !work.commands[reading].c) may = before < writing || (before == writing && panel_read < panel_written);
    offers_c = may;
    if (offers_c) {
        const uint32_t *c = work.commands[reading].c;
        uint32_t *payload = &ports.c_payload[0];
        constexpr int words = panel_words / warps;
        if (c)
            std::memcpy(payload, c + panel_read * panel_words, panel_words * 4);
        else
            for (int warp = 0; warp < warps; ++warp)
                std::memcpy(payload + warp * words,
                            work.commands[before].results + (panel_read * warps + warp) * warp_words, words * 4);
    }
    ports.c_valid = offers_c;
    ports.o_ready = !in_reset && now & pattern_take;
    for (int core = 0; core < warps; ++core)
        *ports.mma_result_ready[core] = !in_reset && now / pattern_take_mma >> core & 1;
    ports.rst = in_reset;
    ports.clk = 0;
    if (in_reset) offered = -1;
    if (!in_reset && now & pattern_blind) offer_instruction(now, true);
    ports.mma_valid = offered >= 0;
    model.eval();
    if (in_reset || now & pattern_blind) return;
    offer_instruction(now, false);
    if (!ports.mma_valid && offered >= 0) {
        ports.mma_valid = 1;
        model.eval();
    }
}

// Offer an mma instruction to a tensor core with room, in round-robin order. A blind offer goes to the tensor core that
// the pattern selects, whether or not this tensor core has room.
void Run::offer_instruction(uint16_t now, bool blind) {
    if (offered >= 0 || !(now & pattern_offer_mma)) return;
    for (int place = 0; place < (blind ? 1 : warps); ++place) {
        const int core = (blind ? now / pattern_array + place : turn + place) % warps;
        if ((blind || ports.mma_room >> core & 1) && work.arrays[core].next(cycle)) {
            const Array &array = work.arrays[core];
            const Instruction *instruction = array.next(cycle);
            uint32_t *payload = &ports.mma_payload[0];
            std::memcpy(payload, instruction->payload, sizeof ports.mma_payload);
            if (instruction->after >= 0)
                std::memcpy(payload + c_word, array.instructions[instruction->after].result, panel_words / warps * 4);
            payload[core_bit / 32] |= uint32_t(core) << core_bit % 32;
            offered = core;
            return;
        }
    }
}

// Check the settled signals of one cycle. Return the violated rule, or null.
const char *Run::check() {
    const bool takes_c = offers_c && ports.c_ready;
    if (takes_c) {
        const uint32_t *expected = work.commands[reading].expected;
        results.expect(expected ? expected + panel_read * warps * warp_words : nullptr);
    }
    if (const char *broken = results.follow(ports.o_valid, ports.o_ready, &ports.o_payload, work.longest_wait))
        return broken;
    if (closed.exceeds(work.longest_wait, offers_c && !takes_c, ports.o_ready))
        return "accepts no accumulators for too long";
    if (starved.exceeds(work.longest_wait, offers && !ports.i_ready && is_idle()))
        return "accepts no command for too long";
    if (ports.pending < marks.size()) return "counts too few pending commit groups";
    if (const char *broken = check_arrays()) return broken;
    if (since_alone >= 0) {
        // With two multiplications in flight, the delay of the first accumulators varies, because B of the second
        // multiplication may be read before A of the first.
        const bool single = are_arrays_idle() && work.multiplication_from(writing + 1) >= next;
        if (since_alone < ready_alone ? takes_c : offers_c && !takes_c && single)
            return "takes the first accumulators too early or too late";
        since_alone = takes_c ? -1 : since_alone + 1;
    }
    return nullptr;
}

const char *Run::check_arrays() {
    if (offered >= 0 && ports.mma_ready != (ports.mma_room >> offered & 1))
        return "accepts an mma instruction while full, or refuses one while it has room";
    for (int core = 0; core < warps; ++core) {
        const void *result = &(*ports.mma_result_payload[core])[0];
        const bool valid = *ports.mma_result_valid[core], ready = *ports.mma_result_ready[core];
        if (const char *broken = of_mma[core].follow(valid, ready, result, work.longest_silence)) return broken;
        if (valid && ready) {
            Array &array = work.arrays[core];
            Instruction &instruction = array.instructions[array.answered++];
            std::memcpy(instruction.result, result, warp_words * 4);
            instruction.done = last_transfer = cycle;
        }
        if (interval[core] < 0) continue;
        const bool has_room = ports.mma_room >> core & 1, is_array_idle = is_idle() && !of_mma[core].are_due();
        if (since[core]++ < interval[core] ? has_room : is_array_idle && !has_room)
            return "signals too early or too late that an array has room";
    }
    return nullptr;
}

// Return a hash of all outputs except the payloads of results, which are compared with the expected results.
uint32_t Run::hash_of_outputs() const {
    uint32_t hash = fold(0, ports.i_ready | ports.c_ready << 1 | ports.o_valid << 2 | ports.memory_read << 3 |
                                ports.mma_room << 4 | ports.pending << 8);
    for (int row = 0; row < rows && ports.memory_read; ++row) hash = fold(hash, *ports.memory_address[row]);
    for (int core = 0; core < warps; ++core) hash = fold(hash, *ports.mma_result_valid[core]);
    return hash;
}

// Record a command that is accepted in this cycle. Return the violated rule, or null.
const char *Run::take(Command &command) {
    command.taken = cycle;
    if (command.operation == commit) marks.push_back(issued);
    if (command.operation == wait && int64_t(marks.size()) > command.pending) return "accepts a wait command too early";
    if (command.operation != multiply) return nullptr;
    if (is_idle()) {
        ready_alone = command.ready;
        since_alone = command.ready < 0 ? -1 : 1;
    }
    ++issued;
    reads_due = command.reads < 0 || reads_due < 0 ? -1 : reads_due + command.reads;
    alone = command.image_units > int(half);
    const uint32_t area = alone ? 0 : command.first_unit / half * half;
    std::memset(memory[area], 0xff, (alone ? memory_units : half) * 16);
    for (int unit = 0; unit < command.image_units; ++unit)
        std::memcpy(memory[(command.first_unit + unit) % memory_units], command.image + 4 * unit, 16);
    return nullptr;
}

// Record all transfers of one cycle after its signals have settled. Return the violated rule, or null.
const char *Run::move() {
    const bool takes_c = offers_c && ports.c_ready, writes = ports.o_valid && ports.o_ready;
    const bool takes = offers && ports.i_ready, begins = offered >= 0 && ports.mma_ready;
    if (takes_c || writes || takes || begins) last_transfer = cycle;
    if (takes_c) {
        ++work.accepted;
        offers_c = false;
        if (++panel_read == work.commands[reading].panels) {
            before = reading;
            reading = work.multiplication_from(reading + 1);
            panel_read = 0;
        }
    }
    if (takes) {
        if (const char *broken = take(work.commands[next])) return broken;
        ++next;
        offers = false;
    }
    if (writes) {
        Command &command = work.commands[writing];
        std::memcpy(command.results + panel_written * warps * warp_words, &ports.o_payload[0], warps * warp_words * 4);
        if (++panel_written == command.panels) {
            command.done = cycle;
            ++finished;
            writing = work.multiplication_from(writing + 1);
            panel_written = 0;
        }
    }
    while (!marks.empty() && marks.front() <= finished) marks.pop_front();
    if (begins) {
        Array &array = work.arrays[offered];
        Instruction &instruction = array.instructions[array.issued++];
        instruction.taken = cycle;
        of_mma[offered].expect(instruction.expected);
        interval[offered] = instruction.interval;
        since[offered] = 1;
        turn = (offered + 1) % warps;
        offered = -1;
    }
    if (is_idle() && reads_due >= 0 && times_read != reads_due) return "reads shared memory too often or too rarely";
    return nullptr;
}

const char *Run::all_cycles() {
    reset(model);
    bool stalled = false, moved = false;
    for (; cycle < work.cycles && !ended(); ++cycle) {
        uint16_t now = work.pattern[cycle % work.pattern_cycles];
        // Force events that are rare in random patterns: offers and acceptance in the same cycle after a stall, and a
        // reset in the cycle after accepted accumulators or valid results.
        if (stalled && now & pattern_meet)
            now = (now & ~pattern_reset) | pattern_offer | pattern_offer_c | pattern_take;
        if (moved && now & pattern_meet_reset) now = pattern_reset;
        const bool in_reset = now & pattern_reset;
        drive(now, in_reset);
        stalled = ports.o_valid && !ports.o_ready;
        moved = (offers_c && ports.c_ready) || ports.o_valid;
        reads = ports.memory_read && !in_reset;
        for (int row = 0; row < rows; ++row) addresses[row] = *ports.memory_address[row];
        times_read += reads;
        if (in_reset) {
            forget();
        } else {
            if (const char *broken = check()) return broken;
            if (work.outputs && !work.compares) work.outputs[cycle] = hash_of_outputs();
            if (work.compares && work.outputs[cycle] != hash_of_outputs())
                return "has outputs that differ from the recorded run";
            if (const char *broken = move()) return broken;
            if (cycle - last_transfer > work.patience) return "does not end";
        }
        ports.clk = 1;
        model.eval();
    }
    return nullptr;
}

}  // namespace

extern "C" void *group_create(const Library *library) { return new Group(*library); }
extern "C" void group_destroy(void *group) { delete static_cast<Group *>(group); }

// Reset the model and run the commands and instructions of `work`. Return the text of the violated rule, or null.
extern "C" const char *group_run(void *handle, Work *work) {
    Group &group = *static_cast<Group *>(handle);
    evaluated = &group;
    return Run(group, *work).all_cycles();
}

// Driver of the tensor cores of one CTA or of a pair of CTAs: models shared memory and tensor memory, runs commands,
// and records the contents of tensor memory and cycle numbers.
#include <cstring>
#include <deque>

#include "hash.h"
#include "units.h"

namespace {

constexpr int width = 512, panel = 8;
constexpr uint32_t memory_units = 1u << 14;

struct Command {
    const uint32_t *payload[2];                // command payload for each CTA
    uint32_t *flags[2];                        // undefined-nibble flags of panels (8 columns of D), in order of writing
    int32_t panels, written[2], undefined[2];  // number of panels (8 columns of D), of written panels; placement flags
    int64_t taken[2], done[2];
};

struct Work {
    Command *commands;
    const uint8_t *images[2];
    uint32_t *tensors[2];
    const uint8_t *pattern;  // for each cycle, bit c: offer the next command to CTA c; the pattern repeats
    int64_t ctas, count, image_bytes, pattern_cycles;
    int64_t cycles;       // maximum number of cycles of the run
    int64_t arrivals[2];  // number of commits that have arrived
    uint32_t *outputs;    // for each cycle, a hash of all outputs; null: outputs are not hashed
    int64_t compares;     // whether hashes of outputs are compared with `outputs`, not stored there
};

struct Cta : Top {
    using Top::Top;

    uint32_t memory[memory_units][4], tensor[lanes][width];

    void begin(const Work &work, int number);
    void evaluate() {
        evaluated = this;
        model.eval();
    }
    void drive(const Work &work, bool may_offer, int64_t cycle);
    const char *follow(Work &work, int64_t cycle, bool &moved);
    uint32_t outputs(uint32_t hash) const;
    bool ended(const Work &work) const { return next == work.count && writing == work.count && marks.empty(); }

  private:
    int which = 0;
    int64_t next = 0, writing = 0, issued = 0, finished = 0;
    bool offers = false;
    std::deque<int64_t> marks;  // for each pending commit, number of finished multiplications at which it arrives
    // Addresses and data of the reads in the previous cycle. The data exclude the writes of that cycle.
    uint32_t addresses[rows] = {}, operands[lanes], accumulators[lanes * panel];
    bool reads = false, reads_operands = false, reads_accumulators = false;

    static int64_t multiplication_from(const Work &work, int64_t place) {
        while (place < work.count && !work.commands[place].panels) ++place;
        return place;
    }
    void read();
    const char *write(const Work &work, int64_t cycle);
};

void Cta::begin(const Work &work, int number) {
    which = number;
    std::memset(memory, 0xff, sizeof memory);
    std::memcpy(memory, work.images[which], work.image_bytes);
    std::memcpy(tensor, work.tensors[which], sizeof tensor);
    next = issued = finished = 0;
    writing = multiplication_from(work, 0);
    offers = reads = reads_operands = reads_accumulators = false;
    marks.clear();
    evaluated = this;
    reset(model);
}

// Drive the data that were read in the previous cycle, or noise if there was no read, and offer the next command.
void Cta::drive(const Work &work, bool may_offer, int64_t cycle) {
    const int noise = int(cycle);
    for (int row = 0; row < rows; ++row) {
        void *data = ports.memory_data[row];
        if (reads)
            std::memcpy(data, memory[addresses[row]], 16);
        else
            std::memset(data, noise, 16);
    }
    for (int lane = 0; lane < lanes; ++lane)
        *ports.tensor_data[lane] = reads_operands ? operands[lane] : 0x5a5a5a5au + noise;
    for (int word = 0; word < lanes * panel; ++word)
        ports.accumulators_read_data[word] = reads_accumulators ? accumulators[word] : 0x7fc00000u + noise;
    offers = next < work.count && (offers || may_offer);
    if (offers) std::memcpy(&ports.i_payload, work.commands[next].payload[which], sizeof ports.i_payload);
    ports.i_valid = offers;
    ports.clk = 0;
}

void Cta::read() {
    reads = ports.memory_read;
    for (int row = 0; row < rows; ++row) addresses[row] = *ports.memory_address[row];
    reads_operands = ports.tensor_read;
    for (int lane = 0; lane < lanes; ++lane) operands[lane] = tensor[lane][ports.tensor_column];
    reads_accumulators = ports.accumulators_read;
    if (reads_accumulators)
        for (int lane = 0; lane < lanes; ++lane)
            for (int place = 0; place < panel; ++place)
                accumulators[lane * panel + place] = tensor[lane][(ports.accumulators_read_column + place) % width];
}

// Write eight columns of tensor memory. Reads in the same cycle return the old data.
const char *Cta::write(const Work &work, int64_t cycle) {
    if (writing >= next) return "writes columns of D although no multiplication is in flight";
    Command &command = work.commands[writing];
    const uint32_t mask = ports.accumulators_write_half ? 0xffffu : ~0u;
    for (int lane = 0; lane < lanes; ++lane)
        for (int place = 0; place < panel; ++place) {
            uint32_t &word = tensor[lane][(ports.accumulators_write_column + place) % width];
            word = (word & ~mask) | (ports.accumulators_write_data[lane * panel + place] & mask);
        }
    std::memcpy(command.flags[which] + command.written[which] * flag_words, &ports.illegal[0], flag_words * 4);
    if (++command.written[which] == command.panels) {
        command.done[which] = cycle;
        ++finished;
        writing = multiplication_from(work, writing + 1);
    }
    return nullptr;
}

// Check one cycle after its signals have settled, and record its transfers. Return the violated rule, or null.
const char *Cta::follow(Work &work, int64_t cycle, bool &moved) {
    read();
    if (ports.pending != marks.size()) return "counts a wrong number of pending commits";
    if (ports.arrive) {
        if (marks.empty() || marks.front() > finished)
            return "lets a commit arrive before the committed results are written";
        marks.pop_front();
        ++work.arrivals[which];
    }
    moved |= ports.accumulators_write || ports.arrive;
    if (ports.accumulators_write)
        if (const char *broken = write(work, cycle)) return broken;
    if (!offers || !ports.i_ready) return nullptr;
    Command &command = work.commands[next++];
    offers = false;
    moved = true;
    command.undefined[which] = ports.undefined;
    command.taken[which] = cycle;
    if (command.panels)
        ++issued;
    else
        marks.push_back(issued);
    return nullptr;
}

// Return a hash of all outputs that are defined in this cycle.
uint32_t Cta::outputs(uint32_t hash) const {
    hash = fold(hash, ports.i_ready | ports.arrive << 1 | ports.waits << 2 | ports.pending << 3);
    hash = fold(hash, ports.memory_read | ports.tensor_read << 1 | ports.accumulators_read << 2);
    for (int row = 0; row < rows && ports.memory_read; ++row) hash = fold(hash, *ports.memory_address[row]);
    if (ports.tensor_read) hash = fold(hash, ports.tensor_column);
    if (ports.accumulators_read) hash = fold(hash, ports.accumulators_read_column);
    if (!ports.accumulators_write) return hash;
    hash = fold(hash, 1u << 31 | ports.accumulators_write_column << 1 | ports.accumulators_write_half);
    for (int word = 0; word < lanes * panel; ++word) hash = fold(hash, ports.accumulators_write_data[word]);
    return hash;
}

}  // namespace

extern "C" void *cta_create(const Library *library) { return new Cta(*library); }
extern "C" void cta_destroy(void *cta) { delete static_cast<Cta *>(cta); }

// Reset the model and run the commands of `work`. Return the text of the violated rule, or null if no rule is violated.
extern "C" const char *cta_run(void *const *handles, Work *work) {
    Cta *ctas[2];
    for (int which = 0; which < work->ctas; ++which) {
        ctas[which] = static_cast<Cta *>(handles[which]);
        ctas[which]->begin(*work, which);
    }
    int64_t last_transfer = 0;
    const auto ended = [&] {
        for (int which = 0; which < work->ctas; ++which)
            if (!ctas[which]->ended(*work)) return false;
        return true;
    };
    for (int64_t cycle = 0; cycle < work->cycles && !ended(); ++cycle) {
        const uint8_t now = work->pattern[cycle % work->pattern_cycles];
        for (int which = 0; which < work->ctas; ++which) {
            ctas[which]->drive(*work, now >> which & 1, cycle);
            ctas[which]->evaluate();
        }
        // Connect the two CTAs of a pair. The outputs `waits` and `panel` of a CTA do not depend on its inputs
        // `other_waits` and `other_panel`, so that one further evaluation of each CTA settles all signals.
        for (int which = 0; which < 2 && work->ctas == 2; ++which) {
            Ports &own = ctas[which]->ports, &other = ctas[1 - which]->ports;
            own.other_waits = other.waits;
            std::memcpy(&own.other_panel, &other.panel, sizeof own.other_panel);
            ctas[which]->evaluate();
        }
        bool moved = false;
        uint32_t hash = 0;
        for (int which = 0; which < work->ctas; ++which) {
            if (const char *broken = ctas[which]->follow(*work, cycle, moved)) return broken;
            hash = ctas[which]->outputs(hash);
        }
        if (work->outputs && !work->compares) work->outputs[cycle] = hash;
        if (work->compares && work->outputs[cycle] != hash) return "has outputs that differ from the recorded run";
        if (moved)
            last_transfer = cycle;
        else if (cycle - last_transfer > patience)
            return "does not end";
        for (int which = 0; which < work->ctas; ++which) {
            ctas[which]->model.clk = 1;
            ctas[which]->evaluate();
        }
    }
    for (int which = 0; which < work->ctas; ++which)
        std::memcpy(work->tensors[which], ctas[which]->tensor, sizeof ctas[which]->tensor);
    return nullptr;
}

"""The C++ around the compiled tensor cores of one CTA or of a pair: their memories, and what tells them."""

from ...rtl.fetch import PANEL_ROWS
from ...rtl.tensor_memory import TENSOR_LANES
from .array_units import CALLED

__all__ = ["TOP", "driver"]

#: Top module.
TOP = "tcgen05"
_DRIVER = """
namespace {{
constexpr int payload_words = {payload_words}, flag_words = {flag_words}, lanes = {lanes}, width = 512, panel = 8;
constexpr uint32_t units = 1u << 14;
struct Command {{
    const uint32_t* payload[2];  // of each CTA
    uint32_t* flags[2];          // of each panel, as it is written
    int32_t panels, written[2], undefined[2];
    int64_t taken[2], done[2];
}};
struct Cta {{
    UnitsOfModel units_of;
    Vtcgen05* top;
    uint32_t memory[units][4], tensor[lanes][width];
    // What was read in the cycle before, ahead of what was written in it.
    uint32_t addresses[8] = {{}}, operands[lanes], accumulators[lanes * panel];
    bool reads = false, reads_tensor = false, reads_accumulators = false;
    int next = 0, writing = 0, arrived = 0;
    explicit Cta(const Library& of) : units_of(of, 1) {{
        evaluated = &units_of;
        top = new Vtcgen05;
    }}
    ~Cta() {{ delete top; }}
    void evaluate() {{ evaluated = &units_of; top->eval(); }}
    void reset() {{
        top->rst = 1; top->clk = 0; evaluate(); top->clk = 1; evaluate(); top->rst = 0;
        reads = reads_tensor = reads_accumulators = false;
        next = writing = arrived = 0;
    }}
    // Give what was asked for, or anything; offer what is next.
    void drive(const Command* commands, int count, int which, bool offers, int64_t cycle) {{
        const int noise = int(cycle);
        {answer}
        {answer_tensor}
        for (int word = 0; word < lanes * panel; word++)
            top->accumulators___05Fread_data[word] = reads_accumulators ? accumulators[word] : 0x7fc00000u + noise;
        top->i___05Fvalid = offers && next < count;
        if (top->i___05Fvalid) std::memcpy(&top->i___05Fpayload, commands[next].payload[which], payload_words * 4);
        top->clk = 0;
    }}
    // Note what is asked for, written and taken in this cycle; return whether anything moved.
    bool follow(Command* commands, int count, int which, int64_t cycle) {{
        reads = top->memory___05Fread;
        {ask}
        reads_tensor = top->tensor___05Fread;
        for (int lane = 0; lane < lanes; lane++) operands[lane] = tensor[lane][top->tensor___05Fcolumn];
        reads_accumulators = top->accumulators___05Fread;
        if (reads_accumulators) for (int lane = 0; lane < lanes; lane++) for (int place = 0; place < panel; place++)
            accumulators[lane * panel + place] = tensor[lane][(top->accumulators___05Fread_column + place) % width];
        bool moved = top->i___05Fvalid && top->i___05Fready;
        if (moved) {{
            commands[next].undefined[which] = top->undefined;
            commands[next++].taken[which] = cycle;
        }}
        arrived += top->arrive;
        return moved;
    }}
    // Write what is to be written, behind what was read in this cycle; return 1 if it was, -1 if nothing is due.
    int write(Command* commands, int count, int which, int64_t cycle) {{
        if (!top->accumulators___05Fwrite) return 0;
        while (writing < count && !commands[writing].panels) writing++;
        if (writing == count) return -1;
        Command& of = commands[writing];
        const uint32_t mask = top->accumulators___05Fwrite_half ? 0xffffu : ~0u;
        for (int lane = 0; lane < lanes; lane++) for (int place = 0; place < panel; place++) {{
            uint32_t& word = tensor[lane][(top->accumulators___05Fwrite_column + place) % width];
            word = (word & ~mask) | (top->accumulators___05Fwrite_data[lane * panel + place] & mask);
        }}
        std::memcpy(of.flags[which] + of.written[which] * flag_words, &top->illegal[0], flag_words * 4);
        if (++of.written[which] == of.panels) {{
            of.done[which] = cycle;
            writing++;
        }}
        return 1;
    }}
    bool ends(const Command* commands, int count) const {{
        int place = writing;
        while (place < count && !commands[place].panels) place++;
        return next == count && place == count;
    }}
}};
}}  // namespace

extern "C" void* cta_create(
    void* (*create)(int), void (*destroy)(void*), void* (*add)(void*),
    void (*clock)(void*, void*, const uint32_t*, uint32_t*)
) {{
    return new Cta(Library{{create, destroy, add, clock}});
}}
extern "C" void cta_destroy(void* cta) {{ delete static_cast<Cta*>(cta); }}
extern "C" int64_t cta_run(
    void** handles, int ctas, Command* commands, int count, const uint8_t* const* images, const int64_t* sizes,
    uint32_t* const* tensors, int32_t* arrivals, const uint8_t* pattern, size_t pattern_length, int64_t patience
) {{
    Cta* of[2];
    for (int which = 0; which < ctas; which++) {{
        of[which] = static_cast<Cta*>(handles[which]);
        std::memset(of[which]->memory, 0xff, sizeof of[which]->memory);
        std::memcpy(of[which]->memory, images[which], sizes[which]);
        std::memcpy(of[which]->tensor, tensors[which], sizeof of[which]->tensor);
        of[which]->reset();
    }}
    int64_t cycle = 0, last_transfer = 0;
    const auto ended = [&] {{
        for (int which = 0; which < ctas; which++) if (!of[which]->ends(commands, count)) return false;
        return true;
    }};
    for (; !ended(); cycle++) {{
        const uint8_t now = pattern[cycle % pattern_length];
        for (int which = 0; which < ctas; which++) {{
            of[which]->drive(commands, count, which, now >> which & 1, cycle);
            of[which]->evaluate();
        }}
        // What one CTA of a pair says depends on nothing that it is told by the other.
        if (ctas == 2) for (int which = 0; which < 2; which++) {{
            Vtcgen05 &mine = *of[which]->top, &other = *of[1 - which]->top;
            mine.other_waits = other.waits;
            std::memcpy(&mine.other_panel, &other.panel, sizeof mine.other_panel);
            of[which]->evaluate();
        }}
        for (int which = 0; which < ctas; which++) {{
            const bool moved = of[which]->follow(commands, count, which, cycle);
            const int written = of[which]->write(commands, count, which, cycle);
            if (written < 0) return -1;
            if (moved || written) last_transfer = cycle;
        }}
        if (cycle - last_transfer > patience) return -1;
        for (int which = 0; which < ctas; which++) {{
            of[which]->top->clk = 1;
            of[which]->evaluate();
        }}
    }}
    for (int which = 0; which < ctas; which++) {{
        // Commits arrive behind the last result, one a cycle.
        of[which]->top->i___05Fvalid = 0;
        for (bool all = false; !all;) {{
            of[which]->top->clk = 0;
            of[which]->evaluate();
            all = !of[which]->top->arrive;
            of[which]->arrived += !all;
            of[which]->top->clk = 1;
            of[which]->evaluate();
        }}
        arrivals[which] = of[which]->arrived;
        std::memcpy(tensors[which], of[which]->tensor, sizeof of[which]->tensor);
    }}
    return cycle;
}}
"""
_ANSWER = (
    "if (reads) std::memcpy(&top->memory___05Fdata___05F{row}, memory[addresses[{row}]], 16); "
    "else std::memset(&top->memory___05Fdata___05F{row}, noise, 16);"
)
_ANSWER_TENSOR = "top->tensor___05Fdata___05F{lane} = reads_tensor ? operands[{lane}] : 0x5a5a5a5au + noise;"
_ASK = "addresses[{row}] = top->memory___05Faddress___05F{row};"


def driver(payload_words: int, flag_words: int) -> str:
    """Return the C++, of which the words of a payload and of the flags beside a panel are to be filled in."""
    rows, lanes = range(PANEL_ROWS), range(TENSOR_LANES)
    return CALLED + _DRIVER.format(
        payload_words=payload_words,
        flag_words=flag_words,
        lanes=TENSOR_LANES,
        answer="\n        ".join(_ANSWER.format(row=row) for row in rows),
        answer_tensor="\n        ".join(_ANSWER_TENSOR.format(lane=lane) for lane in lanes),
        ask="\n        ".join(_ASK.format(row=row) for row in rows),
    )

"""The C++ around a compiled warpgroup: what tells it, its shared memory, and its registers."""

from ...rtl.fetch import PANEL_ROWS
from ...rtl.tensor_cores import WARPS
from .array_units import CALLED

__all__ = ["TOP", "driver"]

#: Top module.
TOP = "warpgroup"
_DRIVER = """
namespace {{
constexpr int payload_words = {payload_words}, panel_words = {panel_words}, warp_words = {warp_words};
constexpr int mma_words = {mma_words}, c_word = {c_word}, c_words = panel_words / 4, core_bit = {core_bit};
constexpr uint32_t units = 1u << 14, half = units / 2;
struct Command {{
    const uint32_t* payload;
    const uint32_t* image;
    const uint32_t* c;
    uint32_t* results;
    int32_t panels, image_units;
    int64_t taken, done;
}};
// Of a warp, an instruction of mma: its operands, of which C may be the result of an earlier one.
struct Instruction {{
    const uint32_t* payload;
    uint32_t* result;
    int32_t after, surroundings;
    int64_t taken, done;
}};
struct Array {{
    Instruction* instructions;
    int32_t count, told, answered;
    // The next instruction, if its accumulators are there.
    const Instruction* next(int64_t cycle) const {{
        if (told == count) return nullptr;
        const Instruction& of = instructions[told];
        if (of.after < 0) return &of;
        const Instruction& before = instructions[of.after];
        return of.after < answered && cycle >= before.done + of.surroundings ? &of : nullptr;
    }}
    void offer(const Instruction* of, uint32_t* payload) const {{
        std::memcpy(payload, of->payload, mma_words * 4);
        if (of->after >= 0) std::memcpy(payload + c_word, instructions[of->after].result, c_words * 4);
    }}
    void answer(int64_t cycle, const uint32_t* result) {{
        std::memcpy(instructions[answered].result, result, warp_words * 4);
        instructions[answered++].done = cycle;
    }}
}};
struct Group {{
    UnitsOfModel units_of;
    Vwarpgroup* top;
    uint32_t memory[units][4];
    Group(const Library& of, int threads) : units_of(of, threads) {{
        evaluated = &units_of;
        top = new Vwarpgroup;
    }}
    ~Group() {{ delete top; }}
}};
int multiplication_from(const Command* commands, int count, int place) {{
    while (place < count && !commands[place].panels) place++;
    return place;
}}
}}  // namespace

extern "C" void* group_create(
    void* (*create)(int), void (*destroy)(void*), void* (*add)(void*),
    void (*clock)(void*, void*, const uint32_t*, uint32_t*), int threads
) {{
    return new Group(Library{{create, destroy, add, clock}}, threads);
}}
extern "C" void group_destroy(void* group) {{ delete static_cast<Group*>(group); }}
extern "C" int64_t group_run(
    void* handle, Command* commands, int count, Array* arrays, const uint8_t* pattern, size_t pattern_length,
    int64_t patience
) {{
    Group& group = *static_cast<Group*>(handle);
    Vwarpgroup& top = *group.top;
    evaluated = &group.units_of;
    // What is told next; of multiplications whose accumulators are read next, the one before, whose results come next.
    int next = 0, reading = multiplication_from(commands, count, 0), before = count, writing = reading;
    int panel_read = 0, panel_written = 0, number = 0;
    bool alone = false, reads = false;
    uint32_t addresses[8] = {{}};
    top.rst = 1; top.clk = 0; top.eval(); top.clk = 1; top.eval(); top.rst = 0;
    int64_t cycle = 0, last_transfer = 0;
    int turn = 0;
    const auto instructions_left = [&] {{
        for (int place = 0; place < 4; place++) if (arrays[place].answered < arrays[place].count) return true;
        return false;
    }};
    for (; next < count || writing < count || instructions_left(); cycle++) {{
        const uint8_t now = pattern[cycle % pattern_length];
        // Without a read the port shows anything.
        if (reads) {{
            {answer}
        }} else {{
            {noise}
        }}
        // An image of more than half the memory has it to itself.
        const bool large = next < count && commands[next].image_units > int(half);
        const bool waits = next < count && commands[next].panels && (large || alone) && writing != next;
        const bool offers = next < count && now & 1 && !waits;
        top.i___05Fvalid = offers;
        if (offers) std::memcpy(&top.i___05Fpayload, commands[next].payload, payload_words * 4);
        bool there = reading < count && now & 2;
        if (there && !commands[reading].c)
            there = before < writing || (before == writing && panel_read < panel_written);
        if (there) for (int warp = 0; warp < 4; warp++) {{
            const uint32_t* c = commands[reading].c
                ? commands[reading].c + panel_read * panel_words + warp * panel_words / 4
                : commands[before].results + (panel_read * 4 + warp) * warp_words;
            std::memcpy(&top.c___05Fpayload[warp * panel_words / 4], c, panel_words);
        }}
        top.c___05Fvalid = there;
        top.o___05Fready = (now & 4) != 0;
        {take}
        int offered = -1;
        top.mma___05Fvalid = 0;
        top.clk = 0;
        top.eval();
        // Of the instructions whose array would take them one is offered, of each array in turn.
        if (now & 8 && instructions_left()) for (int place = 0; offered < 0 && place < 4; place++) {{
            const int core = (turn + place) % 4;
            if (top.mma_room >> core & 1 && arrays[core].next(cycle)) offered = core;
        }}
        if (offered >= 0) {{
            arrays[offered].offer(arrays[offered].next(cycle), &top.mma___05Fpayload[0]);
            top.mma___05Fvalid = 1;
            top.mma___05Fpayload[core_bit / 32] |= uint32_t(offered) << core_bit % 32;
            top.eval();
        }}
        reads = top.memory___05Fread;
        {ask}
        const bool read = there && top.c___05Fready, written = top.o___05Fvalid && top.o___05Fready;
        const bool taken = offers && top.i___05Fready;
        const bool begun = top.mma___05Fvalid && top.mma___05Fready;
        bool moved = read || written || taken || begun;
        if (begun) {{
            arrays[offered].instructions[arrays[offered].told++].taken = cycle;
            turn = (offered + 1) % 4;
        }}
        {answers}
        if (moved) last_transfer = cycle;
        else if (cycle - last_transfer > patience) return -1;
        if (read && ++panel_read == commands[reading].panels) {{
            before = reading;
            reading = multiplication_from(commands, count, reading + 1);
            panel_read = 0;
        }}
        if (written) {{
            if (writing == count) return -1;
            Command& of = commands[writing];
            std::memcpy(of.results + panel_written * 4 * warp_words, &top.o___05Fpayload[0], 16 * warp_words);
            if (++panel_written == of.panels) {{
                of.done = cycle;
                writing = multiplication_from(commands, count, writing + 1);
                panel_written = 0;
            }}
        }}
        if (taken) {{
            Command& of = commands[next++];
            of.taken = cycle;
            if (of.panels) {{
                uint32_t* area = group.memory[large ? 0 : number % 2 * half];
                std::memset(area, 0xff, (large ? units : half) * 16);
                std::memcpy(area, of.image, of.image_units * 16);
                alone = large;
                number++;
            }}
        }}
        top.clk = 1;
        top.eval();
    }}
    return cycle;
}}
"""
_ANSWER = "std::memcpy(&top.memory___05Fdata___05F{row}, group.memory[addresses[{row}]], 16);"
_NOISE = "std::memset(&top.memory___05Fdata___05F{row}, int(cycle), 16);"
_ASK = "addresses[{row}] = top.memory___05Faddress___05F{row};"
_TAKE = "top.mma_result___05F{core}___05Fready = (now & 16) != 0;"
_ANSWER_OF = """if (top.mma_result___05F{core}___05Fvalid && top.mma_result___05F{core}___05Fready) {{
            if (arrays[{core}].answered == arrays[{core}].told) return -1;
            arrays[{core}].answer(cycle, &top.mma_result___05F{core}___05Fpayload[0]);
            moved = true;
        }}"""


def driver(**words: int) -> str:
    """Return the C++, of which numbers of words are to be filled in.

    Parameters
    ----------
    **words : int
        Of a payload, a panel and a warp's results, of an instruction of ``mma`` and before its C; and the lowest bit of
        the number of its array.
    """
    rows, places = range(PANEL_ROWS), range(WARPS)
    return CALLED + _DRIVER.format(
        **words,
        answer="\n            ".join(_ANSWER.format(row=row) for row in rows),
        noise="\n            ".join(_NOISE.format(row=row) for row in rows),
        ask="\n        ".join(_ASK.format(row=row) for row in rows),
        take="\n        ".join(_TAKE.format(core=place) for place in places),
        answers="\n        ".join(_ANSWER_OF.format(core=place) for place in places),
    )

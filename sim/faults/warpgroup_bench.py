"""What the regression tries of a warpgroup on faulty hardware: groups, two instructions at a time, ``mma`` between."""

import ctypes
from itertools import islice
from pathlib import Path

import numpy as np

from ...isa.timing import RegisterCycles
from ...rtl.convert import to_rtlil
from ...rtl.emit import unit_instance, unit_of
from ...rtl.fetch import ADDRESS_BITS, CORE_MATRICES, PANEL_ROWS
from ...rtl.life_cycle import Operation
from ...rtl.panel_operands import fragment_layout
from ...rtl.round import ResultCode
from ...rtl.tensor_cores import WARPS, mma_layout, ready_cycles
from ...rtl.unit import Unit
from ...rtl.warp import warp_operands_layout, warp_result_layout
from ...rtl.warpgroup import Warpgroup, warpgroup_layout
from ..benches.items import Item, warp_items
from ..benches.jobs import Job, read_jobs
from ..benches.scoreboard import Scoreboard
from ..benches.settings import Settings
from ..benches.warpgroup_items import commands
from .assumptions import AssumedStream, assumed_control
from .compiled import TOP, pointer
from .mutants import REST, UNTOUCHED
from .stream_bench import JOB, STARVED, WRONG, StreamBench, described_jobs, joined, words_bytes

__all__ = ["warpgroup_bench"]

#: The tensor cores of the design.
_CORES = "design.tensor_cores"
#: Instructions of ``mma`` that are offered in turn.
_BESIDE = 64
#: Commands at ``i``, accumulators of multiplications at ``c``, ``mma`` for any of the arrays, a shared memory of units
#: of 16 bytes, of which either half is that of one of two multiplications. Where nothing is read, a word of some unit
#: becomes noise.
_DRIVER = """
#include <deque>
{job}
struct Command {{ int32_t operation, job, pending; }};
static const char *payloads, *accumulators, *operands, *wanted;
static const Job* jobs;
static const Command* commands;
static const uint32_t* memory;
static const int32_t *paces, *ready;
static int32_t count, count_beside, next, waiting, at_source, next_beside, beside, core;
// Panels whose accumulators are offered next; of every multiplication, how many results are to come; and how many
// multiplications are finished when each committed group is.
static std::deque<int32_t> panels, left, marks;
static int32_t issued, finished, of_half[2], silent[{warps}];
// Cycles since each array has begun an mma, and how many that takes its operands.
static int32_t since[{warps}], pace[{warps}];
// Cycles since a multiplication was taken by itself, until its first accumulators are; else -1. And what they must be.
static int32_t since_alone, alone;
static std::deque<int32_t> under_way[{warps}];
static int64_t reads_wanted, times_read;
static bool reads, wrong, is_quiet;
static uint32_t addresses[{rows}], noise = 1;
static uint32_t drawn() {{ return (noise = noise * 1664525u + 1013904223u) >> 8; }}
extern "C" void load_warpgroup(
    const char* given, const Command* told, int32_t number, const char* c, const Job* described, const uint32_t* units,
    const char* of_mma, const char* results, const int32_t* of_operands, int32_t number_beside, const int32_t* of_jobs
) {{
    payloads = given; commands = told; count = number; accumulators = c; jobs = described; memory = units;
    operands = of_mma; wanted = results; paces = of_operands; count_beside = number_beside; ready = of_jobs;
}}
static void forget() {{
    for (auto* queue : {{&panels, &left, &marks}}) queue->clear();
    for (auto& queue : under_way) queue.clear();
    for (int32_t core = 0; core < {warps}; core++) silent[core] = pace[core] = since[core] = 0;
    at_source = of_half[0] = of_half[1] = since_alone = -1;
    issued = finished = 0;
    reads_wanted = times_read = 0;
}}
static void restart() {{
    next = next_beside = 0;
    waiting = beside = -1;
    wrong = false;
    is_quiet = true;
    noise = 1;
    forget();
}}
static void offer(bool may, bool may_panel, bool reset) {{
    if (waiting < 0 && may && !reset && next < count) {{
        waiting = next++;
        std::memcpy(&top.i___05Fpayload, payloads + size_t(waiting) * {in_bytes}, {in_bytes});
    }}
    if (at_source < 0 && may_panel && !reset && !panels.empty()) {{
        at_source = panels.front();
        panels.pop_front();
        std::memcpy(&top.c___05Fpayload, accumulators + size_t(at_source) * {c_bytes}, {c_bytes});
    }}
    // An mma that follows a result which waits keeps its array busy: for two thirds of the time there is none.
    if (drawn() % (is_quiet ? {quiet} : {quiet} / 2) == 0) is_quiet = !is_quiet;
    if (beside < 0 && !is_quiet && !reset && drawn() % {pace} < 2) {{
        beside = next_beside++ % count_beside;
        core = drawn() % {warps};
        std::memcpy(&top.mma___05Fpayload, operands + size_t(beside) * {mma_bytes}, {mma_bytes});
        top.mma___05Fpayload[{core_bit} / 32] |= uint32_t(core) << {core_bit} % 32;
    }}
    top.i___05Fvalid = waiting >= 0 && !reset;
    top.c___05Fvalid = at_source >= 0 && !reset;
    top.mma___05Fvalid = beside >= 0 && !reset;
    const uint32_t takes = drawn();
{takes}}}
static void look_at(int of, bool valid, bool ready, const void* result) {{
    auto& queue = under_way[of];
    silent[of] = queue.empty() || (valid && ready) ? 0 : silent[of] + 1;
    wrong |= silent[of] > {silent};
    if (!valid) return;
    wrong |= queue.empty() || std::memcmp(result, wanted + size_t(queue.front()) * {result_bytes}, {result_bytes}) != 0;
    if (ready && !queue.empty()) queue.pop_front();
}}
static bool are_idle() {{
    for (auto& queue : under_way) if (!queue.empty()) return false;
    return true;
}}
static uint8_t sample(bool reset) {{
    reads = top.memory___05Fread && !reset;
{addresses}    times_read += reads;
    bool starved = false;
    if (!reset) {{
        starved = waiting >= 0 && !top.i___05Fready && panels.empty() && at_source < 0 && left.empty();
        wrong |= beside >= 0 && top.mma___05Fready != (top.mma_room >> core & 1);
        wrong |= top.pending < marks.size();
{results}        for (int32_t core = 0; core < {warps}; core++) {{
            const bool room = top.mma_room >> core & 1, is_idle = left.empty() && under_way[core].empty();
            wrong |= since[core] < pace[core] ? room : is_idle && !room;
            since[core]++;
        }}
        if (since_alone >= 0) {{
            const bool taken = top.c___05Fvalid && top.c___05Fready;
            // B of a second one may be read before A of the first.
            wrong |= since_alone < alone ? taken : top.c___05Fvalid && !taken && are_idle() && left.size() == 1;
            since_alone = taken ? -1 : since_alone + 1;
        }}
    }}
    return (starved ? {starved_bit} : 0) | (wrong ? {wrong_bit} : 0);
}}
static void take(const Command& command) {{
    if (command.operation == {multiply}) {{
        const Job& job = jobs[command.job];
        if (left.empty()) {{
            alone = ready[command.job];
            since_alone = 1;
        }}
        for (int64_t n = 0; n < job.panels; n++) panels.push_back(job.panel + n);
        left.push_back(job.panels);
        issued++;
        reads_wanted += job.reads;
        of_half[job.base / {half}] = command.job;
    }} else if (command.operation == {commit}) {{
        marks.push_back(issued);
    }} else if (command.operation == {wait}) {{
        wrong |= int32_t(marks.size()) > command.pending;
    }}
}}
static void move(bool reset) {{
    if (reset) {{
        forget();
        return;
    }}
    if (at_source >= 0 && top.c___05Fready) at_source = -1;
    if (waiting >= 0 && top.i___05Fready) {{
        take(commands[waiting]);
        waiting = -1;
    }}
    if (top.o___05Fvalid && top.o___05Fready && !left.empty() && !--left.front()) {{
        left.pop_front();
        finished++;
    }}
    while (!marks.empty() && marks.front() <= finished) marks.pop_front();
    if (beside >= 0 && top.mma___05Fready) {{
        under_way[core].push_back(beside);
        pace[core] = paces[beside];
        since[core] = 1;
        beside = -1;
    }}
    wrong |= left.empty() && times_read != reads_wanted;
}}
static uint32_t word(int row, int place) {{
    const int32_t number = of_half[addresses[row] / {half}];
    if (number < 0) return ~0u;
    const Job& job = jobs[number];
    const int64_t unit = (addresses[row] - job.base) & {last_unit};
    return unit < job.units ? memory[4 * (job.memory + unit) + place] : ~0u;
}}
static void answer() {{
    if (reads) {{
{answers}        return;
    }}
    const uint32_t value = drawn();
    switch (value & {rows} - 1) {{
{noises}    }}
}}
"""


def warpgroup_bench(settings: Settings, rng: np.random.Generator) -> StreamBench:
    """Return what is tried of a warpgroup: faults of what it adds to its warps, which are met with registers.

    Parameters
    ----------
    settings : Settings
        Datapath, items, and the file of its work.
    rng : Generator
        Draws commits and waits, and ``mma``.
    """
    config = settings.config
    jobs = list(islice(read_jobs(Path(settings.jobs)), settings.items))
    panels = [panel for job in jobs for panel in job.panels]
    told = list(commands(iter(jobs), rng))
    number_of = {id(job): number for number, job in enumerate(jobs)}
    described, memory = described_jobs(jobs)
    beside = list(islice(warp_items(config, settings.arch, rng), _BESIDE))
    payloads = joined((command.payload for command in told), warpgroup_layout().size)
    accumulators = joined((panel.payload for panel in panels), WARPS * fragment_layout().size)
    operands = joined((item.payload for item in beside), mma_layout().size)
    results = joined((item.expected for item in beside), warp_result_layout().size)
    registers = _registers(config.warp_blocks)
    paces = np.array([_pace(registers, item) for item in beside], np.int32)
    ready = np.array([_ready(registers, job) for job in jobs], np.int32)
    kinds = np.array(
        [(of.operation.value, number_of[id(of.job)] if of.job else -1, of.pending) for of in told], np.int32
    )

    def load(library: ctypes.CDLL) -> None:
        library.load_warpgroup(
            *(payloads, pointer(kinds), len(told), accumulators, pointer(described), memory),
            *(operands, results, pointer(paces), len(beside), pointer(ready)),
        )

    pace = 2 * config.warp_blocks
    return StreamBench(
        _design(settings, registers),
        {
            # What only flags is looked at by tests of its own.
            UNTOUCHED: (*(f"{_CORES}.core_{core}.warp" for core in range(WARPS)), "design.commands_0.life_cycle"),
            "operand_fetch": (f"{_CORES}.fetch",),
            "tensor_core": tuple(f"{_CORES}.core_{core}" for core in range(WARPS)),
            "warpgroup": REST,
        },
        unit_of(TOP),
        panels,
        "c",
        _driver(pace),
        load,
        WARPS * warp_result_layout().size,
        pace=pace,
        cycles=6 * len(panels) * pace,
        scoreboard=lambda: Scoreboard(8 * pace + 64),
    )


def _driver(pace: int) -> str:
    ports = [(row, f"memory___05Faddress___05F{row}", f"memory___05Fdata___05F{row}") for row in range(PANEL_ROWS)]
    of_core = [f"mma_result___05F{core}___05F" for core in range(WARPS)]
    return _DRIVER.format(
        job=JOB,
        warps=WARPS,
        rows=PANEL_ROWS,
        last_unit=(1 << ADDRESS_BITS) - 1,
        half=1 << ADDRESS_BITS - 1,
        pace=pace,
        quiet=16 * pace,
        silent=1_000 * pace,
        in_bytes=words_bytes(warpgroup_layout().size),
        c_bytes=words_bytes(WARPS * fragment_layout().size),
        mma_bytes=words_bytes(mma_layout().size),
        core_bit=mma_layout()["core"].offset,
        result_bytes=words_bytes(warp_result_layout().size),
        multiply=Operation.MULTIPLY.value,
        commit=Operation.COMMIT.value,
        wait=Operation.WAIT.value,
        starved_bit=STARVED,
        wrong_bit=WRONG,
        takes="".join(
            f"    top.{port}ready = !reset && (takes >> {2 * core} & 3);\n" for core, port in enumerate(of_core)
        ),
        results="".join(
            f"        look_at({core}, top.{port}valid, top.{port}ready, &top.{port}payload);\n"
            for core, port in enumerate(of_core)
        ),
        addresses="".join(f"    addresses[{row}] = top.{address};\n" for row, address, _ in ports),
        answers="".join(
            f"        top.{data}[{place}] = word({row}, {place});\n" for row, _, data in ports for place in range(4)
        ),
        noises="".join(f"    case {row}: top.{data}[value >> 8 & 3] = drawn(); break;\n" for row, _, data in ports),
    )


def _registers(blocks: int) -> RegisterCycles:
    """Return cycles of the register file that show: those of ``mma`` are more than an array of so many blocks takes."""
    cases = [(False, False), (False, True), (True, False), (True, True)]
    return RegisterCycles(of_mma={case: blocks + 3 + 5 * number for number, case in enumerate(cases)})


def _pace(registers: RegisterCycles, item: Item) -> int:
    """Return the cycles from the beginning of an ``mma`` to that of the next."""
    operands = warp_operands_layout().from_bits(item.payload)
    return registers.of_mma[bool(operands.control.sparse), bool(operands.long)]


def _ready(registers: RegisterCycles, job: Job) -> int:
    """Return the cycles from when a multiplication is taken by itself to its first accumulators."""
    told = warpgroup_layout().from_bits(job.instruction)
    sparse, narrow = bool(told.control.sparse), told.control.result == ResultCode.F16 or not told.last_panel
    of_a = 0 if told.a_shared else registers.of_wgmma(sparse=sparse, narrow=narrow)
    return ready_cycles(of_a, told.last_panel + 1, CORE_MATRICES if sparse else CORE_MATRICES // 2)


def _design(settings: Settings, registers: RegisterCycles) -> str:
    """Return a warpgroup that instructions there are drive and, beside it, the unit that it is made of."""
    config = settings.config
    warpgroup = Warpgroup(config, registers, unit_class=unit_instance(TOP))
    control = assumed_control(warpgroup.i.payload.control, config, settings.arch)
    control.submodules.beside = assumed_control(warpgroup.mma.payload.operands.control, config, settings.arch)
    design = to_rtlil(AssumedStream(warpgroup, control), TOP)
    return f"{design}\n{to_rtlil(Unit(config), unit_of(TOP))}"

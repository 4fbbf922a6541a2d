"""What the regression tries of stream components on faulty hardware: designs, items, and drivers of their inputs."""

import ctypes
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from amaranth.hdl import Assume, Cat, Const, Module, Signal, Value

from ...isa.tensor_memory import COLUMNS
from ...rtl.convert import to_rtlil
from ...rtl.core import Core, tile_layout, tile_result_layout
from ...rtl.emit import unit_instance, unit_of
from ...rtl.fetch import ADDRESS_BITS, PANEL_ROWS
from ...rtl.tensor_memory import TENSOR_LANES, TensorMemoryReader, tensor_registers_layout, tensor_request_layout
from ...rtl.unit import Unit
from ...rtl.warp import Warp, warp_operands_layout, warp_result_layout
from ...rtl.wgmma import WgmmaWarp, accumulator_layout, wgmma_layout
from ..benches.items import TAG, Item, tiles, warp_items
from ..benches.scoreboard import Scoreboard
from ..benches.settings import Settings
from ..benches.tensor_memory_items import RegisterScoreboard, Tile, random_tiles
from ..benches.wgmma_items import Job, read_jobs
from .assumptions import AssumedStream, assumed_control
from .compiled import TOP, pointer
from .mutants import REST, UNTOUCHED
from .stream_bench import JOB, READS, STARVED, WRONG, StreamBench, described_jobs, joined, words_bytes
from .warpgroup_bench import warpgroup_bench

__all__ = ["stream_bench"]

#: Columns that a tile of tensor memory reads at most.
_READS = 4
#: One stream of items.
_ITEMS = """
static const char* items;
static int32_t count, next, at_source;
extern "C" void load_items(const char* given, int32_t number) {{ items = given; count = number; }}
static void restart() {{ next = 0; at_source = -1; }}
static void offer(bool may, bool, bool reset) {{
    if (at_source < 0 && next < count && may && !reset) {{
        at_source = next++;
        std::memcpy(&top.i___05Fpayload, items + size_t(at_source) * {in_bytes}, {in_bytes});
    }}
    top.i___05Fvalid = at_source >= 0 && !reset;
}}
static void move(bool) {{ if (top.i___05Fvalid && top.i___05Fready) at_source = -1; }}
"""
_NO_MEMORY = """
static uint8_t sample(bool) { return 0; }
static void answer() {}
"""
#: Of the item at the input, words lane by lane. Where nothing is read, some lane becomes noise.
_TENSOR_MEMORY = """
static const uint32_t* memory;
static bool reads;
static int32_t of_item;
static uint32_t column, noise = 1;
extern "C" void load_memory(const uint32_t* given) {{ memory = given; }}
static uint8_t sample(bool reset) {{
    reads = top.memory___05Fread && !reset;
    column = top.memory___05Fcolumn;
    of_item = at_source;
    return reads ? {reads_bit} : 0;
}}
static void answer() {{
    if (reads && of_item >= 0) {{
        const uint32_t* words = memory + size_t(of_item) * {lanes} * {columns} + column;
{answers}        return;
    }}
    noise = noise * 1664525u + 1013904223u;
    switch (noise >> 16 & {lanes} - 1) {{
{noises}    }}
}}
"""
#: Instructions at ``i``, their accumulators at ``c``, a shared memory of units of 16 bytes. Where nothing is read, a
#: word of some unit becomes noise.
_WGMMA = """
#include <deque>
{job}
static const char *instructions, *accumulators;
static const Job* jobs;
static const uint32_t* memory;
static int32_t count, next, waiting, running, at_source;
static std::deque<int32_t> panels;
static bool reads, starved, wrong;
static int64_t times_read;
static uint32_t addresses[{rows}], noise = 1;
extern "C" void load_jobs(
    const char* given, const char* c, const Job* described, const uint32_t* units, int32_t number
) {{
    instructions = given; accumulators = c; jobs = described; memory = units; count = number;
}}
static void restart() {{
    next = 0;
    waiting = running = at_source = -1;
    panels.clear();
    wrong = false;
    times_read = 0;
}}
static void offer(bool may, bool may_panel, bool reset) {{
    if (waiting < 0 && may && !reset && next < count) {{
        waiting = next++;
        std::memcpy(&top.i___05Fpayload, instructions + size_t(waiting) * {in_bytes}, {in_bytes});
    }}
    if (at_source < 0 && may_panel && !reset && !panels.empty()) {{
        at_source = panels.front();
        panels.pop_front();
        std::memcpy(&top.c___05Fpayload, accumulators + size_t(at_source) * {c_bytes}, {c_bytes});
    }}
    top.i___05Fvalid = waiting >= 0 && !reset;
    top.c___05Fvalid = at_source >= 0 && !reset;
}}
static uint8_t sample(bool reset) {{
    reads = running >= 0 && top.memory___05Fread;
{addresses}    starved = waiting >= 0 && panels.empty() && at_source < 0 && !reset;
    times_read += reads;
    return (starved ? {starved_bit} : 0) | (wrong ? {wrong_bit} : 0);
}}
static void move(bool reset) {{
    if (reset) {{
        panels.clear();
        at_source = running = -1;
        times_read = 0;
        return;
    }}
    if (at_source >= 0 && top.c___05Fready) at_source = -1;
    if (waiting >= 0 && top.i___05Fready) {{
        wrong |= running >= 0 && times_read != jobs[running].reads;
        times_read = 0;
        running = waiting;
        waiting = -1;
        for (int64_t n = 0; n < jobs[running].panels; n++) panels.push_back(jobs[running].panel + n);
    }}
}}
static uint32_t word(int row, int place) {{
    const Job& job = jobs[running];
    const int64_t unit = (addresses[row] - job.base) & {last_unit};
    return unit < job.units ? memory[4 * (job.memory + unit) + place] : ~0u;
}}
static void answer() {{
    if (reads && running >= 0) {{
{answers}        return;
    }}
    noise = noise * 1664525u + 1013904223u;
    switch (noise >> 16 & {rows} - 1) {{
{noises}    }}
}}
"""


def stream_bench(settings: Settings, rng: np.random.Generator) -> StreamBench:
    """Return what is tried of a top, with its items drawn.

    Parameters
    ----------
    settings : Settings
        Top, datapath and items; of ``wgmma`` and a warpgroup the file of its work.
    rng : Generator
        Source of randomness.
    """
    return _BENCHES[settings.top](settings, rng)


def _core(settings: Settings, rng: np.random.Generator) -> StreamBench:
    """Faults of what an array adds: its rows' decoders are met with the row's."""
    config = settings.config
    items = list(islice(tiles(config, settings.arch, rng), settings.items))
    in_bits = tile_layout(config, TAG).size
    return StreamBench(
        _design(Core(config, TAG, unit_instance(TOP)), settings),
        {"core": REST, UNTOUCHED: tuple(f"design.decode_row_{row}" for row in range(config.rows))},
        unit_of(TOP),
        items,
        "i",
        _ITEMS.format(in_bytes=words_bytes(in_bits)) + _NO_MEMORY,
        _load_items(items, in_bits),
        tile_result_layout(config, TAG).size,
        pace=1,
        # Every other cycle on average something enters.
        cycles=2 * settings.items,
        scoreboard=lambda: Scoreboard(4 * (1 + config.latency)),
    )


def _warp(settings: Settings, rng: np.random.Generator) -> StreamBench:
    """Faults of what a warp adds to its array, whose own are met with tiles."""
    config = settings.config
    items = list(islice(warp_items(config, settings.arch, rng), settings.items))
    in_bits = warp_operands_layout().size
    return StreamBench(
        _design(Warp(config, unit_class=unit_instance(TOP)), settings),
        {"warp": REST, UNTOUCHED: ("design.core",)},
        unit_of(TOP),
        items,
        "i",
        _ITEMS.format(in_bytes=words_bytes(in_bits)) + _NO_MEMORY,
        _load_items(items, in_bits),
        warp_result_layout().size,
        pace=2 * config.warp_blocks,
        cycles=3 * settings.items * config.warp_blocks,
        scoreboard=lambda: Scoreboard(4 * (2 * config.warp_blocks + config.latency)),
    )


def _wgmma(settings: Settings, rng: np.random.Generator) -> StreamBench:
    """Faults of what feeds the warp from memory; the warp's own are met with registers."""
    config = settings.config
    jobs = list(islice(read_jobs(Path(settings.jobs)), settings.items))
    panels = [panel for job in jobs for panel in job.panels]
    in_bytes, c_bytes = words_bytes(wgmma_layout().size), words_bytes(accumulator_layout().size)
    ports = [(row, f"memory___05Faddress___05F{row}", f"memory___05Fdata___05F{row}") for row in range(PANEL_ROWS)]
    pace = 2 * config.warp_blocks
    return StreamBench(
        _design(WgmmaWarp(config, unit_class=unit_instance(TOP)), settings),
        {"fetch": ("design.fetcher",), "wgmma": REST, UNTOUCHED: ("design.warp",)},
        unit_of(TOP),
        panels,
        "c",
        _WGMMA.format(
            job=JOB,
            starved_bit=STARVED,
            wrong_bit=WRONG,
            rows=PANEL_ROWS,
            last_unit=(1 << ADDRESS_BITS) - 1,
            in_bytes=in_bytes,
            c_bytes=c_bytes,
            addresses="".join(f"    addresses[{row}] = top.{address};\n" for row, address, _ in ports),
            answers="".join(
                f"        top.{data}[{place}] = word({row}, {place});\n" for row, _, data in ports for place in range(4)
            ),
            noises="".join(f"    case {row}: top.{data}[noise >> 24 & 3] = noise; break;\n" for row, _, data in ports),
        ),
        _load_jobs(jobs),
        warp_result_layout().size,
        pace=pace,
        cycles=2 * len(panels) * pace,
        scoreboard=lambda: Scoreboard(8 * pace + 64),
    )


def _tensor_memory(settings: Settings, rng: np.random.Generator) -> StreamBench:
    """Faults of the reader, which is the same for every datapath."""
    items: list[Tile] = list(islice(random_tiles(rng), settings.items))
    in_bits = tensor_request_layout().size
    memory = np.ascontiguousarray(np.stack([tile.memory for tile in items]))
    load_items = _load_items(items, in_bits)
    lanes = [(lane, f"top.memory___05Fdata___05F{lane}") for lane in range(TENSOR_LANES)]

    def load(library: ctypes.CDLL) -> None:
        load_items(library)
        library.load_memory(pointer(memory))

    return StreamBench(
        to_rtlil(_reader(), TOP),
        {"tensor_memory": REST},
        # Flattened, what hides the registers that nobody looks at would get faults, too.
        f"{TOP}.assumption",
        items,
        "i",
        _ITEMS.format(in_bytes=words_bytes(in_bits))
        + _TENSOR_MEMORY.format(
            reads_bit=READS,
            lanes=TENSOR_LANES,
            columns=COLUMNS,
            answers="".join(f"        {port} = words[{COLUMNS * lane}];\n" for lane, port in lanes),
            noises="".join(f"    case {lane}: {port} = noise; break;\n" for lane, port in lanes),
        ),
        load,
        tensor_registers_layout().size,
        pace=_READS,
        cycles=4 * _READS * settings.items,
        scoreboard=lambda: RegisterScoreboard(4 * _READS),
    )


_BENCHES = {
    "core": _core,
    "warp": _warp,
    "wgmma": _wgmma,
    "warpgroup": warpgroup_bench,
    "tensor_memory": _tensor_memory,
}


def _design(component: Core | Warp | WgmmaWarp, settings: Settings) -> str:
    """Return a top that some instruction drives and, beside it, the unit that it is made of."""
    control = assumed_control(component.i.payload.control, settings.config, settings.arch)
    return f"{to_rtlil(AssumedStream(component, control), TOP)}\n{to_rtlil(Unit(settings.config), unit_of(TOP))}"


def _reader() -> AssumedStream:
    """Return a reader whose requests are some instruction's: none has both wide elements and block scales.

    Scale registers are looked at if there are block scales.
    """
    reader, assumed = TensorMemoryReader(), Module()
    request, registers = reader.i.payload, reader.o.payload
    scaled = Signal()
    assumed.d.comb += Assume(~(request.wide & request.scaled))
    with assumed.If(reader.i.valid & reader.i.ready):
        assumed.d.sync += scaled.eq(request.scaled)
    scales = len(Value.cast(registers.scale_a)) + len(Value.cast(registers.scale_b))
    return AssumedStream(reader, assumed, Cat(Const(-1, len(Value.cast(registers.e))), scaled.replicate(scales)))


def _load_items(items: Sequence[Item], bits: int) -> Callable[[ctypes.CDLL], None]:
    payloads = joined((item.payload for item in items), bits)
    return lambda library: library.load_items(payloads, len(items))


def _load_jobs(jobs: Sequence[Job]) -> Callable[[ctypes.CDLL], None]:
    instructions = joined((job.instruction for job in jobs), wgmma_layout().size)
    accumulators = joined((panel.payload for job in jobs for panel in job.panels), accumulator_layout().size)
    described, memory = described_jobs(jobs)
    return lambda library: library.load_jobs(instructions, accumulators, pointer(described), memory, len(jobs))

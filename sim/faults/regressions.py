"""The regression of each top on faulty hardware: the vectors of the benches, through compiled models.

A regression draws its vectors and their answers once; then each fault is selected and the vectors run until the first
answer that differs. What is driven and what is compared is that of the cocotb benches.
"""

import ctypes
import zlib
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from amaranth.hdl import Assume, Cat, Const, Elaboratable, Module, Signal, Value
from numpy.typing import NDArray

from ...infra.verilator import compile_library
from ...rtl.config import CoreConfig
from ...rtl.convert import to_rtlil
from ...rtl.core import Core, tile_layout, tile_result_layout
from ...rtl.emit import unit_instance, unit_of
from ...rtl.row import Row
from ...rtl.step import control_layout, row_result_layout, row_step_layout
from ...rtl.unit import Unit
from ...rtl.warp import Warp, warp_operands_layout, warp_result_layout
from ..benches.bench import ComponentBench
from ..benches.blocks import native, random_blocks
from ..benches.components import Harness, component_benches
from ..benches.items import TAG, Item, tiles, warp_items
from ..benches.scoreboard import Cycle, Pattern, Scoreboard, ViolationError
from ..benches.settings import Settings
from ..engine.compiled_component import ComponentFunction, component_driver
from ..engine.ports import port_dtype, split
from ..engine.steps import control_word, step_words
from .mutants import SELECT, Fault, Netlist, mutated

__all__ = ["TOP", "Regression", "regression"]

#: Name of the top module of every regression.
TOP = "bench"
_OPTIMISATION = ("-O1",)
#: Vectors of a component, and cycles of a stream, between two looks at what came out.
_CHUNK_VECTORS, _CHUNK_CYCLES = 256, 1024
_COMMON = f"""
static V{TOP} top;
extern "C" void select_fault(int fault) {{{{ top.{SELECT} = fault; }}}}
"""
#: Drives the row: a step in each enabled cycle, noise in the others, and every cycle's result compared.
_ROW = """
extern "C" long run_row(size_t cycles, const uint8_t* enables, const char* steps, const uint64_t* wanted) {{
    size_t entered = 0;
    for (size_t cycle = 0; cycle < cycles; cycle++) {{
        std::memcpy(&top.step, steps + entered * {in_bytes}, {in_bytes});
        if (!enables[cycle]) for (size_t i = 0; i < {in_bytes} / 4; i++) top.step[i] = ~top.step[i];
        top.enable = enables[cycle];
        top.clk = 0;
        top.eval();
        if (entered >= {latency} && (top.result ^ wanted[entered - {latency}]) & {result_mask}ull) return cycle;
        top.clk = 1;
        top.eval();
        entered += enables[cycle];
    }}
    return -1;
}}
"""
#: Drives a stream component for some more cycles and records its handshakes and results.
_STREAM = """
extern "C" void run_stream(
    int first, size_t cycles, const uint8_t* pattern, size_t count, const char* items, uint8_t* flags, char* results
) {{
    static size_t next = 0;
    static bool offered = false;
    if (first) {{
        next = 0;
        offered = false;
    }}
    for (size_t cycle = 0; cycle < cycles; cycle++) {{
        const bool reset = pattern[cycle] & 4, take = pattern[cycle] & 2;
        if (!offered && next < count && (pattern[cycle] & 1) && !reset) {{
            std::memcpy(&top.i___05Fpayload, items + next++ * {in_bytes}, {in_bytes});
            offered = true;
        }}
        top.i___05Fvalid = offered && !reset;
        top.o___05Fready = take && !reset;
        top.rst = reset;
        top.clk = 0;
        top.eval();
        flags[cycle] = top.i___05Fvalid | top.i___05Fready << 1 | top.o___05Fvalid << 2 | top.o___05Fready << 3;
        std::memcpy(results + cycle * {out_bytes}, &top.o___05Fpayload, {out_bytes});
        if (top.i___05Fvalid && top.i___05Fready) offered = false;
        top.clk = 1;
        top.eval();
    }}
}}
"""


class Regression(Protocol):
    """The vectors of one top, and faulty versions of it."""

    netlist: Netlist

    def first_failure(self, fault: Fault | None) -> int | None:
        """Return the number of the first vector or cycle that shows a fault, None if none does."""


def regression(settings: Settings, faults: int, seed: int, folder: Path) -> Regression:
    """Build the faulty versions of a top and draw its vectors.

    Parameters
    ----------
    settings : Settings
        Top, datapath, and vectors of each component, steps, tiles or instructions.
    faults : int
        Single faults to draw, of ``components`` as many in each.
    seed : int
        Decides faults and vectors.
    folder : Path
        Where it is built.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if settings.top == "components":
        return _Components(settings, faults, seed, folder)
    return (_Row if settings.top == "row" else _Stream)(settings, faults, seed, folder)


def _compiled(netlist: Netlist, driver: str, folder: Path) -> ctypes.CDLL:
    library = folder / "model.so"
    compile_library(netlist.verilog, TOP, driver, library, optimisation=_OPTIMISATION)
    return ctypes.CDLL(str(library))


def _pointer(array: NDArray) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


class _Components:
    """All combinational components of a configuration; a fault is met with the vectors of its own component."""

    def __init__(self, settings: Settings, faults: int, seed: int, folder: Path) -> None:
        benches = component_benches(settings.config)
        harness = _AssumedComponents(settings.config, benches)
        text = to_rtlil(harness, TOP, ports=[port.value for port in harness.ports])
        # Amaranth numbers a module whose name a port has taken.
        cells = {name: rf"{TOP}/$flatten\{name}.* {TOP}/$flatten\{name}$*" for name in benches}
        self.netlist = mutated(
            text, TOP, {name: (cells[name], -(-faults // len(benches))) for name in benches}, seed, folder
        )
        driver, self._vectors, layouts = _COMMON.format(), {}, {}
        for name, bench in benches.items():
            inputs, outputs = ([port for port in harness.of(name) if port.is_input == side] for side in (True, False))
            rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
            given = bench.stimulus(rng, settings.items)
            wanted = bench.model(given)
            means = {port: np.where(np.ma.getmaskarray(values), 0, -1) for port, values in wanted.items()}
            plain = {port: np.ma.filled(values, 0) for port, values in wanted.items()}
            prefix = f"{name}__"
            self._vectors[name] = (
                split(given, inputs, prefix), split(plain, outputs, prefix), split(means, outputs, prefix),
            )  # fmt: skip
            layouts[name] = port_dtype(inputs), port_dtype(outputs)
            driver += component_driver(name, *layouts[name])
        self._library = _compiled(self.netlist, driver, folder)
        self._functions = {name: ComponentFunction(self._library, name, *layouts[name]) for name in benches}

    def first_failure(self, fault: Fault | None) -> int | None:
        """Run the vectors of the fault's component; without a fault those of all."""
        self._library.select_fault(fault.number if fault else 0)
        for name in [fault.component] if fault else self._vectors:
            given, wanted, means = self._vectors[name]
            for start in range(0, len(given), _CHUNK_VECTORS):
                chunk = slice(start, start + _CHUNK_VECTORS)
                got = self._functions[name](given[chunk])
                wrong = ((_octets(got) ^ _octets(wanted[chunk])) & _octets(means[chunk])).any(axis=1)
                if wrong.any():
                    return start + int(wrong.argmax())
        return None


def _octets(vectors: NDArray) -> NDArray[np.uint8]:
    return vectors.view(np.uint8).reshape(len(vectors), -1)


class _AssumedComponents(Harness):
    """Components that are told only the element codes of their configuration."""

    def __init__(self, config: CoreConfig, benches: Mapping[str, ComponentBench]) -> None:
        super().__init__({name: bench.component for name, bench in benches.items()})
        self._elements = len(config.elements)
        self._codes = {f"{name}__{port}" for name, bench in benches.items() for port in bench.codes}

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.submodules.assumption = assumption = Module()
        codes = [port.value for port in self.ports if port.name in self._codes]
        assumption.d.comb += Assume(Cat(code < self._elements for code in codes).all())
        return m


def _assumed(control: Any, config: CoreConfig, arch: str) -> Module:
    """Return a module that assumes of a control word that it is some instruction's of the datapath."""
    fields, layout = ("a", "b", "result", "sparse", "scale"), control_layout()
    words = {control_word(config, instruction, last=True) for instruction in native(config, arch)}
    allowed = {
        tuple((word >> layout[name].offset) & (1 << layout[name].width) - 1 for name in fields) for word in words
    }
    said = Cat(Value.cast(control[name]) for name in fields)
    m = Module()
    m.d.comb += Assume(
        Cat(
            said == Cat(Const(code, layout[name].width) for name, code in zip(fields, codes, strict=True))
            for codes in sorted(allowed)
        ).any()
    )
    return m


class _AssumedRow(Elaboratable):
    """A row that is told only what some instruction of the datapath says."""

    def __init__(self, config: CoreConfig, arch: str) -> None:
        self._row = Row(config)
        self._arch = arch
        self.step = Signal(row_step_layout(config).size)
        self.enable = Signal()
        self.result = Signal(row_result_layout(config).size)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.row = row = self._row
        m.d.comb += [row.step.eq(self.step), row.enable.eq(self.enable), self.result.eq(row.result)]
        m.submodules.assumption = _assumed(row.step.control, row.config, self._arch)
        return m


class _AssumedCore(Core):
    """A core that is told only what some instruction says, where no tile is offered too."""

    def __init__(self, config: CoreConfig, arch: str) -> None:
        super().__init__(config, TAG, unit_instance(TOP))
        self._arch = arch

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.submodules.assumption = _assumed(self.i.payload.control, self.config, self._arch)
        return m


class _Row:
    """One row, its pipeline enabled in about two cycles of three."""

    def __init__(self, settings: Settings, faults: int, seed: int, folder: Path) -> None:
        config = settings.config
        row = _AssumedRow(config, settings.arch)
        text = to_rtlil(row, TOP, ports=[row.step, row.enable, row.result])
        self.netlist = mutated(text, TOP, {"row": (rf"{TOP}/* {TOP}/*\assumption.* %d", faults)}, seed, folder)
        rng = np.random.default_rng(seed)
        blocks = list(islice(random_blocks(config, settings.arch, rng, 4, 4), -(-settings.items // 16)))
        steps = np.concatenate([block.steps.reshape(-1, step_words(config).total) for block in blocks])
        results = np.concatenate([block.results.ravel() for block in blocks])
        order = rng.permutation(len(steps))
        self._steps, self._results = np.ascontiguousarray(steps[order]), results[order]
        enables = (rng.random(2 * len(steps)) < 0.67).astype(np.uint8)
        # The last step to enter is the last there is.
        self._enables = np.ascontiguousarray(enables[: np.searchsorted(np.cumsum(enables), len(steps))])
        result_bits = row_result_layout(config).size
        driver = _COMMON.format() + _ROW.format(
            in_bytes=4 * self._steps.shape[1], latency=config.latency, result_mask=hex((1 << result_bits) - 1)
        )
        self._library = _compiled(self.netlist, driver, folder)
        self._library.run_row.restype = ctypes.c_long

    def first_failure(self, fault: Fault | None) -> int | None:
        """Run the steps."""
        self._library.select_fault(fault.number if fault else 0)
        pointers = (_pointer(array) for array in (self._enables, self._steps, self._results))
        first = self._library.run_row(ctypes.c_size_t(len(self._enables)), *pointers)
        return None if first < 0 else int(first)


class _Stream:
    """A core or a warp between a source with gaps and a sink with stalls, reset now and then."""

    def __init__(self, settings: Settings, faults: int, seed: int, folder: Path) -> None:
        config, core = settings.config, settings.top == "core"
        component = _AssumedCore(config, settings.arch) if core else Warp(config, unit_class=unit_instance(TOP))
        text = f"{to_rtlil(component, TOP)}\n{to_rtlil(Unit(config), unit_of(TOP))}"
        # The unit is a top of its own, and so is, with it, what decodes the metadata of a row.
        cells = rf"{TOP}/* {TOP}/*decode_row_* {TOP}/*\assumption.* %u %d"
        self.netlist = mutated(text, TOP, {settings.top: (cells, faults)}, seed, folder, whole=unit_of(TOP))
        rng = np.random.default_rng(seed)
        source = (tiles if core else warp_items)(config, settings.arch, rng)
        self._items: list[Item] = list(islice(source, settings.items))
        layouts = (tile_layout(config, TAG), tile_result_layout(config, TAG)) if core else (
            warp_operands_layout(), warp_result_layout()
        )  # fmt: skip
        in_bytes, self._out_bytes = (4 * -(-layout.size // 32) for layout in layouts)
        self._result_bits = layouts[1].size
        self._payloads = b"".join(item.payload.to_bytes(in_bytes, "little") for item in self._items)
        blocks = 1 if core else config.warp_blocks
        steps = 1 if core else 2
        self._longest_wait = 4 * (steps * blocks + config.latency)
        # Every other cycle on average something enters; the pattern ends before the items do.
        cycles = settings.items * blocks
        drawn = islice(Pattern(rng, pace=steps * blocks, resets=True), cycles)
        pattern = [offer | take << 1 | reset << 2 for offer, take, reset in drawn]
        self._pattern = np.array(pattern, np.uint8)
        driver = _COMMON.format() + _STREAM.format(in_bytes=in_bytes, out_bytes=self._out_bytes)
        self._library = _compiled(self.netlist, driver, folder)

    def first_failure(self, fault: Fault | None) -> int | None:
        """Run the items, some cycles at a time, and check what was recorded."""
        self._library.select_fault(fault.number if fault else 0)
        scoreboard, waiting = Scoreboard(self._longest_wait), iter(self._items)
        offered: Item | None = None
        for start in range(0, len(self._pattern), _CHUNK_CYCLES):
            pattern = self._pattern[start : start + _CHUNK_CYCLES]
            for number, cycle in enumerate(self._cycles(pattern, first=start == 0), start):
                if cycle.i_valid and offered is None:
                    offered = next(waiting)
                try:
                    scoreboard.observe(cycle, offered)
                except ViolationError:
                    return number
                if cycle.accepts:
                    offered = None
        return None

    def _cycles(self, pattern: NDArray[np.uint8], *, first: bool) -> Iterator[Cycle]:
        flags, results = np.zeros(len(pattern), np.uint8), np.zeros((len(pattern), self._out_bytes), np.uint8)
        self._library.run_stream(
            int(first),
            ctypes.c_size_t(len(pattern)),
            _pointer(pattern),
            ctypes.c_size_t(len(self._items)),
            self._payloads,
            _pointer(flags),
            _pointer(results),
        )
        mask = (1 << self._result_bits) - 1
        for driven, flag, result in zip(pattern.tolist(), flags.tolist(), results, strict=True):
            i_valid, i_ready, o_valid, o_ready = (bool(flag >> bit & 1) for bit in range(4))
            payload = int.from_bytes(result.tobytes(), "little") & mask if o_valid else 0
            yield Cycle(bool(driven & 4), i_valid, i_ready, o_valid, o_ready, payload)

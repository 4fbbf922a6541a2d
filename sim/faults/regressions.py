"""Fault regressions of all top modules: random test vectors of the benches, run on compiled models with faults.

A regression draws its vectors and the expected results once. Then each fault is selected, and the vectors run until the
first wrong result. Inputs and comparisons are those of the cocotb benches.
"""

import zlib
from collections.abc import Callable
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...rtl.config import CoreConfig
from ...rtl.convert import to_rtlil
from ...rtl.row import Row
from ...rtl.step import row_result_layout
from ..benches.blocks import random_blocks
from ..benches.components import component_benches
from ..benches.settings import Settings
from ..engine.compiled_row import RowModel, row_constants
from ..engine.ports import ComponentLibrary, port_dtype, split
from ..engine.steps import Steps, step_words
from .assumptions import AssumedComponents, AssumedSteps
from .ctas import CtaRegression
from .mutants import REST, TOP, Fault, Netlist, mutated
from .streams import StreamRegression
from .warpgroups import WarpgroupRegression

__all__ = ["Regression", "faulty_row", "regression"]

#: Number of input vectors that a component computes before the results are compared.
_CHUNK_VECTORS = 256
#: Stages of a dot-product unit that are separate components; the cells between the stages belong to the component
#: `row`.
_STAGES = ("select", "multiply", "align", "reduce", "round")
#: Numbers of cycles that a dot-product unit runs between comparisons of its results: few at first, since most faults
#: are detected early.
_LOOKS = (64, 512, 4096)


class Regression(Protocol):
    """Test vectors for one top module, and the netlist of the top module with faults."""

    netlist: Netlist

    def first_failure(self, fault: Fault | None) -> int | None:
        """Return the number of test inputs until the fault is detected, or None if it is not detected."""


def regression(settings: Settings, faults: int, seed: int, folder: Path, program: Any = None) -> Regression:
    """Insert faults into a top module, build the module in a folder, and draw its test vectors.

    The settings give the number of input vectors per component, or of steps or instructions of the top module. A
    warpgroup and a CTA require a test program instead: a list of :class:`~sptc.sim.benches.warpgroup_items.Job`, or
    :class:`~sptc.sim.engine.tcgen05_commands.CtaProgram` objects.
    The faults are divided among the components of the top module in proportion to their areas. All random draws use
    `seed`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return _REGRESSIONS[settings.top](settings, faults, seed, folder, *([] if program is None else [program]))


class _Components:
    """Fault regression of all combinational components; each component is tested with its own test vectors."""

    def __init__(self, settings: Settings, faults: int, seed: int, folder: Path) -> None:
        benches = component_benches(settings.config)
        harness = AssumedComponents(settings.config, benches)
        text = to_rtlil(harness, TOP, ports=[port.value for port in harness.ports])
        self.netlist = mutated(text, TOP, {name: (name,) for name in benches}, faults, seed, folder)
        self._vectors, self._answers = {}, {}
        for name, bench in benches.items():
            inputs, outputs = ([port for port in harness.of(name) if port.is_input == side] for side in (True, False))
            rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
            stimulus = bench.stimulus(rng, settings.items)
            expected = bench.model(stimulus)
            means = {port: np.where(np.ma.getmaskarray(values), 0, -1) for port, values in expected.items()}
            plain = {port: np.ma.filled(values, 0) for port, values in expected.items()}
            prefix = f"{name}__"
            self._vectors[name] = (
                split(stimulus, inputs, prefix), split(plain, outputs, prefix), split(means, outputs, prefix),
            )  # fmt: skip
            self._answers[name] = port_dtype(outputs)
        ports = [port.name for port in harness.ports]
        self._library = ComponentLibrary(self.netlist.compiled(folder, "components.cpp", {}, ports), ports)

    def first_failure(self, fault: Fault | None) -> int | None:
        """Run the test vectors of the component with the fault; without a fault, run those of all components."""
        self._library.select_fault(fault.number if fault else 0)
        for name in [fault.component] if fault else self._vectors:
            stimulus, expected, means = self._vectors[name]
            for start in range(0, len(stimulus), _CHUNK_VECTORS):
                chunk = slice(start, start + _CHUNK_VECTORS)
                actual = self._library.run(stimulus[chunk], self._answers[name])
                wrong = ((_octets(actual) ^ _octets(expected[chunk])) & _octets(means[chunk])).any(axis=1)
                if wrong.any():
                    return start + int(wrong.argmax())
        return None


def _octets(vectors: NDArray) -> NDArray[np.uint8]:
    return vectors.view(np.uint8).reshape(len(vectors), -1)


def faulty_row(config: CoreConfig, arch: str, faults: int, seed: int, folder: Path) -> Netlist:
    """Insert single faults into a dot-product unit: its metadata decoder, its stages, and the other cells.

    The row is assumed to execute the instructions of `arch`. Other parameters are those of :func:`~.mutants.mutated`.
    """
    steps = AssumedSteps(Row(config), arch)
    text = to_rtlil(steps, TOP, ports=steps.ports)
    parts = {"decode": ("row.decode",), "row": REST} | {stage: (f"row.unit.{stage}",) for stage in _STAGES}
    return mutated(text, TOP, parts, faults, seed, folder)


class _Row:
    """Fault injection into one dot-product unit, whose pipeline is enabled in about two of three cycles."""

    def __init__(self, settings: Settings, faults: int, seed: int, folder: Path) -> None:
        config = settings.config
        self.netlist = faulty_row(config, settings.arch, faults, seed, folder)
        rng = np.random.default_rng(seed)
        blocks = list(islice(random_blocks(config, settings.arch, rng, 4, 4), -(-settings.items // 16)))
        self._words = step_words(config)
        steps = np.concatenate([block.steps.reshape(-1, self._words.total) for block in blocks])
        results = np.concatenate([block.results.ravel() for block in blocks])
        order = rng.permutation(len(steps))
        self._steps, self._results = np.ascontiguousarray(steps[order]), results[order]
        enables = (rng.random(2 * len(steps)) < 0.67).astype(np.uint8)
        # The run ends in the cycle in which the last step enters the pipeline.
        self._enables = np.ascontiguousarray(enables[: np.searchsorted(np.cumsum(enables), len(steps))])
        self._mask, self._latency = np.uint64((1 << row_result_layout(config).size) - 1), config.latency
        self._row = RowModel(self.netlist.compiled(folder, "row.cpp", row_constants(config)))

    def first_failure(self, fault: Fault | None) -> int | None:
        """Run dot products on the unit; return how many run until the fault is detected, or None if it is not."""
        self._row.select_fault(fault.number if fault else 0)
        start = entered = 0
        for look in chain(_LOOKS, repeat(_LOOKS[-1])):
            enables = self._enables[start : start + look]
            if not enables.size:
                break
            steps = Steps.of_words(self._steps[entered:], self._words)
            actual = self._row.run_cycles(steps, len(enables), enables)
            # For each clock edge, index of the step whose result is at the output after the edge.
            through = entered + np.cumsum(enables, dtype=np.int64) - self._latency
            wrong = (through >= 0) & ((actual ^ self._results[through]) & self._mask != 0)
            if wrong.any():
                return entered + int(np.count_nonzero(enables[: wrong.argmax() + 1]))
            start, entered = start + look, entered + int(np.count_nonzero(enables))
        return None


_REGRESSIONS: dict[str, Callable[..., Regression]] = {
    "components": _Components,
    "row": _Row,
    "core": StreamRegression,
    "warp": StreamRegression,
    "warpgroup": WarpgroupRegression,
    "tcgen05": CtaRegression,
}

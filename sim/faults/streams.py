"""Fault regression of arrays and warps: a source with gaps, a sink with stalls, and resets."""

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...rtl.convert import to_rtlil
from ...rtl.core import Core, tile_layout, tile_result_layout
from ...rtl.emit import unit_instance, unit_of
from ...rtl.unit import Unit
from ...rtl.warp import Warp, warp_operands_layout, warp_result_layout
from ..benches.items import TAG, Item, tiles, warp_items
from ..benches.scoreboard import Pattern
from ..benches.settings import Settings
from ..engine.compiled_warp import StreamModel, stream_driver
from ..engine.driver import CycleBits
from ..engine.ports import clocked_ports
from .assumptions import AssumedStream, assumed_control
from .compiled import LIBRARY, SELECTING, TOP, compile_faulty
from .mutants import REST, UNTOUCHED, Fault, mutated

__all__ = ["StreamRegression", "joined", "stream_pattern"]

#: Probability of events that random cycles rarely have: both transfers after a stall, a reset at either end of an item.
_RARE = {CycleBits.MEET: 0.05, CycleBits.MEET_RESET: 0.02}


@dataclass(frozen=True)
class _Top:
    """Test setup of a top."""

    component: Core | Warp  #: The design, around instances of a unit
    components: Mapping[str, Sequence[str]]  #: As :func:`~.mutants.mutated` takes them
    items: Sequence[Item]  #: Inputs, with the expected results
    #: Widths of the payloads.
    in_bits: int
    out_bits: int
    #: Cycles of an item, and largest number of cycles that are run.
    pace: int
    cycles: int
    #: Largest number of cycles for which a result may be late, and for which an item may be refused.
    longest_wait: int


def _core(settings: Settings, rng: np.random.Generator) -> _Top:
    """Return the setup of an array, without its decoders, whose faults the regression of a row tests."""
    config = settings.config
    return _Top(
        Core(config, TAG, unit_instance(TOP)),
        {"core": REST, UNTOUCHED: tuple(f"design.decode_row_{row}" for row in range(config.rows))},
        list(islice(tiles(config, settings.arch, rng), settings.items)),
        tile_layout(config, TAG).size,
        tile_result_layout(config, TAG).size,
        pace=1,
        # On average an item enters every other cycle.
        cycles=2 * settings.items,
        longest_wait=4 * (1 + config.latency),
    )


def _warp(settings: Settings, rng: np.random.Generator) -> _Top:
    """Return the setup of a warp, without its array, whose faults the regression of a core tests."""
    config = settings.config
    return _Top(
        Warp(config, unit_class=unit_instance(TOP)),
        {"warp": REST, UNTOUCHED: ("design.core",)},
        list(islice(warp_items(config, settings.arch, rng), settings.items)),
        warp_operands_layout().size,
        warp_result_layout().size,
        pace=2 * config.warp_blocks,
        cycles=3 * settings.items * config.warp_blocks,
        longest_wait=4 * (2 * config.warp_blocks + config.latency),
    )


_TOPS = {"core": _core, "warp": _warp}


class StreamRegression:
    """Regression of a core or a warp."""

    def __init__(self, settings: Settings, faults: int, seed: int, folder: Path) -> None:
        rng = np.random.default_rng(seed)
        self._top = top = _TOPS[settings.top](settings, rng)
        self._pattern = stream_pattern(rng, top.pace, top.cycles)
        self._items = joined((item.payload for item in top.items), top.in_bits)
        self._expected = joined((item.expected for item in top.items), top.out_bits)
        control = assumed_control(top.component.i.payload.control, settings.config, settings.arch)
        design = AssumedStream(top.component, control)
        ports = clocked_ports(design)
        text = f"{to_rtlil(design, TOP)}\n{to_rtlil(Unit(settings.config), unit_of(TOP))}"
        self.netlist = mutated(text, TOP, top.components, faults, seed, folder, whole=unit_of(TOP))
        compile_faulty(self.netlist, stream_driver(ports, TOP, SELECTING), folder)
        self._model = StreamModel(ctypes.CDLL(str(folder / LIBRARY)))

    def first_failure(self, fault: Fault | None) -> int | None:
        """Run the items; return the number of items taken before a rule was broken, None if none was."""
        self._model.select_fault(fault.number if fault else 0)
        top = self._top
        broken, taken = self._model.check(self._items, self._expected, len(top.items), self._pattern, top.longest_wait)
        return taken if broken else None


def joined(payloads: Iterable[int], bits: int) -> bytes:
    """Return payloads of `bits` bits as consecutive C++ values of 32-bit words."""
    return b"".join(payload.to_bytes(4 * -(-bits // 32), "little") for payload in payloads)


def stream_pattern(rng: np.random.Generator, pace: int, cycles: int) -> NDArray[np.uint16]:
    """Return random events of `cycles` cycles: gaps before items and accumulators, stalls of results, and resets.

    `pace` is the number of cycles of an item.
    """
    patterns = Pattern(rng, pace=pace, resets=True), Pattern(rng, pace=pace)
    bits = [
        offer * CycleBits.OFFER | take * CycleBits.TAKE | reset * CycleBits.RESET | offer_c * CycleBits.OFFER_C
        for (offer, take, reset), (offer_c, _, _) in islice(zip(*patterns, strict=True), cycles)
    ]
    pattern = np.array(bits, np.uint16)
    for bit, share in _RARE.items():
        pattern[rng.random(cycles) < share] |= np.uint16(bit)
    return pattern

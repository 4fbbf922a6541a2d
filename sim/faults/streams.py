"""Fault regression of tensor cores and warps, with gaps between items, stalls of results, and resets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from amaranth.hdl import Value
from numpy.typing import NDArray

from ...rtl.config import CoreConfig
from ...rtl.convert import to_rtlil
from ...rtl.core import Core
from ...rtl.emit import unit_instance, unit_of
from ...rtl.unit import Unit
from ...rtl.warp import Warp
from ..benches.items import TAG, Item, tiles, warp_items
from ..benches.scoreboard import random_pattern
from ..benches.settings import Settings
from ..engine.compiled_warp import StreamModel, stream_driver
from ..engine.driver import CycleBits
from ..engine.ports import clocked_ports, words_of
from .assumptions import AssumedStream, assumed_control
from .compiled import TOP, compile_faulty
from .mutants import REST, UNTOUCHED, Fault, mutated

__all__ = ["StreamRegression", "joined", "stream_pattern"]

#: Probabilities per cycle of two events that random traffic rarely causes: simultaneous transfers after a stall, and a
#: reset in the cycle after a transfer.
_RARE = {CycleBits.MEET: 0.05, CycleBits.MEET_RESET: 0.02}


class _Top(NamedTuple):
    """Setup of a fault regression for one top module: design, components, test items and timing."""

    component: Core | Warp  # component under test, with its dot-product units as separate instances
    components: Mapping[str, Sequence[str]]  # submodules of each component, argument of `mutated`
    items: Iterator[Item]  # input items with their expected results
    pace: int  # number of cycles that an item takes without gaps
    cycles_per_item: int  # length of the test pattern in cycles per item


def _core(config: CoreConfig, arch: str, rng: np.random.Generator) -> _Top:
    """Return the setup for a tensor core. Its decoders have no faults: the regression of a row covers them."""
    decoders = tuple(f"design.decode_row_{row}" for row in range(config.rows))
    core = Core(config, TAG, unit_instance(TOP))
    return _Top(core, {"core": REST, UNTOUCHED: decoders}, tiles(config, arch, rng), 1, 2)


def _warp(config: CoreConfig, arch: str, rng: np.random.Generator) -> _Top:
    """Return the setup for a warp. Its tensor core has no faults: a regression of its own covers it."""
    warp, blocks = Warp(config, unit_class=unit_instance(TOP)), config.warp_blocks
    components = {"warp": REST, UNTOUCHED: ("design.core",)}
    return _Top(warp, components, warp_items(config, arch, rng), 2 * blocks, 3 * blocks)


_TOPS = {"core": _core, "warp": _warp}


class StreamRegression:
    """Fault regression of a tensor core or a warp."""

    def __init__(self, settings: Settings, faults: int, seed: int, folder: Path) -> None:
        rng = np.random.default_rng(seed)
        top = _TOPS[settings.top](settings.config, settings.arch, rng)
        items = list(islice(top.items, settings.items))
        self._pattern = stream_pattern(rng, top.pace, top.cycles_per_item * settings.items)
        self._longest_wait = 4 * (top.pace + settings.config.latency)
        self._items = joined((item.payload for item in items), len(Value.cast(top.component.i.payload)))
        self._expected = joined((item.expected for item in items), len(Value.cast(top.component.o.payload)))
        control = assumed_control(top.component.i.payload.control, settings.config, settings.arch)
        design = AssumedStream(top.component, control)
        ports = clocked_ports(design)
        text = f"{to_rtlil(design, TOP)}\n{to_rtlil(Unit(settings.config), unit_of(TOP))}"
        self.netlist = mutated(text, TOP, top.components, faults, seed, folder, whole=unit_of(TOP))
        self._model = StreamModel(compile_faulty(self.netlist, stream_driver(ports, TOP), folder))

    def first_failure(self, fault: Fault | None) -> int | None:
        """Run the items; return the number of items accepted before a rule violation, None without a violation."""
        self._model.select_fault(fault.number if fault else 0)
        cycles = len(self._pattern)
        broken, taken = self._model.run(
            self._items, self._pattern, self._longest_wait, cycles=cycles, expected=self._expected
        )
        return taken if broken else None


def joined(payloads: Iterable[int], bits: int) -> NDArray[np.uint32]:
    """Return payloads of `bits` bits as rows of 32-bit words, the format that the C++ driver reads."""
    return np.array([words_of(payload, bits) for payload in payloads], np.uint32)


def stream_pattern(rng: np.random.Generator, pace: int, cycles: int) -> NDArray[np.uint16]:
    """Return random events for each cycle: gaps before items and accumulators, stalls of results, and resets.

    `pace` is the number of cycles of an item.
    """
    patterns = random_pattern(rng, pace=pace, resets=True), random_pattern(rng, pace=pace)
    bits = [
        offer * CycleBits.OFFER | take * CycleBits.TAKE | reset * CycleBits.RESET | offer_c * CycleBits.OFFER_C
        for (offer, take, reset), (offer_c, _, _) in islice(zip(*patterns, strict=True), cycles)
    ]
    pattern = np.array(bits, np.uint16)
    for bit, share in _RARE.items():
        pattern[rng.random(cycles) < share] |= np.uint16(bit)
    return pattern

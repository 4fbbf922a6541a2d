"""Fault injection into cores (arrays of units) and warps, with gaps between inputs, stalled results, and resets."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np
from amaranth.hdl import Value
from numpy.typing import NDArray

from ...rtl.convert import to_rtlil
from ...rtl.core import Core
from ...rtl.emit import unit_instance, unit_of
from ...rtl.unit import Unit
from ...rtl.warp import Warp
from ..benches.items import TAG, tiles, warp_items
from ..benches.scoreboard import random_pattern
from ..benches.settings import Settings
from ..engine.compiled_warp import StreamModel
from ..engine.driver import CycleBits
from ..engine.ports import clocked_ports, words_of
from .assumptions import AssumedStream, assumed_control
from .mutants import REST, TOP, UNTOUCHED, Fault, mutated

__all__ = ["StreamRegression", "joined", "stream_pattern"]

#: Probabilities per cycle of two events that random traffic rarely causes: simultaneous transfers after a stall, and a
#: reset in the cycle after a transfer.
_RARE = {CycleBits.MEET: 0.05, CycleBits.MEET_RESET: 0.02}


class StreamRegression:
    """Fault injection into a core (array of dot-product units) or a warp."""

    def __init__(self, settings: Settings, faults: int, seed: int, folder: Path) -> None:
        rng, config, arch = np.random.default_rng(seed), settings.config, settings.arch
        component: Core | Warp
        # No faults for submodules that another fault regression tests: the decoders of a core, and the core of a warp.
        if settings.top == "core":
            component, items = Core(config, TAG, unit_instance(TOP)), tiles(config, arch, rng)
            pace, cycles_per_item = 1, 2
            untouched = [f"design.decode_row_{row}" for row in range(config.rows)]
        else:
            component, items = Warp(config, unit_class=unit_instance(TOP)), warp_items(config, arch, rng)
            pace, cycles_per_item = 2 * config.warp_blocks, 3 * config.warp_blocks
            untouched = ["design.core"]
        drawn = list(islice(items, settings.items))
        self._pattern = stream_pattern(rng, pace, cycles_per_item * settings.items)
        self._longest_wait = 4 * (pace + config.latency)
        self._items = joined((item.payload for item in drawn), len(Value.cast(component.i.payload)))
        self._expected = joined((item.expected for item in drawn), len(Value.cast(component.o.payload)))
        design = AssumedStream(component, assumed_control(component.i.payload.control, config, arch, component.i.valid))
        text = f"{to_rtlil(design, TOP)}\n{to_rtlil(Unit(config), unit_of(TOP))}"
        components = {settings.top: REST, UNTOUCHED: untouched}
        self.netlist = mutated(text, TOP, components, faults, seed, folder, whole=unit_of(TOP))
        self._model = StreamModel(self.netlist.compiled(folder, "stream.cpp", {}, clocked_ports(design)))

    def first_failure(self, fault: Fault | None) -> int | None:
        """Simulate all inputs. Return how many inputs were accepted before a rule was violated, None if no rule was."""
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
    """Return random events for each cycle: offers of inputs and accumulators, acceptance of results, and resets.

    `pace` is the number of cycles that an input takes.
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

"""The regression of stream components on faulty hardware: a source with gaps, a sink with stalls, and resets.

The compiled model is driven in C++ and records its handshakes; the checker of the benches looks at every cycle.
"""

import ctypes
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..benches.scoreboard import Cycle, Pattern, ViolationError
from ..benches.settings import Settings
from .compiled import COMMON, TOP, compiled, pointer
from .mutants import Fault, mutated
from .stream_bench import STARVED, WRONG, StreamBench
from .stream_benches import stream_bench

__all__ = ["StreamRegression"]

#: Cycles between two looks at what came out.
_CHUNK_CYCLES = 1024
#: Bits of a cycle of the pattern. The last two wait for what random cycles meet too rarely: both transfers after a
#: stall, and a reset at either end of an item.
_OFFER, _TAKE, _RESET, _OFFER_PANEL, _MEET, _MEET_RESET = (1 << bit for bit in range(6))
_BITS = {
    "offer": _OFFER,
    "take": _TAKE,
    "reset": _RESET,
    "offer_panel": _OFFER_PANEL,
    "meet": _MEET,
    "meet_reset": _MEET_RESET,
}
_RARE = {_MEET: 0.05, _MEET_RESET: 0.02}
_DRIVER = """
extern "C" void run_stream(
    int first, size_t cycles, const uint8_t* pattern, uint8_t* flags, int32_t* offers, char* results
) {{
    static bool waited, moved;
    if (first) {{
        restart();
        waited = moved = false;
    }}
    for (size_t cycle = 0; cycle < cycles; cycle++) {{
        uint8_t now = pattern[cycle];
        if (waited && now & {meet}) now = {offer} | {take} | {offer_panel};
        if (moved && now & {meet_reset}) now = {reset};
        const bool reset = now & {reset};
        offer(now & {offer}, now & {offer_panel}, reset);
        top.o___05Fready = (now & {take}) && !reset;
        top.rst = reset;
        top.clk = 0;
        top.eval();
        const bool valid = top.{source}___05Fvalid, ready = top.{source}___05Fready;
        const bool o_valid = top.o___05Fvalid, o_ready = top.o___05Fready;
        flags[cycle] = valid | ready << 1 | o_valid << 2 | o_ready << 3 | reset << 4 | sample(reset);
        offers[cycle] = at_source;
        std::memcpy(results + cycle * {out_bytes}, &top.o___05Fpayload, {out_bytes});
        waited = o_valid && !o_ready;
        moved = (valid && ready) || o_valid;
        move(reset);
        top.clk = 1;
        top.eval();
        answer();
    }}
}}
"""


class StreamRegression:
    """A core, a warp or a warpgroup.

    Parameters
    ----------
    settings : Settings
        Top, datapath, items; of a warpgroup the file of its work.
    faults : int
        Single faults to draw.
    seed : int
        Decides faults and items.
    folder : Path
        Where it is built.
    """

    def __init__(self, settings: Settings, faults: int, seed: int, folder: Path) -> None:
        rng = np.random.default_rng(seed)
        self._bench = bench = stream_bench(settings, rng)
        self.netlist = mutated(bench.design, TOP, bench.components, faults, seed, folder, whole=bench.whole)
        self._pattern = _pattern(rng, bench)
        self._out_bytes = bench.out_bytes
        loop = _DRIVER.format(source=bench.source, out_bytes=self._out_bytes, **_BITS)
        self._library = compiled(self.netlist, COMMON + bench.driver + loop, folder)
        bench.load(self._library)

    def first_failure(self, fault: Fault | None) -> int | None:
        """Run the items, some cycles at a time; return how many had entered when one was wrong."""
        self._library.select_fault(fault.number if fault else 0)
        scoreboard, entered, starved = self._bench.scoreboard(), 0, 0
        for start in range(0, len(self._pattern), _CHUNK_CYCLES):
            pattern = self._pattern[start : start + _CHUNK_CYCLES]
            for flag, place, cycle in self._cycles(pattern, first=start == 0):
                item = self._bench.items[place] if place >= 0 else None
                starved = starved + 1 if flag & STARVED else 0
                try:
                    if starved > scoreboard.longest_wait:
                        raise ViolationError("an instruction is not taken")
                    if flag & WRONG:
                        raise ViolationError("memory was read too often or too rarely, or what is beside is wrong")
                    scoreboard.observe(cycle, item)
                except ViolationError:
                    return entered
                entered += cycle.accepts
            if entered >= len(self._bench.items) and not scoreboard.under_way:
                break
        return None

    def _cycles(self, pattern: NDArray[np.uint8], *, first: bool) -> Iterator[tuple[int, int, Cycle]]:
        """Yield of every cycle what was recorded beside the handshakes, the item at the source, and the cycle."""
        flags, results = np.zeros(len(pattern), np.uint8), np.zeros((len(pattern), self._out_bytes), np.uint8)
        offers = np.zeros(len(pattern), np.int32)
        arrays = (pointer(array) for array in (pattern, flags, offers, results))
        self._library.run_stream(int(first), ctypes.c_size_t(len(pattern)), *arrays)
        mask = (1 << self._bench.result_bits) - 1
        for flag, place, result in zip(flags.tolist(), offers.tolist(), results, strict=True):
            i_valid, i_ready, o_valid, o_ready, reset = (bool(flag >> bit & 1) for bit in range(5))
            payload = int.from_bytes(result.tobytes(), "little") & mask if o_valid else 0
            yield flag, place, Cycle(reset, i_valid, i_ready, o_valid, o_ready, payload)


def _pattern(rng: np.random.Generator, bench: StreamBench) -> NDArray[np.uint8]:
    patterns = Pattern(rng, pace=bench.pace, resets=True), Pattern(rng, pace=bench.pace)
    bits = [
        offer * _OFFER | take * _TAKE | reset * _RESET | offer_panel * _OFFER_PANEL
        for (offer, take, reset), (offer_panel, _, _) in islice(zip(*patterns, strict=True), bench.cycles)
    ]
    pattern = np.array(bits, np.uint8)
    for bit, share in _RARE.items():
        pattern[rng.random(bench.cycles) < share] |= bit
    return pattern

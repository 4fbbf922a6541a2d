"""cocotb tests of the reader of tensor memory: requests and a memory in, registers out."""

from typing import Any

import cocotb
import numpy as np
from cocotb.handle import HierarchyObject

from ...rtl.tensor_memory import TENSOR_LANES
from .scoreboard import Pattern
from .settings import Settings
from .streams import StreamDriver, StreamMonitor, rare_meetings, start_clock
from .tensor_memory_items import RegisterScoreboard, Tile, random_tiles

__all__ = ["every_result_once"]

SETTINGS = Settings.of_environment()
#: Columns of a tile at most.
_READS = 4


class _Memory:
    """Answers the read of one cycle in the next, from the memory of the tile at the input.

    Parameters
    ----------
    top : handle
        With the memory's ports.
    rng : Generator
        Draws what the port shows when nothing was asked for.
    """

    def __init__(self, top: Any, rng: np.random.Generator) -> None:
        self._data = [getattr(top, f"memory__data__{lane}") for lane in range(TENSOR_LANES)]
        self._column, self._read = top.memory__column, top.memory__read
        self._rng = rng
        self._answer: list[int] | None = None
        self.reads = 0

    def sample(self, tile: Tile | None, reset: bool) -> None:
        """Note what is read in a settled cycle."""
        asked = not reset and bool(int(self._read.value))
        assert tile or not asked, "a column is read that nothing asked for"
        self._answer = tile.memory[:, int(self._column.value)].tolist() if tile and asked else None
        self.reads += asked

    def drive(self) -> None:
        """Answer; without a read one lane in eight changes, to noise."""
        if self._answer:
            for data, word in zip(self._data, self._answer, strict=True):
                data.value = word
            return
        for lane in self._rng.integers(0, TENSOR_LANES, TENSOR_LANES // 8).tolist():
            self._data[lane].value = int(self._rng.integers(1 << 32))


@cocotb.test()
@cocotb.parametrize(resets=[False, True])
async def every_result_once(top: HierarchyObject, resets: bool) -> None:
    """Every kind, row, column, selector and byte id, with gaps, stalls and resets; nothing is read in vain."""
    rng = np.random.default_rng([cocotb.RANDOM_SEED, resets])
    scoreboard = RegisterScoreboard(longest_wait=4 * _READS)
    tiles = random_tiles(rng)
    driver = StreamDriver(top, tiles, Pattern(rng, pace=_READS, resets=resets), rare_meetings(rng, resets=resets))
    memory, monitor = _Memory(top, rng), StreamMonitor(top)
    start_clock(top)
    draining, wanted = False, 0
    while not draining or scoreboard.under_way or driver.offered:
        await monitor.following()
        draining = scoreboard.delivered >= SETTINGS.items
        memory.drive()
        driver.drive(draining=draining and driver.offered is None)
        cycle = await monitor.settle()
        tile = driver.offered
        assert tile is None or isinstance(tile, Tile)
        memory.sample(tile, cycle.reset)
        scoreboard.observe(cycle, tile)
        if tile and cycle.accepts:
            wanted += tile.reads
        driver.update(cycle)
    assert resets or memory.reads == wanted, f"{memory.reads} columns were read, not {wanted}"

"""cocotb tests of the reader of tensor memory: requests and a memory in, registers out."""

from typing import Any

import cocotb
import numpy as np
from cocotb.handle import HierarchyObject
from numpy.typing import NDArray

from ...rtl.tensor_memory import TENSOR_LANES
from .scoreboard import Pattern
from .settings import Settings
from .streams import StreamDriver, StreamMonitor, rare_meetings, start_clock
from .tensor_memory_items import RegisterScoreboard, Tile, random_tiles

__all__ = ["ColumnMemory", "every_result_once"]

SETTINGS = Settings.of_environment()
#: Columns of a tile at most.
_READS = 4


class ColumnMemory:
    """Answers the read of a column in one cycle in the next.

    Parameters
    ----------
    top : handle
        With the memory's ports.
    rng : Generator
        Draws what the port shows when nothing was asked for.
    port : str
        Name of the memory's port.
    """

    def __init__(self, top: Any, rng: np.random.Generator, port: str) -> None:
        self._data = [getattr(top, f"{port}__data__{lane}") for lane in range(TENSOR_LANES)]
        self._column, self._read = getattr(top, f"{port}__column"), getattr(top, f"{port}__read")
        self._rng = rng
        self._answer: list[int] | None = None

    def sample(self, memory: NDArray[np.uint32] | None) -> bool:
        """Note what is read in a settled cycle, of a memory if there is one; return whether anything is."""
        reads = memory is not None and bool(int(self._read.value))
        self._answer = memory[:, int(self._column.value)].tolist() if memory is not None and reads else None
        return reads

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
    memory, monitor = ColumnMemory(top, rng, "memory"), StreamMonitor(top)
    start_clock(top)
    draining, wanted, reads = False, 0, 0
    while not draining or scoreboard.under_way or driver.offered:
        await monitor.following()
        draining = scoreboard.delivered >= SETTINGS.items
        memory.drive()
        driver.drive(draining=draining and driver.offered is None)
        cycle = await monitor.settle()
        tile = driver.offered
        assert tile is None or isinstance(tile, Tile)
        assert tile or cycle.reset or not int(top.memory__read.value), "a column is read that nothing asked for"
        reads += memory.sample(None if tile is None or cycle.reset else tile.memory)
        scoreboard.observe(cycle, tile)
        if tile and cycle.accepts:
            wanted += tile.reads
        driver.update(cycle)
    assert resets or reads == wanted, f"{reads} columns were read, not {wanted}"

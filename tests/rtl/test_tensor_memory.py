"""Metadata and scales from tensor memory: when the reader takes and gives what, and from which places."""

from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest
from amaranth.sim import SimulatorContext
from numpy.typing import NDArray
from sptc.rtl.tensor_memory import TENSOR_LANES, TensorMemoryReader
from sptc.sim.benches.tensor_memory_items import random_tiles
from sptc.tests.rtl.simulation import simulate_clocked

Random = np.random.Generator
LANES = 32


def read(work: Sequence[tuple[int, NDArray[np.uint32]]]) -> tuple[list[int], list[int], list[int]]:
    """Make requests back to back; return the results, the cycles of the reads and those of the deliveries."""
    reader, results, reads, deliveries = TensorMemoryReader(), [], [], []

    async def bench(context: SimulatorContext) -> None:
        waiting, cycle = list(work), 0
        context.set(reader.o.ready, 1)
        while len(results) < len(work):
            context.set(reader.i.valid, bool(waiting))
            if waiting:
                context.set(reader.i.payload.as_value(), waiting[0][0])
            await context.delay(1e-8)
            ports = (reader.i.ready, reader.memory.read, reader.memory.column, reader.o.valid)
            taken, reading, column, valid = (context.get(port) for port in ports)
            if valid:
                results.append(context.get(reader.o.payload.as_value()))
                deliveries.append(cycle)
            if reading:
                reads.append(cycle)
            await context.tick()
            if reading:
                for lane in range(TENSOR_LANES):
                    context.set(reader.memory.data[lane], int(waiting[0][1][lane, column]))
            if waiting and taken:
                waiting.pop(0)
            cycle += 1
            assert cycle < 10 * len(work)

    simulate_clocked(reader, bench)
    return results, reads, deliveries


def test_every_register_comes_from_its_place(rng: Random) -> None:
    tiles = list(islice(random_tiles(rng), 24))
    results, *_ = read([(tile.payload, tile.memory) for tile in tiles])
    for tile, result in zip(tiles, results, strict=True):
        tile.check(result)


def test_what_is_read_is_not_anything(rng: Random) -> None:
    """What the check above rests on: it sees one wrong bit, in any of the words that are meant."""
    tile = next(tile for tile in random_tiles(rng) if len(tile.scales) == 2 and tile.instruction.scale_size == 4)
    (result,), *_ = read([(tile.payload, tile.memory)])
    tile.check(result)
    for bit in rng.integers(0, 3 * LANES * 32, 40).tolist():
        with pytest.raises(AssertionError):
            tile.check(result ^ 1 << bit)


def test_latency_and_interval(rng: Random) -> None:
    """As many cycles as columns, and one more."""
    tiles = list(islice(random_tiles(rng), 24))
    assert {tile.reads for tile in tiles} >= {1, 2, 4}
    _, reads, deliveries = read([(tile.payload, tile.memory) for tile in tiles])
    assert len(reads) == sum(tile.reads for tile in tiles)
    starts = np.cumsum([0, *(tile.reads + 1 for tile in tiles)])
    assert deliveries == starts[1:].tolist()
    assert reads == [start + n for start, tile in zip(starts, tiles, strict=False) for n in range(tile.reads)]

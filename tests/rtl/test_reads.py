"""The control of reads: each item is whole when it is taken, and none waits for nothing."""

from itertools import pairwise

import numpy as np
import pytest
from sptc.rtl.reads import ReadControl
from sptc.tests.rtl.simulation import simulate_clocked

ITEMS = 40


def taken(parts: list[int], gaps: float, stalls: float, rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Read items of so many parts through a register for each part; return when each was first read, and was taken.

    What was asked in a cycle arrives in the next one, and is overwritten as a register of the hardware would be.
    """
    dut = ReadControl()
    begun: list[int] = []
    delivered: list[int] = []

    async def bench(ctx) -> None:
        item, part, offers = 0, 0, False
        registers: dict[int, int] = {}
        arriving: tuple[int, int] | None = None
        for cycle in range(100 * len(parts)):
            if len(delivered) == len(parts):
                return
            offers = item < len(parts) and (offers or rng.random() >= gaps)
            ctx.set(dut.i_valid, offers)
            ctx.set(dut.last, item < len(parts) and part == parts[item] - 1)
            ctx.set(dut.o_ready, rng.random() >= stalls)
            read, taking = ctx.get(dut.read), ctx.get(dut.o_valid) and ctx.get(dut.o_ready)
            assert ctx.get(dut.arriving) == (arriving is not None)
            if taking:
                number = len(delivered)
                assert registers == dict.fromkeys(range(parts[number]), number)
                registers = {}
                delivered.append(cycle)
            if arriving:
                registers[arriving[0]] = arriving[1]
            arriving = (part, item) if read else None
            if read:
                assert offers
                if part == 0:
                    begun.append(cycle)
                assert ctx.get(dut.i_ready) == (part == parts[item] - 1)
                part += 1
                if part == parts[item]:
                    item, part, offers = item + 1, 0, False
            await ctx.tick()

    simulate_clocked(dut, bench)
    assert len(delivered) == len(parts), "it hangs"
    return begun, delivered


@pytest.mark.parametrize(("gaps", "stalls"), [(0, 0), (0.6, 0), (0, 0.6), (0.4, 0.4)])
def test_every_item_is_whole(gaps: float, stalls: float, rng: np.random.Generator) -> None:
    begun, delivered = taken(rng.integers(1, 5, ITEMS).tolist(), gaps, stalls, rng)
    assert all(before <= after for before, after in zip(delivered, begun[1:], strict=False))


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_how_long_it_takes(parts: int, rng: np.random.Generator) -> None:
    """An item is there ``parts + 1`` cycles after its first read, in which the reads of the next one begin."""
    begun, delivered = taken([parts] * ITEMS, 0, 0, rng)
    assert [after - before for before, after in zip(begun, delivered, strict=True)] == [parts + 1] * ITEMS
    assert {after - before for before, after in pairwise(begun)} == {parts + 1}

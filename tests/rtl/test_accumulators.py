"""Accumulators in tensor memory: which words become which registers, and what waits for what is still to be written."""

from collections import deque
from functools import partial

import numpy as np
from sptc.rtl.accumulators import Accumulators
from sptc.tests.rtl.operand_words import (
    ALL_COLUMNS,
    COLUMNS,
    LANES,
    REGISTERS,
    ROWS,
    accumulator_registers,
    accumulator_words,
    bits_of,
    columns_from,
    serve_accumulators,
    write_columns,
)
from sptc.tests.rtl.simulation import simulate_clocked

ARRAYS, MOST, BUFFERS, PANELS = 2, 5, 2, 500


def test_what_is_read_is_what_was_written_last(rng: np.random.Generator) -> None:
    """Random columns near each other on either side, the last ones beside the first, of either width.

    A request is taken exactly when there is room and, if it reads, no result that is to come shares one of its columns.
    """
    dut = Accumulators(ARRAYS, MOST)
    memory = rng.integers(0, 1 << 32, (ARRAYS * ROWS, ALL_COLUMNS), np.uint32)
    current = memory.copy()  # of the hardware
    due: deque[tuple[int, bool]] = deque()  # columns and width of what is to be written
    reading: deque[tuple[int, bool, bool]] = deque()  # likewise, and whether it reads, of what is to be given
    distances: set[int] = set()

    async def bench(ctx) -> None:
        asked = 0
        request: tuple[int, bool, bool] | None = None
        centre = 0
        for _ in range(20 * PANELS):
            if asked == PANELS and not due and not reading:
                break
            if request is None and asked < PANELS:
                if asked % 20 == 0:
                    centre = int(rng.choice([0, 256, rng.integers(ALL_COLUMNS)]))
                column = (centre + int(rng.integers(-12, 13))) % ALL_COLUMNS
                request = column, bool(rng.integers(2)), bool(rng.random() < 0.8)
            ctx.set(dut.i.valid, request is not None)
            if request:
                for name, value in zip(("column", "half", "add"), request, strict=True):
                    ctx.set(dut.i.payload[name], value)
            ctx.set(dut.c.ready, bool(rng.random() < 0.7))
            # A result may come once its accumulators were given.
            outstanding = len(due) - len(reading)
            writes = outstanding > 0 and bool(rng.random() < 0.4)
            results = rng.integers(0, 1 << 32, (ARRAYS, LANES, REGISTERS), np.uint32)
            ctx.set(dut.o.valid, writes)
            ctx.set(dut.o.payload.as_value(), bits_of(results))
            gives = bool(ctx.get(dut.c.valid) and ctx.get(dut.c.ready))
            if request:
                between = [(column - request[0]) % ALL_COLUMNS for column, _ in due]
                overlaps = any(distance < COLUMNS or distance > ALL_COLUMNS - COLUMNS for distance in between)
                room = (len(reading) < BUFFERS or gives) and len(due) < MOST
                ready = room and not (request[2] and overlaps)
                assert ctx.get(dut.i.ready) == ready, f"columns {request[0]} on; to be written are {[*due]}"
                if room and len(due) == 1 and request[2]:
                    distances.add(between[0])
            if gives:
                column, half, adds = reading.popleft()
                if adds:
                    expected = accumulator_registers(memory[:, columns_from(column)], half)
                    got = ctx.get(dut.c.payload.as_value())
                    assert got == bits_of(expected), f"registers of columns {column} on, of 16 bits: {half}"
            if writes:
                column, half = due.popleft()
                write_columns(memory, column, accumulator_words(results, half), half)
            if request and ctx.get(dut.i.ready):
                due.append(request[:2])
                reading.append(request)
                asked, request = asked + 1, None
            await ctx.tick()
        else:
            raise AssertionError("something was not given")

    simulate_clocked(dut, bench, partial(serve_accumulators, port=dut.memory, memory=current))
    np.testing.assert_array_equal(current, memory)
    nearest = {*range(COLUMNS + 1), *range(ALL_COLUMNS - COLUMNS, ALL_COLUMNS)}
    assert len(nearest & distances) > len(nearest) // 2, "hardly any columns were near each other"

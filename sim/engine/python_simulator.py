"""Simulation of the RTL by Amaranth: slower than Verilator, but it needs no compiler and writes waveforms."""

import io
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import numpy as np
from amaranth.sim import Simulator, SimulatorContext
from numpy.typing import NDArray

from ...infra.files import whole_file
from ...rtl.config import CoreConfig
from ...rtl.row import Row
from .steps import Steps

__all__ = ["PERIOD", "SimulatedRow"]

#: Clock period of the simulation in seconds.
PERIOD = 1e-9


class _KeptOpen(io.TextIOWrapper):
    """Text stream whose file stays open: Amaranth closes the stream, but `whole_file` closes the file."""

    def close(self) -> None:
        self.flush()


class SimulatedRow:
    """Row (dot-product unit with metadata decoder) in Amaranth's simulator; :meth:`waves` starts a new simulation.

    `entered` has, for each step, the number of the clock period in which the step was at the inputs, counted from the
    start of the simulation.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.entered: list[int] = []
        self._config = config
        self._row = Row(config)
        self._waiting: deque[int] = deque()
        self._results: list[int] = []
        self._simulator = Simulator(self._row)
        if config.cuts:
            self._simulator.add_clock(PERIOD)
        self._simulator.add_testbench(self._bench)

    async def _bench(self, context: SimulatorContext) -> None:
        # For each pipeline stage, whether it is occupied. A result is read when its computation leaves the pipeline.
        in_flight = deque([False] * (self._config.latency - 1))
        for period in count():
            in_flight.append(bool(self._waiting))
            if self._waiting:
                self.entered.append(period)
                context.set(self._row.step.as_value(), self._waiting.popleft())
            if self._config.cuts:
                await context.tick()
            else:
                await context.delay(PERIOD)
            if in_flight.popleft():
                self._results.append(context.get(self._row.result.as_value()))

    def run(self, steps: Steps, previous: NDArray[np.uint64] | None = None) -> NDArray[np.uint64]:
        """Compute one sum of products per output of a batch, in order; return the result words, shape (batch, m, n)."""
        self._results.clear()
        words = steps.whole(previous).reshape(-1, steps.words.total)
        self._waiting.extend(int.from_bytes(step.tobytes(), "little") for step in words)
        while len(self._results) < len(words):
            self._simulator.advance()
        return np.array(self._results, np.uint64).reshape(steps.shape)

    @contextmanager
    def waves(self, path: Path) -> Iterator[None]:
        """Start a new simulation, and write all its signals to a VCD file during the body of the ``with`` statement."""
        if self.entered:
            self._simulator.reset()
            self.entered.clear()
        with (
            whole_file(path) as file,
            _KeptOpen(file, encoding="utf-8") as stream,
            self._simulator.write_vcd(stream),
        ):
            yield

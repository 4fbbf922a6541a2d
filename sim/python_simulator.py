"""The same hardware in Amaranth's own simulator: slow, but it needs no compiler."""

import numpy as np
from amaranth.sim import Simulator, SimulatorContext
from numpy.typing import NDArray

from ..rtl.config import CoreConfig
from ..rtl.unit import Unit

__all__ = ["SimulatedUnit"]

_PERIOD = 1e-9


class SimulatedUnit:
    """A unit in Amaranth's simulator.

    Parameters
    ----------
    config : CoreConfig
        Which unit.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config

    def run(self, steps: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Push steps, shape (count, words), through the unit; return result words, shape (count,)."""
        unit = Unit(self.config)
        results = np.empty(len(steps), np.uint64)
        values = [int.from_bytes(step.tobytes(), "little") for step in steps]

        async def bench(context: SimulatorContext) -> None:
            for cycle in range(len(values) + self.config.latency):
                if cycle < len(values):
                    context.set(unit.step.as_value(), values[cycle])
                if self.config.cuts:
                    await context.tick()
                else:
                    await context.delay(_PERIOD)
                done = cycle + bool(self.config.cuts) - self.config.latency
                if 0 <= done < len(values):
                    results[done] = context.get(unit.result.as_value())

        simulator = Simulator(unit)
        if self.config.cuts:
            simulator.add_clock(_PERIOD)
        simulator.add_testbench(bench)
        simulator.run()
        return results

"""Functions that simulate hardware components in Amaranth's simulator, with and without a clock."""

import gc
import sys
from collections.abc import Callable

import numpy as np
import pytest
from amaranth.hdl import Elaboratable, Fragment, Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.sim import Simulator, SimulatorContext
from numpy.typing import ArrayLike, NDArray
from sptc.sim.engine.ports import ports_of

Results = dict[str, NDArray]
sys.set_int_max_str_digits(0)  # the simulator generates Python code that contains very long decimal numbers


def simulate_clocked(dut: Elaboratable, bench: Callable, *processes: Callable, reset: Signal | None = None) -> None:
    """Simulate a component with a clock, a testbench, further processes, and a reset signal if `reset` is given."""
    top = Module()
    top.submodules.dut = dut if reset is None else ResetInserter(reset)(dut)
    gc.disable()  # Garbage collection would find nothing, and take a third of the simulation time.
    try:
        simulator = Simulator(top)
        simulator.add_clock(1e-6)
        for process in processes:
            simulator.add_process(process)
        simulator.add_testbench(bench)
        simulator.run()
    finally:
        gc.enable()


@pytest.fixture(scope="session")
def simulate() -> Callable[..., Results]:
    """Function that evaluates a combinational component for arrays of inputs by port name. Other inputs are zero."""

    def run(component: wiring.Component, platform: object = None, **values: ArrayLike) -> Results:
        ports = ports_of(component)
        driven = [port for port in ports if port.name in values and port.is_input]
        assert len(driven) == len(values), f"some of {[*values]} are no inputs"
        watched = [port for port in ports if not port.is_input]
        columns = np.broadcast_arrays(*(np.asarray(values[port.name]) for port in driven))
        seen: list[list[int]] = []

        async def bench(context: SimulatorContext) -> None:
            for row in zip(*(column.tolist() for column in columns), strict=True):
                for port, value in zip(driven, row, strict=True):
                    context.set(port.value, value)
                await context.delay(1e-9)
                seen.append([context.get(port.value) for port in watched])

        simulator = Simulator(Fragment.get(component, platform))
        simulator.add_testbench(bench)
        simulator.run()
        results = zip(watched, zip(*seen, strict=True), strict=True)
        return {port.name: np.array(column, np.int64 if port.bits < 64 else object) for port, column in results}

    return run

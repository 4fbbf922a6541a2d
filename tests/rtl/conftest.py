"""Fixtures that simulate components in Amaranth's simulator, with and without a clock."""

import gc
import sys
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from amaranth.hdl import Elaboratable, Fragment, Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.sim import Simulator, SimulatorContext
from numpy.typing import ArrayLike, NDArray
from sptc.sim.engine.ports import ports_of

Results = dict[str, NDArray]
sys.set_int_max_str_digits(0)  # code that the simulator generates contains large values as decimal text


def simulate_clocked(dut: Elaboratable, bench: Callable, *processes: Callable, reset: Signal | None = None) -> None:
    """Run a testbench and further processes on a component with a clock, and with a reset if it has one."""
    top = Module()
    top.submodules.dut = dut if reset is None else ResetInserter(reset)(dut)
    gc.disable()  # Elaboration releases no objects, so garbage collection would waste a third of its time.
    try:
        simulator = Simulator(top)
        simulator.add_clock(1e-6)
        for process in processes:
            simulator.add_process(process)
        simulator.add_testbench(bench)
        simulator.run()
    finally:
        gc.enable()


def short(name: str) -> str:
    """Return the name of a port in tests: its path joined by single underscores, such as ``product_sign``."""
    return name.replace("__", "_")


def columns(component: wiring.Component, values: Mapping[str, ArrayLike]) -> dict[str, NDArray[np.int64]]:
    """Return one column of stimulus for each input by name. A matrix is split into one column for each port of an
    array.
    """
    given: dict[str, NDArray[np.int64]] = {}
    for name, value in values.items():
        array = np.asarray(value)
        if array.dtype.kind == "f":  # numpy turns 64-bit integers of different signedness into floats
            array = np.asarray(value, object)
        if array.ndim == 2:
            given.update((f"{name}_{i}", column) for i, column in enumerate(array.T))
        else:
            given[name] = array
    inputs = {short(port.name): port.name for port in ports_of(component) if port.is_input}
    assert given.keys() <= inputs.keys(), f"no such inputs: {given.keys() - inputs.keys()}"
    longest = max(map(np.size, given.values()))
    return {inputs[name]: np.broadcast_to(array, longest) for name, array in given.items()}


def matrices(answers: Results) -> Results:
    """Return results by port name. The columns of an array of ports ``x_0``, ``x_1``, ... are also joined to a matrix
    ``x``.
    """
    results = {short(name): values for name, values in answers.items()}
    joined = dict(results)
    for name in results:
        stem, _, index = name.rpartition("_")
        if index == "0":
            names = (f"{stem}_{i}" for i in range(len(results)))
            joined[stem] = np.stack([results[other] for other in names if other in results], 1)
    return joined


@pytest.fixture(scope="session")
def simulate() -> Callable[..., Results]:
    """Evaluate a combinational component in Amaranth's simulator, on an optional platform. Inputs without a value are
    zero.
    """

    def run(component: wiring.Component, platform: object = None, **values: ArrayLike) -> Results:
        given = columns(component, values)
        ports = ports_of(component)
        driven = [port for port in ports if port.name in given]
        watched = [port for port in ports if not port.is_input]
        rows = list(zip(*(given[port.name].tolist() for port in driven), strict=True))
        seen: list[list[int]] = []

        async def bench(context: SimulatorContext) -> None:
            for row in rows:
                for port, value in zip(driven, row, strict=True):
                    context.set(port.value, value)
                await context.delay(1e-9)
                seen.append([context.get(port.value) for port in watched])

        simulator = Simulator(Fragment.get(component, platform))
        simulator.add_testbench(bench)
        simulator.run()
        seen_of = zip(watched, zip(*seen, strict=True), strict=True)
        return matrices({p.name: np.array(c, np.int64 if p.bits < 64 else object) for p, c in seen_of})

    return run

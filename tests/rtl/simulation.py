"""Amaranth's simulator as the tests of this folder use it."""

import gc
import sys
from collections.abc import Callable

from amaranth.hdl import Elaboratable, Module, ResetInserter, Signal
from amaranth.sim import Simulator

sys.set_int_max_str_digits(0)  # the simulator writes values as decimal text into what it compiles


def simulate_clocked(dut: Elaboratable, bench: Callable, *processes: Callable, reset: Signal | None = None) -> None:
    """Run a testbench, beside processes, on a component with a clock, and with a reset if there is one."""
    top = Module()
    top.submodules.dut = dut if reset is None else ResetInserter(reset)(dut)
    gc.disable()  # elaboration keeps all it makes: searching that for garbage takes a third of its time
    try:
        simulator = Simulator(top)
        simulator.add_clock(1e-6)
        for process in processes:
            simulator.add_process(process)
        simulator.add_testbench(bench)
        simulator.run()
    finally:
        gc.enable()

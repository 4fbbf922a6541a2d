"""Components with pipeline registers give the same results as without registers, some cycles later."""

from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from amaranth.hdl import Fragment, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.sim import Simulator, SimulatorContext
from sptc.rtl.cells.carry_save_tree import CarrySaveTree, sum_bits
from sptc.rtl.cells.platforms import OPERATORS
from sptc.rtl.config import BLOCK_SCALES, PRESETS, CoreConfig
from sptc.rtl.multiply import MultiplyStage
from sptc.rtl.round import ResultCode, RoundStage
from sptc.rtl.widths import Widths

Random = np.random.Generator

#: Number of simulated cycles. The enable input is 1 in about half of them.
_CYCLES = 120
#: Positions of registers in the rounding stage.
CUTS = ("reduce", "count", "normalise")
REGRESSION = pytest.mark.regression
#: Number of adder levels before the registers (None: no registers), and whether the output has registers.
REGISTERS = [(0, False), (1, False), (3, False), (99, False), (None, True), (1, True)]


def check_delayed(
    registered: wiring.Component, bare: wiring.Component, latency: int, rng: Random, platform: object = None
) -> None:
    """Check that `registered` gives the results of `bare`, which has no registers, `latency` enabled cycles later."""
    m = Module()
    m.submodules.registered, m.submodules.bare = registered, bare
    ports = [
        [(path, member.flow, Value.cast(value)) for path, member, value in one.signature.flatten(one)]
        for one in (registered, bare)
    ]
    inputs, outputs = [], []
    for (path, flow, mine), (_, _, other) in zip(*ports, strict=True):
        if path != ("enable",):
            (inputs if flow is In else outputs).append((mine, other))

    async def bench(context: SimulatorContext) -> None:
        due: deque[list[int]] = deque(maxlen=latency)
        for _ in range(_CYCLES):
            for pair in inputs:
                value = int.from_bytes(rng.bytes(len(pair[0]) // 8 + 1), "little") & (1 << len(pair[0])) - 1
                for port in pair:
                    context.set(port, value)
            enable = int(rng.integers(0, 2))
            context.set(registered.enable, enable)
            await context.delay(1e-7)
            given = [context.get(other) for _, other in outputs]
            await context.tick()
            if enable:
                due.append(given)
            if len(due) == latency:
                assert [context.get(mine) for mine, _ in outputs] == due[0]
        assert len(due) == latency

    simulator = Simulator(Fragment.get(m, platform))
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("platform", [None, OPERATORS], ids=["cells", "operators"])
@pytest.mark.parametrize("count", [1, 9, *(pytest.param(count, marks=REGRESSION) for count in (2, 33))])
def test_a_tree_of_adders(rng: Random, count: int, platform: object) -> None:
    """The output words of a tree with registers equal those of a tree without, some enabled cycles later."""
    bits = 9
    for level, behind in REGISTERS:
        trees = [
            CarrySaveTree([bits] * count, sum_bits(bits + 1, count), *registers)
            for registers in ((level, behind), (None, False))
        ]
        check_delayed(*trees, (level is not None) + behind, rng, platform)


#: A unit with two slots, a unit with block scales, and a unit whose fp8 keeps fewer alignment bits.
UNITS = [
    CoreConfig(name="little", formats=("f16", "s8"), step_bytes=4),
    CoreConfig(name="scaled", formats=("e4m3", "f16", "s8", "e2m1", "e2m1/4", "s4"), scales=BLOCK_SCALES, step_bytes=8),
    CoreConfig(name="short", formats=("f16", "bf16", "tf32", "e5m2", "s8"), step_bytes=8, fp8_alignment_bits=13),
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("config", UNITS, ids=lambda config: config.name)
def test_the_multiply_stage(rng: Random, config: CoreConfig) -> None:
    check_delayed(*[MultiplyStage(replace(config, cuts=cuts)) for cuts in (("product",), ())], 1, rng)


@pytest.mark.parametrize("cuts", [*((cut,) for cut in CUTS), CUTS], ids="+".join)
@pytest.mark.parametrize("results", [set(ResultCode), pytest.param({ResultCode.S32}, marks=REGRESSION)], ids=len)
def test_the_rounding(rng: Random, results: set[ResultCode], cuts: tuple[str, ...]) -> None:
    widths = Widths(PRESETS["hopper"])
    stages = [RoundStage(widths.total_bits, widths.integer_bits, results, registers) for registers in (cuts, ())]
    check_delayed(*stages, len(cuts), rng)

"""Components with registers inside, beside the same ones without."""

from collections import deque

import numpy as np
from amaranth.hdl import Fragment, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.sim import Simulator, SimulatorContext

#: Cycles, half of them enabled.
_CYCLES = 120


def check_delayed(
    registered: wiring.Component,
    bare: wiring.Component,
    latency: int,
    rng: np.random.Generator,
    platform: object = None,
) -> None:
    """Check that one gives, so many enabled cycles later, what the other gives at once, whatever they are given."""
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

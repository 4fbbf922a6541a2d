"""cocotb tests of a row (metadata decoder and dot-product unit): one dot product per cycle, with and without stalls."""

from collections import deque
from itertools import islice

import cocotb
import numpy as np
from cocotb.handle import HierarchyObject
from cocotb.triggers import FallingEdge, ReadOnly

from ..coverage.steps import StepCoverage
from .blocks import random_blocks
from .settings import Settings
from .streams import start_clock

__all__ = ["a_step_each_cycle"]

SETTINGS = Settings.of_environment()


@cocotb.test()
@cocotb.parametrize(pauses=[False, True])
async def a_step_each_cycle(top: HierarchyObject, pauses: bool) -> None:
    """Check each cycle's result against the golden model; formats and metadata rules change from cycle to cycle.

    With `pauses`, input `enable` is 0 in half of the cycles: the pipeline must not advance, and `step` is random.
    """
    config = SETTINGS.config
    rng = np.random.default_rng([cocotb.RANDOM_SEED, pauses])
    blocks = list(islice(random_blocks(config, SETTINGS.arch, rng, 2, 2), -(-SETTINGS.items // 4)))
    names = [block.name for block in blocks for _ in range(block.results.size)]
    steps = np.concatenate([block.steps.reshape(block.results.size, -1) for block in blocks])
    results = np.concatenate([block.results.ravel() for block in blocks])
    mask = (1 << len(top.step)) - 1
    waiting = deque(rng.permutation(len(steps)).tolist())
    stages: deque[int | None] = deque([None] * config.latency)
    start_clock(top)
    while waiting or any(stage is not None for stage in stages):
        await FallingEdge(top.clk)
        enable = not pauses or bool(rng.random() < 0.5)
        entering = waiting.popleft() if waiting and enable else None
        payload = rng.bytes(steps[0].nbytes) if entering is None else steps[entering].tobytes()
        top.enable.value = int(enable)
        top.step.value = int.from_bytes(payload, "little") & mask
        await ReadOnly()
        if (leaving := stages[0]) is not None:
            actual, expected = int(top.result.value), int(results[leaving])
            assert actual == expected, f"{names[leaving]}: the result is {actual:#x}, not {expected:#x}"
        if enable:
            stages.popleft()
            stages.append(entering)
    if SETTINGS.coverage:
        sampled = StepCoverage(config)
        sampled.sample(steps, results)
        SETTINGS.record(sampled.coverage)

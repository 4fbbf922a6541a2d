"""cocotb tests of an array of dot-product units and a warp: one bit-exact result per input, in order, with stalls."""

import cocotb
import numpy as np
from cocotb.handle import HierarchyObject
from cocotb.triggers import FallingEdge, ReadOnly

from .items import tiles, warp_items
from .scoreboard import Scoreboard, random_pattern
from .settings import Settings
from .stream_coverage import StreamCoverage
from .streams import StreamDriver, StreamMonitor, rare_meetings, start_clock

__all__ = ["every_result_once"]

SETTINGS = Settings.of_environment()


@cocotb.test()
@cocotb.parametrize(resets=[False, True])
async def every_result_once(top: HierarchyObject, resets: bool) -> None:
    """Check that each input has one result, in order, under gaps and stalls, and that a reset drops all inputs."""
    rng = np.random.default_rng([cocotb.RANDOM_SEED, resets])
    config, is_core = SETTINGS.config, SETTINGS.top == "core"
    cycles = 1 if is_core else 2 * config.warp_blocks
    items = (tiles if is_core else warp_items)(config, SETTINGS.arch, rng)
    scoreboard = Scoreboard(longest_wait=4 * (cycles + config.latency))
    coverage = StreamCoverage(config, SETTINGS.top)
    pattern = random_pattern(rng, pace=cycles, resets=resets)
    driver = StreamDriver(top, items, pattern, rare_meetings(rng, resets=resets, stalls_end=0.05 if is_core else 0.01))
    monitor = StreamMonitor(top)
    start_clock(top)
    draining = False
    while not draining or scoreboard.under_way:
        await FallingEdge(top.clk)
        draining = scoreboard.delivered >= SETTINGS.items
        driver.drive(draining=draining and driver.offered is None)
        await ReadOnly()
        cycle = monitor.sample()
        scoreboard.observe(cycle, driver.offered)
        coverage.observe(cycle, driver.offered.element if driver.offered else None)
        driver.update(cycle)
    SETTINGS.record(coverage.coverage)

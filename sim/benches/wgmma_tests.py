"""cocotb tests of a warp of ``wgmma``: descriptors, a shared memory and accumulators in, results out."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from cocotb.handle import HierarchyObject

from ...rtl.fetch import PANEL_ROWS, UNIT_BITS
from .items import Item
from .scoreboard import Cycle, Pattern, Scoreboard
from .settings import Settings
from .streams import StreamMonitor, start_clock
from .wgmma_items import Job, read_jobs

__all__ = ["Memory", "back_to_back", "every_result_once"]

SETTINGS = Settings.of_environment()


class Memory:
    """Answers the reads of one cycle in the next.

    Parameters
    ----------
    top : handle
        With the memory's ports.
    rng : Generator
        Draws what the port shows when nothing was asked for.
    """

    def __init__(self, top: Any, rng: np.random.Generator) -> None:
        self._data = [getattr(top, f"memory__data__{row}") for row in range(PANEL_ROWS)]
        self._addresses = [getattr(top, f"memory__address__{row}") for row in range(PANEL_ROWS)]
        self._read, self._rng = top.memory__read, rng
        self._answers: list[int] | None = None

    def sample(self, read: Callable[[int], int] | None) -> bool:
        """Note what is read in a settled cycle, by a function of units if there is one; return whether anything is."""
        reads = bool(int(self._read.value))
        self._answers = [read(int(address.value)) for address in self._addresses] if read and reads else None
        return reads and read is not None

    def drive(self) -> None:
        """Answer; without a read one of the units becomes noise."""
        if self._answers:
            for data, answer in zip(self._data, self._answers, strict=True):
                data.value = answer
        else:
            noise = self._rng.bytes(UNIT_BITS // 8)
            self._data[self._rng.integers(PANEL_ROWS)].value = int.from_bytes(noise, "little")


class _Driver:
    """Offers instructions and the accumulators of their panels, the latter no earlier than the instruction is taken.

    Attributes
    ----------
    running : Job or None
        The instruction that was taken last.
    offered : Item or None
        The accumulators that stand at their stream.
    finished : bool
        There are no more instructions.
    waited : int
        Cycles for which an instruction has not been taken though the one before it has all its accumulators.
    accepted_panels : int
        Panels of the instructions that were taken.
    reads : int
        How often the instruction that runs has read its memory.
    """

    def __init__(self, top: Any, jobs: Iterator[Job]) -> None:
        self._top = top
        self._jobs = jobs
        self._next: Job | None = None
        self._panels: deque[Item] = deque()
        self.running: Job | None = None
        self.offered: Item | None = None
        self.finished = False
        self.waited = 0
        self.accepted_panels = 0
        self.reads = 0

    def drive(self, offer: bool, offer_panel: bool, take: bool, reset: bool) -> None:
        """Set the inputs of the coming cycle."""
        top = self._top
        if self._next is None and offer and not reset and not self.finished:
            self._next = next(self._jobs, None)
            self.finished = self._next is None
            if self._next:
                top.i__payload.value = self._next.instruction
        if self.offered is None and offer_panel and not reset and self._panels:
            self.offered = self._panels.popleft()
            top.c__payload.value = self.offered.payload
        top.i__valid.value = int(self._next is not None and not reset)
        top.c__valid.value = int(self.offered is not None and not reset)
        top.o__ready.value = int(take and not reset)
        top.rst.value = int(reset)

    def update(self, reset: bool) -> None:
        """Move on after a settled cycle; a reset takes away what was accepted."""
        top = self._top
        self.waited = self.waited + 1 if self._next and not self._panels and not self.offered and not reset else 0
        if reset:
            self._panels.clear()
            self.offered = self.running = None
            self.reads = 0
            return
        if self.offered and int(top.c__ready.value):
            self.offered = None
        if self._next and int(top.i__ready.value):
            self.check_reads()
            self.running, self._next = self._next, None
            assert self.running
            self._panels.extend(self.running.panels)
            self.accepted_panels += len(self.running.panels)
            self.waited = 0

    def check_reads(self) -> None:
        """Of an instruction that has ended: it has read what it multiplies once, and nothing else."""
        wanted = self.running.reads if self.running else 0
        assert self.reads == wanted, f"an instruction read its memory {self.reads} times, not {wanted}"
        self.reads = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is left to offer."""
        return self.finished and self._next is None and not self._panels and self.offered is None


async def _run(top: HierarchyObject, jobs: Iterable[Job], rng: np.random.Generator, pace: int, resets: bool) -> None:
    """Run jobs with gaps, stalls and resets; without resets, every panel must give a result."""
    longest_wait = 8 * pace + 64
    scoreboard = Scoreboard(longest_wait)
    driver, memory, monitor = _Driver(top, iter(jobs)), Memory(top, rng), StreamMonitor(top, "c")
    patterns = (iter(Pattern(rng, pace=pace, resets=resets)), iter(Pattern(rng, pace=pace)))
    start_clock(top)
    while not driver.idle or scoreboard.under_way:
        await monitor.following()
        offer, take, reset = next(patterns[0])
        offer_panel, _, _ = next(patterns[1])
        memory.drive()
        driver.drive(offer, offer_panel, take or driver.idle, reset)
        cycle: Cycle = await monitor.settle()
        driver.reads += memory.sample(driver.running.read if driver.running else None)
        # What the accumulators' stream takes is what results come out for; an idle fetch is no silence.
        scoreboard.observe(cycle, driver.offered)
        driver.update(cycle.reset)
        assert driver.waited <= longest_wait, f"an instruction has not been taken for {driver.waited} cycles"
    driver.check_reads()
    assert scoreboard.delivered, "nothing came out"
    assert resets or scoreboard.delivered == driver.accepted_panels


@cocotb.test(skip=SETTINGS.back_to_back)
@cocotb.parametrize(resets=[False, True])
async def every_result_once(top: HierarchyObject, resets: bool) -> None:
    """Jobs with gaps, stalls and resets."""
    rng = np.random.default_rng([cocotb.RANDOM_SEED, resets])
    config = SETTINGS.config
    pace = 2 * config.warp_blocks
    await _run(top, read_jobs(Path(SETTINGS.jobs)), rng, pace, resets)


@cocotb.test(skip=not SETTINGS.back_to_back)
async def back_to_back(top: HierarchyObject) -> None:
    """Jobs as fast as they are taken."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    await _run(top, read_jobs(Path(SETTINGS.jobs)), rng, 1, resets=False)

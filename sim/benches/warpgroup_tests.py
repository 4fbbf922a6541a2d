"""cocotb tests of a warpgroup: instructions, commits, waits, accumulators, shared memory, and concurrent ``mma``."""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cocotb
import numpy as np
from cocotb.handle import HierarchyObject
from cocotb.triggers import FallingEdge, ReadOnly

from ...rtl.fetch import ADDRESS_BITS
from ...rtl.life_cycle import Operation
from ...rtl.tensor_cores import WARPS, mma_layout
from .items import Item, warp_items
from .scoreboard import Cycle, Scoreboard, ViolationError, random_pattern
from .settings import Settings
from .stream_coverage import WARPGROUP, CommandCoverage, Mma
from .streams import StreamMonitor, rare_meetings, shared_memory, start_clock
from .warpgroup_items import Command, Job, commands

__all__ = ["every_result_once"]

SETTINGS = Settings.of_environment()
_HALF_BITS = ADDRESS_BITS - 1


class _Instructions:
    """Driver of a warpgroup's commands and accumulators, which tracks each commit group until the group completes.

    `offered` is the command at the input stream ``i``, and `panel` the panel of accumulators at the input stream ``c``;
    `reads` is the expected number of shared-memory reads of the accepted instructions.
    """

    def __init__(self, top: Any, stream: Iterator[Command]) -> None:
        self._top, self._commands = top, stream
        self.finished = False
        self.reads = self.accepted = 0
        self.offered: Command | None = None
        self.forget()

    def forget(self) -> None:
        """Discard the driver's state that a reset of the hardware clears; the offered command stays offered."""
        self.panel: Item | None = None
        self._panels: deque[Item] = deque()
        # For each panel (eight columns of D): whether it is the last panel of its instruction. `_left` is for panels
        # whose accumulators are not yet accepted, and `_expected` for panels whose results are not yet delivered.
        self._left: deque[bool] = deque()
        self._expected: deque[bool] = deque()
        self._issued = self._done = 0
        self._marks: deque[int] = deque()
        self._halves: dict[int, Job] = {}

    def drive(self, offer: bool, offer_panel: bool, reset: bool) -> None:
        top = self._top
        if self.offered is None and offer and not reset and not self.finished:
            self.offered = next(self._commands, None)
            self.finished = self.offered is None
            if self.offered:
                top.i__payload.value = self.offered.payload
        if self.panel is None and offer_panel and not reset and self._panels:
            self.panel = self._panels.popleft()
            top.c__payload.value = self.panel.payload
        top.i__valid.value = int(self.offered is not None and not reset)
        top.c__valid.value = int(self.panel is not None and not reset)

    def update(self, cycle: Cycle, results: Cycle) -> None:
        """Record the transfers of a cycle without reset; raise a ViolationError if a wait was accepted too early."""
        if results.accepts:
            self.panel = None
            self._left.popleft()
        if cycle.accepts:
            assert self.offered
            self._take(self.offered)
            self.offered = None
        if results.delivers:
            self._done += self._expected.popleft()
        while self._marks and self._marks[0] <= self._done:
            self._marks.popleft()

    def _take(self, command: Command) -> None:
        if job := command.job:
            self._panels.extend(job.panels)
            is_last = [False] * (len(job.panels) - 1) + [True]
            self._left.extend(is_last)
            self._expected.extend(is_last)
            self._issued += 1
            self.accepted += len(job.panels)
            self.reads += job.reads
            self._halves[job.base >> _HALF_BITS] = job
        elif command.operation == Operation.COMMIT:
            self._marks.append(self._issued)
        elif command.operation == Operation.WAIT and self.pending > command.pending:
            raise ViolationError(
                f"a wait for at most {command.pending} pending commit groups was accepted with {self.pending} pending"
            )

    @property
    def in_flight(self) -> int:
        """Number of accepted multiplications whose accumulators are not all accepted."""
        return sum(self._left)

    @property
    def pending(self) -> int:
        """Number of commit groups whose results are not all delivered."""
        return len(self._marks)

    @property
    def idle(self) -> bool:
        """Whether all commands and accumulators of the test have been accepted."""
        return self.finished and self.offered is None and self.panel is None and not self._panels

    def read(self, unit: int) -> int:
        """Return 16 operand bytes of the instruction that reads this half of shared memory, or only ones."""
        job = self._halves.get(unit >> _HALF_BITS)
        return job.read(unit) if job else (1 << 128) - 1


class _Beside:
    """Driver of ``mma`` instructions on the four tensor cores of a warpgroup, with a checker for each tensor core."""

    def __init__(self, top: Any, items: Iterator[Item], rng: np.random.Generator, longest_wait: int) -> None:
        self._top, self._items, self._rng = top, items, rng
        self._readies = [getattr(top, f"mma_result__{core}__ready") for core in range(WARPS)]
        self._monitors = [StreamMonitor(top, "mma", f"mma_result__{core}") for core in range(WARPS)]
        self.boards = [Scoreboard(longest_wait) for _ in range(WARPS)]
        self.offered: Item | None = None
        self.core = 0

    def drive(self, offer: bool, take: bool, reset: bool) -> None:
        if self.offered is None and offer and not reset:
            self.offered, self.core = next(self._items), int(self._rng.integers(WARPS))
            self._top.mma__payload.value = self.offered.payload | self.core << mma_layout()["core"].offset
        self._top.mma__valid.value = int(self.offered is not None and not reset)
        for ready in self._readies:
            ready.value = int(take and not reset)

    def observe(self) -> Cycle:
        """Check the ``mma`` results of a cycle; return the handshakes of the tensor core that is offered an ``mma``."""
        cycles = [monitor.sample() for monitor in self._monitors]
        offered = cycles[self.core]
        if offered.i_valid and offered.i_ready != bool(int(self._top.mma_room.value) >> self.core & 1):
            raise ViolationError(f"tensor core {self.core} accepts an mma while full, or refuses one while it has room")
        for core, (board, cycle) in enumerate(zip(self.boards, cycles, strict=True)):
            board.observe(cycle if core == self.core else replace(cycle, i_valid=False), self.offered)
        if offered.accepts:
            self.offered = None
        return offered

    @property
    def under_way(self) -> int:
        """Number of accepted ``mma`` instructions whose results have not been transferred."""
        return sum(board.under_way for board in self.boards)

    @property
    def incomplete(self) -> bool:
        """Whether at least one tensor core has delivered no ``mma`` result yet, because of resets or ``wgmma``."""
        return not all(board.delivered for board in self.boards)


@cocotb.test()
@cocotb.parametrize(resets=[False, True])
async def every_result_once(top: HierarchyObject, resets: bool) -> None:
    """Check results and their order under gaps, stalls and resets; a run without resets must give all columns of D."""
    rng, config = np.random.default_rng([cocotb.RANDOM_SEED, resets]), SETTINGS.config
    pace = 2 * config.warp_blocks
    # The scoreboard allows long waits: eight columns of a wgmma wait until their accumulators are offered and their
    # results are accepted, and an mma waits while its tensor core computes a wgmma.
    longest_wait = 100 * pace
    scoreboard = Scoreboard(longest_wait)
    instructions = _Instructions(top, commands(iter(SETTINGS.read_program()), rng))
    beside = _Beside(top, warp_items(config, SETTINGS.arch, rng), rng, 1_000 * pace)
    memory, coverage = shared_memory(top, rng, instructions.read), CommandCoverage(config.name, WARPGROUP)
    of_instructions, of_panels, of_warps = (
        random_pattern(rng, pace=pace, resets=resets and not number) for number in range(3)
    )
    reads = waited = 0
    # An mma whose result is not accepted keeps its tensor core busy and delays wgmma. The bench therefore offers mma
    # instructions in only about one third of the cycles.
    quiet, late = _phases(rng, 2 / 3, 16 * pace), _phases(rng, 0.2, 4 * pace)
    react = rare_meetings(rng, resets=resets)
    results: Cycle | None = None
    of_i, of_c = StreamMonitor(top), StreamMonitor(top, "c")
    start_clock(top)
    while not instructions.idle or scoreboard.under_way or beside.under_way or beside.incomplete:
        await FallingEdge(top.clk)
        offer, take, reset = next(of_instructions)
        offer_panel, _, _ = next(of_panels)
        offer_warp, take_warp, _ = next(of_warps)
        if (meeting := react(results) if results else None) is not None:
            offer, take, reset = meeting
            offer_panel = offer
        elif next(late):
            # Offer accumulators while a result waits, which random patterns hardly ever do.
            waits = results is not None and results.o_valid and not results.o_ready
            offer_panel, take = waits or not scoreboard.under_way, take and not waits
        draining = instructions.idle
        memory.drive()
        top.rst.value = int(reset)
        top.o__ready.value = int((take or draining) and not reset)
        instructions.drive(offer, offer_panel, reset)
        none_beside = not beside.incomplete if draining else next(quiet)
        beside.drive(offer_warp and not none_beside, take_warp or none_beside, reset)
        await ReadOnly()
        cycle, results = of_i.sample(), of_c.sample()
        reads += memory.sample(reset)
        scoreboard.observe(results, instructions.panel)
        operation = instructions.offered.operation.value if instructions.offered else None
        coverage.observe(cycle, instructions.in_flight, operation, results.states)
        mma = beside.observe()
        if not reset:
            coverage.sample(Mma(beside.core, mma.states[0], results.states[0]))
        if reset:
            instructions.forget()
            reads = instructions.reads = waited = 0
            continue
        if int(top.pending.value) < instructions.pending:
            raise ViolationError(
                f"the hardware counts {int(top.pending.value)} pending commit groups, not {instructions.pending}"
            )
        instructions.update(cycle, results)
        waited = waited + 1 if cycle.i_valid and not cycle.i_ready else 0
        assert waited <= 20 * longest_wait, f"a command has not been accepted for {waited} cycles"
    assert reads == instructions.reads, f"shared memory was read {reads} times, not {instructions.reads}"
    assert int(top.pending.value) == 0, "commit groups are pending after a wait for all commit groups"
    assert resets or scoreboard.delivered == instructions.accepted
    assert scoreboard.delivered
    SETTINGS.record(coverage.coverage)


def _phases(rng: np.random.Generator, share: float, cycles: int) -> Iterator[bool]:
    """Yield a flag per cycle, drawn anew every `cycles` cycles on average; `share` is the probability of true."""
    while True:
        yield from [bool(rng.random() < share)] * int(rng.integers(1, 2 * cycles))

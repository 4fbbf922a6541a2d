"""cocotb tests of the tensor cores of a CTA: instructions, commits, shared and tensor memory, and CTA pairs."""

from collections import deque
from typing import Any

import cocotb
import numpy as np
from cocotb.handle import HierarchyObject
from cocotb.triggers import FallingEdge, ReadOnly

from ...rtl.fetch import CORE_MATRICES, PANEL_ROWS, UNIT_BITS
from ...rtl.tcgen05 import CtaOperation
from ...rtl.tensor_memory import TENSOR_LANES
from ...rtl.warp import COLUMNS
from .items import joined_words
from .scoreboard import Cycle, ViolationError, random_pattern
from .settings import Settings
from .stream_coverage import CTA, CommandCoverage, Commit, Pair
from .streams import MemoryPort, shared_memory, start_clock
from .tcgen05_items import CtaPanel, CtaTask, CtaWork, columns_from, write_panel

__all__ = ["every_panel_once"]

SETTINGS = Settings.of_environment()
_PANEL_BITS = PANEL_ROWS * CORE_MATRICES * UNIT_BITS
_LOWER_HALVES = joined_words(np.full(TENSOR_LANES * COLUMNS, 0xFFFF, np.uint32))


class _Instructions:
    """Driver of the test program's commands; tracks each accepted command until all of its D is written.

    `tensor` is the expected tensor memory. `due` are the expected writes of accepted tasks, in order, and `pairs` the
    panels to be multiplied together with the other CTA. `reads` is the expected number of cycles with a read of shared
    memory, and `columns` the expected number of columns read from tensor memory for operands other than D.
    """

    def __init__(self, top: Any, work: CtaWork) -> None:
        self._top, self._work = top, work
        self._finished = 0
        self.forget()

    def forget(self) -> None:
        """Restart after a reset: restore tensor memory, and continue with the first incomplete command."""
        self.offered: CtaTask | None = None
        self._next = self._finished
        self.tensor = self._work.tensor_after(self._next)
        self.due: deque[CtaPanel] = deque()
        self.pairs: deque[CtaPanel] = deque()
        # For each panel (eight columns) of D in `due`, the number of its command in the test program, from 1.
        self._taken: deque[int] = deque()
        self._issued = self._done = 0
        self._marks: deque[int] = deque()
        self.reads = self.columns = 0

    def drive(self, offer: bool, reset: bool) -> None:
        if self.offered is None and offer and not reset and self._next < len(self._work.tasks):
            self.offered = self._work.tasks[self._next]
            self._next += 1
            self._top.i__payload.value = self.offered.payload
        self._top.i__valid.value = int(self.offered is not None and not reset)

    def take(self) -> None:
        task = self.offered
        assert task
        self.offered = None
        if not task.panels:
            self._marks.append(self._issued)
            return
        if int(self._top.undefined.value):
            raise ViolationError(f"{task.name}: the hardware flags defined operand addresses as undefined")
        self._taken.extend([self._next] * len(task.panels))
        self._issued += 1
        self.due.extend(task.panels)
        self.pairs.extend(panel for panel in task.panels if panel.of_pair)
        self.reads += task.reads
        self.columns += task.columns

    def arrive(self) -> None:
        """Record that a commit arrives; raise a ViolationError if committed results are not yet written."""
        if not self._marks or self._marks[0] > self._done:
            raise ViolationError("a commit arrives before all results of the committed instructions are written")
        self._marks.popleft()

    def write(self) -> None:
        """Check the write to tensor memory in this cycle; raise a ViolationError if the write is not as expected."""
        top = self._top
        if not self.due:
            raise ViolationError("columns of D are written although all accepted commands have written their results")
        panel, name = self.due.popleft(), self._work.tasks[self._taken[0] - 1].name
        half, column = bool(int(top.accumulators__write_half.value)), int(top.accumulators__write_column.value)
        if (half, column) != (panel.half, panel.column):
            raise ViolationError(
                f"{name}: D is written from column {column} on (lower halves of words only: {half}), "
                f"but must be written from column {panel.column} on (lower halves of words only: {panel.half})"
            )
        written = int(top.accumulators__write_data.value) & (_LOWER_HALVES if half else -1)
        if wrong := written ^ panel.words:
            lane, place = divmod((wrong & -wrong).bit_length() - 1 >> 5, COLUMNS)
            raise ViolationError(
                f"{name}: bits of D at lane {lane}, column {column + place} differ from the golden model"
            )
        if int(top.illegal.value) != panel.illegal:
            raise ViolationError(f"{name}: flags of undefined metadata nibbles differ from the golden model")
        write_panel(self.tensor, panel)
        number = self._taken.popleft()
        if number not in self._taken:
            self._done += 1
            self._finished = number

    @property
    def in_flight(self) -> int:
        """Number of accepted multiplications whose results are not all written to tensor memory."""
        return len({*self._taken})

    @property
    def commits(self) -> int:
        """Number of accepted commits that have not yet arrived at their mbarrier."""
        return len(self._marks)

    @property
    def idle(self) -> bool:
        """Whether all commands of the program are accepted, all results written, and all commits arrived."""
        return self.offered is None and self._next == len(self._work.tasks) and not self.due and not self._marks


class _OtherCta:
    """Model of the other CTA of a pair, which signals that it is ready for the next panel of B (eight columns)."""

    def __init__(self, top: Any, rng: np.random.Generator) -> None:
        self._top, self._rng = top, rng
        self.waits = False

    def drive(self, pairs: deque[CtaPanel], may: bool) -> None:
        """Drive the other CTA's signals; it stays ready until both CTAs multiply the next eight columns of B."""
        before, self.waits = self.waits, bool(pairs) and (self.waits or may)
        self._top.other_waits.value = int(self.waits)
        if self.waits and not before and pairs[0].other is not None:
            self._top.other_panel.value = pairs[0].other
        elif not self.waits and not self._rng.integers(16):
            self._top.other_panel.value = int.from_bytes(self._rng.bytes(_PANEL_BITS // 8), "little")

    def follow(self, pairs: deque[CtaPanel], waits: bool) -> None:
        """Advance the other CTA to the next eight columns of B if both CTAs are ready to multiply."""
        if waits and not pairs:
            raise ViolationError(
                "the hardware waits for the other CTA although no instruction of the pair is in flight"
            )
        if waits and self.waits:
            pairs.popleft()
            self.waits = False


@cocotb.test()
@cocotb.parametrize(resets=[False, True])
async def every_panel_once(top: HierarchyObject, resets: bool) -> None:
    """Run random commands with gaps, a slow other CTA and resets; check that each column of D is written once."""
    rng, config = np.random.default_rng([cocotb.RANDOM_SEED, resets]), SETTINGS.config
    pace = config.warp_blocks
    work: CtaWork = SETTINGS.read_program()
    instructions, coverage = _Instructions(top, work), CommandCoverage(config.name, CTA)
    shared, other = shared_memory(top, rng, work.shared.__getitem__), _OtherCta(top, rng)
    lanes = [getattr(top, f"tensor__data__{lane}") for lane in range(TENSOR_LANES)]
    operands = MemoryPort(
        rng, top.tensor__read, [top.tensor__column], lanes, 32, lambda column: instructions.tensor[:, column].tolist()
    )
    accumulators = MemoryPort(
        rng, top.accumulators__read, [top.accumulators__read_column], [top.accumulators__read_data],
        32 * TENSOR_LANES * COLUMNS, lambda column: [joined_words(instructions.tensor[:, columns_from(column)])],
    )  # fmt: skip
    memories = shared, operands, accumulators
    # The computation of a command takes longer than that of one panel (eight columns of D). Therefore, the random gaps
    # between commands are longer than the random delays with which the other CTA becomes ready for a panel.
    task_pattern, other_pattern = random_pattern(rng, pace=2 * pace, resets=resets), random_pattern(rng, pace=pace)
    reads = columns = silent = 0
    start_clock(top)
    while not instructions.idle:
        await FallingEdge(top.clk)
        offer, _, reset = next(task_pattern)
        may_multiply, _, _ = next(other_pattern)
        for memory in memories:
            memory.drive()
        top.rst.value = int(reset)
        instructions.drive(offer, reset)
        other.drive(instructions.pairs, may_multiply and not reset)
        await ReadOnly()
        valid, ready = (bool(int(port.value)) for port in (top.i__valid, top.i__ready))
        cycle = Cycle(reset, valid, ready, o_valid=False, o_ready=False, result=0)
        accesses = [memory.sample(reset) for memory in memories]
        writes, waits = (not reset and bool(int(port.value)) for port in (top.accumulators__write, top.waits))
        task = instructions.offered
        operation = None if task is None else (CtaOperation.MULTIPLY if task.panels else CtaOperation.COMMIT).value
        coverage.observe(cycle, instructions.in_flight, operation, (*map(int, accesses), int(writes)))
        if reset:
            instructions.forget()
            reads = columns = silent = 0
            continue
        if instructions.pairs:
            coverage.sample(Pair(waits, other.waits, instructions.pairs[0].other is None))
        other.follow(instructions.pairs, waits)
        reads, columns = reads + accesses[0], columns + accesses[1]
        if int(top.pending.value) != instructions.commits:
            raise ViolationError(
                f"the hardware counts {int(top.pending.value)} pending commits, but {instructions.commits} are pending"
            )
        if int(top.arrive.value):
            coverage.sample(Commit(instructions.commits))
            instructions.arrive()
        silent = 0 if writes or cycle.accepts or waits or not (instructions.in_flight or cycle.i_valid) else silent + 1
        if writes:
            instructions.write()
        if cycle.accepts:
            instructions.take()
        assert silent <= 100 + 20 * pace, f"no transfer for {silent} cycles although a command waits or is in flight"
    assert reads == instructions.reads, f"shared memory was read {reads} times, not {instructions.reads}"
    assert columns == instructions.columns, f"{columns} operand columns were read, not {instructions.columns}"
    assert (instructions.tensor == work.tensor_after(len(work.tasks))).all()
    SETTINGS.record(coverage.coverage)

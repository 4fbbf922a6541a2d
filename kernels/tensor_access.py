"""Words of tensor memory, allocation of columns, and ``tcgen05.ld`` and ``tcgen05.st`` of every shape.

Source: PTX ISA, "Tensor Memory Allocation", "Tensor Memory Access Restrictions" and "Data Movement Shape". PTX shows
the order of the registers only in figures; it is also taken from the layouts of CUTLASS (``copy_traits_sm100.hpp``).
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..isa.tensor_memory import COLUMNS, LANES
from .machine import WARP, Machine, Step, not_modelled
from .program import Address, Immediate, Instruction, Operand, items_of
from .registers import Mask
from .tensor_order import TensorOrder

__all__ = ["TensorMemory", "load_step", "store_step", "tensor_memory"]

#: Initial value of every word of tensor memory.
_UNWRITTEN = 0x7FC0DEAD
_LOW_HALF = np.uint32(0xFFFF)
#: For each shape: number of a thread's registers that ``tcgen05.ld`` or ``tcgen05.st`` with ``.x1`` accesses.
_REGISTERS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
_Words = tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]


class TensorMemory:
    """Tensor memory of a batch of CTAs, and which of its columns are allocated."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.words = np.full((machine.ctas, LANES, COLUMNS), _UNWRITTEN, np.uint32)
        #: Line of the instruction that allocated each column (0 while the column is free), and line of the instruction
        #: that last freed it.
        self.owner = np.zeros((machine.ctas, COLUMNS), np.int32)
        self.freed = np.zeros((machine.ctas, COLUMNS), np.int32)
        self._allocations: dict[int, Instruction] = {}
        #: Line of the instruction with which each CTA gave up the right to allocate.
        self.relinquished = np.zeros(machine.ctas, np.int32)
        #: Checker of the order of accesses to tensor memory, or None if accesses are not checked.
        self.order = TensorOrder(machine) if machine.checker else None
        machine.at_exit.append(self._report_allocated)

    def allocate(self, ins: Instruction, thread: int, columns: int) -> int | None:
        """Allocate free columns of tensor memory. Return the first column, or None if too few columns are free."""
        cta = thread // self.machine.threads
        if line := int(self.relinquished[cta]):
            what = f"the instruction allocates after tcgen05.relinquish_alloc_permit of line {line}"
            self._report(ins, "allocation after relinquish", what, thread)
        for start in range(0, COLUMNS - columns + 1, 32):
            if not self.owner[cta, start : start + columns].any():
                self.owner[cta, start : start + columns] = ins.line
                self._allocations[ins.line] = ins
                return start
        return None

    def free(self, ins: Instruction, thread: int, start: int, columns: int) -> None:
        """Free columns of tensor memory, from column `start` on."""
        cta = thread // self.machine.threads
        self.require(ins, thread, np.array([cta]), start + np.arange(columns), "frees")
        self.owner[cta, start : start + columns] = 0
        self.freed[cta, start : start + columns] = ins.line

    def require(
        self,
        ins: Instruction,
        thread: int,
        ctas: NDArray[np.intp],
        columns: NDArray[np.integer],
        verb: str = "accesses",
    ) -> None:
        """Raise an error unless the columns of tensor memory exist, and report columns that are not allocated."""
        if columns.size and not 0 <= int(columns.min()) <= int(columns.max()) < COLUMNS:
            column = int(columns.max())
            raise self.machine.fault(ins, f"tensor memory has no column {column}; the last is {COLUMNS - 1}", thread)
        if not columns.size or self.owner[:, int(columns.min()) : int(columns.max()) + 1].all():
            return
        wrong = self.owner[ctas, columns] == 0
        if wrong.any():
            cta, column = (int(np.broadcast_to(part, wrong.shape)[wrong][0]) for part in (ctas, columns))
            line = int(self.freed[cta, column])
            why = f"line {line} has freed" if line else "no tcgen05.alloc has allocated"
            what = f"the instruction {verb} column {column} of tensor memory, which {why}"
            self._report(ins, "tensor memory not allocated", what, thread)

    def _report(self, ins: Instruction, kind: str, what: str, thread: int) -> None:
        self.machine.report(ins, kind, "Tensor Memory Allocation", what, self.machine.who(thread))

    def _report_allocated(self) -> None:
        for cta, column in np.argwhere(self.owner)[:1].tolist():
            ins = self._allocations[int(self.owner[cta, column])]
            what = "no tcgen05.dealloc frees the allocated columns before the kernel ends"
            self._report(ins, "tensor memory not freed", what, cta * self.machine.threads)


def tensor_memory(machine: Machine) -> TensorMemory:
    """Return the tensor memory of a machine (a simulated batch of CTAs)."""
    return machine.unit("tcgen05", TensorMemory)


def _access(
    machine: Machine, ins: Instruction, operand: Operand, split: Sequence[Operand], registers: int, *, is_store: bool
) -> tuple[Callable[[Mask], _Words], bool]:
    """Return a function that checks tensor-memory accesses, and returns CTA, lane and column per thread and register.

    With ``.16x32bx2``, the second half of the warp accesses columns that lie `split` columns further. The second result
    is whether registers are packed: they then hold the low halves of two columns, of which the function returns the
    first.
    """
    packed = any(word.endswith("pack::16b") for word in ins.words)
    shape = next((word for word in ins.words if word in _REGISTERS), None)
    count = next((int(word[1:]) for word in ins.words if word[0] == "x" and word[1:].isdigit()), 0)
    further = [item.value for item in split if isinstance(item, Immediate)]
    if shape is None or not isinstance(operand, Address) or len(further) != (shape == "16x32bx2"):
        raise not_modelled(ins, f"valid shapes are {', '.join(_REGISTERS)}; only 16x32bx2 takes an immediate offset")
    if registers != count * _REGISTERS[shape]:
        raise not_modelled(ins, f"the instruction has {registers} registers instead of {count * _REGISTERS[shape]}")
    read, offset = machine.reader(operand.base, "u32"), operand.offset
    lanes = WARP if shape == "32x32b" else WARP // 2
    t, r = np.arange(WARP)[:, None], np.arange(registers)
    lane, column = {
        "32x32b": (t + 0 * r, 0 * t + r),
        "16x64b": (t // 4 + t % 2 * 8 + 0 * r, t // 2 % 2 + 2 * r),
        "16x128b": (t // 4 + r % 2 * 8, t % 4 + r // 2 * 4),
        "16x256b": (t // 4 + r // 2 % 2 * 8, t % 4 * 2 + r % 2 + r // 4 * 8),
        "16x32bx2": (t % 16 + 0 * r, 0 * t + r),
    }[shape]
    column = 2 * column if packed else column
    column = column + t // 16 * sum(further)
    memory = tensor_memory(machine)

    def words(mask: Mask) -> _Words:
        threads = machine.active(mask)
        address = machine.every(read())[threads].astype(np.int64) + offset
        first, warp = address >> 16, threads % machine.threads // WARP
        if (first % lanes).any():
            thread = int(threads[(first % lanes).argmax()])
            raise machine.fault(ins, f"the lane of the address is not a multiple of {lanes}", thread)
        # TileLang passes the address of lane 0 to every warp, and relies on the fact that each warp accesses only its
        # own quarter of the lanes.
        own = warp % 4 * WARP
        if (other := first // WARP * WARP != own).any():
            where = machine.who(int(threads[other.argmax()]))
            what = "the address has lanes of another warp; the lanes of the thread's warp are accessed instead"
            machine.report(ins, "lanes of another warp", "Tensor Memory Access Restrictions", what, where)
        place = threads % WARP
        to_lane = (own + first % WARP)[:, None] + lane[place]
        to_column = (address & 0xFFFF)[:, None] + column[place]
        ctas, last = machine.cta_of_thread[threads][:, None], to_column + packed
        memory.require(ins, int(threads[last.max(1).argmax()]), ctas, last)
        if memory.order:
            for step in range(1 + packed):
                memory.order.access(ins, threads, (ctas, to_lane, to_column + step), is_store=is_store)
        return ctas, to_lane, to_column

    return words, packed


def load_step(machine: Machine, ins: Instruction) -> Step:
    """Return a function that executes ``tcgen05.ld``.

    With ``.pack::16b``, each register gets the low halves of the words in two columns.
    """
    if "red" in ins.words:
        raise not_modelled(ins)
    writes = [machine.writer(item, "b32") for item in items_of(ins.operands[0])]
    words, packed = _access(machine, ins, ins.operands[1], ins.operands[2:3], len(writes), is_store=False)
    memory = tensor_memory(machine)

    def step(mask: Mask) -> None:
        cta, lane, column = words(mask)
        values = memory.words[cta, lane, column]
        if packed:
            values = values & _LOW_HALF | memory.words[cta, lane, column + 1] << np.uint32(16)
        whole = np.zeros((machine.count, len(writes)), np.uint32)
        whole[machine.active(mask)] = values
        for place, write in enumerate(writes):
            write(mask, np.ascontiguousarray(whole[:, place]))

    return step


def store_step(machine: Machine, ins: Instruction) -> Step:
    """Return a function that executes ``tcgen05.st``.

    With ``.unpack::16b`` the halves of a register go to the low halves of two columns. PTX does not define the high
    halves; this model keeps them.
    """
    reads = [machine.reader(item, "b32") for item in items_of(ins.operands[-1])]
    words, packed = _access(machine, ins, ins.operands[0], ins.operands[1:-1], len(reads), is_store=True)
    memory = tensor_memory(machine)

    def step(mask: Mask) -> None:
        cta, lane, column = words(mask)
        values = np.stack([machine.every(read())[machine.active(mask)] for read in reads], -1)
        if not packed:
            memory.words[cta, lane, column] = values
            return
        for half in range(2):
            kept = memory.words[cta, lane, column + half] & ~_LOW_HALF
            memory.words[cta, lane, column + half] = kept | values >> np.uint32(16 * half) & _LOW_HALF

    return step

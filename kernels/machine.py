"""State of the threads of a batch of CTAs, and access of instructions to memory.

An instruction is executed by a function of a mask of threads, which is None if all threads take part.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import KernelError
from .cycles import Work
from .geometry import Clusters, Launch
from .memory import GLOBAL_BASE, LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, GlobalMemory, views
from .program import Address, Instruction, Kernel, Operand, Register, Symbol, size_of
from .registers import CLUSTER_SHIFT, Mask, Reader, Registers

__all__ = ["LANE_BITS", "WARP", "WARPGROUP", "Builder", "Finding", "Launch", "Machine", "Places", "Step",
           "not_modelled"]  # fmt: skip

Step = Callable[[Mask], Any]
#: Function that returns the step of an instruction: a function that executes the instruction for a mask of threads.
Builder = Callable[["Machine", Instruction], Step]
Unit = TypeVar("Unit")
#: Function that takes a mask of threads. It returns the state space that the threads access, and the offset of each
#: thread's access in this space (one element if all offsets are equal).
Places = Callable[[Mask], tuple[str, NDArray[np.int64]]]
_AXES = "xyz"
_WINDOWS = (
    ("global", GLOBAL_BASE), ("param", PARAMETER_WINDOW), ("local", LOCAL_WINDOW), ("shared", SHARED_WINDOW)
)  # fmt: skip
#: State spaces that an opcode can name. If the opcode names none, the address determines the state space.
_ONE_WINDOW = ("global", "shared", "local", "param")
#: Alignment of each CTA's shared memory in bytes. It is the size of the largest swizzle pattern, so that the low
#: address bits are the same in every CTA.
_SHARED_UNIT = 1024
#: Numbers of threads of a warp and of a warpgroup, and for each lane a 32-bit mask with only the bit of this lane.
WARP, WARPGROUP = 32, 128
LANE_BITS = np.uint32(1) << np.arange(WARP, dtype=np.uint32)


@dataclass(frozen=True)
class Finding:
    """An operation in a kernel that PTX leaves undefined."""

    kind: str
    line: int  #: Line number in the PTX text, from 1.
    rule: str  #: Section of the PTX ISA that states the rule that the operation violates.
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


class _Base:
    """Values of an address base (a register or symbol) in all threads, to which instructions add their offsets.

    A base of 32 bits is signed, since its sum with an offset wraps at 2^32, and valid addresses are below 2^31.
    """

    def __init__(self, values: NDArray) -> None:
        self.values, self.at = values, (values.view(np.int32) if values.itemsize == 4 else values).astype(np.int64)
        self.low, self.high, self.bits = int(self.at.min()), int(self.at.max()), int(np.bitwise_or.reduce(self.at))
        #: Key: name of a state space. Value: address base of each thread, as an offset in the array of this memory.
        self.places: dict[str, NDArray[np.int64]] = {}


def _window(low: int) -> tuple[str, int]:
    """Return the state space of a generic address, and the address at which the window of this space starts."""
    return next(((name, start) for name, start in _WINDOWS if low >= start), ("", 0))


def not_modelled(ins: Instruction, why: str = "") -> KernelError:
    """Return the error for an instruction, or an instruction variant, that this model does not implement."""
    return KernelError(f"line {ins.line}: '{ins.opcode}' is not modelled{': ' if why else ''}{why}")


class Machine(Registers):
    """Threads, registers and memories of a batch of CTAs.

    `ctas`, of shape (CTAs,), are the linear numbers of the CTAs of this batch, which consists of whole clusters.
    `parameters` are the bytes of parameter space. All batches share the global memory `memory`, and the count
    `clusters` of the clusters that have started.
    """

    def __init__(
        self,
        kernel: Kernel,
        launch: Launch,
        ctas: NDArray[np.int64],
        parameters: bytes,
        memory: GlobalMemory,
        clusters: Clusters,
    ) -> None:
        super().__init__(kernel, launch, ctas, memory)
        self.memory, self.parameters, self.clusters = memory, parameters, clusters
        self.ctas, self.threads = len(ctas), launch.lanes
        self.shared_bytes = -(-(kernel.static_shared + launch.shared) // _SHARED_UNIT) * _SHARED_UNIT
        self.shared = np.zeros((self.ctas, self.shared_bytes), np.uint8)
        padded = np.frombuffer(parameters.ljust(-(-len(parameters) // 16) * 16, b"\0"), np.uint8)
        #: Memory of each state space, by the name of the space, as arrays with elements of 1, 2, 4, 8 and 16 bytes.
        self.views = {"global": memory.views, "shared": views(self.shared.reshape(-1)), "param": views(padded),
                      "local": views(np.zeros(self.count * kernel.local_bytes, np.uint8))}  # fmt: skip
        #: Last values of each address base in all threads, with their offsets. An instruction whose address base still
        #: has these values reuses the offsets.
        self.bases: dict[Operand, _Base] = {}
        self.thread_numbers = np.arange(self.count)
        self.cta_of_thread = self.thread_numbers // self.threads
        self.shared_start = (self.cta_of_thread * self.shared_bytes).astype(np.int64)
        #: For each state space, by name: offset at which each thread's memory starts, and size of this memory in bytes.
        self.spans = {
            "shared": (self.shared_start, self.shared_bytes),
            "local": (self.thread_numbers * kernel.local_bytes, kernel.local_bytes),
            "param": (np.zeros(1, np.int64), len(parameters)),
        }
        #: Unfinished asynchronous work, oldest first. It is executed when no thread can continue without it.
        self.queue: deque[Callable[[], None]] = deque()
        #: Whether any ``mbarrier`` has completed a phase since the waiting threads were last checked.
        self.completed = False
        #: Functions that complete the asynchronous work that is unfinished at the end of the kernel.
        self.at_exit: list[Callable[[], None]] = []
        #: State of asynchronous units, by the name of the instruction that they execute.
        self.units: dict[str, Any] = {}
        #: Whether results are bit-exact, which holds if no approximate function was executed.
        self.exact = True
        #: Texts that threads have printed, in the order of execution.
        self.printed: list[str] = []
        #: Operations of the kernel that PTX leaves undefined, in the order of execution.
        self.findings: dict[tuple[int, str], Finding] = {}
        #: Counts of the instructions and shared-memory accesses that the launch has executed.
        self.work = Work()
        #: Checker of the order of accesses to shared memory, or None: a :class:`~sptc.kernels.checker.Checker`.
        self.checker: Any = None

    def unit(self, name: str, make: "Callable[[Machine], Unit]") -> "Unit":
        """Return the state of an asynchronous unit, such as the tensor cores. The state is created on first use."""
        if name not in self.units:
            self.units[name] = make(self)
        unit: Unit = self.units[name]
        return unit

    def require_pairs(self, ins: Instruction, thread: int) -> None:
        """Raise an error if the CTAs of a cluster do not form pairs."""
        if self.launch.cluster_size % 2:
            raise self.fault(ins, "a pair of CTAs needs a cluster with an even number of CTAs", thread)

    def in_ctas(self, thread: int, place: int, multicast: Reader | None) -> list[int]:
        """Return the offsets, in the shared memory of all CTAs, of the variable at `place` in each CTA of a mask.

        The mask has a bit for each CTA of the thread's cluster. Without a mask, return only `place`.
        """
        if multicast is None:
            return [place]
        mask, first = self.value(multicast, thread), thread // self.threads - int(self.rank_of_thread[thread])
        chosen = [first + rank for rank in range(self.launch.cluster_size) if mask >> rank & 1]
        return [place % self.shared_bytes + cta * self.shared_bytes for cta in chosen]

    # Methods that select and name threads, and methods that report errors

    def active(self, mask: Mask) -> NDArray[np.intp]:
        """Return the indices of the threads that a mask selects."""
        return self.thread_numbers if mask is None else np.flatnonzero(mask)

    def warps(self, mask: Mask) -> list[NDArray[np.bool_]]:
        """Return the threads of a mask by warp, one mask for each warp with such threads."""
        chosen, of_warp = np.ones(self.count, np.bool_) if mask is None else mask, self.thread_numbers // WARP
        return [chosen & (of_warp == warp) for warp in np.unique(of_warp[chosen]).tolist()]

    def who(self, thread: int) -> str:
        """Return the name of a thread of this batch of CTAs, for messages."""
        cta, number = divmod(int(thread), self.threads)
        return f"thread {number} of CTA {self.place_of(cta)}"

    def place_of(self, cta: int) -> str:
        """Return the indices, in the grid, of a CTA of this batch."""
        numbers = (int(self.special[f"%ctaid.{axis}"][cta * self.threads]) for axis in _AXES)
        return f"({', '.join(map(str, numbers))})"

    def fault(self, ins: Instruction, what: str, thread: int | None = None) -> KernelError:
        """Return the error for an operation that PTX forbids."""
        return KernelError(f"line {ins.line}: {ins.opcode}: {what}{'' if thread is None else f'; {self.who(thread)}'}")

    def report(self, ins: Instruction, kind: str, rule: str, what: str, where: str = "") -> None:
        """Record an operation that PTX leaves undefined, once per line and kind of undefined operation."""
        text = f"{ins.opcode}: {what}; undefined by PTX{f' ({where})' if where else ''}"
        self.findings.setdefault((ins.line, kind), Finding(kind, ins.line, rule, text))

    def whole_groups(self, mask: Mask, group: int, ins: Instruction) -> NDArray[np.intp] | None:
        """Return the indices of the groups of threads (such as warps) in a mask, or None for all groups.

        Raise an error if the mask splits a group, or the last group of a CTA is not complete.
        """
        if self.threads % group:
            raise self.fault(ins, f"a CTA has {self.launch.threads} threads, which is not a multiple of {group}")
        if mask is None:
            return None
        masks = mask.reshape(-1, group)
        some, every = masks.any(1), masks.all(1)
        if (some != every).any():
            first = int(np.flatnonzero(some != every)[0])
            thread = first * group + int(np.flatnonzero(~masks[first])[0])
            raise self.fault(ins, f"{group} threads must execute the opcode together; this thread does not", thread)
        return None if every.all() else np.flatnonzero(every)

    # Methods that compute and check addresses in memory

    def places(self, operand: Operand, space: str, ins: Instruction, size: int = 0) -> Places:
        """Return a function that computes the state space and the offsets of an address operand.

        `space` is the state space in the opcode, or ``"generic"``. Accesses of `size` bytes must be aligned and inside
        of their memory; size 0 means that nothing is checked. `ins` is used in messages.
        """
        if not isinstance(operand, Address):
            raise not_modelled(ins, "the memory operand must be an address in brackets")
        key = operand.base
        wide = isinstance(key, Symbol) or (isinstance(key, Register) and size_of(key.type) == 8)
        read, offset, line = self.reader(key, "u64" if wide else "u32"), operand.offset, ins.line
        bases, octets, at_most = self.bases, self.work.octets, size - 1

        def places(mask: Mask) -> tuple[str, NDArray[np.int64]]:
            values = read()
            base = bases.get(key)
            if base is None or base.values is not values:
                base = bases[key] = _Base(values)
            low, high = base.low + offset, base.high + offset
            where, start = (space, GLOBAL_BASE if space == "global" else 0) if space in _ONE_WINDOW else _window(low)
            if size and not (base.bits | offset) & at_most and self._inside(where, low - start, high - start + size):
                if where == "shared":
                    octets[line] += size * (self.count if mask is None else int(np.count_nonzero(mask)))
                at = base.places.get(where)
                if at is None:
                    at = base.places[where] = self._in_memory(where, base.at - start)
                return where, at + offset if offset else at
            at = base.at + offset
            if mask is not None and at.size > 1:
                at = np.where(mask, at, at[mask.argmax()])  # inactive threads get the address of an active thread
            where, at = self.resolve(at, space, ins, mask)
            return where, self.checked(where, at, size, ins, mask) if size else at

        return places

    def _inside(self, space: str, low: int, end: int) -> bool:
        """Return whether bytes `low` to `end` lie in each thread's memory, or in one allocation of global memory."""
        if space == "global":
            return self.memory.contains(low, end)
        size = self.spans[space][1] if space in self.spans else 0
        return 0 <= low < end <= size and (space != "shared" or self.launch.cluster_size == 1)

    def _in_memory(self, space: str, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert offsets in each thread's memory to offsets in the array that contains the memory of all threads."""
        return at + self.spans[space][0] if space in self.spans else at

    def resolve(
        self, at: NDArray[np.int64], space: str, ins: Instruction, mask: Mask = None
    ) -> tuple[str, NDArray[np.int64]]:
        """Return the state space of generic addresses, and their offsets in this space."""
        if space == "generic":
            low = int(at.min())
            space, start = _window(low)
            if not space:
                raise self.fault(ins, f"the generic address {low:#x} lies in no state space", int(at.argmin()))
            if space != "global" and int(at.max()) >= 2 * start:
                raise not_modelled(ins, "generic addresses of the threads lie in several state spaces")
            at = at - start
        elif space in ("global", "const"):
            space, at = "global", at - GLOBAL_BASE
        return space, self._in_memory(space, self._in_cluster(at, ins, mask) if space == "shared" else at)

    def _in_cluster(self, at: NDArray[np.int64], ins: Instruction, mask: Mask) -> NDArray[np.int64]:
        """Convert shared-memory addresses of a cluster to offsets in the shared memory of each thread's CTA."""
        if self.launch.cluster_size == 1:
            return at
        rank, inside = at >> CLUSTER_SHIFT, at & (1 << CLUSTER_SHIFT) - 1
        for wrong, what in (
            ((rank < 0) | (rank >= self.launch.cluster_size), "the address names no CTA of the cluster"),
            (inside >= self.shared_bytes, "the address is not inside the shared memory of a CTA"),
        ):
            if wrong.any():
                raise self.fault(ins, what, self._first(wrong, mask))
        return inside + (rank - self.rank_of_thread) * self.shared_bytes

    def checked(
        self, space: str, at: NDArray[np.int64], size: int, ins: Instruction, mask: Mask = None
    ) -> NDArray[np.int64]:
        """Return offsets of accesses unchanged. Raise an error if an offset is misaligned or outside its memory."""
        if (at & size - 1).any():
            thread = self._first(at & size - 1 != 0, mask)
            raise self.fault(ins, f"the address of an access is not a multiple of {size} bytes", thread)
        if space == "shared":
            self.work.octets[ins.line] += size * (self.count if mask is None else int(np.count_nonzero(mask)))
        if space == "global":
            wrong = self.memory.outside(at, size)
        else:
            start, end = self.spans[space]
            if space == "shared" and self.launch.cluster_size > 1:
                start = at - at % end
            wrong = (at < start) | (at + size > start + end)
        if wrong is not None and wrong.any():
            raise self.fault(ins, f"an access of {size} bytes is not inside {space} memory", self._first(wrong, mask))
        return at

    def _first(self, wrong: NDArray[np.bool_], mask: Mask) -> int:
        wrong = self.every(wrong)
        return int((wrong if mask is None else wrong & mask).argmax())

"""Minimum cycles of a launch: cycles for which the launch occupies tensor cores and shared memory of one SM.

Tensor-core instructions take the cycles of :mod:`sptc.isa.timing`. Shared memory
transfers their operands, and the bytes that threads and copies read and write, at 128 bytes per cycle; bank conflicts
and broadcasts of equal addresses are not modelled. Instruction issue, latency and global memory are not modelled
either: the cycles are those of a kernel that overlaps them perfectly.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import KernelError
from ..isa.architectures import same_numerics
from ..isa.instruction_descriptor import decode_instruction_descriptor
from ..isa.instructions import parse
from ..isa.tcgen05 import parse_opcode
from ..isa.timing import LAWS, SHARED_BYTES, TENSOR_CORES, Resource, resource_cycles, timing
from .program import Kernel, Symbol

__all__ = ["LoopCycles", "TensorWork", "Work", "launch_cycles", "loops"]


class TensorWork(NamedTuple):
    """Properties of a tensor-core instruction that determine its cycles."""

    line: int
    opcode: str
    a_from: str = "registers"  #: memory that contains A: ``registers``, ``shared`` or ``tensor`` memory
    descriptor: int = 0  #: instruction descriptor (a 32-bit operand) of ``tcgen05``


@dataclass
class Work:
    """Counts of the instructions and shared-memory accesses that a launch has executed."""

    #: Maximum number of thread instructions that the launch executes, or None without a limit.
    limit: int | None = None
    #: Number of executed thread instructions. An instruction counts once for each thread that executes it.
    thread_instructions: int = 0
    #: Number of executed instructions by the first part of their opcode. An execution by several threads together
    #: counts once.
    opcodes: Counter[str] = field(default_factory=Counter)
    #: Number of executions of each tensor-core instruction. A warp, a warpgroup or a CTA performs one execution.
    multiplications: Counter[TensorWork] = field(default_factory=Counter)
    #: Bytes of shared memory that threads and copies read and write, by line of the PTX text.
    octets: Counter[int] = field(default_factory=Counter)

    def add(self, count: int) -> None:
        """Count executed thread instructions. Raise an error when the limit is exceeded."""
        self.thread_instructions += count
        if self.limit is not None and self.thread_instructions > self.limit:
            raise KernelError("the kernel has not ended within the limit of thread instructions")


@dataclass(frozen=True)
class LoopCycles:
    """Cycles for which a kernel, or one of its loops, occupies one SM that executes all CTAs of the launch."""

    first_line: int
    last_line: int
    #: Number of executions of tensor-core instructions. A warp, a warpgroup or a CTA performs one execution.
    multiplications: int
    #: Cycles for which each resource (key) is occupied. None if the cycles of an instruction are unknown.
    cycles: dict[str, float] | None
    #: Name of the resource that is occupied for the most cycles.
    bound_by: str | None

    def __str__(self) -> str:
        where = f"lines {self.first_line} to {self.last_line}: {self.multiplications} tensor-core instructions"
        if self.cycles is None:
            return f"{where}, cycles not known"
        each = ", ".join(f"{name} {cycles:.0f}" for name, cycles in self.cycles.items())
        return f"{where}; cycles: {each}; bound by the {self.bound_by}"


def loops(kernel: Kernel, work: Work, arch: str) -> list[LoopCycles]:
    """Return the cycles of the whole kernel, and of each loop with tensor-core instructions.

    Cycles are known for ``mma`` and ``wgmma`` on ``sm_90``, and for ``tcgen05.mma`` on ``sm_100``.
    """
    busy = {item: _cycles(item, arch) for item in work.multiplications}
    lines = [ins.line for ins in kernel.instructions]
    if not lines:
        return []
    whole = (min(lines), max(lines))
    return [
        _loop(first, last, work, busy)
        for first, last in dict.fromkeys((whole, *_loop_lines(kernel)))
        if (first, last) == whole or any(first <= item.line <= last for item in work.multiplications)
    ]


def launch_cycles(work: Work, arch: str) -> float | None:
    """Return the tensor-core cycles of the launch for a single SM that executes all CTAs.

    Each instruction counts with its interval: the time for which it occupies its busiest resource. Return None if
    the cycles of an instruction are unknown.
    """
    total = 0.0
    for item, count in work.multiplications.items():
        cycles = _cycles(item, arch)
        if cycles is None:
            return None
        total += count * max(cycles.values())
    return total


def _loop_lines(kernel: Kernel) -> Iterator[tuple[int, int]]:
    """Yield the first and last line of each loop. A loop ends with a branch back to a label."""
    code = kernel.instructions
    for place, ins in enumerate(code):
        if ins.words[0] in ("bra", "brx"):
            targets = (kernel.labels[label.name] for label in ins.operands if isinstance(label, Symbol))
            yield from ((code[target].line, ins.line) for target in targets if target <= place)


def _loop(first: int, last: int, work: Work, busy: dict[TensorWork, dict[Resource, float] | None]) -> LoopCycles:
    counts = {item: count for item, count in work.multiplications.items() if first <= item.line <= last}
    number = sum(counts.values())
    octets = sum(count for line, count in work.octets.items() if first <= line <= last)
    cycles = {Resource.SHARED_MEMORY: octets / SHARED_BYTES}
    for item, count in counts.items():
        if (each := busy[item]) is None:
            return LoopCycles(first, last, number, None, None)
        for resource, value in each.items():
            cycles[resource] = cycles.get(resource, 0.0) + count * value
    used = {resource.value: value for resource, value in cycles.items() if value}
    return LoopCycles(first, last, number, used, max(used, key=lambda name: used[name]) if used else None)


def _cycles(item: TensorWork, target: str) -> dict[Resource, float] | None:
    """Return the cycles for which one instruction occupies each resource of an SM, or None if they are unknown."""
    arch = same_numerics(target)
    if item.opcode.startswith("tcgen05."):
        opcode = parse_opcode(item.opcode)
        if LAWS["tcgen05"].arch != arch or opcode.weight_stationary:
            return None
        shape = decode_instruction_descriptor(opcode, item.descriptor).instruction
        return resource_cycles(shape, item.a_from, opcode)
    instruction = parse(item.opcode)
    law = timing(instruction, arch, item.a_from)
    if law is None:
        return None
    if instruction.family == "wgmma":
        return resource_cycles(instruction, item.a_from)
    return {law.bound_by: law.interval / TENSOR_CORES}

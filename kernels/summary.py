"""Summary of a kernel: its tensor-core instructions, memory, barriers, and the instructions that are not modelled."""

from dataclasses import dataclass

import numpy as np

from ..infra.counts import counted
from .descriptors import constant_descriptors
from .geometry import Clusters
from .machine import WARPGROUP, Launch, Machine
from .memory import GlobalMemory, parameter_space
from .program import Kernel
from .ptx import parse_ptx
from .schedule import Program

__all__ = ["KernelSummary", "summaries"]

_NUMBER_BYTES = 8  # largest size in bytes of a parameter that is a number
#: Topics of the summary of a kernel, in order. Value: first parts of the opcodes that belong to the topic.
_TOPICS = {
    "tensor cores": ("mma", "wgmma", "tcgen05"),
    "copies": ("cp", "ldmatrix", "stmatrix"),
    "barriers": ("bar", "barrier", "mbarrier", "fence", "clusterlaunchcontrol"),
}


@dataclass(frozen=True)
class KernelSummary:
    """Summary of one kernel of a module."""

    name: str
    target: str
    instructions: int
    registers: int
    #: Bytes of statically allocated shared memory.
    shared: int
    #: Kernel parameters: name, type and size in bytes.
    parameters: tuple[tuple[str, str, int], ...]
    #: CTA size that the kernel requires, in threads along each axis. Empty if the kernel requires none.
    block: tuple[int, ...]
    #: Key: topic such as ``copies``. Value: opcodes (or constant descriptors), each with the lines where it occurs.
    opcodes: dict[str, dict[str, tuple[int, ...]]]
    #: One sentence, with the line number, for each instruction that this model does not implement.
    unmodelled: tuple[str, ...]

    def lines(self) -> list[str]:
        """Return the summary as lines of text."""
        demanded = f", CTAs of {' x '.join(map(str, self.block))} threads" if self.block else ""
        types = [kind if size <= _NUMBER_BYTES else f"{size} bytes" for _, kind, size in self.parameters]
        text = [
            f"{self.name}: {self.instructions} instructions, {self.registers} registers, "
            f"{self.shared} bytes of shared variables{demanded} ({self.target})",
            f"  {counted(len(self.parameters), 'parameter')}: {', '.join(types)}",
        ]
        for topic, opcodes in self.opcodes.items():
            text.append(f"  {topic}")
            for opcode, places in opcodes.items():
                lines = ", ".join(map(str, places[:_SHOWN])) + (", ..." if len(places) > _SHOWN else "")
                text.append(f"    {len(places):4d} x {opcode}  line {lines}")
        text += [f"  not modelled: {sentence}" for sentence in self.unmodelled] or ["  all instructions are modelled"]
        return text


#: Maximum number of lines that are listed for an opcode.
_SHOWN = 6


def summaries(ptx: str) -> list[KernelSummary]:
    """Return a summary of each kernel of a module.

    Raises
    ------
    KernelError
        The module does not parse.
    """
    return [_summary(kernel) for kernel in parse_ptx(ptx).values()]


def _summary(kernel: Kernel) -> KernelSummary:
    opcodes: dict[str, dict[str, tuple[int, ...]]] = {}
    for topic, firsts in _TOPICS.items():
        if chosen := dict.fromkeys(ins.opcode for ins in kernel.instructions if ins.words[0] in firsts):
            opcodes[topic] = {
                opcode: tuple(ins.line for ins in kernel.instructions if ins.opcode == opcode) for opcode in chosen
            }
    if descriptors := constant_descriptors(kernel):
        opcodes["descriptors"] = descriptors
    x, y, z = (*(kernel.block or (WARPGROUP,)), 1, 1)[:3]
    launch = Launch((1, 1, 1), (x, y, z))
    parameters = parameter_space(kernel, [0] * len(kernel.parameters))
    memory = GlobalMemory((), kernel.variables)
    machine = Machine(kernel, launch, np.zeros(1, np.int64), parameters, memory, Clusters(1, 1))
    return KernelSummary(
        kernel.name,
        kernel.target,
        len(kernel.instructions),
        len(kernel.registers),
        max((start + size for start, size in kernel.shared.values() if size), default=0),
        tuple((p.name, p.type, p.size) for p in kernel.parameters),
        kernel.block,
        opcodes,
        tuple(Program(machine).problems),
    )

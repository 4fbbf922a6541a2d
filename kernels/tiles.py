"""Find tiles in shared memory whose layout, as written by a copy, differs from that of the ``wgmma`` descriptor.

A descriptor without swizzle describes core matrices: eight rows of 16 bytes, one after the other. If a copy wrote
longer rows there, neighbouring rows of a core matrix are neighbours in global memory, and a part of the tile is never
read. A tile with both properties is reported. One property alone is no sign of an error: a matrix may be stored as core
matrices in global memory, and the last stages of a pipeline may be copied and never read.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..isa.memory import SharedDescriptor
from .machine import Finding, Machine
from .memory import views
from .program import Instruction

__all__ = ["CopiedTiles"]

_WORD, _UNIT = 4, 16
_UNIT_WORDS = _UNIT // _WORD


@dataclass
class _Mismatch:
    """A descriptor that reads core matrices (rows of 16 bytes), although the tile was copied with longer rows."""

    ins: Instruction
    operand: str
    descriptor: SharedDescriptor
    row_bytes: int
    place: str  #: grid indices of the CTA that reads the tiles
    lines: set[int] = field(default_factory=set)  #: PTX line numbers of the copies that wrote the tiles
    unread_bytes: int = 0

    def finding(self) -> Finding:
        where = self.descriptor
        lines = sorted(self.lines)
        text = (
            f"{self.ins.opcode}: the descriptor of {self.operand.upper()} (start {where.start:#x}, leading offset "
            f"{where.leading_offset}, stride offset {where.stride_offset}, no swizzle) describes core matrices of 8 "
            f"rows of {_UNIT} bytes, but the cop{'ies of lines' if len(lines) > 1 else 'y of line'} "
            f"{', '.join(map(str, lines))} wrote a tile of rows of {self.row_bytes} bytes there, and "
            f"{self.unread_bytes} bytes of it are never read (CTA {self.place})"
        )
        return Finding("tile without core matrices", self.ins.line, "Shared Memory Matrix Layout", text)


class CopiedTiles:
    """Record of the copy that wrote each word of shared memory, and whether the word was read."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        words = machine.shared.size // _WORD
        #: Number of the copy that wrote each word (0: none), and whether the word is still unread after this copy.
        self.copy = views(np.zeros(words, np.uint32))
        self.unread = views(np.zeros(words, np.uint8))
        #: Index of the global-memory word that was copied to each word of shared memory.
        self.origin = np.zeros(words, np.int32)
        #: Line of each copy, indexed by the number of the copy.
        self.lines = [0]
        #: Layout mismatches in two dictionaries. Keys of the first: operand, leading offset and stride offset of the
        #: descriptor. Keys of the second: numbers of the copies that wrote the tiles.
        self._mismatches: dict[tuple[str, int, int], _Mismatch] = {}
        self._mismatch_of_copy: dict[int, _Mismatch] = {}
        machine.at_exit.append(self._report)

    def write(
        self, ins: Instruction, count: int, cells: NDArray[np.int64], origins: NDArray[np.int64] | None = None
    ) -> None:
        """Record a write to groups of `count` words, by threads or by a copy from global-memory offsets `origins`."""
        self._count_unread(count, cells)
        copied = origins is not None
        for kept, value in ((self.unread, copied), (self.copy, copied and len(self.lines))):
            kept[count][cells] = np.full(count, value, kept[1].dtype).view(kept[count].dtype)
        if origins is not None:
            self.origin.reshape(-1, count)[cells] = (origins // _WORD).reshape(-1, count)
            self.lines.append(ins.line)

    def read(self, count: int, cells: NDArray[np.int64]) -> None:
        """Record that threads read groups of `count` words of shared memory."""
        self.unread[count][cells] = 0

    def describe(
        self, ins: Instruction, operand: str, descriptor: SharedDescriptor, cta: int, units: NDArray[np.int64]
    ) -> None:
        """Compare the layout in which an operand is read with the layout in which copies wrote it to shared memory.

        The operand contains each of the 16-byte units at the indices `units`, and the unit that follows it.
        """
        words = units * _UNIT_WORDS
        first, second = self.origin[words], self.origin[words + _UNIT_WORDS]
        copy, copy_of_next = self.copy[1][words], self.copy[1][words + _UNIT_WORDS]
        neighbours = (copy > 0) & (copy_of_next > 0) & (second == first + _UNIT_WORDS)
        if 2 * int(neighbours.sum()) < max(len(units), 1):
            return
        copies = np.unique(copy[neighbours]).tolist()
        key = operand, descriptor.leading_offset, descriptor.stride_offset
        if key not in self._mismatches:
            self._mismatches[key] = _Mismatch(
                ins, operand, descriptor, self._row_bytes(copies[0]), self.machine.place_of(cta)
            )
        self._mismatch_of_copy |= dict.fromkeys(copies, self._mismatches[key])

    def _row_bytes(self, copy: int) -> int:
        """Return the most frequent length, in bytes, of pieces that are contiguous in both shared and global memory."""
        words = np.flatnonzero(self.copy[1] == copy)
        breaks = np.flatnonzero((np.diff(words) != 1) | (np.diff(self.origin[words]) != 1))
        lengths = np.diff(np.concatenate([[-1], breaks, [len(words) - 1]]))
        return int(np.bincount(lengths).argmax()) * _WORD

    def _count_unread(self, count: int, cells: NDArray[np.int64] | slice) -> None:
        """Count the copied words of shared memory that were not read before an overwrite or the end of the kernel."""
        if not self._mismatch_of_copy:
            return
        copies, unread = self.copy[count][cells].view(np.uint32), self.unread[count][cells].view(np.bool_)
        for copy, words in zip(*(part.tolist() for part in np.unique(copies[unread], return_counts=True)), strict=True):
            if (mismatch := self._mismatch_of_copy.get(copy)) is not None:
                mismatch.lines.add(self.lines[copy])
                mismatch.unread_bytes += _WORD * words

    def _report(self) -> None:
        self._count_unread(1, slice(None))
        for mismatch in self._mismatches.values():
            if mismatch.unread_bytes:
                finding = mismatch.finding()
                self.machine.findings.setdefault((finding.line, finding.kind), finding)

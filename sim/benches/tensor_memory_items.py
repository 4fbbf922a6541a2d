"""Random work for the reader of tensor memory: nibbles and scales, placed by the index maps, and their recovery.

Free of any simulator. What comes out is judged by what an ``mma.sp`` of the same granularity reads of the registers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...golden.registers import unpack_nibbles, unpack_scales
from ...isa.instructions import Instruction, every_instruction
from ...isa.tcgen05 import every_opcode, instructions_of
from ...isa.tensor_memory import COLUMNS, LANES, LAYOUTS, TensorMap, metadata_map, scale_map
from ...rtl.tensor_memory import tensor_registers_layout, tensor_request_layout
from .items import Item
from .scoreboard import Cycle, Scoreboard, ViolationError

__all__ = ["RegisterScoreboard", "Tile", "instructions", "place", "random_tiles", "registers", "request", "twin"]

_TILE_ROWS, _TILE_COLUMNS, _REGISTER_LANES = 16, 8, 32
#: Threads of a quad, or pairs of them, that may hold the block scales.
_PAIRS, _THREADS = 2, 4
_WORD_BITS, _CHUNKS_PER_WORD = 32, 8
#: Lines whose block scales share a column.
_PARTITION = 32


@dataclass(frozen=True, eq=False)
class Tile(Item):
    """One request, the tensor memory that it finds, and what a warp must read of the registers.

    Attributes
    ----------
    instruction : Instruction
        An ``mma.sp`` of the same granularity, and of as many block scales.
    memory : ndarray of uint32, shape (128, 512)
        Lanes and columns.
    nibbles : ndarray of uint8, shape (16, chunks)
        Metadata of the tile's rows.
    scales : tuple of (ndarray of uint8, int)
        Block scales of its rows and of its columns with their byte ids; none without block scaling.
    """

    instruction: Instruction
    memory: NDArray[np.uint32]
    nibbles: NDArray[np.uint8]
    scales: tuple[tuple[NDArray[np.uint8], int], ...]

    @property
    def reads(self) -> int:
        """Columns that hold what is asked for."""
        return self.nibbles.shape[1] // _CHUNKS_PER_WORD + len(self.scales)

    def check(self, result: int) -> None:
        """Raise unless the registers, whichever selector and thread ids they are read with, hold the tile's bits.

        Raises
        ------
        ViolationError
            Which do not.
        """
        i, held = self.instruction, registers(result)
        for sparsity_selector in range(i.sparsity_selectors):
            _compare(
                f"{self.name}, selector {sparsity_selector}: nibble",
                unpack_nibbles(held["e"], i, sparsity_selector),
                self.nibbles,
            )
        for operand, threads, (scales, byte) in zip("ab", (_PAIRS, _THREADS), self.scales, strict=False):
            for thread in range(threads):
                got = unpack_scales(held[f"scale_{operand}"], i, operand, byte, thread)
                _compare(f"{self.name}, thread {thread}: scale {operand}", got, scales)


class RegisterScoreboard(Scoreboard):
    """Compares of a result what its tile says of it, and when it is offered.

    Of so many columns, registers are offered one cycle more after the first could be read: when the request stood at
    the input and the registers before it had left, or left.
    """

    def __init__(self, longest_wait: int) -> None:
        super().__init__(longest_wait)
        self._due: int | None = None

    def observe(self, cycle: Cycle, offered: Item | None) -> None:
        """Check one cycle.

        Raises
        ------
        ViolationError
            A rule is broken.
        """
        super().observe(cycle, offered)
        if self._due is not None:
            self._due -= 1
            if not cycle.reset and cycle.o_valid != (self._due <= 0):
                raise ViolationError("registers are offered " + ("too early" if cycle.o_valid else "too late"))
        if cycle.reset or cycle.delivers:
            self._due = None
        if cycle.i_valid and not cycle.reset and self._due is None:
            assert isinstance(offered, Tile)
            self._due = offered.reads + 1

    @staticmethod
    def _compare(item: Item, result: int) -> None:
        assert isinstance(item, Tile)
        item.check(result)


def _compare(what: str, got: NDArray[np.uint8], wanted: NDArray[np.uint8]) -> None:
    wrong = np.argwhere(got[0] != wanted)
    if len(wrong):
        place = tuple(wrong[0].tolist())
        raise ViolationError(
            f"{what} {place} is {got[0][place]:#x}, not {wanted[place]:#x}, and {len(wrong) - 1} others are wrong"
        )


def registers(result: int) -> dict[str, NDArray[np.uint32]]:
    """Return the fields of a result, each of shape (1, 32)."""
    layout = tensor_registers_layout()
    words = np.frombuffer(result.to_bytes(layout.size // 8, "little"), "<u4").reshape(-1, 1, _REGISTER_LANES)
    return dict(zip(layout.members, words, strict=True))


def instructions() -> list[Instruction]:
    """Return a sparse instruction of each kind, number of block scales and of columns, with 128 rows in a CTA."""
    found = {
        (opcode, i.n): i
        for opcode in every_opcode()
        for i in instructions_of(opcode)
        if opcode.sparse and i.m // opcode.cta_group == LANES
    }
    return list(found.values())


@lru_cache(maxsize=1024)
def twin(instruction: Instruction) -> Instruction:
    """Return an ``mma.sp`` that reads metadata and block scales of the same granularity from registers."""
    return next(
        i
        for i in every_instruction("mma")
        if i.sparse
        and i.m == _TILE_ROWS
        and (i.k, i.a.name, i.scale_size) == (instruction.k, instruction.a.name, instruction.scale_size)
    )


def place(memory: NDArray[np.uint32], where: TensorMap, codes: NDArray[np.uint8]) -> None:
    """Write a matrix of nibbles or bytes into tensor memory, in place, with its copies."""
    low_bits = where.low_bits.astype(np.uint32)
    for copy in where.copies:
        places = (where.lanes + copy, where.columns)
        np.bitwise_and.at(memory, places, ~(np.uint32((1 << where.element_bits) - 1) << low_bits))
        np.bitwise_or.at(memory, places, codes.astype(np.uint32) << low_bits)


def request(
    instruction: Instruction, addresses: tuple[int, ...], sparsity_selector: int, row_block: int, panel: int
) -> int:
    """Return the bits of a request for one tile of an instruction.

    Parameters
    ----------
    instruction : Instruction
        Of ``tcgen05``.
    addresses : tuple of int
        First column of the metadata and, with block scales, of those of A and of B.
    sparsity_selector : int
        Sparsity selector.
    row_block, panel : int
        Which rows of A and columns of B.
    """
    names = ("metadata_column", "scale_a_column", "scale_b_column")
    fields = {
        **dict(zip(names, addresses, strict=False)),
        "wide": instruction.wide,
        "sparsity_selector": sparsity_selector,
        "rows": row_block,
        "panel": panel,
        "scaled": instruction.scale_size is not None,
    }
    return int(tensor_request_layout().const(fields).as_value().value)


def random_tiles(rng: np.random.Generator) -> Iterator[Tile]:
    """Yield random tiles without end: every kind, number of block scales, selector, byte id, row and column."""
    known = instructions()
    while True:
        for number in rng.permutation(len(known)):
            yield _random_tile(known[number], rng)


def _random_tile(i: Instruction, rng: np.random.Generator) -> Tile:
    memory = rng.integers(0, 1 << _WORD_BITS, (LANES, COLUMNS), np.uint32)
    sparsity_selector = int(rng.integers(i.sparsity_selectors))
    row_block, panel = int(rng.integers(LANES // _TILE_ROWS)), int(rng.integers(i.n // _TILE_COLUMNS))
    addresses = _addresses(i, rng)
    nibbles = rng.integers(0, 16, (LANES, i.chunks), np.uint8)
    place(memory, metadata_map(LAYOUTS["D"], i, sparsity_selector, addresses[0]), nibbles)
    rows = slice(_TILE_ROWS * row_block, _TILE_ROWS * (row_block + 1))
    columns = slice(_TILE_COLUMNS * panel, _TILE_COLUMNS * (panel + 1))
    scales = []
    if size := i.scale_size:
        for name, lines, part, address in zip("ab", (LANES, i.n), (rows, columns), addresses[1:], strict=True):
            byte = int(rng.choice(range(0, 4, size)))
            drawn = rng.integers(0, 256, (lines, size), np.uint8)
            place(memory, scale_map(f"scale_{name}", lines, size, byte, address), drawn)
            scales.append((drawn[part], byte))
    # What an instruction does not have is noise in its request.
    noise = tuple(rng.integers(COLUMNS, size=3 - len(addresses)).tolist())
    asked = sparsity_selector if i.sparsity_selectors > 1 else int(rng.integers(2))
    return Tile(
        f"{i}, selector {sparsity_selector}, rows {rows.start} on, columns {columns.start} on",
        request(i, addresses + noise, asked, row_block, panel),
        0,
        0,
        instruction=twin(i),
        memory=memory,
        nibbles=nibbles[rows],
        scales=tuple(scales),
    )


def _addresses(i: Instruction, rng: np.random.Generator) -> tuple[int, ...]:
    """Draw first columns of metadata and scales that lie apart; either end of the memory is likely."""
    widths = [2, *([LANES // _PARTITION, -(-i.n // _PARTITION)] if i.scale_size else [])]
    while True:
        starts = [int(rng.choice([0, COLUMNS - width, rng.integers(COLUMNS - width + 1)])) for width in widths]
        starts[0] &= ~1
        taken = [column for start, width in zip(starts, widths, strict=True) for column in range(start, start + width)]
        if len(set(taken)) == len(taken):
            return tuple(starts)

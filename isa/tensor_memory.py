"""Index maps from matrices of ``tcgen05.mma`` to tensor memory. The maps contain no operand values.

Tensor memory of a CTA has 128 lanes of 512 columns of 32 bits; an address is ``lane << 16 | column``. The maps are of
one CTA. With ``.cta_group::2`` each CTA holds its half of the rows by the same map, at the same addresses.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError, shown
from .instructions import Instruction
from .tcgen05 import Opcode

__all__ = [
    "COLUMNS",
    "LANES",
    "LAYOUTS",
    "METADATA_COLUMNS",
    "PARTITION",
    "Layout",
    "TensorMap",
    "a_map",
    "accumulator_map",
    "decode_address",
    "layout_for",
    "metadata_map",
    "scale_map",
]

Index = NDArray[np.intp]

LANES = 128
COLUMNS = 512
_WORD_BITS = 32
#: Number of lanes in a partition, the part of tensor memory that one warp can access.
PARTITION = 32
#: Alignment of the first metadata column in tensor memory, in columns.
METADATA_COLUMNS = 2


@dataclass(frozen=True)
class Layout:
    """Layout of D in tensor memory: map from rows and columns of D to lanes and columns of tensor memory.

    Source: PTX ISA, data path layout organization (table). Lanes and columns: CUTLASS ``tmem_frg`` and ``tmem_frg_ws``.
    Layout B belongs to dense instructions, E and G to ``.ws``.
    """

    name: str  #: Name of the layout of D in PTX, ``A`` to ``G``
    rows: int  #: Number of rows of D in one CTA
    cta_group: int  #: Number of CTAs among which D is divided
    #: Whether parts of N are in different lanes of tensor memory, so that 32 or 64 rows of D use all 128 lanes.
    folded: bool = False

    @property
    def half_lanes(self) -> bool:
        """Whether D uses 16 of every 32 lanes, starting at lane 0 or 16."""
        return self.rows == 64 and not self.folded

    @property
    def column_parts(self) -> int:
        """Number of blocks of columns of D that are stored in different lanes of the same tensor-memory columns."""
        return LANES // self.rows if self.folded else 1

    @property
    def copies(self) -> tuple[int, ...]:
        """Lane offsets of the copies of A and of the metadata. Each block of columns of D has its own copy."""
        return tuple(range(0, LANES, self.rows)) if self.folded else (0,)

    def lanes(self, row: Index) -> Index:
        """Return the tensor-memory lane of a row of D, relative to the lane of the base address."""
        return row // 16 * 32 + row % 16 if self.half_lanes else row


LAYOUTS: dict[str, Layout] = {
    record.name: record
    for record in (
        Layout("A", 128, 2),
        Layout("B", 64, 2, True),
        Layout("C", 64, 2),
        Layout("D", 128, 1),
        Layout("E", 64, 1, True),
        Layout("F", 64, 1),
        Layout("G", 32, 1, True),
    )
}


def layout_for(opcode: Opcode, m: int) -> Layout:
    """Return the layout of D for an opcode and M = `m`. M counts the rows of all cooperating CTAs."""
    rows, ctas = m // opcode.cta_group, opcode.cta_group
    dense_pair = ctas == 2 and rows == 64 and not opcode.sparse
    key = (rows, ctas, rows < LANES and (opcode.weight_stationary or dense_pair))
    for layout in LAYOUTS.values():
        if (layout.rows, layout.cta_group, layout.folded) == key:
            return layout
    raise ValueError(f"no layout of D in tensor memory has {m} rows for {ctas} CTAs")


@dataclass(frozen=True, eq=False)
class TensorMap:
    """Map of a matrix operand to the tensor memory of a CTA."""

    #: For each element of the matrix, its lane and column of tensor memory, and its lowest bit in the 32-bit word.
    lanes: Index
    columns: Index
    low_bits: Index
    element_bits: int
    #: Lane offsets of all copies of the matrix, the first of which is 0. The copies must have equal content.
    copies: tuple[int, ...] = (0,)

    @property
    def fills_words(self) -> bool:
        """Whether each element occupies a whole 32-bit word of tensor memory."""
        return self.element_bits == _WORD_BITS

    def below_each_other(self, count: int) -> "TensorMap":
        """Return the map of `count` matrices, one per CTA, stacked to one matrix. All CTAs use the same addresses."""
        lanes, columns, low_bits = (np.tile(part, (count, 1)) for part in (self.lanes, self.columns, self.low_bits))
        return TensorMap(lanes, columns, low_bits, self.element_bits, self.copies)

    def words(self) -> NDArray[np.bool_]:
        """Return a mask of the tensor-memory words that hold the matrix or its copies, shape (128, 512)."""
        words = np.zeros((LANES, COLUMNS), np.bool_)
        for offset in self.copies:
            words[self.lanes + offset, self.columns] = True
        return words


def decode_address(address: int, name: str) -> tuple[int, int]:
    """Split a tensor-memory address into lane and column. Error messages name the operand `name`.

    Raise an `OperandError` if the address is outside the 128 lanes of 512 columns.
    """
    if isinstance(address, bool) or not isinstance(address, int) or not 0 <= address < 1 << 32:
        raise OperandError(f"{name} must be a 32-bit address of tensor memory, not {shown(address)}")
    lane, column = address >> 16, address & 0xFFFF
    if lane >= LANES or column >= COLUMNS:
        raise OperandError(
            f"{name} must be an address of lane 0 to {LANES - 1} and column 0 to {COLUMNS - 1} of tensor memory, "
            f"not of lane {lane} and column {column}"
        )
    return lane, column


def _tensor_map(
    name: str,
    lanes: Index,
    columns: Index | int,
    low_bits: Index | int,
    element_bits: int,
    copies: tuple[int, ...] = (0,),
) -> TensorMap:
    parts = [np.array(part, np.intp) for part in np.broadcast_arrays(lanes, columns, low_bits)]
    first, last = parts[1].min(), parts[1].max()
    if last >= COLUMNS:
        raise OperandError(
            f"{name} at column {first} of tensor memory reaches column {last}, beyond the last column, {COLUMNS - 1}"
        )
    for part in parts:
        part.flags.writeable = False
    return TensorMap(parts[0], parts[1], parts[2], element_bits, copies)


def _base(name: str, address: int, layout: Layout) -> tuple[int, int]:
    """Return lane and column of a tensor-memory address. Raise an error if no matrix in the layout may start there."""
    lane, column = decode_address(address, name)
    accepted = (0, 16) if layout.half_lanes else (0,)
    if lane not in accepted:
        raise OperandError(
            f"{name} must start at lane {' or '.join(map(str, accepted))} of tensor memory in layout {layout.name}, "
            f"not {lane}"
        )
    return lane, column


@lru_cache(maxsize=256)
def accumulator_map(layout: Layout, n: int, element_bits: int, address: int) -> TensorMap:
    """Return the map of D, shape (rows of one CTA, n). An element of 16 bits is in the low half of a word.

    Raise an `OperandError` if the base address is misaligned or out of range, or D reaches beyond the last column.

    Source: PTX ISA, data path layouts and packing format for matrix D.
    """
    lane, column = _base("d", address, layout)
    row, col = np.arange(layout.rows)[:, None], np.arange(n)[None, :]
    width = n // layout.column_parts
    return _tensor_map(
        "d", lane + layout.lanes(row) + layout.rows * (col // width), column + col % width, 0, element_bits
    )


@lru_cache(maxsize=256)
def a_map(layout: Layout, instruction: Instruction, address: int) -> TensorMap:
    """Return the map of A, shape (rows of one CTA, stored K). Row r of A is in the same lane as row r of D.

    The map places the containers of the elements. A word has one or several containers, the first in the low bits.
    Raise an `OperandError` if the base address is misaligned or out of range, A reaches beyond the last column, or no
    public source states where the elements are.

    Source: PTX ISA, packing formats of A in tensor memory. The position of six-bit and unpacked four-bit elements in
    their byte is shown in figures of PTX only. In layout B, CUTLASS duplicates A in the lanes of both parts of N
    (``TmemAllocMode::Duplicated``). For ``.ws`` with 64 rows, extensions of CuTe duplicate A if elements have 16 bits.
    """
    bits = instruction.container_bits
    if layout.name == "G" or (layout.name == "E" and bits != 16):
        raise OperandError(
            f"operand A of {instruction} must be in shared memory: no public source states the positions of "
            f"{bits}-bit elements in tensor memory for '.ws' with M = {layout.rows}"
        )
    if instruction.a.bits < bits == 8:
        raise OperandError(
            f"operand A of {instruction} must be in shared memory: no public source states the position of a "
            f"{instruction.a.bits}-bit element within a byte of tensor memory; only figures show it"
        )
    lane, column = _base("a", address, layout)
    row, k = np.arange(layout.rows)[:, None], np.arange(instruction.stored_k)[None, :]
    per_word = _WORD_BITS // bits
    lanes = lane + layout.lanes(row)
    return _tensor_map("a", lanes, column + k // per_word, k % per_word * bits, bits, layout.copies)


@lru_cache(maxsize=256)
def metadata_map(layout: Layout, instruction: Instruction, sparsity_selector: int, address: int) -> TensorMap:
    """Return the map of the metadata nibbles, shape (rows of one CTA, nibbles per row).

    Elements of 16 bits or more have eight chunks per row: a word holds four chunks of each of two rows, and the
    selector picks the column. With narrower elements, each of two columns holds eight chunks of one row. With ``.ws``
    and fewer than 128 rows, copies fill the other lanes. Raise an `OperandError` if the base address is misaligned or
    out of range, the metadata reaches beyond the last column, or the selector is 2 or 3: no public source states the
    columns of these selectors.

    Source: CUTLASS ``tmem_e_frg`` and ``tmem_e_frg_ws``; JAX agrees for 128 rows; PTX shows figures only. Layouts C and
    F (64 rows in half of the lanes): github.com/noheat61/triton, DOT_SPARSE_INTERNALS.md section 10, whose kernels
    match every bit on a Jetson Thor (f16, bf16 and fp8, one CTA). In these layouts a row has the same lane as in D,
    as with 128 rows; figures 262 and 264 of PTX (metadata of f16 and of tf32) are exchanged.
    """
    lane, column = _base("e", address, layout)
    if sparsity_selector >= instruction.sparsity_selectors:
        raise OperandError(
            f"the selector of {instruction} must be {' or '.join(map(str, range(instruction.sparsity_selectors)))}: "
            f"no public source states which columns selector {sparsity_selector} selects"
        )
    if column % METADATA_COLUMNS:
        raise OperandError(f"metadata of {instruction} must start at an even column of tensor memory, not {column}")
    row, chunk = np.arange(layout.rows)[:, None], np.arange(instruction.chunks)[None, :]
    if instruction.wide:
        lanes = layout.lanes(row // 16 * 16 + chunk // 4 * 8 + row % 8)
        low_bits = row % 16 // 8 * 16 + chunk % 4 * 4
        return _tensor_map("e", lane + lanes, column + sparsity_selector, low_bits, 4, layout.copies)
    return _tensor_map("e", lane + layout.lanes(row), column + chunk // 8, chunk % 8 * 4, 4, layout.copies)


@lru_cache(maxsize=256)
def scale_map(name: str, lines: int, size: int, scale_id: int, address: int, parts: int = 1) -> TensorMap:
    """Return where tensor memory holds each block scale (one byte): a map with one row per row of A or column of B.

    `lines` is the number of rows of A in one CTA, or of columns of B. `scale_id` is the byte of the word that holds the
    first scale. For B, `parts` is the number of parts of N in the layout of D; parts are stacked along the lanes, and
    each partition of 32 lanes holds a copy of its part. Raise an `OperandError` if the base address is misaligned or
    out of range, the scales reach beyond the last column, or no public source states where the scales are.

    Source: PTX ISA, scale factor A and B ID; CUTLASS ``tmem_sf_frg``. For two parts of N, the map is that of the
    ``2by2`` form of ``tmem_sf_frg``, which fills whole partitions.
    """
    lane, column = decode_address(address, name)
    if lane:
        raise OperandError(f"{name} must start at lane 0 of tensor memory, not {lane}")
    if parts > 1 and lines % (parts * PARTITION):
        raise OperandError(
            f"{name} must be for a multiple of {parts * PARTITION} columns of B, not for {lines}: no public source "
            f"states where layout B holds the scales of other numbers of columns"
        )
    line, scale = np.arange(lines)[:, None], np.arange(size)[None, :]
    part, within = np.divmod(line, lines // parts)
    lanes = part * (LANES // parts) + within % PARTITION
    copies = tuple(range(0, LANES // parts, PARTITION))
    return _tensor_map(name, lanes, column + within // PARTITION, 8 * (scale_id + scale), 8, copies)

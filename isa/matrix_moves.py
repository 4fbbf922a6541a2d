"""``ldmatrix`` and ``stmatrix``: syntax, and index maps between registers and rows of shared memory.

Every form moves rows of 16 bytes; one lane supplies the address of each row. Notation: ``g = lane >> 2``,
``t = lane & 3``. Sources, by shape:

* ``.m8n8``: PTX ISA 9.7.14.5.15 and .16 (text, Figures 104 and 107). A group of four lanes holds a row of
  the matrix, or a column with ``.trans``.
* ``.m16n16``: PTX ISA 9.7.14.5.15 ("4 consecutive columns across 2 rows", Figure 105, of the transposed matrix), CuTe
  ``Copy_Traits<SM100_U8x8_LDSM_T>`` and ``<SM100_U8x16_LDSM_T>`` before the byte shuffle in their ``copy``, and a map
  that others measured on an sm_120 GPU and published. These three sources agree. The padded formats have the same map,
  as PTX ("in each register four 8-bit elements are loaded") and CubeCL's run-time test of these forms show.
* ``.m8n16``: PTX ISA 9.7.14.5.15 ("4 consecutive columns", Figure 106), CuTe
  ``Copy_Traits<SM100_SU4_DU8x16_x1_LDSM_N>`` and its siblings, CubeCL's test.
* ``.m16n8``: PTX ISA 9.7.14.5.16 (``e0`` to ``e3`` from the least significant byte, Figure 108), CuTe
  ``Copy_Traits<SM100_U8x4_STSM_T>`` and its siblings, CubeCL's test.

Shapes other than ``.m8n8`` exist from sm_100 on.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..errors import InstructionError
from .fragments import WARP_LANES
from .instructions import one_of
from .text import dotted, parser

__all__ = ["ROW_BYTES", "MatrixMove", "MatrixMoveMap", "every_matrix_move", "matrix_move_map", "parse_matrix_move"]

Index = NDArray[np.intp]
#: Size and alignment of one matrix row in shared memory, in bytes.
ROW_BYTES = 16

#: Syntax table of PTX ISA 9. Each row: opcode, shape, element types, accepted numbers of matrices, and accepted values
#: of :attr:`MatrixMove.transposed` (True: with ``.trans``).
_FORMS = (
    ("ldmatrix", "m8n8", "b16", (1, 2, 4), (False, True)),
    ("ldmatrix", "m16n16", "b8", (1, 2), (True,)),
    ("ldmatrix", "m16n16", "b8x16.b6x16_p32", (1, 2), (True,)),
    ("ldmatrix", "m16n16", "b8x16.b4x16_p64", (1, 2), (True,)),
    ("ldmatrix", "m8n16", "b8x16.b6x16_p32", (1, 2, 4), (False,)),
    ("ldmatrix", "m8n16", "b8x16.b4x16_p64", (1, 2, 4), (False,)),
    ("stmatrix", "m8n8", "b16", (1, 2, 4), (False, True)),
    ("stmatrix", "m16n8", "b8", (1, 2, 4), (True,)),
)
_OPCODES = ("ldmatrix", "stmatrix")
_SHAPES = ("m8n8", "m16n16", "m8n16", "m16n8")
_COUNTS = ("x1", "x2", "x4")
_SPACES = ("shared", "shared::cta")
_TYPES = ("b16", "b8", "b8x16", "b6x16_p32", "b4x16_p64")


@dataclass(frozen=True, kw_only=True)
class MatrixMove:
    """Parsed and checked ``ldmatrix`` or ``stmatrix`` instruction."""

    opcode: str  #: Opcode of the instruction, ``ldmatrix`` or ``stmatrix``
    shape: str  #: Shape qualifier of one matrix, for example ``m8n8``
    matrices: int  #: Number of matrices that the instruction moves
    transposed: bool  #: Whether a row of shared memory is a column of the matrix in the registers
    element: str  #: Element type in the registers: ``b16``, ``b8`` or ``b8x16``
    #: Padded element type in shared memory, ``b6x16_p32`` or ``b4x16_p64``, or empty if memory and registers have the
    #: same type.
    source: str

    @property
    def element_bits(self) -> int:
        """Width in bits of an element in shared memory: 16, 8, 6 or 4."""
        return {"": self.container_bits, "b6x16_p32": 6, "b4x16_p64": 4}[self.source]

    @property
    def container_bits(self) -> int:
        """Width in bits of the space for an element in a register: 16 or 8."""
        return 16 if self.element == "b16" else 8

    @property
    def rows(self) -> int:
        """Number of rows of shared memory that hold one matrix."""
        return 16 if self.shape == "m16n16" else 8

    @property
    def row_elements(self) -> int:
        """Number of elements in one row of a matrix in shared memory."""
        return 8 * ROW_BYTES // self.container_bits

    @property
    def registers(self) -> int:
        """Number of registers per thread that hold the matrices."""
        return self.matrices * self.rows // 8

    def __str__(self) -> str:
        words = self.opcode, "sync.aligned", self.shape, f"x{self.matrices}", "trans" * self.transposed
        return dotted(*words, "shared", self.element, self.source)


def every_matrix_move() -> tuple[MatrixMove, ...]:
    """Return every modelled form of ``ldmatrix`` and ``stmatrix``."""
    return tuple(
        MatrixMove(
            opcode=opcode,
            shape=shape,
            matrices=count,
            transposed=transposed,
            element=types.partition(".")[0],
            source=types.partition(".")[2],
        )
        for opcode, shape, types, counts, transpositions in _FORMS
        for count in counts
        for transposed in transpositions
    )


def _listed(choices: list[str]) -> str:
    """Return the accepted qualifiers of an instruction as text for a message, without duplicates."""
    return one_of([f"'.{choice}'" for choice in dict.fromkeys(choices)])


def _sort_words(opcode: str, words: list[str], text: str) -> dict[str, list[str]]:
    kinds = {"flag": ("sync", "aligned", "trans"), "shape": _SHAPES, "count": _COUNTS, "space": _SPACES, "type": _TYPES}
    qualifiers: dict[str, list[str]] = {kind: [] for kind in kinds}
    for word in words:
        kind = next((name for name, accepted in kinds.items() if word in accepted), None)
        if kind is None:
            known = {part for move in every_matrix_move() if move.opcode == opcode for part in str(move).split(".")}
            words = [choice for accepted in kinds.values() for choice in accepted if choice in known | {*_SPACES}]
            raise InstructionError(f"{'.' + word!r} in {text!r} is no part of {opcode}; expected {_listed(words)}")
        if word in qualifiers[kind]:
            raise InstructionError(f"'.{word}' appears twice in {text!r}; once is expected")
        if qualifiers[kind] and kind in ("shape", "count", "space"):
            raise InstructionError(
                f"{text!r} has both '.{qualifiers[kind][0]}' and '.{word}'; only one of them is allowed"
            )
        qualifiers[kind].append(word)
    return qualifiers


@parser
def parse_matrix_move(text: str) -> MatrixMove:
    """Parse the opcode and qualifiers of an ``ldmatrix`` or ``stmatrix``.

    For example ``ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16``. The order of types is fixed; that of other
    qualifiers is free, as in the assembler. ``.shared`` and ``.shared::cta`` are equivalent and optional. Raise an
    `InstructionError` if the text is not such an instruction; the message names the wrong part and what is accepted
    there.
    """
    opcode, *words = text.strip().removesuffix(";").rstrip().split(".")
    if opcode not in _OPCODES:
        raise InstructionError(f"{opcode!r} in {text!r} is no known opcode; accepted are {' and '.join(_OPCODES)}")
    qualifiers = _sort_words(opcode, words, text)
    for word in ("sync", "aligned"):
        if word not in qualifiers["flag"]:
            raise InstructionError(f"'.{word}' is missing in {text!r}; {opcode} requires it")

    moves = [move for move in every_matrix_move() if move.opcode == opcode]
    for kind, part, spell in (
        ("shape", "shape", lambda move: move.shape),
        ("type", "type", lambda move: dotted(move.element, move.source)),
        ("count", "number of matrices", lambda move: f"x{move.matrices}"),
    ):
        written = ".".join(qualifiers[kind])
        accepted = _listed([spell(move) for move in moves])
        if not written:
            raise InstructionError(f"the {part} is missing in {text!r}; expected {accepted}")
        moves = [move for move in moves if spell(move) == written]
        if not moves:
            raise InstructionError(f"'.{written}' in {text!r} is not accepted as {part}; expected {accepted}")
    transposed = "trans" in qualifiers["flag"]
    for move in moves:
        if move.transposed == transposed:
            return move
    fault = "is not accepted" if transposed else "is missing"
    rule = "cannot be transposed" if transposed else "is always transposed"
    raise InstructionError(f"'.trans' {fault} in {text!r}; '.{moves[0].shape}' {rule}")


@dataclass(frozen=True, eq=False)
class MatrixMoveMap:
    """Map from register elements to elements of shared memory, with the lanes that supply the row addresses."""

    #: For each register element, its matrix, its row in shared memory and its position in the row, shape
    #: (32, registers, E): index [l, r, j] is element j of register r of thread l.
    matrices: Index
    rows: Index
    elements: Index
    #: Lowest bit of each element in its 128-bit row of shared memory, shape (32, registers, elements of one
    #: register). Bit 0 is the low bit of the first byte.
    row_low_bits: Index
    #: Lowest bit of the element in its register, shape (E,). In a byte, the bits above a 6-bit or 4-bit element are 0.
    register_low_bits: Index
    #: Lane that supplies the address of each row, shape (matrices, rows). Addresses of other lanes are ignored.
    address_lanes: Index


@lru_cache(maxsize=64)
def matrix_move_map(move: MatrixMove) -> MatrixMoveMap:
    """Return the map between the registers of an ``ldmatrix`` or ``stmatrix`` and the rows of shared memory.

    A row of a padded format holds 16 elements from its low bit on, and padding above them: six-bit elements take 12
    bytes, four-bit elements 8 bytes (PTX ISA 9.7.14.5.15). CubeCL's run-time test shows the order of bits, and
    that an element is loaded into the low bits of its byte. CUTLASS moves four-bit elements to higher bits afterwards
    (``fp4_shift_A``).
    """
    lane = np.arange(WARP_LANES).reshape(-1, 1, 1)
    g, t = lane >> 2, lane & 3
    register = np.arange(move.registers).reshape(1, -1, 1)
    per_register = 32 // move.container_bits
    j = np.arange(per_register).reshape(1, 1, -1)
    matrices, half = divmod(register, move.rows // 8)
    if move.shape == "m16n8":
        rows, elements = 2 * t + (j & 1), g + 8 * (j >> 1)
    elif move.transposed:
        rows, elements = per_register * t + j, g + 8 * half
    else:
        rows, elements = g, per_register * t + j
    matrices, rows, elements = (np.ascontiguousarray(part) for part in np.broadcast_arrays(matrices, rows, elements))
    move_map = MatrixMoveMap(
        matrices,
        rows,
        elements,
        elements * move.element_bits,
        np.arange(per_register) * move.container_bits,
        np.arange(move.matrices * move.rows).reshape(move.matrices, move.rows),
    )
    for index in vars(move_map).values():
        index.flags.writeable = False
    return move_map

"""What a matrix product takes on all SMs of an H200: tiles, each by one CTA, their sums in registers, operands by TMA.

The law of :mod:`sptc.isa.timing` gives the cycles in which tensor cores and shared memory are busy with ``wgmma``.
Three figures come to it that are fitted to what cuBLAS and cuSPARSELt took there (``recordings/cycles/``): what a
kernel takes to begin and end, how fast results are written, and how fast operands come into shared memory, beside the
reads, over the same port.
"""

from dataclasses import dataclass, replace
from math import ceil

from ..errors import InstructionError, OperandError
from .instructions import Instruction
from .timing import Resource, resource_cycles

__all__ = ["ProductTiming", "Tile", "dense_twin", "product_timing"]

#: Streaming multiprocessors of an H200.
_SMS = 132
_ARCH = "sm_90"
_ROWS, _COLUMNS = 64, 8
_MOST_COLUMNS = 256
#: Stored bytes of a row of A that one instruction takes, and of the metadata beside them.
_A_BYTES, _METADATA_BYTES = 32, 4
#: Fitted: cycles of a kernel beside its tiles, bytes a cycle into an SM's shared memory, and of results to memory.
_LAUNCH, _FILL, _STORE = 8000, 300, 2180


@dataclass(frozen=True)
class Tile:
    """What one CTA computes.

    Attributes
    ----------
    rows : int
        A multiple of 64: so many warpgroups share an SM's tensor cores.
    columns : int
        A multiple of 8, of which each warpgroup takes up to 256 at a time.
    """

    rows: int = 128
    columns: int = 256

    def __post_init__(self) -> None:
        if self.rows <= 0 or self.rows % _ROWS or self.columns <= 0 or self.columns % _COLUMNS:
            raise OperandError(
                f"a tile has a multiple of {_ROWS} rows and one of {_COLUMNS} columns, not {self.rows}x{self.columns}"
            )


@dataclass(frozen=True)
class ProductTiming:
    """Cycles of the SMs' clock.

    Attributes
    ----------
    cycles : int
        Of the whole kernel.
    waves : int
        Tiles one after another on an SM.
    multiplying, storing : int
        Cycles in which tiles are multiplied, and in which their results are written; the rest is the kernel's own.
    bound_by : str
        ``"tensor core"`` or ``"shared memory"``.
    """

    cycles: int
    waves: int
    multiplying: int
    storing: int
    bound_by: str


def dense_twin(instruction: Instruction) -> Instruction:
    """Return the dense instruction of the same types that takes as many bytes of A."""
    return replace(instruction, sparse="", k=instruction.stored_k)


def product_timing(
    instruction: Instruction, shape: tuple[int, int, int], tile: Tile | None = None, result_bytes: int | None = None
) -> ProductTiming:
    """Return what a product takes.

    Parameters
    ----------
    instruction : Instruction
        Of family ``wgmma``; its n is the tile's.
    shape : tuple of int
        M, N and K.
    tile : Tile
        By default of 128 x 256, as cuSPARSELt has it.
    result_bytes : int, optional
        Of an element of D in memory; by default that of the accumulator.

    Raises
    ------
    InstructionError
        Of another family, or of an architecture of which nothing is known.
    """
    if instruction.family != "wgmma" or _ARCH not in instruction.architectures:
        raise InstructionError(f"cycles of a product are known of wgmma on {_ARCH}, not of {instruction}")
    tile, (m, n, k) = tile or Tile(), shape
    parts = ceil(tile.columns / _MOST_COLUMNS)
    of_tile = replace(instruction, n=_COLUMNS * ceil(tile.columns / parts / _COLUMNS))
    needed, count = resource_cycles(of_tile, "shared"), tile.rows // _ROWS * parts
    filled = tile.rows * (_A_BYTES + (_METADATA_BYTES if instruction.sparse else 0))
    filled += tile.columns * instruction.k * instruction.container_bits // 8
    multiplying = count * needed[Resource.TENSOR_CORE]
    moving = count * needed[Resource.SHARED_MEMORY] + filled / _FILL
    waves = ceil(ceil(m / tile.rows) * ceil(n / tile.columns) / _SMS)
    busy = round(waves * ceil(k / instruction.k) * max(multiplying, moving))
    stored = round(m * n * (result_bytes or instruction.d.bits // 8) / _STORE)
    bound_by = Resource.SHARED_MEMORY if moving > multiplying else Resource.TENSOR_CORE
    return ProductTiming(_LAUNCH + busy + stored, waves, busy, stored, bound_by.value)

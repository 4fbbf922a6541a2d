"""Cycles of a matrix product on an H200: one CTA per tile, accumulators in registers, operands loaded by TMA.

:mod:`sptc.isa.timing` gives the cycles for which ``wgmma`` occupies tensor cores and shared memory. Three further
figures are fitted to measured times of cuBLAS and cuSPARSELt (``recordings/cycles/``): the fixed cycles of a kernel,
the rate at which results are written, and the rate at which operands are written to shared memory. These writes use the
same port of shared memory as the reads.
"""

from dataclasses import dataclass, replace
from math import ceil

from ..errors import InstructionError, OperandError
from .instructions import Instruction
from .timing import ARCHITECTURE, ROW_BYTES, Resource, resource_cycles

__all__ = ["ProductTiming", "Tile", "dense_twin", "product_timing"]

#: Number of streaming multiprocessors of an H200.
_SMS = 132
_ROWS, _COLUMNS = 64, 8
_MOST_COLUMNS = 256
#: Bytes of metadata that one instruction reads per row of A.
_METADATA_BYTES = 4
#: Fitted constants of the timing of a kernel. `_LAUNCH`: fixed cycles. `_FILL`: bytes per cycle that are loaded into
#: the shared memory of one SM. `_STORE`: bytes of results per cycle that all SMs together write.
_LAUNCH, _FILL, _STORE = 8000, 300, 2180


@dataclass(frozen=True)
class Tile:
    """Size, in elements, of the tile of D that one CTA computes."""

    #: Number of rows of the tile, a multiple of 64. A warpgroup computes 64 rows. All warpgroups share the tensor cores
    #: of an SM.
    rows: int = 128
    columns: int = 256  #: Number of columns of the tile, a multiple of 8. One instruction computes at most 256.

    def __post_init__(self) -> None:
        if self.rows <= 0 or self.rows % _ROWS or self.columns <= 0 or self.columns % _COLUMNS:
            raise OperandError(
                f"a tile must have a multiple of {_ROWS} rows and a multiple of {_COLUMNS} columns, "
                f"not {self.rows}x{self.columns}"
            )


@dataclass(frozen=True)
class ProductTiming:
    """Timing of a matrix product in cycles of the SM clock."""

    cycles: int  #: Cycles of the whole kernel
    waves: int  #: Number of tiles that each SM computes one after another
    #: Cycles in which tiles are multiplied, and cycles in which results are written. The remaining cycles of the kernel
    #: are the same for all matrix products.
    multiplying: int
    storing: int
    bound_by: str  #: Resource that limits the rate: ``"tensor core"`` or ``"shared memory"``


def dense_twin(instruction: Instruction) -> Instruction:
    """Return the dense instruction with the same types and the same number of stored columns of A."""
    return replace(instruction, sparse="", k=instruction.stored_k)


def product_timing(
    instruction: Instruction, shape: tuple[int, int, int], tile: Tile | None = None, result_bytes: int | None = None
) -> ProductTiming:
    """Return the timing of a matrix product by ``wgmma`` on sm_90. Raise an `InstructionError` for other instructions.

    `shape` is M, N and K of the product. `tile` is 128 x 256 by default, as in cuSPARSELt. The tile determines N of the
    executed ``wgmma``; N of `instruction` is ignored. `result_bytes` is the size of an element of D in memory, by
    default the size of an accumulator.
    """
    if instruction.family != "wgmma" or ARCHITECTURE not in instruction.architectures:
        raise InstructionError(f"cycle counts of kernels are known only for wgmma on {ARCHITECTURE}, not {instruction}")
    tile, (m, n, k) = tile or Tile(), shape
    parts = ceil(tile.columns / _MOST_COLUMNS)
    part = replace(instruction, n=_COLUMNS * ceil(tile.columns / parts / _COLUMNS))
    cycles, count = resource_cycles(part, "shared"), tile.rows // _ROWS * parts
    filled = tile.rows * (ROW_BYTES + (_METADATA_BYTES if instruction.sparse else 0))
    filled += tile.columns * instruction.k * instruction.container_bits // 8
    multiplying = count * cycles[Resource.TENSOR_CORE]
    moving = count * cycles[Resource.SHARED_MEMORY] + filled / _FILL
    waves = ceil(ceil(m / tile.rows) * ceil(n / tile.columns) / _SMS)
    busy = round(waves * ceil(k / instruction.k) * max(multiplying, moving))
    stored = round(m * n * (result_bytes or instruction.d.bits // 8) / _STORE)
    bound_by = Resource.SHARED_MEMORY if moving > multiplying else Resource.TENSOR_CORE
    return ProductTiming(_LAUNCH + busy + stored, waves, busy, stored, bound_by.value)

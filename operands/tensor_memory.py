"""Gather the operands of ``tcgen05.mma`` from tensor memory and shared memory, and write D to tensor memory."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import Format
from ..isa.instruction_descriptor import InstructionDescriptor
from ..isa.instructions import Instruction
from ..isa.memory import SharedMap
from ..isa.operands import MatrixOperands
from ..isa.tensor_memory import COLUMNS, PARTITION, TensorMap
from .registers import CONTAINERS
from .shared_memory import gather_shared

__all__ = ["Placement", "gather", "gather_tensor", "scatter_tensor", "shift_rows"]


@dataclass(frozen=True, eq=False)
class Placement:
    """Index maps: the position of each operand element of one ``tcgen05.mma`` in the memory of a CTA."""

    d: TensorMap  #: Memory positions of the elements of D, shape (rows of a CTA, n)
    a: TensorMap | SharedMap  #: Memory positions of the stored elements of A, shape (rows of a CTA, stored K)
    b: SharedMap  #: Memory positions of the elements of B, shape (columns of a CTA, K)
    e: TensorMap | None = None  #: Memory positions of metadata nibbles, shape (rows of a CTA, chunks); None if dense
    #: Memory positions of the block scales of A, shape (rows of a CTA, scales), and of B, shape (n, scales).
    scale_a: TensorMap | None = None
    scale_b: TensorMap | None = None
    zero_columns: NDArray[np.bool_] | None = None  #: Whether each column of B is set to zero, shape (n,)


def _positions(where: TensorMap, copy: int = 0) -> NDArray[np.intp]:
    return (where.lanes + copy) * COLUMNS + where.columns


def gather_tensor(tmem: NDArray[np.uint32], where: TensorMap, copy: int = 0) -> NDArray:
    """Gather a matrix, or its copy at a lane offset, from tensor memory of shape (batch, 128, 512).

    The result has one container of 8, 16 or 32 bits per element; 4-bit elements are in the low half of a byte.
    """
    words = tmem.reshape(len(tmem), -1).take(_positions(where, copy), axis=1)
    mask = np.uint32((1 << where.element_bits) - 1)
    return (words >> where.low_bits.astype(np.uint32) & mask).astype(CONTAINERS[where.element_bits])


def scatter_tensor(
    tmem: NDArray[np.uint32], where: TensorMap, codes: NDArray, disabled: NDArray[np.bool_] | None = None
) -> None:
    """Write D, codes of shape (batch, *matrix), to tensor memory in place. Other bits of the words are unchanged.

    The images, shape (batch, 128, 512), are contiguous; the map has one element per word. Lanes in the mask `disabled`,
    shape (128,), are not written.
    """
    flat = tmem.reshape(len(tmem), -1)
    positions = _positions(where)
    if disabled is None and where.fills_words:
        flat[:, positions] = codes
        return
    mask = np.uint32((1 << where.element_bits) - 1)
    old = flat[:, positions]
    new = old & ~mask | codes
    flat[:, positions] = new if disabled is None else np.where(disabled[where.lanes], old, new)


def shift_rows(tmem: NDArray[np.uint32], where: TensorMap) -> None:
    """Shift A by one row in place: each lane takes the content of the next lane, except the last lane of a partition.

    The images have the shape (..., 128, 512); `where` is the map of A, which takes all lanes.

    Source: PTX ISA, ``tcgen05.shift``, which shifts all rows of a warp except the last. The public interpreter numsim
    applies this shift for ``.ashift`` after the multiplication, in each partition of 32 lanes. Modelled, not measured.
    """
    columns = slice(int(where.columns.min()), int(where.columns.max()) + 1)
    partitions = tmem.reshape(*tmem.shape[:-2], -1, PARTITION, COLUMNS)
    partitions[..., :-1, columns] = partitions[..., 1:, columns].copy()


def _containers(codes: NDArray, element_bits: int, instruction: Instruction, fmt: Format, negate: bool) -> NDArray:
    """Move elements to their position in the datapath's containers, and invert their signs if `negate`."""
    low_bit = instruction.low_bit(fmt)
    if element_bits < instruction.container_bits:
        codes = codes << codes.dtype.type(low_bit)
    return codes ^ codes.dtype.type(1 << low_bit + fmt.bits - 1) if negate else codes


def gather(
    descriptor: InstructionDescriptor, placement: Placement, tmem: NDArray[np.uint32], smem: NDArray[np.uint8]
) -> MatrixOperands:
    """Gather the matrices of a batch of ``tcgen05.mma``. The leading axis of the result is batch times CTAs.

    Tensor memory has the shape (batch, CTAs, 128, 512), shared memory (batch, CTAs, bytes). A and C have the rows of
    one CTA; both CTAs of a pair have the whole B.

    Source: PTX ISA, ``tcgen05.mma`` and ``tcgen05.mma.sp``, transpose and negate operations. In a pair, each CTA holds
    half of the rows of A, half of the columns of B, and the scales of all columns of B. PTX negates the elements of A
    and of B. The model applies both signs to A, as measured on ``wgmma``; results differ only if an undefined nibble
    splices two tf32 elements of B. Modelled, not measured.
    """
    instruction = descriptor.instruction
    batch, ctas = tmem.shape[:2]
    tmem = tmem.reshape(batch * ctas, *tmem.shape[2:])
    smem = smem.reshape(batch * ctas, -1)
    where = placement.a
    a = gather_shared(smem, where) if isinstance(where, SharedMap) else gather_tensor(tmem, where)
    negated = descriptor.negate_a != descriptor.negate_b
    a = _containers(a, where.element_bits, instruction, instruction.a, negated)
    columns = gather_shared(smem, placement.b)
    columns = _containers(columns, placement.b.element_bits, instruction, instruction.b, False)
    if placement.zero_columns is not None:
        columns[:, placement.zero_columns] = 0
    b = columns.reshape(batch, instruction.n, instruction.k).transpose(0, 2, 1)
    return MatrixOperands(
        a,
        b.repeat(ctas, axis=0),
        gather_tensor(tmem, placement.d),
        None if placement.e is None else gather_tensor(tmem, placement.e),
        None if placement.scale_a is None else gather_tensor(tmem, placement.scale_a),
        None if placement.scale_b is None else gather_tensor(tmem, placement.scale_b),
    )

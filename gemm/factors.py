"""Operands of a matrix product, converted to codes, metadata and scales for one instruction."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..isa.instructions import Instruction
from ..tensors.encode import decode_codes
from .group_scales import GroupScales
from .ways import Way

__all__ = ["Factors", "Sparse"]


@dataclass(frozen=True, eq=False)
class Sparse:
    """The left operand of a product as codes, with its metadata if it is sparse."""

    #: Codes of stored elements as uint8, uint16 or uint32, shape (M, stored K); a dense matrix stores all elements.
    codes: NDArray
    nibbles: NDArray[np.uint8] | None  #: Metadata nibbles, shape (M, chunks); None for a dense matrix
    k: int  #: Number of logical columns, K


@dataclass(frozen=True, eq=False)
class Factors:
    """Both operands of a product as codes, padded with zeros along K to a multiple of the K of an instruction."""

    instruction: Instruction
    #: Codes of A and B in containers, shapes (M, stored K) and (K, N).
    a: NDArray
    b: NDArray
    nibbles: NDArray[np.uint8] | None  #: Metadata nibbles of A, shape (M, chunks)
    #: Block scales of A and B, shapes (M, scales) and (N, scales).
    scale_a: NDArray[np.uint8] | None = None
    scale_b: NDArray[np.uint8] | None = None
    groups: GroupScales | None = None  #: Group scales; None if there are none

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the product, (M, N)."""
        return len(self.a), self.b.shape[1]

    @property
    def count(self) -> int:
        """Number of instructions along K of the product."""
        return len(self.b) // self.instruction.k

    def times_block_scales(
        self, a: NDArray[np.float64], b: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Multiply the elements of both factors, of shapes (M, K) and (K, N), by their block scales."""
        i = self.instruction
        if self.scale_a is None or self.scale_b is None or not i.scale_format or not i.span:
            return a, b
        left, right = (
            decode_codes(np.ascontiguousarray(scales), i.scale_format).repeat(i.span, axis=1)[:, : len(b)]
            for scales in (self.scale_a, self.scale_b)
        )
        return a * left, b * right.T

    def interleaved(self, way: Way) -> "Factors":
        """Return the operands with their elements along K reordered as interleaved instructions read them.

        Two instructions take `way.interleave` bits in turn; 32 bits of 16-bit elements, with a K of 16:

            element       |  0  1 |  2  3 |  4  5 |  6  7 |  ...  | 28 29 | 30 31 |
            instruction   |   0   |   1   |   0   |   1   |  ...  |   0   |   1   |

        Raise an `OperandError` if the instruction is sparse or has scales, or the number of instructions is odd.
        """
        i = self.instruction
        if not way.interleave:
            return self
        if i.sparse or i.scale_format or self.groups is not None:
            raise OperandError(f"K is interleaved only for dense instructions and without scales, not for {i}")
        way.check_interleave(self.count)
        elements, unit = np.arange(len(self.b)), way.interleave // i.a.container_bits
        order = elements.reshape(self.count // 2, -1, 2, unit).swapaxes(1, 2).ravel()
        return replace(self, a=self.a[:, order], b=self.b[order])

    def take(self, rows: slice | NDArray, columns: slice | NDArray) -> "Factors":
        """Return the operands for some rows and columns of the product."""

        def of(array: NDArray | None, where: slice | NDArray) -> NDArray | None:
            return None if array is None else array[where]

        return Factors(
            self.instruction, self.a[rows], self.b[:, columns], of(self.nibbles, rows), of(self.scale_a, rows),
            of(self.scale_b, columns), self.groups and self.groups.take(rows, columns),
        )  # fmt: skip

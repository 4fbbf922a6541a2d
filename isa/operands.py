"""Data classes for operands and results of back ends. Operands are matrices, or contents of registers and memory."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .instruction_descriptor import InstructionDescriptor
from .instructions import Instruction
from .tcgen05 import Opcode

__all__ = ["HeldOperands", "Immediates", "MatrixOperands", "Product", "StepFlags", "TensorMemoryOperands"]


@dataclass(frozen=True)
class Immediates:
    """Immediate operands of an ``mma`` or ``wgmma``."""

    sparsity_selector: int = 0
    #: Byte id and thread id that select the block scales of A and of B: byte_a, thread_a, byte_b, thread_b.
    scale_ids: tuple[int, int, int, int] = (0, 0, 0, 0)
    a_in_registers: bool = True  #: ``wgmma``: whether A is read from registers, not from shared memory
    scale_d: bool = True  #: ``wgmma``: whether the old D is added to the product
    #: ``wgmma``: for A and for B, sign (1 or -1) and whether the operand is transposed (1 or 0). See `sptc.wgmma`.
    imm_scale: tuple[int, int] = (1, 1)
    imm_trans: tuple[int, int] = (0, 0)


@dataclass(frozen=True, eq=False)
class HeldOperands:
    """Batch of operands as contents of registers and shared memory, for back ends that do not take matrices."""

    #: Register contents of each operand: ``a``, ``b``, ``c`` (uint32, shape (cases, threads, registers)), and if the
    #: instruction has them ``e``, ``scale_a``, ``scale_b`` (uint32, shape (cases, threads)). For ``wgmma``, `b` is the
    #: image of shared memory (uint8, shape (cases, bytes)), and `a` is missing if A is in shared memory too.
    arrays: dict[str, NDArray[Any]]
    immediates: Immediates = field(default_factory=Immediates)
    descriptors: tuple[int, int] = (0, 0)  #: ``wgmma``: matrix descriptors of A and B in shared memory


@dataclass(frozen=True, eq=False)
class TensorMemoryOperands:
    """Batch of ``tcgen05.mma`` operands as memory contents, for back ends that do not take matrices."""

    opcode: Opcode
    descriptor: InstructionDescriptor  #: Decoded instruction descriptor of the ``tcgen05.mma``
    #: Tensor-memory address or shared-memory descriptor of each operand: ``a``, ``b``, ``d``, and if the instruction
    #: has them ``e``, ``scale_a`` and ``scale_b``.
    addresses: dict[str, int]
    tmem: NDArray[np.uint32]  #: Contents of tensor memory before the instruction, shape (cases, CTAs, 128, 512)
    smem: NDArray[np.uint8]  #: Contents of shared memory, shape (cases, CTAs, bytes)
    enable_input_d: bool = True  #: Whether the old D is added to the product A B
    #: Names of further :func:`sptc.tcgen05_mma` arguments that the caller set and that change the result.
    options: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class MatrixOperands:
    """Batch of operand matrices as codes (bit patterns of elements). Every back end accepts operands in this form."""

    #: Codes of the stored elements of A, shape (batch, m, stored K), one per uint8, uint16 or uint32 (4-bit elements
    #: in the low half of a byte).
    a: NDArray
    b: NDArray  #: Codes of B, of the same type as `a`, shape (batch, K, n)
    c: NDArray  #: Accumulator codes as uint16 or uint32, shape (batch, m, n)
    #: Metadata nibbles of a sparse instruction, shape (batch, m, nibbles per row). Every value from 0 to 15 is allowed.
    nibbles: NDArray[np.uint8] | None = None
    #: Block scales of A, shape (batch, m, K / span), and of B, shape (batch, n, K / span).
    scale_a: NDArray[np.uint8] | None = None
    scale_b: NDArray[np.uint8] | None = None
    #: Register and memory contents from which the matrices were gathered, or None if the caller gave matrices.
    held: HeldOperands | TensorMemoryOperands | None = None

    def take(self, tiles: slice | NDArray[np.intp], rows: slice = slice(None)) -> "MatrixOperands":
        """Return the operands of some matrix products of the batch, with some rows of A, C, metadata and scales of A.

        The arrays are views if both selections are slices.
        """
        return MatrixOperands(
            self.a[tiles, rows],
            self.b[tiles],
            self.c[tiles, rows],
            None if self.nibbles is None else self.nibbles[tiles, rows],
            None if self.scale_a is None else self.scale_a[tiles, rows],
            None if self.scale_b is None else self.scale_b[tiles],
        )

    def steps(self, instruction: Instruction) -> Iterator["MatrixOperands"]:
        """Split a matrix product along K: yield the operands of each instruction, with the C of the whole product."""
        if self.b.shape[1] == instruction.k:
            yield self
            return
        for step in range(self.b.shape[1] // instruction.k):

            def part(values: NDArray[np.uint8] | None, count: int, step: int = step) -> NDArray[np.uint8] | None:
                return None if values is None else values[..., step * count : (step + 1) * count]

            yield replace(
                self,
                a=self.a[..., step * instruction.stored_k : (step + 1) * instruction.stored_k],
                b=self.b[:, step * instruction.k : (step + 1) * instruction.k],
                nibbles=part(self.nibbles, instruction.chunks),
                scale_a=part(self.scale_a, instruction.scale_size or 0),
                scale_b=part(self.scale_b, instruction.scale_size or 0),
                held=None,
            )


@dataclass(frozen=True, eq=False)
class StepFlags:
    """Undefined-metadata flags that the hardware raised in one instruction, or in eight columns of its result D."""

    #: Instruction that the datapath executed. For an emulated instruction: one instruction of the emulation.
    instruction: Instruction
    #: Metadata nibbles of the instruction, shape (batch, m, nibbles per row), or None for a dense instruction.
    nibbles: NDArray[np.uint8] | None
    #: Mask of the undefined metadata nibbles, as flagged by the hardware; shape (batch, m, nibbles per row).
    illegal: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Product:
    """Results of a batch of matrix products. Every back end returns an object of this class."""

    #: Result codes in the format of the accumulator, uint16 or uint32, shape (batch, m, n).
    d: NDArray
    #: Undefined-metadata flags of the instructions, in order of execution, or None if the back end raises no flags.
    flags: tuple[StepFlags, ...] | None = None
    #: Clock cycles from the first instruction that a top-level module accepts to its last result, summed over all runs
    #: from reset. None if the back end does not simulate a top-level module.
    cycles: int | None = None
    #: Tensor memory after the instruction, shape (cases, CTAs, 128, 512); None unless the back end executes
    #: :class:`TensorMemoryOperands`.
    tmem: NDArray[np.uint32] | None = None

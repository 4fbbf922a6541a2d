"""Records that back ends take and return: operands as matrices or as register and memory contents, and results."""

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
    """Immediate operands of an ``mma`` or ``wgmma``.

    Attributes
    ----------
    sparsity_selector : int
        Sparsity selector.
    scale_ids : tuple of int
        Block-scaled kinds: byte_a, thread_a, byte_b, thread_b.
    a_in_registers : bool
        ``wgmma``: A is in registers, not in shared memory.
    scale_d : bool
        ``wgmma``: the old D is added to the product.
    imm_scale, imm_trans : tuple of int
        ``wgmma``: options of A and B, as in :func:`sptc.wgmma`.
    """

    sparsity_selector: int = 0
    scale_ids: tuple[int, int, int, int] = (0, 0, 0, 0)
    a_in_registers: bool = True
    scale_d: bool = True
    imm_scale: tuple[int, int] = (1, 1)
    imm_trans: tuple[int, int] = (0, 0)


@dataclass(frozen=True, eq=False)
class HeldOperands:
    """A batch of operands in registers and shared memory, for a back end that executes the instruction from there.

    Attributes
    ----------
    arrays : dict of str to ndarray
        ``a``, ``b``, ``c`` (uint32, shape (cases, threads, registers)), and if the instruction has them ``e``,
        ``scale_a``, ``scale_b`` (uint32, shape (cases, threads)). For ``wgmma``, `b` is the image of shared memory
        (uint8, shape (cases, bytes)), and `a` is missing if A is in shared memory too.
    immediates : Immediates
        Immediate operands.
    descriptors : tuple of int
        ``wgmma``: matrix descriptors of A and B in the image.
    """

    arrays: dict[str, NDArray[Any]]
    immediates: Immediates = field(default_factory=Immediates)
    descriptors: tuple[int, int] = (0, 0)


@dataclass(frozen=True, eq=False)
class TensorMemoryOperands:
    """A batch of ``tcgen05.mma`` operands in tensor and shared memory, for a back end that executes it from there.

    Attributes
    ----------
    opcode : Opcode
        Opcode with its qualifiers.
    descriptor : InstructionDescriptor
        Decoded instruction descriptor.
    addresses : dict of str to int
        Addresses in tensor memory and descriptors of shared memory: ``a``, ``b``, ``d``, and if the instruction has
        them ``e``, ``scale_a`` and ``scale_b``.
    tmem : ndarray of uint32, shape (cases, CTAs, 128, 512)
        Tensor memory before the instruction.
    smem : ndarray of uint8, shape (cases, CTAs, bytes)
        Shared memory.
    enable_input_d : bool
        The old D is added to the product.
    options : tuple of str
        Other arguments of :func:`sptc.tcgen05_mma` that are set and change the result, by name.
    """

    opcode: Opcode
    descriptor: InstructionDescriptor
    addresses: dict[str, int]
    tmem: NDArray[np.uint32]
    smem: NDArray[np.uint8]
    enable_input_d: bool = True
    options: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class MatrixOperands:
    """A batch of matrices of codes, the operands that every back end takes.

    Attributes
    ----------
    a : ndarray of uint8, uint16 or uint32, shape (batch, m, stored K)
        Stored elements of A, one per container (4-bit elements in the low half of a byte).
    b : ndarray, same type, shape (batch, K, n)
        B.
    c : ndarray of uint16 or uint32, shape (batch, m, n)
        Accumulator codes.
    nibbles : ndarray of uint8, shape (batch, m, K / chunk width), or None
        Metadata of a sparse instruction. Every value from 0 to 15 is allowed.
    scale_a, scale_b : ndarray of uint8, shape (batch, m, K / span) and (batch, n, K / span), or None
        Block scales.
    held : HeldOperands, TensorMemoryOperands or None
        Register and memory contents that the matrices were gathered from; None if there are none.
    """

    a: NDArray
    b: NDArray
    c: NDArray
    nibbles: NDArray[np.uint8] | None = None
    scale_a: NDArray[np.uint8] | None = None
    scale_b: NDArray[np.uint8] | None = None
    held: HeldOperands | TensorMemoryOperands | None = None

    def take(self, tiles: slice | NDArray[np.intp], rows: slice = slice(None)) -> "MatrixOperands":
        """Return part of the batch, with part of the rows of A, C, metadata and scales of A; slices give views."""
        return MatrixOperands(
            self.a[tiles, rows],
            self.b[tiles],
            self.c[tiles, rows],
            None if self.nibbles is None else self.nibbles[tiles, rows],
            None if self.scale_a is None else self.scale_a[tiles, rows],
            None if self.scale_b is None else self.scale_b[tiles],
        )

    def steps(self, instruction: Instruction) -> Iterator["MatrixOperands"]:
        """Yield the operands of each instruction of a chain along K; all have the `c` of the first."""
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
    """Undefined-metadata flags that the hardware raised in one step of a product.

    Attributes
    ----------
    instruction : Instruction
        Instruction that the datapath executed; for an emulated instruction, one of those that emulate it.
    nibbles : ndarray of uint8, shape (tiles, m, chunks), or None
        Metadata of the step; None for a dense instruction.
    illegal : ndarray of bool, shape (tiles, m, chunks)
        Chunks whose nibble the rule of the instruction does not define, as the hardware flags them.
    """

    instruction: Instruction
    nibbles: NDArray[np.uint8] | None
    illegal: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Product:
    """Results of a batch of products, the record that every back end returns.

    Attributes
    ----------
    d : ndarray of uint16 or uint32, shape (batch, m, n)
        Result codes in the format of the accumulator.
    flags : tuple of StepFlags, or None
        Flags of each step, in the order of execution; None from a back end that raises no flags.
    cycles : int or None
        Clock cycles from the first instruction that a top accepts to its last result. If a top starts from reset
        several times, the sum of all runs. None from a back end that does not simulate a top.
    tmem : ndarray of uint32, shape (cases, CTAs, 128, 512), or None
        Tensor memory after the instruction, from a back end that executes :class:`TensorMemoryOperands`.
    """

    d: NDArray
    flags: tuple[StepFlags, ...] | None = None
    cycles: int | None = None
    tmem: NDArray[np.uint32] | None = None

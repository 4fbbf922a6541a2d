"""``mma`` and ``wgmma``: registers of the threads in, registers out, on the golden model unless told otherwise."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..isa.fragments import a_fragment, accumulator_fragment, b_fragment
from ..isa.instructions import Instruction
from ..isa.memory import SharedMap
from .matrix import multiply
from .registers import gather_shared, pack, unpack, unpack_nibbles, unpack_scales

__all__ = ["Multiply", "Scales", "mma", "stored_a", "wgmma"]

#: Computes matrices of codes, with the parameters of :func:`sptc.golden.matrix.multiply`.
Multiply = Callable[..., NDArray]

#: Scale data, uint32 of shape (batch, 32), with its byte id and thread id.
Scales = tuple[NDArray[np.uint32], int, int]


def mma(
    instruction: Instruction,
    arch: str,
    a: NDArray[np.uint32],
    b: NDArray[np.uint32],
    c: NDArray[np.uint32],
    e: NDArray[np.uint32] | None = None,
    selector: int = 0,
    scale_a: Scales | None = None,
    scale_b: Scales | None = None,
    multiply: Multiply = multiply,
) -> NDArray[np.uint32]:
    """Compute one instruction for a batch of warps. Operands are taken as valid.

    Parameters
    ----------
    instruction : Instruction
        Of family ``mma``.
    arch : str
        Architecture whose numerics apply.
    a, b, c : ndarray of uint32, shape (batch, 32, registers)
        Operands as the lanes hold them.
    e : ndarray of uint32, shape (batch, 32), optional
        Metadata of a sparse instruction.
    selector : int
        Sparsity selector.
    scale_a, scale_b : Scales, optional
        Block scales.
    multiply : callable
        What computes the matrices: the golden model, or a back end with the same parameters.

    Returns
    -------
    ndarray of uint32, shape (batch, 32, registers)
    """
    accumulators = accumulator_fragment(instruction)
    d = multiply(
        instruction,
        arch,
        unpack(a, a_fragment(instruction)),
        unpack(b, b_fragment(instruction)),
        unpack(c, accumulators),
        None if e is None else unpack_nibbles(e, instruction, selector),
        None if scale_a is None else unpack_scales(scale_a[0], instruction, "a", *scale_a[1:]),
        None if scale_b is None else unpack_scales(scale_b[0], instruction, "b", *scale_b[1:]),
    )
    return pack(d, accumulators)


def wgmma(
    instruction: Instruction,
    d: NDArray[np.uint32],
    a: NDArray[np.uint32] | SharedMap,
    b: SharedMap,
    smem: NDArray[np.uint8],
    e: NDArray[np.uint32],
    selector: int,
    negate_a: bool = False,
    negate_b: bool = False,
    multiply: Multiply = multiply,
) -> NDArray[np.uint32]:
    """Compute one warpgroup instruction for a batch, D = A B + D. Operands are taken as valid.

    Parameters
    ----------
    instruction : Instruction
        Of family ``wgmma``.
    d : ndarray of uint32, shape (batch, 128, registers)
        Accumulator as the threads hold it.
    a : ndarray of uint32, shape (batch, 128, registers), or SharedMap
        Registers of A, or where A lies in shared memory.
    b : SharedMap
        Where B lies in shared memory.
    smem : ndarray of uint8, shape (batch, bytes)
        Shared-memory image.
    e : ndarray of uint32, shape (batch, 128)
        Metadata.
    selector : int
        Sparsity selector.
    negate_a, negate_b : bool
        Flip the signs of the products (imm-scale -1), floats only. That of B acts behind the selection, where an
        undefined nibble has spliced halves of two tf32 to one; measured on an H200.
    multiply : callable
        As for :func:`mma`.

    Returns
    -------
    ndarray of uint32, shape (batch, 128, registers)
    """
    accumulators = accumulator_fragment(instruction)
    stored = stored_a(instruction, a, smem)
    if negate_a != negate_b:
        stored = stored ^ stored.dtype.type(1 << instruction.container_bits - 1)
    result = multiply(
        instruction,
        "sm_90",
        stored,
        gather_shared(smem, b).swapaxes(1, 2),
        unpack(d, accumulators),
        unpack_nibbles(e, instruction, selector),
    )
    return pack(result, accumulators)


def stored_a(instruction: Instruction, a: NDArray[np.uint32] | SharedMap, smem: NDArray[np.uint8]) -> NDArray:
    """Return the stored elements of A, shape (batch, m, stored k), from registers or shared memory."""
    return gather_shared(smem, a) if isinstance(a, SharedMap) else unpack(a, a_fragment(instruction))

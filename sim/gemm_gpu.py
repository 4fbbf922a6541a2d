"""Blocks of a matrix product as tiles of ``mma.sp`` on a GPU."""

import numpy as np
from numpy.typing import NDArray

from ..errors import BackendError
from ..golden.registers import pack, pack_nibbles, unpack
from ..isa.fragments import a_fragment, accumulator_fragment, b_fragment
from ..isa.instructions import Instruction
from ..operations import mma

__all__ = ["multiply_on_gpu"]


def multiply_on_gpu(
    instruction: Instruction,
    arch: str,
    a: NDArray,
    b: NDArray,
    c: NDArray,
    nibbles: NDArray[np.uint8] | None,
    scale_a: NDArray[np.uint8] | None = None,
    scale_b: NDArray[np.uint8] | None = None,
) -> NDArray:
    """Compute one step of a block on the GPU of this machine.

    Parameters
    ----------
    instruction : Instruction
        Of family ``mma``, sparse, without block scales.
    arch, a, b, c, nibbles, scale_a, scale_b
        As for :func:`sptc.golden.matrix.multiply`, of one batch and of any number of rows and columns.

    Raises
    ------
    BackendError
        Another instruction, or no such GPU.
    """
    if instruction.family != "mma" or scale_a is not None or scale_b is not None or nibbles is None:
        raise BackendError(f"products on back end 'cuda' take mma.sp without block scales, not {instruction}")
    (_, rows, columns), m, n = c.shape, instruction.m, instruction.n
    down, across = -(-rows // m), -(-columns // n)

    def tiles_of_rows(part: NDArray) -> NDArray:
        filled = np.zeros((down * m, part.shape[-1]), part.dtype)
        filled[:rows] = part[0]
        return filled.reshape(down, m, -1)

    whole_b = np.zeros((b.shape[1], across * n), b.dtype)
    whole_b[:, :columns] = b[0]
    whole_c = np.zeros((down * m, across * n), c.dtype)
    whole_c[:rows, :columns] = c[0]
    metadata = tiles_of_rows(nibbles)
    accumulators = accumulator_fragment(instruction)
    d = mma(
        str(instruction),
        pack(tiles_of_rows(a), a_fragment(instruction))[:, None],
        pack(whole_b.reshape(-1, across, n).swapaxes(0, 1), b_fragment(instruction))[None],
        pack(whole_c.reshape(down, m, across, n).swapaxes(1, 2).reshape(-1, m, n), accumulators).reshape(
            down, across, 32, -1
        ),
        pack_nibbles(metadata, instruction, 0, np.zeros((down, 32), np.uint32))[:, None],
        arch=arch,
        backend="cuda",
        metadata="silicon",
    )
    codes = unpack(d.reshape(down * across, 32, -1), accumulators).reshape(down, across, m, n).swapaxes(1, 2)
    return codes.reshape(1, down * m, across * n)[:, :rows, :columns]

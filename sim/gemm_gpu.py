"""Blocks of a matrix product as tiles of ``mma.sp`` or ``wgmma.sp`` on a GPU."""

import numpy as np
from numpy.typing import NDArray

from ..errors import BackendError
from ..golden.registers import pack, pack_nibbles, unpack
from ..isa.fragments import a_fragment, accumulator_fragment, b_fragment
from ..isa.instructions import Instruction
from ..operations import mma
from ..warpgroup import wgmma
from .images import random_image

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
        Sparse, of family ``mma`` or ``wgmma``, without block scales.
    arch, a, b, c, nibbles, scale_a, scale_b
        As for :func:`sptc.golden.matrix.multiply`, of one batch and of any number of rows and columns.

    Raises
    ------
    BackendError
        The instruction is block-scaled, or there is no such GPU.
    """
    if scale_a is not None or scale_b is not None or nibbles is None:
        raise BackendError(f"products on back end 'cuda' take no block scales, as {instruction} has")
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
    tiles_of_b = whole_b.reshape(-1, across, n).swapaxes(0, 1)
    accumulators, threads = accumulator_fragment(instruction), instruction.threads
    registers_of_c = pack(whole_c.reshape(down, m, across, n).swapaxes(1, 2).reshape(-1, m, n), accumulators)
    d = _execute(
        instruction,
        arch,
        pack(tiles_of_rows(a), a_fragment(instruction))[:, None],
        tiles_of_b,
        registers_of_c.reshape(down, across, threads, -1),
        pack_nibbles(tiles_of_rows(nibbles), instruction, 0, np.zeros((down, threads), np.uint32))[:, None],
    )
    codes = unpack(d.reshape(down * across, threads, -1), accumulators).reshape(down, across, m, n).swapaxes(1, 2)
    return codes.reshape(1, down * m, across * n)[:, :rows, :columns]


def _execute(instruction: Instruction, arch: str, a: NDArray, b: NDArray, c: NDArray, e: NDArray) -> NDArray:
    """Run every tile of rows with every one of columns."""
    if instruction.family == "mma":
        registers = pack(b, b_fragment(instruction))[None]
        return mma(str(instruction), a, registers, c, e, arch=arch, backend="cuda", metadata="silicon")
    # Where B lies in shared memory changes nothing: any image will do.
    image = random_image(instruction, {"b": b.swapaxes(1, 2)}, np.random.default_rng(0))
    return wgmma(
        str(instruction),
        c,
        a,
        image.descriptors["b"],
        e,
        0,
        smem=np.ascontiguousarray(image.words).view(np.uint8)[None],
        imm_trans_b=int(image.transposed["b"]),
        backend="cuda",
        metadata="silicon",
    )

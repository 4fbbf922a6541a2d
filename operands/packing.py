"""Pack operands with leading batch axes into registers, shared memory and tensor memory."""

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..isa.fragments import Fragment
from ..isa.instructions import Instruction
from ..isa.memory import SharedMap
from ..isa.operands import MatrixOperands
from ..isa.shared_tile import packed_tile, tile_shape
from .arrangement import Arrangement
from .registers import pack_nibbles, pack_scales, to_registers
from .shared_memory import scatter_shared

__all__ = [
    "common_batch",
    "matrices_to_registers",
    "metadata_to_registers",
    "scales_to_registers",
    "to_shared_memory",
    "to_tensor_memory",
]

#: Period of every swizzle pattern in shared memory, in bytes.
_PATTERN_BYTES = 1024


def common_batch(shapes: dict[str, tuple[int, ...]], owner: str = "") -> tuple[int, ...]:
    """Return the shape to which the batch axes of operands broadcast, or raise an `OperandError`.

    `owner` is a phrase of the message that names the instruction, for example ``" of ldmatrix..."``.
    """
    try:
        return np.broadcast_shapes(*shapes.values())
    except (ValueError, RuntimeError):  # numpy raises a RuntimeError for more than 32 axes
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise OperandError(f"the batch axes of the operands{owner} do not broadcast: {listed}") from None


def matrices_to_registers(matrices: NDArray, fragment: Fragment) -> NDArray[np.uint32]:
    """Return the registers that hold a batch of matrices."""
    lead = matrices.shape[:-2]
    registers = to_registers(matrices.reshape(prod(lead), *matrices.shape[-2:]), fragment)
    return registers.reshape(*lead, *registers.shape[1:])


def metadata_to_registers(i: Instruction, nibbles: NDArray[np.uint8], selector: int) -> NDArray[np.uint32]:
    """Return the metadata register `e` of all threads, shape (..., threads). Bits without metadata are zero."""
    lead = nibbles.shape[:-2]
    zeros = np.zeros((prod(lead), i.threads), np.uint32)
    return pack_nibbles(nibbles.reshape(-1, i.m, i.chunks), i, selector, zeros).reshape(*lead, i.threads)


def scales_to_registers(
    i: Instruction, name: str, codes: NDArray[np.uint8], byte_id: int, thread_id: int
) -> tuple[NDArray[np.uint32], int, int]:
    """Return a tuple: registers with block scales, `byte_id` and `thread_id`. Other bytes of the registers are zero."""
    lead = codes.shape[:-2]
    zeros = np.zeros((prod(lead), 32, 4), np.uint8)
    flat = codes.reshape(prod(lead), *codes.shape[-2:])
    data = pack_scales(flat, i, name.removeprefix("scale_"), (byte_id, thread_id), zeros)
    return data.reshape(*lead, 32), byte_id, thread_id


def to_shared_memory(i: Instruction, operands: dict[str, NDArray], swizzle: str) -> dict[str, Any]:
    """Return the descriptors and the shared memory of ``wgmma`` operands, stored K-major one after another."""
    maps: dict[str, SharedMap] = {}
    descriptors: dict[str, Any] = {}
    end = 0
    for name in operands:
        tile = packed_tile(i, name, swizzle=swizzle, start=end)
        descriptors[name] = tile.encoded("wgmma")
        maps[name] = tile_shape(i, name).map(tile)
        end = -(-int(maps[name].addresses.max() + i.container_bits // 8) // _PATTERN_BYTES) * _PATTERN_BYTES
    lead = common_batch({name: codes.shape[:-2] for name, codes in operands.items()})
    smem = np.zeros((prod(lead), end), np.uint8)
    for name, codes in operands.items():
        scatter_shared(smem, maps[name], np.broadcast_to(codes, (*lead, *codes.shape[-2:])))
    return descriptors | {"smem": smem.reshape(*lead, end)}


def to_tensor_memory(
    where: Arrangement,
    a: NDArray,
    b: NDArray,
    c: NDArray,
    nibbles: NDArray[np.uint8] | None,
    scales: dict[str, tuple[NDArray[np.uint8], int, int] | None],
) -> dict[str, Any]:
    """Pack operands into tensor memory and shared memory. Return :func:`sptc.tcgen05_mma`'s arguments by name."""
    codes = {name: scale and scale[0] for name, scale in scales.items()}
    operands = {"a": a, "b": b, "c": c, "nibbles": nibbles, **codes}
    lead = common_batch({name: array.shape[:-2] for name, array in operands.items() if array is not None})

    def flat(array: NDArray | None) -> Any:
        if array is None:
            return None
        return np.broadcast_to(array, (*lead, *array.shape[-2:])).reshape(prod(lead), *array.shape[-2:])

    images = where.images(MatrixOperands(**{name: flat(array) for name, array in operands.items()}))
    ctas = where.opcode.cta_group
    tmem, smem = (image.reshape(*lead, *image.shape[1:]) for image in images)
    if ctas == 1:
        tmem, smem = tmem[..., 0, :, :], smem[..., 0, :]
    else:
        tmem, smem = np.moveaxis(tmem, -3, 0), np.moveaxis(smem, -2, 0)
    return {"instruction": str(where.opcode), "idesc": where.idesc, "tmem": tmem, "smem": smem, **where.addresses}

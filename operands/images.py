"""Random shared-memory images for ``wgmma``: operands at random addresses, surrounded by random bits."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..isa.instructions import Instruction
from ..isa.memory import SWIZZLES as EVERY_SWIZZLE
from ..isa.memory import UNIT_BYTES, Swizzle, decode_descriptor, encode_descriptor, operand_map
from .registers import CONTAINERS

__all__ = ["Layout", "image", "random_image"]

_SWIZZLES = ("none", "32B", "64B", "128B")
_CORE_MATRIX_BYTES = 128
#: Period of every swizzle pattern in shared memory, in bytes.
_PATTERN_BYTES = 1024
#: Maximum total size in bytes of operands that :func:`random_image` spreads over shared memory: the address space,
#: minus a margin for rounding of addresses and sizes.
_SPREAD_BYTES = (1 << 18) - 4 * _PATTERN_BYTES


@dataclass(frozen=True)
class Layout:
    """Placement of ``wgmma`` operands in shared memory."""

    descriptors: dict[str, int]  #: Matrix descriptors of ``"a"`` and ``"b"``, for the operands in shared memory
    transposed: dict[str, bool]  #: Whether each operand is MN-major
    size: int  #: Size of the shared-memory image in bytes


def random_image(
    instruction: Instruction, operands: dict[str, NDArray], rng: np.random.Generator, *, spread: bool = False
) -> tuple[NDArray[np.uint32], Layout]:
    """Place operands of a ``wgmma`` at random addresses in shared-memory images of random bits.

    Return the words of the shared memory of each case, shape (cases, words), and the placement of the operands.

    `operands` holds the codes of the operands in shared memory: ``"b"``, shape (cases, n, k), and ``"a"``, shape
    (cases, m, stored k), unless A is in registers. For each operand the generator draws swizzle, base offset, leading
    and stride offsets and, for 16-bit types, K-major or MN-major. The bytes between operand elements are random; with
    `spread` the elements may lie anywhere in the shared memory.
    """
    layout = _random_layout(instruction, {name: codes.shape[1:] for name, codes in operands.items()}, rng, spread)
    return image(instruction, operands, layout, rng), layout


def image(
    instruction: Instruction, operands: dict[str, NDArray], layout: Layout, rng: np.random.Generator
) -> NDArray[np.uint32]:
    """Place operands in images of random bits at the addresses in `layout`. Parameters: see :func:`random_image`."""
    cases = len(next(iter(operands.values())))
    octets = rng.integers(0, 256, (cases, layout.size), dtype=np.uint8)
    for name, codes in operands.items():
        containers = np.ascontiguousarray(codes.astype(CONTAINERS[instruction.container_bits]))
        octets[:, _places(instruction, name, layout)] = containers[..., None].view(np.uint8)
    return octets.view("<u4")


def _random_layout(
    instruction: Instruction, shapes: dict[str, tuple[int, ...]], rng: np.random.Generator, spread: bool
) -> Layout:
    layout = Layout({}, {}, 0)
    room = _SPREAD_BYTES // len(shapes) if spread else 0
    end = last = 0
    for name in map(str, rng.permutation(sorted(shapes))):
        layout.transposed[name] = bool(instruction.container_bits == 16 and rng.random() < 0.5)
        swizzle = EVERY_SWIZZLE[str(rng.choice(_SWIZZLES))]
        offsets = _offsets(instruction, shapes[name], swizzle, layout.transposed[name], rng, room)
        start = end + UNIT_BYTES * int(rng.integers(_PATTERN_BYTES // UNIT_BYTES))
        base_offset = int(rng.integers(8)) if rng.random() < 0.5 else 0
        layout.descriptors[name] = encode_descriptor(start, *offsets, swizzle.name, base_offset)
        last = int(_places(instruction, name, layout).max()) + 1
        end = -(-last // _PATTERN_BYTES) * _PATTERN_BYTES
    return replace(layout, size=-(-last // UNIT_BYTES) * UNIT_BYTES)


def _places(instruction: Instruction, name: str, layout: Layout) -> NDArray[np.intp]:
    """Return the shared-memory address of every byte of an operand."""
    descriptor = decode_descriptor(layout.descriptors[name])
    where = operand_map(instruction, name, descriptor, transposed=layout.transposed[name])
    return where.addresses[..., None] + np.arange(instruction.container_bits // 8)


def _offsets(
    instruction: Instruction,
    shape: tuple[int, ...],
    swizzle: Swizzle,
    transposed: bool,
    rng: np.random.Generator,
    room: int,
) -> tuple[int, int]:
    """Choose random leading and stride offsets of a descriptor, in bytes, such that no elements of the operand overlap.

    The swizzle patterns of the operand are adjacent or have gaps. Either offset may be the larger one; an offset that
    the operand does not need is random. If `room` is not zero, the operand with its gaps takes up to `room` bytes.
    """
    mn, k = shape
    inner, outer = (mn, k) if transposed else (k, mn)
    units = -(
        -inner * instruction.container_bits // (8 * UNIT_BYTES) // swizzle.units
    )  # number of swizzle patterns along the contiguous axis of the operand
    patterns = -(-outer // 8)  # number of swizzle patterns along the strided axis of the operand
    step = _CORE_MATRIX_BYTES * swizzle.units
    gap = UNIT_BYTES * int(rng.integers(8)) if rng.random() < 0.5 else 0
    stride_first = bool(rng.integers(2))
    inside, others = (patterns, units) if stride_first else (units, patterns)
    if room:
        gap = UNIT_BYTES * int(rng.integers((room // (inside * others) - step) // UNIT_BYTES))
    near = step + gap
    far = near * inside + UNIT_BYTES * int(rng.integers(4)) if others > 1 else UNIT_BYTES * int(rng.integers(1 << 14))
    if inside == 1:
        near = UNIT_BYTES * int(rng.integers(1 << 14))
    leading, stride = (far, near) if stride_first else (near, far)
    return (stride, leading) if transposed and swizzle.units == 1 else (leading, stride)

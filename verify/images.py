"""Shared-memory images: operands of ``wgmma`` among random bits, wherever descriptors can lead."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..golden.registers import CONTAINERS
from ..isa.instructions import Instruction
from ..isa.memory import SWIZZLES as EVERY_SWIZZLE
from ..isa.memory import UNIT_BYTES, Swizzle, decode_descriptor, encode_descriptor, operand_map

__all__ = ["Image", "random_image"]

_SWIZZLES = ("none", "32B", "64B", "128B")
_CORE_MATRIX_BYTES = 128
#: Bytes after which every swizzle pattern repeats.
_PATTERN_BYTES = 1024


@dataclass(frozen=True, eq=False)
class Image:
    """Operands in shared memory.

    Attributes
    ----------
    words : ndarray of uint32, shape (cases, words)
        The images.
    descriptors : dict of str to int
        Where ``"a"`` and ``"b"`` lie, of those that are held.
    transposed : dict of str to bool
        Which are MN-major.
    """

    words: NDArray[np.uint32]
    descriptors: dict[str, int]
    transposed: dict[str, bool]


def random_image(instruction: Instruction, operands: dict[str, NDArray], rng: np.random.Generator) -> Image:
    """Put operands into images of random bits.

    Parameters
    ----------
    instruction : Instruction
        Of family ``wgmma``.
    operands : dict of str to ndarray
        Containers of ``"a"``, shape (cases, m, stored k), and ``"b"``, shape (cases, n, k), of those to be held.
    rng : Generator
        Draws swizzles, base offsets, offsets that leave gaps, major-ness of 16-bit types, and the bits in between.
    """
    descriptors, transposed, places = {}, {}, {}
    end = 0
    for name in rng.permutation(sorted(operands)):
        transposed[name] = bool(instruction.container_bits == 16 and rng.random() < 0.5)
        swizzle = EVERY_SWIZZLE[str(rng.choice(_SWIZZLES))]
        offsets = _offsets(instruction, operands[name].shape[1:], swizzle, transposed[name], rng)
        start = end + UNIT_BYTES * int(rng.integers(_PATTERN_BYTES // UNIT_BYTES))
        base_offset = int(rng.integers(8)) if rng.random() < 0.5 else 0
        descriptors[name] = encode_descriptor(start, *offsets, swizzle.name, base_offset)
        where = operand_map(instruction, name, decode_descriptor(descriptors[name]), transposed=transposed[name])
        places[name] = where.addresses[..., None] + np.arange(instruction.container_bits // 8)
        end = -(-int(places[name].max() + 1) // _PATTERN_BYTES) * _PATTERN_BYTES
    cases = len(next(iter(operands.values())))
    size = -(-max(int(place.max()) + 1 for place in places.values()) // UNIT_BYTES) * UNIT_BYTES
    octets = rng.integers(0, 256, (cases, size), dtype=np.uint8)
    for name, codes in operands.items():
        containers = np.ascontiguousarray(codes.astype(CONTAINERS[instruction.container_bits]))
        octets[:, places[name]] = containers[..., None].view(np.uint8)
    return Image(octets.view("<u4"), descriptors, transposed)


def _offsets(
    instruction: Instruction, shape: tuple[int, ...], swizzle: Swizzle, transposed: bool, rng: np.random.Generator
) -> tuple[int, int]:
    """Return leading and stride offset that leave no two elements at one place: packed, or with random gaps.

    Either offset may be the longer one; one that is never followed is anything.
    """
    mn, k = shape
    inner, outer = (mn, k) if transposed else (k, mn)
    units = -(-inner * instruction.container_bits // (8 * UNIT_BYTES) // swizzle.units)  # along the leading offset
    patterns = -(-outer // 8)  # along the stride offset
    step = _CORE_MATRIX_BYTES * swizzle.units
    gap = UNIT_BYTES * int(rng.integers(8)) if rng.random() < 0.5 else 0
    stride_first = bool(rng.integers(2))
    inside, others = (patterns, units) if stride_first else (units, patterns)
    near = step + gap
    far = near * inside + UNIT_BYTES * int(rng.integers(4)) if others > 1 else UNIT_BYTES * int(rng.integers(1 << 14))
    if inside == 1:
        near = UNIT_BYTES * int(rng.integers(1 << 14))
    leading, stride = (far, near) if stride_first else (near, far)
    return (stride, leading) if transposed and swizzle.units == 1 else (leading, stride)

"""Sparsity metadata: granularities, nibbles and the rules that make a nibble legal.

A chunk of a row of A is four *units* of B; a nibble holds two 2-bit indices that pick two of them. Stored slot 0
reads the unit ``i0 = nibble & 3``, slot 1 the unit ``i1 = nibble >> 2``. One such multiplexer serves every granularity;
only the size of a unit differs (measured on an H200 for all sixteen nibbles).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "GRANULARITIES",
    "MUX_OF_ARCHITECTURE",
    "RULES",
    "UNITS_PER_CHUNK",
    "Granularity",
    "Rule",
    "indices",
    "is_wide",
    "join_nibbles",
    "nibble",
    "reachable",
    "split_nibbles",
    "swap_for_mux3",
]

UNITS_PER_CHUNK = 4
#: Bits of the wider of the two units.
_WIDE_UNIT_BITS = 16


@dataclass(frozen=True)
class Granularity:
    """How many of how many neighbouring elements of a row of A are stored.

    Attributes
    ----------
    name : str
        ``1:2``, ``2:4`` or ``4:8`` (pair-wise).
    stored, logical : int
        Stored elements of A and logical columns covered by one chunk, that is by one nibble.

    Notes
    -----
    Source: PTX ISA 9.7.14.6.1. For 1:2 (tf32) a unit is half an element, for 4:8 a pair of elements.
    """

    name: str
    stored: int
    logical: int


GRANULARITIES: dict[str, Granularity] = {
    record.name: record for record in (Granularity("1:2", 1, 2), Granularity("2:4", 2, 4), Granularity("4:8", 4, 8))
}


@dataclass(frozen=True)
class Rule:
    """Which nibbles an instruction defines.

    Attributes
    ----------
    name : str
        Key in :data:`RULES`.
    legal : frozenset of int
        The defined nibbles.
    meaning : str
        The rule in words, for messages.
    source : str
        Where the rule is stated.
    """

    name: str
    legal: frozenset[int]
    meaning: str
    source: str


Nibble = TypeVar("Nibble", int, NDArray)


def indices(value: Nibble) -> tuple[Nibble, Nibble]:
    """Split a nibble, or an array of them, into its unit indices ``(i0, i1)``."""
    return value & 3, value >> 2


def nibble(i0: int, i1: int) -> int:
    """Join two unit indices into a nibble."""
    return i0 | i1 << 2


def is_wide(container_bits: int) -> bool:
    """Whether metadata selects units of 16 bits of such elements; of smaller ones, units of 8 bits."""
    return container_bits >= _WIDE_UNIT_BITS


def split_nibbles(octets: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the halves of bytes, lower first, as bytes: shape (..., n) to (..., 2n)."""
    return np.stack([octets & np.uint8(15), octets >> np.uint8(4)], -1).reshape(*octets.shape[:-1], -1)


def join_nibbles(nibbles: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return neighbours as halves of bytes, the inverse of :func:`split_nibbles`: shape (..., 2n) to (..., n)."""
    joined: NDArray[np.uint8] = nibbles[..., ::2] | nibbles[..., 1::2] << np.uint8(4)
    return joined


def swap_for_mux3(value: int) -> bool:
    """Whether a plain nibble's two slots trade places before a selection built from two 3:1 multiplexers.

    Such a pair reads slot 0 from units 0 to 2 and slot 1 from units 1 to 3. Swapping the stored elements
    together with the indices turns the twelve plain nibbles into the seven that it can serve.

    Notes
    -----
    Source: read off the code that the CUDA 13.0 assembler emits for plain ``mma.sp`` on sm_100a and sm_120a.
    """
    n0, n1, n2, n3 = (value >> bit & 1 for bit in range(4))
    return bool(n0 & ~n3 | n1 & ~n2)


#: Operand multiplexers of each architecture: two 4:1 multiplexers, or two 3:1 ones.
MUX_OF_ARCHITECTURE = {
    "sm_80": "mux4",
    "sm_86": "mux4",
    "sm_89": "mux4",
    "sm_90": "mux4",
    "sm_100": "mux3",
    "sm_120": "mux3",
}


def reachable(value: int, rule: str, mux: str) -> tuple[bool, bool]:
    """Return whether the multiplexers deliver a unit to stored slots 0 and 1; a slot without one meets zero.

    Every nibble that `rule` defines is delivered whole. With 3:1 multiplexers some undefined ones are not: slot 0
    does not reach unit 3, nor slot 1 unit 0. That is our inference from the seven nibbles of tcgen05, unmeasured.
    """
    if mux == "mux4":
        return True, True
    i0, i1 = indices(value)
    if rule == "plain" and swap_for_mux3(value):
        return i0 > 0, i1 < UNITS_PER_CHUNK - 1
    return i0 < UNITS_PER_CHUNK - 1, i1 > 0


def _where(keep: Callable[[int, int], bool]) -> frozenset[int]:
    return frozenset(value for value in range(16) if keep(*indices(value)))


RULES: dict[str, Rule] = {
    record.name: record
    for record in (
        Rule(
            "plain",
            _where(lambda i0, i1: i0 != i1),
            "which wants two different indices (i0 = low two bits, i1 = high two bits)",
            "PTX ISA 9.7.14.6.1",
        ),
        Rule(
            "ordered",
            _where(lambda i0, i1: i0 < i1),
            "which wants increasing indices, i0 < i1: 0b0100, 0b1000, 0b1001, 0b1100, 0b1101 or 0b1110",
            "PTX ISA 9.7.14.6.1",
        ),
        Rule(
            "tf32",
            frozenset({0b0100, 0b1110}),
            "which wants 0b0100 (first element) or 0b1110 (second element)",
            "PTX ISA 9.7.14.6.1",
        ),
        Rule(
            "wgmma",
            _where(lambda i0, i1: i0 != i1),
            "which wants two different indices (i0 = low two bits, i1 = high two bits)",
            "PTX ISA 9.7.15.6.1",
        ),
        Rule(
            "tcgen05",
            frozenset(nibble(i0, i1) for i0 in (0, 1, 2) for i1 in (1, 2, 3) if i0 != i1),
            "which wants one of 0b0100, 0b0110, 0b1000, 0b1001, 0b1100, 0b1101 or 0b1110",
            "PTX ISA 9.7.16, sparse matrices",
        ),
    )
}

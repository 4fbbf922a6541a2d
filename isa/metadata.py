"""Sparsity metadata: granularities, nibbles and the rules that make a nibble legal.

A chunk is four *units* along K, of which a row of A stores two. The nibble of the chunk holds two 2-bit indices: stored
slot 0 is multiplied by unit ``i0 = nibble & 3`` of B, slot 1 by unit ``i1 = nibble >> 2``. One multiplexer serves every
granularity; only the size of a unit differs (measured on an H200 for all sixteen nibbles).
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
#: Width in bits of the unit that a metadata index selects if elements have 16 or 32 bits; for others, units are bytes.
_WIDE_UNIT_BITS = 16


@dataclass(frozen=True)
class Granularity:
    """Sparsity pattern: of each group of `logical` neighbouring elements in a row of A, `stored` elements are stored.

    Source: PTX ISA 9.7.14.6.1. For 1:2 (tf32) a unit is half an element, for 4:8 a pair of elements.
    """

    name: str  #: Name of the pattern: ``1:2``, ``2:4`` or ``4:8`` (pair-wise)
    #: Number of stored elements, and number of logical columns, of A that one metadata nibble describes.
    stored: int
    logical: int


GRANULARITIES: dict[str, Granularity] = {
    record.name: record for record in (Granularity("1:2", 1, 2), Granularity("2:4", 2, 4), Granularity("4:8", 4, 8))
}


@dataclass(frozen=True)
class Rule:
    """Rule for metadata: the set of legal nibbles of a group of instructions."""

    name: str  #: Name of the rule, a key in :data:`RULES`
    legal: frozenset[int]  #: Metadata nibbles that are legal under the rule
    meaning: str  #: Text that states the rule, for error messages
    source: str  #: Section of the PTX manual that states the rule


Nibble = TypeVar("Nibble", int, NDArray)


def indices(value: Nibble) -> tuple[Nibble, Nibble]:
    """Split a metadata nibble, or an array of nibbles, into the two indices ``(i0, i1)`` that it contains."""
    return value & 3, value >> 2


def nibble(i0: int, i1: int) -> int:
    """Join two indices, of two bits each, into a metadata nibble."""
    return i0 | i1 << 2


def is_wide(container_bits: int) -> bool:
    """Return whether metadata selects 16-bit parts of B. For elements below 16 bits, it selects 8-bit parts of B."""
    return container_bits >= _WIDE_UNIT_BITS


def split_nibbles(octets: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Split each byte into two nibbles, low half first: shape (..., n) to (..., 2n)."""
    return np.stack([octets & np.uint8(15), octets >> np.uint8(4)], -1).reshape(*octets.shape[:-1], -1)


def join_nibbles(nibbles: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Join pairs of nibbles into bytes, the inverse of :func:`split_nibbles`: shape (..., 2n) to (..., n)."""
    joined: NDArray[np.uint8] = nibbles[..., ::2] | nibbles[..., 1::2] << np.uint8(4)
    return joined


def swap_for_mux3(value: int) -> bool:
    """Return whether a nibble of plain ``mma.sp`` needs an exchange of its two stored elements for 3:1 multiplexers.

    The multiplexer of slot 0 reaches units 0 to 2, that of slot 1 units 1 to 3. Exchanging the stored elements together
    with their indices turns the twelve nibbles of the plain rule into the seven that both multiplexers can select.

    Source: machine code of the CUDA 13.0 assembler for plain ``mma.sp`` on sm_100a and sm_120a.
    """
    n0, n1, n2, n3 = (value >> bit & 1 for bit in range(4))
    return bool(n0 & ~n3 | n1 & ~n2)


#: For each architecture, the multiplexers that select the elements of B for one metadata nibble: ``mux4`` stands for
#: two 4:1 multiplexers, and ``mux3`` for two 3:1 multiplexers.
MUX_OF_ARCHITECTURE = {
    "sm_80": "mux4",
    "sm_86": "mux4",
    "sm_89": "mux4",
    "sm_90": "mux4",
    "sm_100": "mux3",
    "sm_120": "mux3",
}


def reachable(value: int, rule: str, mux: str) -> tuple[bool, bool]:
    """Return, for both indices of a nibble, whether a multiplexer delivers the selected elements of B instead of 0.

    With every nibble that `rule` defines, both units are delivered. An undefined nibble may select a unit that a 3:1
    multiplexer does not reach: unit 3 for slot 0, unit 0 for slot 1. Modelled: inferred from the seven nibbles that are
    legal for tcgen05, not measured.
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
            "which requires two different indices (i0 = low two bits, i1 = high two bits)",
            "PTX ISA 9.7.14.6.1",
        ),
        Rule(
            "ordered",
            _where(lambda i0, i1: i0 < i1),
            "which requires increasing indices, i0 < i1: 0b0100, 0b1000, 0b1001, 0b1100, 0b1101 or 0b1110",
            "PTX ISA 9.7.14.6.1",
        ),
        Rule(
            "tf32",
            frozenset({0b0100, 0b1110}),
            "which requires 0b0100 (first element) or 0b1110 (second element)",
            "PTX ISA 9.7.14.6.1",
        ),
        Rule(
            "wgmma",
            _where(lambda i0, i1: i0 != i1),
            "which requires two different indices (i0 = low two bits, i1 = high two bits)",
            "PTX ISA 9.7.15.6.1",
        ),
        Rule(
            "tcgen05",
            frozenset(nibble(i0, i1) for i0 in (0, 1, 2) for i1 in (1, 2, 3) if i0 != i1),
            "which requires one of 0b0100, 0b0110, 0b1000, 0b1001, 0b1100, 0b1101 or 0b1110",
            "PTX ISA 9.7.16, sparse matrices",
        ),
    )
}

"""Signal widths and result formats that follow from a configuration. A picture shows the bits of a sum.

A step is summed exactly in one two's complement word, the *total*. E is the largest exponent of the terms that
participate and of e_zero; the signal `e_max` is E with the bias of products. F is the number of bits that the step's
format keeps below ``2**E``. Bit 0 of the total has the weight ``2**(E - F)`` and bit F the weight ``2**E``. In `hopper`
the total has 39 bits::

                          333333333222222222211111111110000000000
      bit                 876543210987654321098765432109876543210

    f16, bf16, tf32: F = 25
      total               sccccccccccc21ggggggggggggggggggggggggg
      product of a slot               iiffffffffffffffffffff-----
      accumulator c                    ifffffffffffffffffffffff--

    e4m3, e5m2: F = 13
      total               sccccccccccccccccccccccc21ggggggggggggg
      product of a slot                           iiffffffff-----
      accumulator c                                ifffffffffffff

    s8, u8
      product, c          iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii-----

``s`` is the sign and ``c`` takes the carries of the sum. ``2`` has the weight ``2**(E + 1)`` and ``1`` the weight
``2**E``. ``g`` are the grid bits; the format with the largest F has `grid_bits` of them. The rows of terms show a term
whose exponent is E: ``i`` and ``f`` are its bits above and below the binary point, ``-`` the zeros that pad it. A term
with a smaller exponent is shifted right by the difference, the *shift amount*; bits below bit 0 are dropped.

* A product enters at bit ``Slot.padding`` in every format. It is less than four, so it has two bits above the binary
  point. Below the point it has ``Slot.point`` of operand a plus that of b; bits that a format does not have are zero.
* The accumulator has 24 bits, the highest of them at bit F. Where F is below 23, its last bits are dropped.
* Integers, the accumulator among them, are not shifted; bit `integer_bits` has the weight one.
* Scaled groups of packed e2m1, where F is ``block_alignment_bits``, also have the weight ``2**E`` at bit F, with 11
  bits above the binary point and 8 below it.
* *Headroom* is the limit of the left shift: the exponents from the smallest normal number of the result up to the
  weight of the sign bit. In `hopper` with F = 25 it is E + 13 + 126 for f32 and E + 13 + 14 for f16. For e_zero, the
  smallest E, it is 6 for both.

The sum, extended by one bit below it, is shifted left until its leading digit is the top bit or the shift reaches the
headroom. A negative sum is complemented afterwards. In `hopper` the shifted sum has 40 bits::

                          3333333333222222222211111111110000000000
      bit                 9876543210987654321098765432109876543210
      f32                 1fffffffffffffffffffffffdddddddddddddddd
      f16                 1ffffffffffGSSSSSSSSSSSSSSSSSSSSSSSSSSSS

``1`` is the leading one, ``f`` the fraction, and ``d`` the bits that an f32 drops. ``G`` is *guard*, and *sticky* is
the OR of the bits ``S``, both before the complement. Guard, sticky and the last ``f`` decide the *increment* of an
f16. Widths and bit numbers:

==================================  ======  =========
width or bit number                 hopper  blackwell
==================================  ======  =========
total_bits                              39         49
grid_bits                               25         35
integer_bits                             5          5
term_bits                               28         28
normalised_bits                         40         50
last fraction bit of f32                16         26
last fraction bit of f16                29         39
guard                                   28         38
==================================  ======  =========

For example, a step of f16 on `hopper` has the products 1.5 * 1.5 and (1.5 * 2**-12) * 2**-13, and c = -63 * 2**-10, so
E is 0. The first product is not shifted and enters as ``9 << 23``. The second has the shift amount 25: the leading one
of 1.5 moves from bit 25 to bit 0, and the half is dropped. c has the exponent -5 and enters as ``-63 << 15``. The total
is 73,433,089 with its leading one at bit 26, so it is shifted left by 12. The headroom is 139 for f32 and 27 for f16.
The exponent field is 139 + 1 - 12 = 128 for f32 and 27 + 1 - 12 = 16 for f16. The f32 is 2.1884765625: the one at
bit 0 is dropped. For f16 guard is one; without sticky this would be a tie of 2.1875 and 2.189453125. Sticky is one, so
the f16 is 2.189453125.
"""

from functools import cached_property

from ..isa.formats import FORMATS
from ..isa.numerics import BLOCK_GROUP, zero_exponent_for
from .config import CoreConfig
from .product_group import MAXIMUM_SCALED_GROUP, SCALED_GROUP_BITS, SCALED_GROUP_FRACTION_BITS
from .round import ResultCode
from .slots import Slot, kept_bits

__all__ = ["Widths"]


class Widths:
    """Widths of the signals in all stages of a dot-product unit with a given configuration.

    Attributes
    ----------
    floats, packed, narrow : list of Element
        Element formats whose products are aligned one by one; packed e2m1; and all element formats of 4 bits.
    slots : list of Slot
        Every product slot.
    grid_bits : int
        Number of bits of the exact sum below ``2**E`` for the format with the largest F.
    integer_bits : int
        Number of bits of the exact sum below the bit that has the weight one for integers.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self.floats = [element for element in config.elements if not element.fixed_point]
        self.packed = [element for element in config.elements if element.packed_float]
        self.narrow = [element for element in config.elements if element.container_bits == 4]
        self.slots = [Slot(config, index) for index in range(config.slots)]
        self.integer_bits = self.slots[0].padding
        kept = [kept_bits(config, element) for element in self.floats]
        self.grid_bits = max([*kept, config.block_alignment_bits if self.packed else 0])

    @cached_property
    def results(self) -> frozenset[ResultCode]:
        """Result formats that the configuration's element formats can produce."""
        results: set[ResultCode] = set()
        fp8 = any(e.container_bits == 8 for e in self.floats)
        if any(e.format.is_integer for e in self.config.elements):
            results.add(ResultCode.S32)
        if self.floats or self.packed:
            results.add(ResultCode.F32)
        if fp8 or any(e.format.name == "f16" for e in self.floats):
            results.add(ResultCode.F16)
        if fp8 and self.config.fp8_alignment_bits < self.config.alignment_bits:
            results.add(ResultCode.E8M13)
        return frozenset(results)

    @property
    def term_bits(self) -> int:
        """Width in bits, with sign, of the widest aligned product in any product slot."""
        return max((slot.term_bits for slot in self.slots[: self.config.term_slots]), default=1)

    @property
    def floating(self) -> bool:
        """Whether the configuration has float formats."""
        return bool(self.floats or self.packed)

    @property
    def float_slots(self) -> int:
        """Number of product slots for floats whose products are aligned one by one, without groups."""
        return max((self.config.slots_of(element) for element in self.floats), default=0)

    @property
    def groups(self) -> int:
        """Number of groups of 16 products of 4-bit elements in a dot-product unit."""
        return max((self.config.slots_of(element) for element in self.narrow), default=0) // BLOCK_GROUP

    @property
    def integer_groups(self) -> int:
        """Number of groups of 16 products of 4-bit integers in a dot-product unit."""
        return self.groups if any(element.format.is_integer for element in self.narrow) else 0

    @property
    def scaled_groups(self) -> int:
        """Number of groups of 16 products of packed e2m1, which are scaled and aligned."""
        return self.groups if self.packed else 0

    @property
    def parts(self) -> int:
        """Number of terms that a scaled group (16 products of packed e2m1) adds to the sum.

        A group adds one term, or one term for each part of ``config.group`` products if these parts can be truncated
        separately.
        """
        return BLOCK_GROUP // self.config.group

    @property
    def c_excess_bits(self) -> int:
        """Number of bits above ``2**(E + 1)`` that an accumulator needs if the largest exponent E does not include it.

        E is then the exponent of a scaled group, and the exponent of a product in this group is at most E + 4.
        """
        return 3 if self.parts > 1 else 0

    @property
    def group_term_bits(self) -> int:
        """Width in bits, with sign, of a group sum after scaling and alignment."""
        return SCALED_GROUP_BITS + self.config.block_alignment_bits - SCALED_GROUP_FRACTION_BITS + 1

    @cached_property
    def total_bits(self) -> int:
        """Width in bits, with sign, of the sum of a step (one cycle). Exact sums fit and rounding needs no right shift.

        A left shift must be able to bring the smallest normal number to the top bit even for e_zero, the smallest E.
        """
        config, bound = self.config, 0
        for element in self.config.elements:
            slots, top = config.slots_of(element), (1 << element.significand_bits) - 1
            if element.packed_float:
                grid = config.block_alignment_bits
                groups = slots // BLOCK_GROUP * MAXIMUM_SCALED_GROUP
                largest = (groups << grid - SCALED_GROUP_FRACTION_BITS) + (2 << grid + self.c_excess_bits)
            elif element.format.is_integer:
                largest = (slots * top * top + (1 << 32)) << self.integer_bits
            else:
                grid = kept_bits(config, element)
                unit = grid - 2 * element.format.fraction_bits
                largest = slots * (top * top << unit) + (2 << grid)
            bound = max(bound, largest)
        bits = bound.bit_length() + 1
        if self.floats:
            kept, aligned = max(kept_bits(config, element) for element in self.floats), config.alignment_bits
            floor = config.exponent_floor
            bits = max(bits, _normal_bits("f32", kept, zero_exponent_for(aligned, floor=floor)))
            bits = max(bits, _normal_bits("f16", kept, zero_exponent_for(aligned, half_result=True, floor=floor)))
        if self.packed:
            kept = config.block_alignment_bits
            bits = max(bits, _normal_bits("f32", kept, zero_exponent_for(kept, grouped=True)))
        return bits


def _normal_bits(result: str, kept: int, zero_exponent: int) -> int:
    return kept + 1 + FORMATS[result].minimum_exponent - zero_exponent

"""Product slots of a dot-product unit: the formats that each slot multiplies, and the widths of significands."""

from functools import cached_property

from amaranth.hdl import Shape

from .cells.raw import PRODUCT_EXPONENT_BITS
from .config import CoreConfig, Element

__all__ = ["Slot", "kept_bits"]


def kept_bits(config: CoreConfig, element: Element) -> int:
    """Return F, the number of bits that alignment keeps, for a float format whose products are aligned one by one."""
    return config.fp8_alignment_bits if element.container_bits == 8 else config.alignment_bits


class Slot:
    """One product slot of a dot-product unit, which multiplies one element of A by one element of B per cycle.

    Bit 0 of the sum has the weight ``2**(E - F)``, where F belongs to the format of the step. The product of a slot
    enters the sum at bit `padding` for every format. A format with a smaller F has its significands at lower bits of
    the operands, so that the shifter drops the bits below F. Integers have the lowest bits of the operands and are not
    shifted. :mod:`sptc.rtl.widths` draws the bits.

    Parameters
    ----------
    config : CoreConfig
        The datapath.
    index : int
        Number of the product slot. Slot 0 serves every format.

    Attributes
    ----------
    elements, floats : tuple of Element
        Elements that the slot serves, and the floats among them, except those whose products are summed in groups.
    """

    def __init__(self, config: CoreConfig, index: int) -> None:
        self.config = config
        self.index = index
        self.elements = config.elements_of_slot(index)
        self.floats = tuple(element for element in self.elements if not element.fixed_point)

    @cached_property
    def padding(self) -> int:
        """Position of the lowest bit of a product in the sum of a step (one cycle), if the product is not shifted."""
        integer_place = Slot(self.config, 0).padding if self.index else 0
        if not self.floats:
            return integer_place
        widest = max(element.significand_bits for element in self.elements)
        least = max(0, *(kept_bits(self.config, element) - 2 * (widest - 1) for element in self.floats))
        most = min(kept_bits(self.config, element) - 2 * element.format.fraction_bits for element in self.floats)
        # The padding is the number of bits of the sum below the product. With a padding of `least` or more, no float
        # needs a wider significand than `widest`. With a padding of `most` or less, no float loses fraction bits.
        # Within these limits, the lowest bit of an integer product is at the same position of the sum as in product
        # slot 0, the first multiplier of the unit.
        return min(max(least, integer_place), most)

    def point(self, element: Element, operand: str) -> int:
        """Return how many fraction bits a float's significand has in operand ``a`` or ``b`` of this multiplier."""
        both = kept_bits(self.config, element) - self.padding
        return both // 2 if operand == "a" else both - both // 2

    @cached_property
    def significand_bits(self) -> int:
        """Width in bits of the widest significand that this multiplier takes, without the sign of an integer."""
        integers = [element.significand_bits for element in self.elements if element.fixed_point]
        return max([*integers, *(self.point(element, "b") + 1 for element in self.floats)])

    @property
    def factor(self) -> Shape:
        """Width and sign of the multiplier operands in the product slot: signed if the slot serves signed integers."""
        integers = [element for element in self.elements if element.format.is_integer]
        has_sign = any(element.format.signed for element in integers)
        others = [element.significand_bits for element in self.elements if element.packed_float]
        others += [self.point(element, "b") + 1 for element in self.floats]
        widths = [element.format.bits + (has_sign and not element.format.signed) for element in integers]
        return Shape(max(widths + [bits + has_sign for bits in others]), has_sign)

    @property
    def product_bits(self) -> int:
        """Width in bits, with sign, of a product of this product slot."""
        return min(2 * self.significand_bits + 1, 2 * self.factor.width + (not self.factor.signed))

    @property
    def float_bits(self) -> int:
        """Number of low bits of the sum that a product of floats can occupy. A product of significands is below 4."""
        return max((kept_bits(self.config, element) + 2 for element in self.floats), default=0)

    @property
    def shift_amount_bits(self) -> int:
        """Width in bits of the shift amount. An e_max saturated to this width shifts out all bits of a product."""
        largest = max((2 * ((1 << element.format.exponent_bits) - 1) for element in self.floats), default=0)
        return min((largest + self.float_bits).bit_length(), PRODUCT_EXPONENT_BITS)

    @property
    def integer_shift(self) -> int:
        """Number of bits by which an integer product is shifted left in this product slot, compared with slot 0."""
        return self.padding - Slot(self.config, 0).padding

    @property
    def term_bits(self) -> int:
        """Width in bits, including the sign bit, of the aligned product of this product slot (multiplier)."""
        return self.padding + self.product_bits

"""Product slots: which formats each serves, and where their significands stand, as :mod:`sptc.rtl.widths` draws it."""

from functools import cached_property

from amaranth.hdl import Shape

from .cells.raw import PRODUCT_EXPONENT_BITS
from .config import CoreConfig, Element

__all__ = ["Slot", "kept_bits"]


def kept_bits(config: CoreConfig, element: Element) -> int:
    """Return the bits that a float which is aligned by itself keeps below the largest exponent, e_max (F)."""
    return config.fp8_alignment_bits if element.container_bits == 8 else config.alignment_bits


class Slot:
    """One product slot of a unit.

    Bit 0 of the sum is worth ``2**(E - F)``, whatever F the running format has. So a slot's product always enters at
    one place, `padding`; where F is smaller, the format's significands stand lower in the operands, and what it must
    not keep falls off the bottom of the shifter. Integers stand at the bottom of the operands and are not shifted. The
    picture is in :mod:`sptc.rtl.widths`.

    Parameters
    ----------
    config : CoreConfig
        The datapath.
    index : int
        Which slot; 0 serves every format.

    Attributes
    ----------
    elements, floats : tuple of Element
        What it serves, and the floats among them that are aligned one by one.
    """

    def __init__(self, config: CoreConfig, index: int) -> None:
        self.config = config
        self.index = index
        self.elements = config.elements_of_slot(index)
        self.floats = tuple(element for element in self.elements if not element.fixed_point)

    @cached_property
    def padding(self) -> int:
        """Bits of the sum below the last bit of a product whose shift amount is zero."""
        integer_place = Slot(self.config, 0).padding if self.index else 0
        if not self.floats:
            return integer_place
        widest = max(element.significand_bits for element in self.elements)
        least = max(0, *(kept_bits(self.config, element) - 2 * (widest - 1) for element in self.floats))
        most = min(kept_bits(self.config, element) - 2 * element.format.fraction_bits for element in self.floats)
        # An integer then has the unit that it has in slot 0, unless a float would need a wider multiplier for it.
        return min(max(least, integer_place), most)

    def point(self, element: Element, operand: str) -> int:
        """Return the bits of a significand below the binary point of a float, in operand ``a`` or ``b``."""
        both = kept_bits(self.config, element) - self.padding
        return both // 2 if operand == "a" else both - both // 2

    @cached_property
    def significand_bits(self) -> int:
        """Width of a significand without the sign of an integer."""
        integers = [element.significand_bits for element in self.elements if element.fixed_point]
        return max([*integers, *(self.point(element, "b") + 1 for element in self.floats)])

    @property
    def factor(self) -> Shape:
        """Shape of the significands that are multiplied: those of integers have their sign, if any has one."""
        integers = [element for element in self.elements if element.format.is_integer]
        has_sign = any(element.format.signed for element in integers)
        others = [element.significand_bits for element in self.elements if element.packed_float]
        others += [self.point(element, "b") + 1 for element in self.floats]
        widths = [element.format.bits + (has_sign and not element.format.signed) for element in integers]
        return Shape(max(widths + [bits + has_sign for bits in others]), has_sign)

    @property
    def product_bits(self) -> int:
        """Signed width of a product."""
        return min(2 * self.significand_bits + 1, 2 * self.factor.width + (not self.factor.signed))

    @property
    def float_bits(self) -> int:
        """Bits of the sum, from the lowest, that a float's product can reach: it is smaller than four."""
        return max((kept_bits(self.config, element) + 2 for element in self.floats), default=0)

    @property
    def shift_amount_bits(self) -> int:
        """Width of the shift amount: e_max may saturate in it, since what is farther below is shifted out anyway."""
        largest = max((2 * ((1 << element.format.exponent_bits) - 1) for element in self.floats), default=0)
        return min((largest + self.float_bits).bit_length(), PRODUCT_EXPONENT_BITS)

    @property
    def integer_shift(self) -> int:
        """Places that an integer product stands higher than in slot 0."""
        return self.padding - Slot(self.config, 0).padding

    @property
    def term_bits(self) -> int:
        """Signed width of the aligned product."""
        return self.padding + self.product_bits

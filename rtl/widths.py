"""Widths and result formats that follow from a configuration."""

from functools import cached_property

from ..isa.formats import FORMATS
from ..isa.numerics import BLOCK_GROUP, zero_exponent_for
from .config import CoreConfig
from .product_group import MAXIMUM_SCALED_GROUP, SCALED_GROUP_BITS, SCALED_GROUP_FRACTION_BITS
from .round import ResultCode
from .slots import Slot, kept_bits

__all__ = ["Widths"]


class Widths:
    """What the stages of a unit must be wide enough for.

    Parameters
    ----------
    config : CoreConfig
        The configuration.

    Attributes
    ----------
    floats, packed, narrow : list of Element
        Floats that are aligned one by one; packed e2m1; elements of 4 bits.
    slots : list of Slot
        Every product slot.
    fp8_is_shorter : bool
        8-bit floats keep fewer alignment bits than the others.
    grid_bits : int
        Most bits of the exact sum below the largest exponent; bit 0 of the sum is the last bit that a format keeps.
    integer_bits : int
        Bits of the exact sum below the integer unit.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self.floats = [element for element in config.elements if not element.fixed_point]
        self.packed = [element for element in config.elements if element.packed_float]
        self.narrow = [element for element in config.elements if element.container_bits == 4]
        self.fp8_is_shorter = config.fp8_alignment_bits < config.alignment_bits and any(
            element.container_bits == 8 for element in self.floats
        )
        self.slots = [Slot(config, index) for index in range(config.slots)]
        self.integer_bits = self.slots[0].padding
        kept = [kept_bits(config, element) for element in self.floats]
        self.grid_bits = max([*kept, config.block_alignment_bits if self.packed else 0])

    @cached_property
    def results(self) -> frozenset[ResultCode]:
        """Result formats that the configuration's elements can give."""
        results: set[ResultCode] = set()
        if any(e.format.is_integer for e in self.config.elements):
            results.add(ResultCode.S32)
        if self.floats or self.packed:
            results.add(ResultCode.F32)
        if any(e.format.name == "f16" or e.container_bits == 8 for e in self.floats):
            results.add(ResultCode.F16)
        if self.fp8_is_shorter:
            results.add(ResultCode.E8M13)
        return frozenset(results)

    @property
    def significand_bits(self) -> int:
        """Width of the widest significand, without the sign of an integer."""
        return max(slot.significand_bits for slot in self.slots)

    @property
    def term_bits(self) -> int:
        """Signed width of the widest aligned product."""
        return max((slot.term_bits for slot in self.slots[: self.config.term_slots]), default=1)

    @property
    def floating(self) -> bool:
        """Whether there are exponents at all."""
        return bool(self.floats or self.packed)

    @property
    def float_slots(self) -> int:
        """Slots whose products may be floats that are aligned one by one."""
        return max((self.config.slots_of(element) for element in self.floats), default=0)

    @property
    def groups(self) -> int:
        """Groups of 16 products of 4-bit elements."""
        return max((self.config.slots_of(element) for element in self.narrow), default=0) // BLOCK_GROUP

    @property
    def integer_groups(self) -> int:
        """Groups that are summed as integers."""
        return self.groups if any(element.format.is_integer for element in self.narrow) else 0

    @property
    def scaled_groups(self) -> int:
        """Groups that are scaled and aligned."""
        return self.groups if self.packed else 0

    @property
    def group_term_bits(self) -> int:
        """Signed width of a scaled, aligned group."""
        return SCALED_GROUP_BITS + self.config.block_alignment_bits - SCALED_GROUP_FRACTION_BITS + 1

    @cached_property
    def total_bits(self) -> int:
        """Signed width that holds every exact sum, and in which rounding needs no right shift.

        Shifting a sum left must be able to put the smallest normal number on the top bit, from the smallest exponent
        that a step can have: e_zero.
        """
        config, bound = self.config, 0
        for element in self.config.elements:
            slots, top = config.slots_of(element), (1 << element.significand_bits) - 1
            if element.packed_float:
                grid = config.block_alignment_bits
                groups = slots // BLOCK_GROUP * MAXIMUM_SCALED_GROUP
                largest = (groups << grid - SCALED_GROUP_FRACTION_BITS) + (2 << grid)
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
            bits = max(bits, _reach("f32", kept, zero_exponent_for(aligned)))
            bits = max(bits, _reach("f16", kept, zero_exponent_for(aligned, half_result=True)))
        if self.packed:
            kept = config.block_alignment_bits
            bits = max(bits, _reach("f32", kept, zero_exponent_for(kept, grouped=True)))
        return bits


def _reach(result: str, kept: int, zero_exponent: int) -> int:
    return kept + 1 + FORMATS[result].minimum_exponent - zero_exponent

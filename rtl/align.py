"""The align stage shifts all products and the accumulator to one exponent, and sums products of 4-bit elements."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.numerics import BLOCK_GROUP, PART_OF_GROUP
from .cells.described import DescribedSignature
from .cells.max_exponent import ALIGNED_EXPONENT_BITS, LEAST_EXPONENT, MaxExponent
from .cells.raw import PRODUCT_EXPONENT_BITS
from .cells.shifter import AlignmentShifter
from .codes import is_one_of
from .config import CoreConfig, Element
from .multiply import products_signature
from .product_group import SCALED_GROUP_BITS, SCALED_GROUP_FRACTION_BITS, ProductGroup
from .reduce import addends_signature
from .round import SPECIAL_VALUES
from .scale import ScaleCode
from .slots import Slot
from .step import control_layout
from .unpack import ACCUMULATOR_SIGNIFICAND_BITS
from .widths import Widths

__all__ = ["AlignStage", "aligned_signature"]

_EXPONENT = signed(ALIGNED_EXPONENT_BITS)
#: Exponent of a product of two integers. Each integer has the exponent 1 (:func:`~sptc.rtl.cells.raw.raw_signature`).
_INTEGER_EXPONENT = 2


def aligned_signature(config: CoreConfig) -> DescribedSignature:
    """Return the signature of the align stage's outputs: addends, headroom for the left shift, and special values."""
    headroom = "Exponent of the sum's sign bit minus the exponent of the result format's smallest normal number."
    ports = {"addends": (Out(addends_signature(config)), "Aligned terms.")}
    if Widths(config).floating:
        ports["headroom"] = Out(ALIGNED_EXPONENT_BITS), headroom
        ports |= {name: (Out(1), meaning) for name, meaning in SPECIAL_VALUES.items()}
    return DescribedSignature(ports)


class AlignStage(wiring.Component):
    """Align products and accumulator to e_max, the largest exponent, and sum groups of 16 products. Combinational.

    Source: each term, the accumulator included, is truncated toward zero on its magnitude, without a sticky bit
    (measured on an H200); groups and their scales after published models (modelled).
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self.widths = Widths(config)
        ports = {
            "control": (In(control_layout()), "Control word of the step."),
            "i": (In(products_signature(config)), "Outputs of the multiply stage."),
            "c": (In(signed(33)), "Accumulator; bit 32 is its sign, even if the previous sum exceeded 32 bits."),
            "scale_a": (In(32), "Block scales of A, one byte for each group."),
            "scale_b": (In(32), "Block scales of B, one byte for each group."),
            "o": (Out(aligned_signature(config)), "Aligned terms, headroom and special values."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the shifters that align products, and the groups of 16 products of 4-bit elements."""
        m = Module()
        config, addends = self.config, self.o.addends
        integer = is_one_of(
            config, self.control.a, [e for e in config.elements if e.fixed_point and not e.packed_float]
        )
        # The input `i.e_max` is the largest exponent of products and accumulator, and at least e_zero. This stage sums
        # groups of 16 products and scales the sums. It therefore also compares the groups' exponents with `i.e_max`.
        groups = [self._group(m, f"group{index}", index) for index in range(self.widths.groups)]
        m.d.comb += [port.eq(group.total) for port, group in zip(addends.group_sums, groups, strict=False)]
        e_max = self._align_groups(m, groups[: self.widths.scaled_groups]) if self.widths.floating else Const(0)
        self._align_products(m, integer, e_max)
        if self.widths.floating:
            self._align_c(m, integer, e_max)
        else:
            m.d.comb += addends.c_term.eq(self.c)
        return m

    def _group(self, m: Module, name: str, index: int, first: int = 0, count: int = BLOCK_GROUP) -> ProductGroup:
        """Sum `count` products of a group of 16, from product `first` on; by default all 16 products."""
        m.submodules[name] = group = ProductGroup(self.config, count)
        for position in range(count):
            slot = index * BLOCK_GROUP + first + position
            m.d.comb += group.products[position].eq(self.i.significands[slot])
            if self.widths.packed:
                m.d.comb += group.signs[position].eq(self.i.signs[slot])
        if self.config.scales:
            m.d.comb += [
                group.scale.eq(self.control.scale),
                group.scale_a.eq(self.scale_a.word_select(index, 8)),
                group.scale_b.eq(self.scale_b.word_select(index, 8)),
            ]
        return group

    def _align_groups(self, m: Module, groups: list[ProductGroup]) -> Value:
        """Find the largest exponent e_max, align scaled sums of 16 products, and drive outputs that need e_max."""
        packed = is_one_of(self.config, self.control.a, self.widths.packed)
        e_max, nan, separate = self.i.e_max, self.i.nan, Signal()
        if groups:
            if self.widths.parts > 1:
                m.d.comb += separate.eq(packed & self._truncates_parts(groups))
                e_max = Mux(separate, LEAST_EXPONENT, e_max)
            m.submodules.e_max = tree = MaxExponent(len(groups) + 1, _EXPONENT)
            exponents = [*(Mux(packed & group.participates, group.exponent, LEAST_EXPONENT) for group in groups), e_max]
            m.d.comb += [port.eq(value) for port, value in zip(tree.exponents, exponents, strict=True)]
            e_max = tree.e_max
            nan = nan | (packed & Cat(group.nan for group in groups).any())
        # If e_max, the largest exponent, leaves out the exponent of a group of 16 products, the group's magnitude is
        # zero, so its shift amount does not matter. The picture shows the term of a group whose exponent is e_max, for
        # F = 35 alignment bits (i: integer bits, f: fraction bits, -: zeros):
        #
        #     bit of the term     45       35 34    27 26                       0
        #     magnitude           iiiiiiiiiii ffffffff ---------------------------
        padding = self.config.block_alignment_bits - SCALED_GROUP_FRACTION_BITS
        terms = [
            (index, sign, magnitude)
            for index, group in enumerate(groups)
            for sign, magnitude in self._parts(m, index, group, separate)
        ]
        for number, (index, sign, magnitude) in enumerate(terms):
            m.submodules[f"align_group{number}"] = align = AlignmentShifter(
                SCALED_GROUP_BITS, padding, ALIGNED_EXPONENT_BITS - 1
            )
            negative = packed & sign
            m.d.comb += [
                align.magnitude.eq(Mux(packed, magnitude, 0)),
                align.shift_amount.eq(e_max - groups[index].exponent),
                self.o.addends.group_terms[number].eq(_complement(align.output, negative)),
                self.o.addends.group_increments[number].eq(negative),
            ]
        m.d.comb += [
            self.o.headroom.eq(e_max + self.i.headroom_offset),
            self.o.nan.eq(nan),
            self.o.positive_inf.eq(self.i.positive_inf),
            self.o.negative_inf.eq(self.i.negative_inf),
        ]
        return e_max

    def _truncates_parts(self, groups: list[ProductGroup]) -> Value:
        """Return whether the parts of a sum of 16 products are truncated one by one, and not together.

        This is the case with ue4m3 scales if a product, including its scales, has a larger exponent than accumulator c.
        """
        c_exponent = self.i.c_grid_exponent + self.widths.c_excess_bits
        larger = [
            group.participates & (group.exponent + exponent > c_exponent)
            for group, exponent in zip(groups, self.i.group_exponents, strict=True)
        ]
        return (self.control.scale == ScaleCode.UE4M3) & Cat(larger).any()

    def _parts(self, m: Module, index: int, group: ProductGroup, separate: Value) -> list[tuple[Value, Value]]:
        """Return the signs and magnitudes of sums: four sums of four products if `separate` is 1, else a sum of 16."""
        if self.widths.parts == 1:
            return [(group.sign, group.magnitude)]
        firsts = range(0, BLOCK_GROUP, PART_OF_GROUP)
        parts = [self._group(m, f"group{index}_part{first}", index, first, PART_OF_GROUP) for first in firsts]
        whole = [(group.sign, group.magnitude)] + [(Const(0), Const(0))] * (len(parts) - 1)
        return [
            (Mux(separate, part.sign, sign), Mux(separate, part.magnitude, magnitude))
            for part, (sign, magnitude) in zip(parts, whole, strict=True)
        ]

    def _align_products(self, m: Module, integer: Value, e_max: Value) -> None:
        narrow = is_one_of(self.config, self.control.a, self.widths.narrow)
        largest: dict[tuple[Element, ...], Value] = {}
        for slot in self.widths.slots[: self.config.term_slots]:
            significand = self.i.significands[slot.index][: slot.product_bits].as_signed()
            if self.widths.narrow:  # products of 4-bit elements are summed in groups, so their single terms are zero
                significand = Mux(narrow, 0, significand)
            # A product of integers is not shifted: bit 0 of the product is at bit `integer_bits` of the term. In a
            # product slot for floats of at most 8 bits, a product of floats gets more zeros as padding than a product
            # of integers (i: integer bits, f: fraction bits, -: zeros):
            #
            #     float       iiffffffffffff-----------    `padding` zeros, if its exponent equals e_max
            #     integer           iiiiiiii-----          `padding - integer_shift` zeros
            integer_term = Cat(Const(0, slot.padding - slot.integer_shift), significand).as_signed()
            term = self.o.addends.terms[slot.index]
            if not slot.floats:
                m.d.comb += term.eq(integer_term)
                continue
            if slot.floats not in largest:
                largest[slot.floats] = self._largest(m, slot, e_max)
            aligned = self._align_product(m, slot, significand[:-1], largest[slot.floats])
            negative = self.i.signs[slot.index] & ~narrow
            m.d.comb += self.o.addends.increments[slot.index].eq(negative)
            if slot.integer_shift:
                m.d.comb += term.eq(Mux(integer, integer_term, _complement(aligned, negative)))
            else:
                # The shifter passes a product of integers unchanged: its exponent and `largest` are both two, so the
                # shift amount is zero. The sign of a product of integers is the top bit of the significand, which is
                # zero for floats.
                m.d.comb += term.eq(Cat(aligned ^ negative.replicate(len(aligned)), negative | significand[-1]))

    def _largest(self, m: Module, slot: Slot, e_max: Value) -> Value:
        """Return e_max (largest exponent) for multipliers with formats of `slot`, clamped to the shift amount's width.

        In a step with another format than the float formats of these slots, return the exponent of integers instead.
        Integers are then not shifted, and the shift amounts of unused slots do not toggle with e_max (the largest
        exponent).
        """
        bits, low = slot.shift_amount_bits, e_max[:PRODUCT_EXPONENT_BITS]
        largest = Signal(bits, name=f"largest_of_{len(slot.floats)}_floats")
        # Some product slots take only two float formats, e4m3 and e5m2, such as product slot 16 of `hopper`. Their
        # product exponents are at most 62, and their products reach 15 bits of the sum. Seven bits suffice for their
        # shift amounts: an e_max above 127 is replaced by 127. The smallest shift amount is then 127 - 62 = 65, which
        # shifts every bit out.
        saturated = low[:bits] | low[bits:].any().replicate(bits)
        m.d.comb += largest.eq(Mux(is_one_of(self.config, self.control.a, slot.floats), saturated, _INTEGER_EXPONENT))
        return largest

    def _align_product(self, m: Module, slot: Slot, magnitude: Value, e_max: Value) -> Value:
        m.submodules[f"align{slot.index}"] = align = AlignmentShifter(
            len(magnitude), slot.padding, slot.shift_amount_bits, slot.float_bits
        )
        m.d.comb += [align.magnitude.eq(magnitude), align.shift_amount.eq(e_max - self.i.exponents[slot.index])]
        return align.output

    def _align_c(self, m: Module, integer: Value, e_max: Value) -> None:
        # If the accumulator has the largest exponent, the leading bit of its significand has the weight of e_max. A
        # smaller exponent shifts the significand right (f: fraction bits, -: zeros):
        #
        #     bit of the term      grid_bits               padding      0
        #     significand of c     1fffffffffffffffffffffff-------------
        # `grid_bits` is the largest F (number of alignment bits) of all element formats. For a format with a smaller F,
        # `c_grid_exponent` is smaller by the difference, which shifts the accumulator further right by as many bits.
        # `c_grid_exponent` is also smaller by `c_excess_bits`. The accumulator needs these bits above 2**(e_max + 1) if
        # its exponent exceeds an e_max that does not include the accumulator.
        padding = self.widths.grid_bits + 1 + self.widths.c_excess_bits - ACCUMULATOR_SIGNIFICAND_BITS
        m.submodules.align_c = align = AlignmentShifter(
            ACCUMULATOR_SIGNIFICAND_BITS, padding, ALIGNED_EXPONENT_BITS - 1
        )
        negative = self.i.c_sign & ~integer
        m.d.comb += [
            align.magnitude.eq(self.i.c_significand),
            align.shift_amount.eq(e_max - self.i.c_grid_exponent),
            self.o.addends.c_increment.eq(negative),
            self.o.addends.c_term.eq(
                Mux(integer, self.c << self.widths.integer_bits, _complement(align.output, negative))
            ),
        ]


def _complement(magnitude: Value, negative: Value) -> Value:
    """Return a signed term: a sign bit above the magnitude, or above its one's complement if `negative` is set.

    The reduce stage adds an increment of one, which completes the two's complement and causes no delay in the adder
    tree.
    """
    return Cat(magnitude ^ negative.replicate(len(magnitude)), negative).as_signed()

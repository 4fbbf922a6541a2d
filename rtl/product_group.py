"""Groups of 16 products of 4-bit elements: their exact sum, multiplied by the block scales for packed e2m1."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.numerics import BLOCK_GROUP
from .cells.carry_save_tree import CarrySaveTree, sum_bits
from .cells.described import DescribedSignature
from .cells.max_exponent import ALIGNED_EXPONENT_BITS, MaxExponent
from .config import CoreConfig
from .scale import GROUP_SCALE_FRACTION_BITS, GroupScale, ScaleCode

__all__ = [
    "GROUP_EXPONENT_BITS",
    "GROUP_PRODUCT_BITS",
    "GROUP_SUM_BITS",
    "MAXIMUM_SCALED_GROUP",
    "SCALED_GROUP_BITS",
    "SCALED_GROUP_FRACTION_BITS",
    "GroupExponent",
    "ProductGroup",
]

#: Width in bits, with sign, of a product of two 4-bit elements.
GROUP_PRODUCT_BITS = 9
_PACKED_MAXIMUM = 12  #: largest magnitude of e2m1 (6), in units of 1/2
_SCALE_MAXIMUM = 15  #: largest significand of a ue4m3 scale (15/8), in units of 1/8

#: Width in bits, with sign, of the sum of 16 products of 4-bit elements.
GROUP_SUM_BITS = sum_bits(GROUP_PRODUCT_BITS, BLOCK_GROUP)
#: Largest magnitude of a scaled group sum, in units of its lowest bit.
MAXIMUM_SCALED_GROUP = BLOCK_GROUP * _PACKED_MAXIMUM**2 * _SCALE_MAXIMUM**2
SCALED_GROUP_BITS = MAXIMUM_SCALED_GROUP.bit_length()
#: Number of fraction bits of a scaled group sum: two bits from products of e2m1 elements, which are multiples of one
#: half, and the other bits from the two block scales.
SCALED_GROUP_FRACTION_BITS = 2 + GROUP_SCALE_FRACTION_BITS
#: Width in bits of the largest exponent of 16 products of e2m1 elements. This exponent is 0 to 4.
GROUP_EXPONENT_BITS = 3


class ProductGroup(wiring.Component):
    """Sum up to 16 products of 4-bit elements exactly, and multiply the sum by its block scales. Combinational.

    ``total = sum of the products``. The scaled group is total / 4 times both block scales, not normalised:
    ``(-1)**sign * magnitude * 2**(exponent - 8)``.

    Source: published models of kinds mxf4 and mxf4nvf4 (modelled).

    Parameters
    ----------
    config : CoreConfig
        The datapath. If it has no block scales, only `total` is built.
    count : int, optional
        Number of products.
    """

    def __init__(self, config: CoreConfig, count: int = BLOCK_GROUP) -> None:
        self.config = config
        self.count = count
        self.total_bits = sum_bits(GROUP_PRODUCT_BITS, count)
        self.magnitude_bits = (MAXIMUM_SCALED_GROUP * count // BLOCK_GROUP).bit_length()
        products = "Products of the significands. Products of integers are signed."
        participates = "At least one product and both scales are nonzero: e_max includes exponent, even if total is 0."
        ports = {
            "signs": (In(count), "Signs of the products of floats."),
            "products": (In(signed(GROUP_PRODUCT_BITS)).array(count), products),
            "scale": (In(ScaleCode), "Format of the group's block scales."),
            "scale_a": (In(8), "Block scale of A."),
            "scale_b": (In(8), "Block scale of B."),
            "total": (Out(signed(self.total_bits)), "Exact sum of the products."),
            "participates": (Out(1), participates),
            "sign": (Out(1), "Sign of the scaled group."),
            "magnitude": (Out(self.magnitude_bits), "Magnitude of the scaled group."),
            "exponent": (Out(signed(ALIGNED_EXPONENT_BITS)), "Exponent of the scaled group."),
            "nan": (Out(1), "One of the two block scales is NaN."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the carry-save tree that sums the products, and the multiplication of the sum by the block scales."""
        m = Module()
        m.submodules.tree = tree = CarrySaveTree([GROUP_PRODUCT_BITS] * self.count, self.total_bits)
        total = Signal(signed(self.total_bits))
        for term, product, sign in zip(tree.terms, self.products, self.signs, strict=True):
            m.d.comb += term.eq(product ^ sign.replicate(GROUP_PRODUCT_BITS))
        m.d.comb += [
            tree.increments.eq(self.signs),
            total.eq(tree.word0 + tree.word1 + tree.carry),
            self.total.eq(total),
        ]
        if not self.config.scales:
            return m
        m.submodules.scales = scales = GroupScale(self.config)
        # Positions of the bits in the multiplication of a sum of 16 products by its block scales (i: integer bits, f:
        # fraction bits):
        #
        #     unsigned_total         iiiiiiiiii.ff             12 bits: at most 16 * 12**2, in quarters
        #     scales.significand             ii.ffffff          8 bits: at most 15**2, in 64ths
        #     magnitude             iiiiiiiiiii.ffffffff       19 bits
        unsigned_total = Signal(self.total_bits - 1)
        m.d.comb += [
            scales.scale.eq(self.scale),
            scales.scale_a.eq(self.scale_a),
            scales.scale_b.eq(self.scale_b),
            unsigned_total.eq(Mux(total < 0, -total, total)),
            self.sign.eq(total < 0),
            self.magnitude.eq(unsigned_total * scales.significand),
            self.exponent.eq(scales.exponent),
            self.nan.eq(scales.nan),
            self.participates.eq(
                Cat(product.any() for product in self.products).any() & (scales.significand != Const(0))
            ),
        ]
        return m


class GroupExponent(wiring.Component):
    """Find the largest exponent of 16 products of packed e2m1 elements, without block scales. Combinational.

    This component exists only in a datapath that can truncate parts of a group separately. The exponent determines
    whether parts are truncated separately (:attr:`sptc.isa.numerics.Numerics.group`). Source: a published model of kind
    mxf4nvf4 (modelled).
    """

    def __init__(self) -> None:
        operand = In(_PACKED_MAXIMUM.bit_length()).array(BLOCK_GROUP)
        exponent = "Largest exponent of the nonzero products; 0 if all products are zero."
        ports = {
            "a": (operand, "Magnitudes of the elements of A, in halves."),
            "b": (operand, "Magnitudes of the selected elements of B, in halves."),
            "exponent": (Out(GROUP_EXPONENT_BITS), exponent),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the adders of the elements' exponents, and the tree that finds the largest sum."""
        m = Module()
        m.submodules.largest = tree = MaxExponent(BLOCK_GROUP, unsigned(GROUP_EXPONENT_BITS))
        for port, a, b in zip(tree.exponents, self.a, self.b, strict=True):
            # Magnitudes of e2m1 elements in halves (binary), their values, and exponents:
            #
            #     0001, 0010, 0011     0.5, 1, 1.5     exponent 0
            #     0100, 0110           2, 3            exponent 1
            #     1000, 1100           4, 6            exponent 2
            exponents = [Cat(magnitude[2] & ~magnitude[3], magnitude[3]) for magnitude in (a, b)]
            m.d.comb += port.eq(Mux(a.any() & b.any(), exponents[0] + exponents[1], 0))
        m.d.comb += self.exponent.eq(tree.e_max)
        return m

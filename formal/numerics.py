"""Widths and bit positions of a dot-product unit's addends, derived from the numerics rules, not from the hardware.

Claims compare the widths and positions in the hardware with those of this module. Only :func:`total_bits` reads a width
from the hardware. Bit 0 of the sum has the weight ``2**(E - F)``: E is the largest exponent, and F the number of bits
that the step's element format keeps below ``2**E``. Example: products of a slot whose lowest product bit is bit 5 of
the sum, in a datapath with F = 25 for f16 and F = 13 for e4m3::

                     222222211111111110000000000
    bit              654321098765432109876543210
    f16, F = 25      iiffffffffffffffffffff-----
    e4m3, F = 13                 iiffffffff-----
    s8                    iiiiiiiiiiiiiiiii-----

``i`` are bits above the binary point, ``f`` are bits below it that the product may have, and ``-`` are zeros.
"""

from amaranth.hdl import Shape, signed

from ..isa.formats import FORMATS
from ..isa.numerics import BLOCK_GROUP
from ..rtl.config import CoreConfig, Element
from ..rtl.reduce import addends_signature
from ..rtl.round import ResultCode

__all__ = [
    "ACCUMULATOR_BITS",
    "ALIGNED_EXPONENT",
    "EXPONENT_BITS",
    "LARGEST_PACKED_EXPONENT",
    "LARGEST_SCALED_GROUP",
    "SCALED_GROUP_FRACTION_BITS",
    "c_excess_bits",
    "float_slots",
    "grid_bits",
    "groups",
    "integer_place",
    "is_floating",
    "kept_bits",
    "largest_product",
    "multiplier",
    "parts",
    "point",
    "product_bits",
    "product_place",
    "results",
    "total_bits",
]

#: Width in bits of the widest exponent field of an element format.
EXPONENT_BITS = FORMATS["f32"].exponent_bits
#: Width in bits of an accumulator's significand, with the hidden bit.
ACCUMULATOR_BITS = FORMATS["f32"].fraction_bits + 1
#: Signal shape of exponents that include format biases and block scales, such as the largest exponent of a step.
ALIGNED_EXPONENT = signed(EXPONENT_BITS + 3)
#: Number of fraction bits of a sum of e2m1 products times two ue4m3 scales: two of a product, and three of each scale.
SCALED_GROUP_FRACTION_BITS = 2 + 2 * FORMATS["ue4m3"].fraction_bits
#: Largest magnitude of a sum of 16 e2m1 products times two ue4m3 scales, in units of its lowest bit: each product is
#: 6 * 6, and each scale has significand 15/8.
LARGEST_SCALED_GROUP = BLOCK_GROUP * 12**2 * 15**2
#: Largest exponent of a product of two packed e2m1: the largest e2m1 is 6, whose exponent is 2.
LARGEST_PACKED_EXPONENT = 2 + 2


def is_floating(config: CoreConfig) -> bool:
    """Return whether a datapath has floating-point formats."""
    return any(not element.format.is_integer for element in config.elements)


def results(config: CoreConfig) -> frozenset[ResultCode]:
    """Return the result codes that instructions with a datapath's formats need for the types of D that PTX allows.

    Products of floats can have an f32 result; products of f16 and of 8-bit floats can also have an f16 result. Products
    of 8-bit floats that keep fewer bits than other formats can have an f32 result with 13 fraction bits.
    """
    codes = {ResultCode.S32 if element.format.is_integer else ResultCode.F32 for element in config.elements}
    aligned = [element for element in config.elements if not element.fixed_point]
    if any(element.format.name == "f16" or element.container_bits == 8 for element in aligned):
        codes.add(ResultCode.F16)
    if any(kept_bits(config, element) < config.alignment_bits for element in aligned):
        codes.add(ResultCode.E8M13)
    return frozenset(codes)


def total_bits(config: CoreConfig) -> int:
    """Return the width of a dot-product unit's sum in bits, read from a port of the reduce stage."""
    return Shape.cast(addends_signature(config).members["c_term"].shape).width


def kept_bits(config: CoreConfig, element: Element) -> int:
    """Return F, the number of bits below the addends' largest exponent that alignment keeps of a float addend."""
    if element.packed_float:
        return config.block_alignment_bits
    return config.fp8_alignment_bits if element.container_bits == 8 else config.alignment_bits


def grid_bits(config: CoreConfig) -> int:
    """Return the largest F (number of alignment bits) of all float formats, or zero without float formats."""
    return max((kept_bits(config, element) for element in config.elements if not element.format.is_integer), default=0)


def float_slots(config: CoreConfig) -> int:
    """Return the maximum number of float products that a dot-product unit aligns one by one, not as sums of 16."""
    return max((config.slots_of(element) for element in config.elements if not element.fixed_point), default=0)


def groups(config: CoreConfig) -> int:
    """Return the number of groups of 16 products of 4-bit elements that a dot-product unit computes per cycle."""
    narrow = [element for element in config.elements if element.container_bits == 4]
    return max(map(config.slots_of, narrow), default=0) // BLOCK_GROUP


def parts(config: CoreConfig) -> int:
    """Return into how many parts a datapath can split a sum of 16 scaled products to truncate each part on its own."""
    return BLOCK_GROUP // config.group


def c_excess_bits(config: CoreConfig) -> int:
    """Return by how many bits the accumulator's exponent can exceed e_max, the exponent to which addends are aligned.

    This is possible only while parts of groups are truncated separately. Some product then has a larger exponent than
    the accumulator, but the largest exponent of the step includes only the exponents of block scales.
    """
    return LARGEST_PACKED_EXPONENT - 1 if parts(config) > 1 else 0


def product_place(config: CoreConfig, index: int) -> int:
    """Return at which bit of the sum the lowest bit of a multiplier's product is before the alignment shift.

    The position is at most ``F - 2 * fraction bits`` of each float format, so that no product loses fraction bits. It
    is high enough that no float needs a wider significand than the widest element. Between these limits, the lowest bit
    of an integer has the same position as in slot 0.
    """
    integers = product_place(config, 0) if index else 0
    elements = config.elements_of_slot(index)
    floats = [element for element in elements if not element.fixed_point]
    if not floats:
        return integers
    fraction_bits = max(element.significand_bits for element in elements) - 1
    lowest = max(kept_bits(config, element) for element in floats) - 2 * fraction_bits
    highest = min(kept_bits(config, element) - 2 * element.format.fraction_bits for element in floats)
    return min(max(lowest, integers, 0), highest)


def integer_place(config: CoreConfig) -> int:
    """Return the position, in a sum of integers, of the bit with weight one."""
    return product_place(config, 0)


def point(config: CoreConfig, index: int, element: Element, operand: str) -> int:
    """Return the number of fraction bits of a float's significand in operand ``a`` or ``b`` of a multiplier."""
    of_product = kept_bits(config, element) - product_place(config, index)
    return of_product // 2 + (of_product % 2 if operand == "b" else 0)


def multiplier(config: CoreConfig, index: int) -> tuple[int, Shape]:
    """Return the width of a multiplier's significands without sign, and the signal shape of the multiplier's inputs."""
    elements = config.elements_of_slot(index)
    bits = {
        element: element.significand_bits if element.fixed_point else point(config, index, element, "b") + 1
        for element in elements
    }
    signs = any(element.format.is_integer and element.format.signed for element in elements)
    # The width of a signed integer includes its sign bit. Other significands need one more bit if the multiplier is
    # signed.
    shapes = [
        width + (signs and not (element.format.is_integer and element.format.signed)) for element, width in bits.items()
    ]
    return max(bits.values()), Shape(max(shapes), signs)


def product_bits(config: CoreConfig, index: int) -> int:
    """Return the width in bits, with sign, of the products of the multiplier of slot `index`."""
    significand, factor = multiplier(config, index)
    return min(2 * significand + 1, 2 * factor.width + (not factor.signed))


def largest_product(config: CoreConfig, element: Element) -> int:
    """Return the largest magnitude of a product of two significands, at least one of which has the given format."""
    if element.format.is_integer:
        alike = [e for e in config.elements if e.format.is_integer and e.container_bits == element.container_bits]
        return _largest_magnitude(element) * max(map(_largest_magnitude, alike))
    return _largest_magnitude(element) ** 2


def _largest_magnitude(element: Element) -> int:
    signed_integer = element.format.is_integer and element.format.signed
    return 1 << element.format.bits - 1 if signed_integer else (1 << element.significand_bits) - 1

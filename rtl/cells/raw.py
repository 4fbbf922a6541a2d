"""Raw (unpacked) form of an operand and of a product of two operands. The form is the same for all element formats."""

from amaranth.hdl import signed
from amaranth.lib.wiring import Member, Out

from .described import DescribedSignature

__all__ = ["EXPONENT_BITS", "PRODUCT_EXPONENT_BITS", "product_signature", "raw_signature"]

#: Width of a biased exponent in bits, for the widest element formats.
EXPONENT_BITS = 8
#: Width of the sum of two biased element exponents in bits.
PRODUCT_EXPONENT_BITS = EXPONENT_BITS + 1


def raw_signature(significand: int) -> DescribedSignature:
    """Return the signature of an unpacked operand, with `significand` bits of significand. All members are outputs."""
    meaning = (
        "Significand. For a float, it includes the hidden bit, and Slot defines its binary point. For an integer, the "
        "binary point is below bit 0. Undefined for Inf and NaN, which determine the result without it."
    )
    exponent = Out(EXPONENT_BITS), "Exponent with the format's own bias; 1 for subnormals and integers."
    return _signature(exponent, (Out(signed(significand + 1)), meaning))


def product_signature(significand: int) -> DescribedSignature:
    """Return the signature of a product of operands with `significand` significand bits. All members are outputs."""
    meaning = "Exact product, not normalised, with as many bits below the binary point as both operands have together."
    exponent = Out(PRODUCT_EXPONENT_BITS), "Sum of the biased exponents."
    return _signature(exponent, (Out(signed(2 * significand + 1)), meaning))


def _signature(exponent: tuple[Member, str], significand: tuple[Member, str]) -> DescribedSignature:
    return DescribedSignature(
        {
            "sign": (Out(1), "Set for negative floats; an integer has its sign in the significand."),
            "exponent": exponent,
            "significand": significand,
            "zero": (Out(1), "The value is zero; undefined for a product that is NaN."),
            "special": (Out(1), "The value is Inf or NaN."),
            "inf": (Out(1), "The value is Inf."),
            "nan": (Out(1), "The value is NaN."),
        }
    )

"""The raw form of an unpacked operand and of a product of two, which is the same for all formats."""

from amaranth.hdl import signed
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

__all__ = ["EXPONENT_BITS", "PRODUCT_EXPONENT_BITS", "product_signature", "raw_signature"]

#: Width of a biased exponent in the widest formats.
EXPONENT_BITS = 8
#: Width of the sum of two biased exponents.
PRODUCT_EXPONENT_BITS = EXPONENT_BITS + 1


def raw_signature(significand: int) -> wiring.Signature:
    """Return the raw form of an unpacked operand, as its producer sees it.

    Members
    -------
    sign : Out(1)
        Set for negative floats; an integer has its sign in the significand.
    exponent : Out(8)
        Biased by the format's own bias; 1 for subnormals and integers.
    significand : Out(signed(significand + 1))
        Of a float, with hidden bit; :class:`~sptc.rtl.slots.Slot` defines the place of the binary point. Of an integer,
        with the binary point below bit 0. Undefined for Inf and NaN, which decide the result by themselves.
    zero, special, inf, nan : Out(1)
        Class of the operand; all zero for an ordinary number. `special` is Inf or NaN.
    """
    return wiring.Signature(
        {
            "sign": Out(1),
            "exponent": Out(EXPONENT_BITS),
            "significand": Out(signed(significand + 1)),
            "zero": Out(1),
            "special": Out(1),
            "inf": Out(1),
            "nan": Out(1),
        }
    )


def product_signature(significand: int) -> wiring.Signature:
    """Return the raw form of a product of two operands with `significand` bits each, as its producer sees it.

    Members
    -------
    sign : Out(1)
        Set for negative products of floats; an integer has its sign in the significand.
    exponent : Out(9)
        Sum of the biased exponents.
    significand : Out(signed(2 * significand + 1))
        Exact product, not normalised, with as many bits below the binary point as both operands have together.
    zero, special, inf, nan : Out(1)
        Class of the product; `special` is Inf or NaN. `zero` is undefined for a NaN.
    """
    return wiring.Signature(
        {
            "sign": Out(1),
            "exponent": Out(PRODUCT_EXPONENT_BITS),
            "significand": Out(signed(2 * significand + 1)),
            "zero": Out(1),
            "special": Out(1),
            "inf": Out(1),
            "nan": Out(1),
        }
    )

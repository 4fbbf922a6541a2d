"""The raw form that stages share, whatever the format: an unpacked operand, and a product of two."""

from amaranth.hdl import signed
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

__all__ = ["EXPONENT_BITS", "PRODUCT_EXPONENT_BITS", "product_signature", "raw_signature"]

#: Width of a biased exponent, that of the widest formats.
EXPONENT_BITS = 8
#: Width of the sum of two.
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
        Floats, hidden bit included, with the binary point where :class:`~sptc.rtl.slots.Slot` puts it; integers with
        it after the bottom bit. Of no meaning for Inf and NaN, which decide the result by themselves.
    zero, special, inf, nan : Out(1)
        What the operand is; none set for an ordinary number. `special` is Inf or NaN.
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
    """Return a product of two operands with significands of `significand` bits, as its producer sees it.

    Members
    -------
    sign : Out(1)
        Set for negative products of floats; an integer has its sign in the significand.
    exponent : Out(9)
        Sum of the biased exponents.
    significand : Out(signed(2 * significand + 1))
        Exact product, not normalised, with as many bits below the binary point as both operands have together.
    zero, special, inf, nan : Out(1)
        What the product is; `special` is Inf or NaN, and `zero` says nothing of a NaN.
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

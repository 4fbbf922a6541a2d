"""Exact products of unpacked operands."""

from amaranth.hdl import Module, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .booth import BoothMultiplier
from .slots import PRODUCT_EXPONENT_BITS
from .unpack import raw_signature

__all__ = ["Multiply", "product_signature"]


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


class Multiply(wiring.Component):
    """Multiply two operands exactly. Combinational.

    ``significand = a.significand * b.significand``, ``exponent = a.exponent + b.exponent``; Inf times zero is NaN.
    One multiplier serves every format of the slot. It recodes `a`, which comes first: `b` is still to be selected.

    Parameters
    ----------
    significand : int
        Width of the operands' significands, without the sign.

    Members
    -------
    a, b : In(raw_signature(significand))
        Operands.
    product : Out(product_signature(significand))
        Their product.

    Notes
    -----
    Source: products are exact and not normalised (measured on an H200).
    """

    def __init__(self, significand: int) -> None:
        self.significand = significand
        super().__init__(
            {
                "a": In(raw_signature(significand)),
                "b": In(raw_signature(significand)),
                "product": Out(product_signature(significand)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the multiplier."""
        m = Module()
        m.submodules.multiplier = multiplier = BoothMultiplier(self.significand + 1)
        a, b, product = self.a, self.b, self.product
        m.d.comb += [
            product.sign.eq(a.sign ^ b.sign),
            product.exponent.eq(a.exponent + b.exponent),
            multiplier.a.eq(b.significand),
            multiplier.b.eq(a.significand),
            product.significand.eq(multiplier.product),
            product.special.eq(a.special | b.special),
            product.nan.eq((a.special & (a.nan | b.zero)) | (b.special & (b.nan | a.zero))),
            product.inf.eq(product.special & ~product.nan),
            product.zero.eq(a.zero | b.zero),
        ]
        return m

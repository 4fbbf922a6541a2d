"""Exact multiplier for unpacked operands of all element formats."""

from amaranth.hdl import Module, Shape, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .described import DescribedSignature
from .multiplier import Multiplier
from .raw import product_signature, raw_signature

__all__ = ["SlotMultiplier"]


class SlotMultiplier(wiring.Component):
    """Multiply two unpacked operands exactly. Combinational.

    ``significand = a.significand * b.significand``, ``exponent = a.exponent + b.exponent``; Inf times zero is NaN. One
    multiplier serves every format of the slot. The multiplier recodes `a` to digits, because `a` is available before
    `b`, which comes from the select stage.

    Source: products are exact and not normalised (measured on an H200).

    Parameters
    ----------
    significand : int
        Width of the operands' significands, without the sign.
    factor : Shape, optional
        Shape of the inputs of the multiplier; by default signed, with one bit more than `significand`.
    """

    def __init__(self, significand: int, factor: Shape | None = None) -> None:
        self.significand = significand
        self.factor = signed(significand + 1) if factor is None else factor
        ports = {
            "a": (In(raw_signature(significand)), "Operand of A."),
            "b": (In(raw_signature(significand)), "Operand of B."),
            "product": (Out(product_signature(significand)), "Product of a and b."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the multiplier of significands, the adder of exponents and the logic of special values."""
        m = Module()
        m.submodules.multiplier = multiplier = Multiplier(self.factor.width, signed=self.factor.signed)
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

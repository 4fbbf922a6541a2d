"""Decoding of block scales: ue8m0 to an exponent, and ue4m3 to an exponent and a significand."""

from amaranth.hdl import Cat, Const, Module, Mux, Value, signed
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from .cells.described import DescribedSignature
from .cells.max_exponent import ALIGNED_EXPONENT_BITS
from .codes import ELEMENT_CODE_BITS, is_one_of
from .config import CoreConfig

__all__ = ["GROUP_SCALE_FRACTION_BITS", "ExponentOffset", "GroupScale", "ScaleCode"]

#: Number of fraction bits in the product of the significands of two block scales.
GROUP_SCALE_FRACTION_BITS = 6
_UE8M0_BIAS = 127
_UE4M3_BIAS = 7


class ScaleCode(enum.Enum, shape=2):
    """Code in the control word for the format of the block scales."""

    NONE = 0
    UE8M0 = 1
    UE4M3 = 2


class ExponentOffset(wiring.Component):
    """Compute the biased exponent minus the true exponent of a product, block scales included. Combinational.

    ``offset = bias(a) + bias(b) - (scale_a - 127) - (scale_b - 127)``, with the scales only while `enable` is set. The
    block scales are thus added to every product exponent before the maximum is found.

    Source: published models of kind mxf8f6f4 (modelled). Code 0x00 is 2**-127, not zero (OCP MX v1.0).
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        offset = "Value that is subtracted from a biased product exponent to get the true exponent."
        ports = {
            "a": (In(ELEMENT_CODE_BITS), "Element code of A; integers and packed e2m1 have no bias."),
            "b": (In(ELEMENT_CODE_BITS), "Element code of B."),
            "enable": (In(1), "The step has block scales."),
            "scale_a": (In(8), "ue8m0 code of the block scale of A."),
            "scale_b": (In(8), "ue8m0 code of the block scale of B."),
            "offset": (Out(signed(ALIGNED_EXPONENT_BITS)), offset),
            "nan": (Out(1), "One of the two block scales is NaN (0xFF)."),
        }
        super().__init__(DescribedSignature(ports))

    def _bias(self, m: Module, element: Value) -> Value:
        value: Value = Const(0, 8)
        for bias in {e.format.bias for e in self.config.elements if not e.fixed_point}:
            biased = [e for e in self.config.elements if not e.fixed_point and e.format.bias == bias]
            value = value | Mux(is_one_of(self.config, element, biased), Const(bias, 8), 0)
        return value

    def elaborate(self, platform: object) -> Module:
        """Build the adders of format biases and scale exponents."""
        m = Module()
        biases = self._bias(m, self.a) + self._bias(m, self.b)
        if "ue8m0" in self.config.scales:
            sum_of_scales = self.scale_a + self.scale_b - 2 * _UE8M0_BIAS
            m.d.comb += [
                self.offset.eq(biases - Mux(self.enable, sum_of_scales, 0)),
                self.nan.eq(self.enable & (self.scale_a.all() | self.scale_b.all())),
            ]
        else:
            m.d.comb += self.offset.eq(biases)
        return m


class GroupScale(wiring.Component):
    """Multiply the two block scales of a group of 16 products of packed e2m1. Combinational.

    The product of the two scales is ``significand * 2**(exponent - 6)``. A subnormal ue4m3 scale has the exponent -6
    and is not normalised.

    Source: published models of kinds mxf4 and mxf4nvf4 (modelled).
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        ports = {
            "scale": (In(ScaleCode), "Format of both block scales."),
            "scale_a": (In(8), "Code of the block scale of A; the sign bit of ue4m3 is ignored."),
            "scale_b": (In(8), "Code of the block scale of B; the sign bit of ue4m3 is ignored."),
            "significand": (Out(8), "Exact product of the significands."),
            "exponent": (Out(signed(ALIGNED_EXPONENT_BITS)), "Sum of the exponents of the block scales."),
            "nan": (Out(1), "One of the two block scales is NaN."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the decoders of both block scales, and the multiplier of their significands."""
        m = Module()
        one = Const(1 << (GROUP_SCALE_FRACTION_BITS // 2), 4)
        significands: list[Value] = []
        exponents: list[Value] = []
        nans: list[Value] = []
        small = self.scale == ScaleCode.UE4M3
        for code in (self.scale_a, self.scale_b):
            significand: Value = one
            exponent: Value = code.as_signed() if "ue8m0" not in self.config.scales else code - _UE8M0_BIAS
            nan: Value = code.all()
            if "ue4m3" in self.config.scales:
                # Fields of the scale codes, and the four bits of the significand, whose highest bit counts one:
                #
                #     bit       7           6 ... 3     2 ... 0      significand
                #     ue4m3     ignored     exponent    fraction     {exponent != 0, fraction}
                #     ue8m0     exponent + 127 in all 8 bits         0b1000
                fraction, field = code[:3], code[3:7]
                small_significand = Cat(fraction, field.any())
                small_exponent = Cat(field[0] | ~field.any(), field[1:]) - _UE4M3_BIAS
                if "ue8m0" in self.config.scales:
                    significand = Mux(small, small_significand, significand)
                    exponent = Mux(small, small_exponent, exponent)
                    nan = Mux(small, code[:7].all(), nan)
                else:
                    significand, exponent, nan = small_significand, small_exponent, code[:7].all()
            significands.append(significand)
            exponents.append(exponent)
            nans.append(nan)
        m.d.comb += [
            self.significand.eq(significands[0] * significands[1]),
            self.exponent.eq(exponents[0] + exponents[1]),
            self.nan.eq((nans[0] | nans[1]) & (self.scale != ScaleCode.NONE)),
        ]
        return m

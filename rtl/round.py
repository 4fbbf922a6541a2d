"""The one rounding of a step, from the exact sum to a result register."""

from collections.abc import Collection

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from ..isa.formats import FORMATS
from .align import ALIGNED_EXPONENT_BITS

__all__ = ["ResultCode", "Round"]

_F32, _F16 = FORMATS["f32"], FORMATS["f16"]
_DROPPED_E8M13_BITS = 10
_CANONICAL_NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF}


class ResultCode(enum.Enum, shape=2):
    """Run-time result format and rounding."""

    F32 = 0  #: truncation to f32
    E8M13 = 1  #: the same with 13 fraction bits, in an f32
    F16 = 2  #: round to nearest even
    S32 = 3  #: integer, wrapped or clamped


class Round(wiring.Component):
    """Round an exact sum once. Combinational.

    The sum is worth ``total * 2**(exponent - grid_bits)``. It is shifted left until its top bit is one or has the
    weight of the smallest normal number, whichever comes first, so subnormal results need no second shifter.

    Parameters
    ----------
    total_bits : int
        Signed width of the sum; :attr:`~sptc.rtl.widths.Widths.total_bits` says what a rounding needs.
    grid_bits : int
        Bits below the largest exponent.
    integer_bits : int
        Bits of the sum below the integer unit.
    results : collection of ResultCode
        Results to build.

    Members
    -------
    total : In(signed(total_bits))
        Exact sum.
    exponent : In(signed(11))
        Largest exponent E of the step, at least e_zero.
    result : In(ResultCode)
        Format.
    saturate : In(1)
        Clamp an integer to 32 bits instead of wrapping.
    nan, positive_inf, negative_inf : In(1)
        Special results; both infinities together are NaN.
    output : Out(32)
        The register; f16 in its low half.
    overflow : Out(1)
        An integer sum that did not clamp left 32 bits.

    Notes
    -----
    Source: RZ-f32, RZ-E8M13 and RNE-f16, +0 for every zero, the canonical NaNs, and the clamp are measured on an H200.
    """

    def __init__(self, total_bits: int, grid_bits: int, integer_bits: int, results: Collection[ResultCode]) -> None:
        self.total_bits = total_bits
        self.grid_bits = grid_bits
        self.integer_bits = integer_bits
        self.results = frozenset(results)
        super().__init__(
            {
                "total": In(signed(total_bits)),
                "exponent": In(signed(ALIGNED_EXPONENT_BITS)),
                "result": In(ResultCode),
                "saturate": In(1),
                "nan": In(1),
                "positive_inf": In(1),
                "negative_inf": In(1),
                "output": Out(32),
                "overflow": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the roundings asked for."""
        m = Module()
        with m.Switch(self.result):
            if ResultCode.S32 in self.results:
                with m.Case(ResultCode.S32):
                    value = self.total[self.integer_bits :]
                    fits = value[31:].all() | ~value[31:].any()
                    limit = Mux(value[-1], Const(1 << 31, 32), Const((1 << 31) - 1, 32))
                    m.d.comb += [
                        self.output.eq(Mux(self.saturate & ~fits, limit, value[:32])),
                        self.overflow.eq(~self.saturate & (value[-1] ^ value[31])),
                    ]
            if self.results - {ResultCode.S32}:
                with m.Default():
                    m.d.comb += self.output.eq(self._float(m))
        return m

    def _float(self, m: Module) -> Value:
        half = self.result == ResultCode.F16 if ResultCode.F16 in self.results else Const(0)
        negative = self.total[-1]
        bits = max(self.total_bits, _F32.fraction_bits + 3)
        magnitude = Signal(bits)
        padding = bits - self.total_bits
        m.d.comb += magnitude.eq(Cat(Const(0, padding), Mux(negative, -self.total, self.total)[: self.total_bits]))

        # The top bit of `magnitude` weighs 2**(exponent + to_top); shifted left by `limit`, 2**minimum_exponent.
        to_top = self.total_bits - 1 - self.grid_bits
        limit = Signal(signed(ALIGNED_EXPONENT_BITS + 1))
        f32_limit = self.exponent + (to_top - _F32.minimum_exponent)
        f16_limit = self.exponent + (to_top - _F16.minimum_exponent)
        if self.results >= {ResultCode.F16} and self.results & {ResultCode.F32, ResultCode.E8M13}:
            m.d.comb += limit.eq(Mux(half, f16_limit, f32_limit))
        else:
            m.d.comb += limit.eq(f16_limit if ResultCode.F16 in self.results else f32_limit)
        zeros = _leading_zeros(m, magnitude)
        shift = Signal(range(bits + 1))
        m.d.comb += shift.eq(Mux(limit < zeros, limit.as_unsigned(), zeros))
        normal = Signal(bits)
        m.d.comb += normal.eq(magnitude << shift)
        field = Signal(signed(ALIGNED_EXPONENT_BITS + 1))
        m.d.comb += field.eq(Mux(normal[-1], limit - shift + 1, 0))

        nan = self.nan | (self.positive_inf & self.negative_inf)
        infinite = self.positive_inf | self.negative_inf
        outputs: list[Value] = []
        if self.results & {ResultCode.F32, ResultCode.E8M13}:
            fraction = normal[-1 - _F32.fraction_bits : -1]
            if ResultCode.E8M13 in self.results:
                shortened = Cat(Const(0, _DROPPED_E8M13_BITS), fraction[_DROPPED_E8M13_BITS:])
                fraction = Mux(self.result == ResultCode.E8M13, shortened, fraction)
            body = Cat(fraction, field[: _F32.exponent_bits])
            outputs.append(self._special(m, negative, body, field >= 0xFF, nan, infinite, "f32"))
        if ResultCode.F16 in self.results:
            fraction = normal[-1 - _F16.fraction_bits : -1]
            guard = normal[-2 - _F16.fraction_bits]
            sticky = normal[: -2 - _F16.fraction_bits].any()
            up = guard & (sticky | fraction[0])
            body = (Cat(fraction, field[: _F16.exponent_bits]) + up)[:15]
            outputs.append(self._special(m, negative, body, field >= 0x1F, nan, infinite, "f16"))
        return outputs[0] if len(outputs) == 1 else Mux(half, outputs[1], outputs[0])

    def _special(
        self, m: Module, negative: Value, body: Value, overflow: Value, nan: Value, infinite: Value, name: str
    ) -> Value:
        """Put sign, Inf and NaN around a rounded magnitude."""
        fmt = FORMATS[name]
        inf_body = Const(((1 << fmt.exponent_bits) - 1) << fmt.fraction_bits, fmt.bits - 1)
        finite = Signal(fmt.bits - 1)
        m.d.comb += finite.eq(Mux(overflow, inf_body, body))
        ordinary = Cat(finite, negative & finite.any())
        return Mux(
            nan, Const(_CANONICAL_NAN[name], fmt.bits), Mux(infinite, Cat(inf_body, self.negative_inf), ordinary)
        )


def _leading_zeros(m: Module, value: Value) -> Value:
    """Return the number of leading zeros, by halving; of no meaning for zero, which stays zero however shifted."""
    width = 1 << (len(value) - 1).bit_length()
    padding = width - len(value)
    rest: Value = Cat(Const((1 << padding) - 1, padding), value)
    count: list[Value] = []
    while width > 1:
        width //= 2
        upper, lower = rest[width:], rest[:width]
        empty = ~upper.any()
        count.insert(0, empty)
        chosen = Signal(width)
        m.d.comb += chosen.eq(Mux(empty, lower, upper))
        rest = chosen
    return Cat(*count)

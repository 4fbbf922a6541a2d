"""Proofs about rounding. Claims relate a result to the exact sum, and only the correct result satisfies them."""

from collections.abc import Callable

from amaranth.hdl import Cat, Const, Mux, Value, ValueLike, signed

from ..isa.formats import FORMATS, Format
from ..rtl.config import CoreConfig
from ..rtl.round import ResultCode, RoundStage
from .harness import Harness
from .numerics import ALIGNED_EXPONENT, integer_place, results, total_bits
from .properties import Parameters, Topic, anonymous

__all__ = ["ROUNDING", "Rounded", "headrooms"]

ROUNDING = Topic("rounding")
_NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF}
_FORMAT_OF_RESULT = {ResultCode.F32: "f32", ResultCode.E8M13: "f32", ResultCode.F16: "f16"}
_DROPPED = {ResultCode.F32: 0, ResultCode.E8M13: 10, ResultCode.F16: 0}
_INTEGER_BITS = 33
#: Signal shape of the difference between two exponents.
_DISTANCE = signed(ALIGNED_EXPONENT.width + 2)


def headrooms(port: Value) -> int:
    """Return for how many shift amounts rounding is proved: all except the largest, which overflows the exponent."""
    return (1 << len(port)) - 1


def _rounder(h: Harness, config: CoreConfig, result: Value | ResultCode) -> RoundStage:
    rounder = RoundStage(total_bits(config), integer_place(config), results(config))
    names = ("total", "headroom", "saturate", "nan", "positive_inf", "negative_inf")
    inputs = {name: h.free(name, getattr(rounder, name).shape()) for name in names}
    return h.add("round", rounder, result=result, **inputs)


def _with(*codes: ResultCode) -> Callable[[CoreConfig], list[Parameters]]:
    """Return a function that lists parameter sets for a configuration: one for each of its result codes in `codes`."""
    return lambda config: [(anonymous(config), code.name) for code in codes if code in results(config)]


def _shifted(value: Value, amount: Value, bits: int) -> Value:
    """Return a value shifted right by a signed amount, which may exceed the value's width. Negative amounts shift left.

    A left shift must not shift out ones. `bits` is the width of the result.
    """
    width = len(value)
    right = Mux(amount >= width, 0, value >> amount.as_unsigned()[: width.bit_length()])
    return Mux(amount >= 0, right, (value << (-amount).as_unsigned()[: bits.bit_length()]))[:bits]


class Rounded:
    """A rounded float and the exact sum, with claims that relate the two.

    ``2**places`` units of the sum are one unit in the last place of the float. `lowest` is the exponent of the sum's
    last bit. `finite` is 1 if neither a NaN nor an infinity determines the result.
    """

    def __init__(
        self, h: Harness, total: Value, lowest: Value | int, output: Value, fmt: Format, finite: ValueLike
    ) -> None:
        self.h, self.lowest, self.format = h, lowest, fmt
        fraction, field = output[: fmt.fraction_bits], output[fmt.fraction_bits : fmt.bits - 1]
        self.fraction, self.field = fraction, field
        self.infinite = finite & field.all()
        self.ordinary = finite & ~field.all()
        self.significand = Cat(fraction, field.any())
        last_place = Mux(field.any(), field, 1) - (fmt.bias + fmt.fraction_bits)
        self.places = h.named("places", last_place - lowest, _DISTANCE)
        self.magnitude = h.named("magnitude", Mux(total < 0, -total, total)[: len(total)])
        h.claim("infinity_fraction", ~self.infinite | (fraction == 0))
        negative = (total < 0) & output[: fmt.bits - 1].any()
        h.claim("sign", ~finite | (output[fmt.bits - 1] == negative))
        if fmt.bits < len(output):
            h.claim("upper_half", output[fmt.bits :] == 0)
        h.cover("subnormal", self.ordinary & (field == 0) & (fraction != 0))
        h.cover("normal", self.ordinary & (field > 1))

    def truncated(self, dropped: int) -> None:
        """Claim that the result is the sum truncated toward zero, and that the `dropped` lowest fraction bits are 0."""
        h, width = self.h, self.format.fraction_bits + 1
        kept = _shifted(self.magnitude, self.places, max(width, len(self.magnitude)) + 1)
        rounded = Cat(Const(0, dropped), kept[dropped:])
        h.claim("significand", ~self.ordinary | (rounded == self.significand))
        h.claim("finer", ~self.ordinary | self._finer(width))
        overflows = self._at_least(1, 1 << (self.format.exponent_bits - 1))
        h.claim("infinity", ~(self.ordinary | self.infinite) | (self.infinite == overflows))

    def nearest(self) -> None:
        """Claim that the result is within half a unit in the last place of the sum, and even at exactly half a unit."""
        h, bits, width = self.h, self.format.fraction_bits, len(self.magnitude)
        exact, far = self.places <= 0, self.places > width + 1
        h.claim("finer", ~self.ordinary | self._finer(bits + 1))
        left = _shifted(self.magnitude, self.places, width + bits + 2)
        h.claim("exact", ~(self.ordinary & exact) | (left == self.significand))
        # The rounding error is in units of a quarter of the lowest bit of the sum.
        amount = self.places.as_unsigned()[: (width + 1).bit_length()]
        unit = Const(1, width + 2) << amount
        error = h.named("error", (self.magnitude << 2) - (self.significand << (amount + 2)))
        halfway = (unit << 1).as_signed()
        odd = self.significand[0]
        up = Mux(odd, error < halfway, error <= halfway)
        # Below a power of two, floats are twice as dense as above it, so the limit of the error is half as large.
        dense = (self.fraction == 0) & (self.field > 1)
        down = Mux(dense, -error <= unit, Mux(odd, -error < halfway, -error <= halfway))
        between = self.ordinary & ~exact
        h.claim("half", ~(between & ~far) | (up & down))
        h.claim("far", ~(between & far) | (self.significand == 0))
        overflows = self._at_least((2 << (bits + 1)) - 1, (1 << (self.format.exponent_bits - 1)) - bits - 2)
        h.claim("infinity", ~(self.ordinary | self.infinite) | (self.infinite == overflows))
        h.cover("tie_up", between & ~far & (error == -halfway))
        h.cover("tie_down", between & ~far & (error == halfway))
        h.cover("carry", between & ~far & dense & (error < 0))

    def _finer(self, bits: int) -> Value:
        """Return whether the result's last bit is at most `bits` bits below bit 0 of the sum, or the sum is zero."""
        return (self.places >= -bits) | (self.magnitude == 0)

    def _at_least(self, significand: int, exponent: int) -> Value:
        """Return whether the magnitude of the sum is at least ``significand * 2**exponent``."""
        width = len(self.magnitude)
        places = self.h.named("limit", exponent - self.lowest, _DISTANCE)
        below = Mux(places >= width, 0, self.magnitude >> places.as_unsigned()[: width.bit_length()])
        up, reach = (-places).as_unsigned(), significand.bit_length()
        above = Mux(up >= reach, self.magnitude != 0, (self.magnitude << up[: reach.bit_length()]) >= significand)
        return Mux(places >= 0, below >= significand, above)


def _rounded(h: Harness, config: CoreConfig, code: ResultCode) -> Rounded:
    """Return the result of a configuration's round stage, whose inputs are free variables; claim properties of it."""
    fmt = FORMATS[_FORMAT_OF_RESULT[code]]
    rounder = _rounder(h, config, code)
    h.assume(rounder.headroom < headrooms(rounder.headroom))
    finite = ~(rounder.nan | rounder.positive_inf | rounder.negative_inf)
    output = h.named("output", rounder.output)
    lowest = rounder.headroom + fmt.minimum_exponent - (rounder.total_bits - 1)
    rounded = Rounded(h, rounder.total, lowest, output, fmt, finite)
    h.cover("overflow", rounded.infinite)
    return rounded


@ROUNDING.property("truncation", _with(ResultCode.F32, ResultCode.E8M13))
def _truncation(h: Harness, config: CoreConfig, result: str) -> None:
    """Truncation gives the float of largest magnitude between zero and the exact sum. A zero result is +0.

    The proof covers all sums at full width and all headrooms. A nonzero result has the sign of the sum. The result is
    infinite if and only if the magnitude of the sum is 2**128 or more.
    """
    code = ResultCode.__members__[result]
    rounded = _rounded(h, config, code)
    rounded.truncated(_DROPPED[code])
    h.cover("inexact", rounded.ordinary & (rounded.places > 0) & rounded.magnitude[0])
    h.cover("exact", rounded.ordinary & (rounded.places < 0) & (rounded.field > 1))


@ROUNDING.property("nearest", _with(ResultCode.F16))
def _nearest(h: Harness, config: CoreConfig, result: str) -> None:
    """An f16 result is within half a unit in the last place of the exact sum, and is even at exactly half a unit.

    The proof covers all sums at full width and all headrooms. The result is infinite if and only if the magnitude of
    the sum is 65520 or more.
    """
    _rounded(h, config, ResultCode.__members__[result]).nearest()


@ROUNDING.property("specials", _with(ResultCode.F32, ResultCode.E8M13, ResultCode.F16))
def _specials(h: Harness, config: CoreConfig, result: str) -> None:
    """A sum with a NaN, or with both Inf and -Inf, gives the canonical NaN. Inf or -Inf alone gives that infinity."""
    code = ResultCode.__members__[result]
    fmt = FORMATS[_FORMAT_OF_RESULT[code]]
    r = _rounder(h, config, code)
    output = h.named("output", r.output)
    nan = r.nan | (r.positive_inf & r.negative_inf)
    infinity = ((1 << fmt.exponent_bits) - 1) << fmt.fraction_bits
    h.claim("nan", ~nan | (output == _NAN[fmt.name]))
    h.claim("positive", nan | ~r.positive_inf | (output == infinity))
    h.claim("negative", nan | ~r.negative_inf | (output == infinity | 1 << (fmt.bits - 1)))
    h.claim("no_overflow", ~r.overflow)
    for name, condition in (("nan", nan), ("positive", r.positive_inf & ~nan), ("negative", r.negative_inf & ~nan)):
        h.cover(name, condition)


@ROUNDING.property("integers", _with(ResultCode.S32))
def _integers(h: Harness, config: CoreConfig, result: str) -> None:
    """With saturation, integer sums are clamped to 32 bits. Else, results are the low 32 bits and an overflow flag."""
    r = _rounder(h, config, ResultCode.__members__[result])
    value = h.named("value", r.total >> r.integer_bits)
    output = h.named("output", r.output)
    smallest, largest = -(1 << 31), (1 << 31) - 1
    clamped = Mux(value < smallest, smallest, Mux(value > largest, largest, value))
    h.claim("clamped", ~r.saturate | (output == clamped[:32]))
    h.claim("wrapped", r.saturate | (output == value[:32]))
    reachable = (value >= -(1 << (_INTEGER_BITS - 1))) & (value < 1 << (_INTEGER_BITS - 1))
    whole = Cat(output, output[-1] ^ r.overflow).as_signed()
    h.claim("kept", r.saturate | ~reachable | (whole == value))
    h.claim("clamped_fits", ~r.saturate | ~r.overflow)
    h.cover("clamps_low", r.saturate & (value < smallest))
    h.cover("clamps_high", r.saturate & (value > largest))
    h.cover("overflow", r.overflow)

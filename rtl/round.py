"""The round stage rounds the exact sum of products and accumulator once, to the format of the result register."""

from collections.abc import Collection
from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from ..isa.formats import FORMATS
from .cells.adder import Adder
from .cells.described import DescribedSignature
from .cells.leading_zeros import LeadingZeros
from .cells.max_exponent import ALIGNED_EXPONENT_BITS
from .cells.pipeline import delayed

__all__ = ["SPECIAL_VALUES", "ResultCode", "RoundStage", "normalised_bits"]

_F32, _F16 = FORMATS["f32"], FORMATS["f16"]
_DROPPED_E8M13_BITS = 10
#: Position, in the fraction of an f32, of the last fraction bit that an f16 has.
_HALF_PLACE = _F32.fraction_bits - _F16.fraction_bits
#: Cuts (positions of pipeline registers) in the round stage.
_CUTS = ("reduce", "count", "normalise")
#: Key: name of a port that replaces the rounded sum by a special value (NaN, infinity). Value: documentation of the
#: port.
SPECIAL_VALUES = {
    "nan": "The result is NaN.",
    "positive_inf": "The result is Inf, or NaN if negative_inf is also set.",
    "negative_inf": "The result is -Inf, or NaN if positive_inf is also set.",
}
#: Inputs that pass through the pipeline registers of the round stage.
_INPUTS = ("total", "headroom", "result", "saturate", *SPECIAL_VALUES)
_CANONICAL_NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF}


class ResultCode(enum.Enum, shape=2):
    """Code in the control word for the format and the rounding of the result."""

    F32 = 0  #: Result in f32, rounded by truncation
    E8M13 = 1  #: Result in f32 with 13 fraction bits, rounded by truncation
    F16 = 2  #: Result in f16, rounded to nearest even
    S32 = 3  #: Result in s32 (32-bit integer), which wraps or is clamped


def normalised_bits(total_bits: int) -> int:
    """Return the width of a normalised sum in bits. Extra low bits ensure that the complement of -1 is not zero."""
    return max(total_bits + 1, _F32.fraction_bits + 3)


class RoundStage(wiring.Component):
    """Round an exact sum once. Combinational, or with registers that add one cycle of latency each.

    The sum is shifted left until its top bit is the leading digit or has the weight of the smallest normal number,
    whichever comes first, so subnormal results need no second shifter. :mod:`sptc.rtl.widths` draws the bits of the
    shifted sum. The position of the smallest normal number is computed before the ``reduce`` register, where there is
    time.

    Source: RZ-f32, RZ-E8M13 and RNE-f16, +0 for every zero, the canonical NaNs, and the clamp are measured on an H200.

    Parameters
    ----------
    total_bits : int
        Signed width of the sum; :attr:`~sptc.rtl.widths.Widths.total_bits` is the width that rounding needs.
    integer_bits : int
        Number of bits of the sum below the bit that has the weight one for integers.
    results : collection of ResultCode
        Result formats for which logic is built.
    cuts : collection of str, optional
        Pipeline registers: ``reduce`` is before the stage, ``count`` is after the count of leading digits, and
        ``normalise`` is after the left shift.
    """

    def __init__(
        self, total_bits: int, integer_bits: int, results: Collection[ResultCode], cuts: Collection[str] = ()
    ) -> None:
        self.total_bits = total_bits
        self.integer_bits = integer_bits
        self.results = frozenset(results)
        self.cuts = cuts
        self.normalised_bits = normalised_bits(total_bits)
        headroom = "Left shift of the sum after which its sign bit has the weight of the smallest normal number."
        ports = {
            "enable": (In(1, init=1), "Clock enable of the pipeline registers."),
            "total": (In(signed(total_bits)), "Exact sum of the step."),
            "headroom": (In(ALIGNED_EXPONENT_BITS), headroom),
            "result": (In(ResultCode), "Result format."),
            "saturate": (In(1), "Clamp an integer to 32 bits instead of wrapping."),
            **{name: (In(1), meaning) for name, meaning in SPECIAL_VALUES.items()},
            "output": (Out(32), "Result in the format of input result; an f16 is in the low half."),
            "overflow": (Out(1), "An integer sum exceeded 32 bits and was not clamped."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the rounding for each of the result formats in `results`."""
        m = Module()
        i = SimpleNamespace(**{name: getattr(self, name) for name in _INPUTS})
        if floats := self.results - {ResultCode.S32}:
            i = self._normalise(m, i)
        else:
            for cut in _CUTS:
                i = self._behind(m, cut, i)
        with m.Switch(i.result):
            if ResultCode.S32 in self.results:
                with m.Case(ResultCode.S32):
                    # In the next step, the sign of the accumulator is bit 31 of this result, inverted if `overflow` is
                    # set. This sign is the top bit of `value`.
                    value = i.total[self.integer_bits :]
                    # An integer result of 32 bits has its sign in bit 31. The sum therefore fits if all higher bits
                    # equal bit 31.
                    fits = value[31:].all() | ~value[31:].any()
                    limit = Mux(value[-1], Const(1 << 31, 32), Const((1 << 31) - 1, 32))
                    m.d.comb += [
                        self.output.eq(Mux(i.saturate & ~fits, limit, value[:32])),
                        self.overflow.eq(~i.saturate & (value[-1] ^ value[31])),
                    ]
            if floats:
                with m.Default():
                    m.d.comb += self.output.eq(self._float(m, i))
        return m

    def _behind(self, m: Module, cut: str, values: SimpleNamespace) -> SimpleNamespace:
        """Return values, delayed by the register of a cut (pipeline register position) if the stage has that cut."""
        cycles = int(cut in self.cuts)
        return SimpleNamespace(
            **{name: delayed(m, value, cycles, self.enable, name) for name, value in vars(values).items()}
        )

    def _normalise(self, m: Module, i: SimpleNamespace) -> SimpleNamespace:
        """Return the inputs and the normalised (left-shifted) sum. A negative sum is not yet complemented."""
        bits = self.normalised_bits
        # One-hot position of the sum's bit that has the weight of the smallest normal number. All bits are zero if no
        # bit of the sum has this weight:
        #
        #     headroom            0            1            2
        #     smallest_normal     1000...      01000...     001000...
        smallest_normal = Signal(bits)
        m.d.comb += smallest_normal.eq(Cat(i.headroom == bits - 1 - place for place in range(bits)))
        smallest_normal = delayed(m, smallest_normal, int("reduce" in self.cuts), self.enable, "smallest_normal")
        i = self._behind(m, "reduce", i)

        # The leading digit of a positive or negative sum is the highest bit that differs from its upper neighbour. The
        # one in `smallest_normal` limits the left shift. Example of a positive and of a negative sum:
        #
        #     total         00010110     11101001
        #     differs       00011101     00011101     three leading zeros, the shift amount
        #     shifted       10110000     01001000
        #     magnitude     10110000     10110111     complement of a negative sum: one too small in its last place
        padding = Const(0, bits - self.total_bits)
        total = Cat(padding, i.total)
        m.submodules.leading = leading = LeadingZeros(bits)
        m.d.comb += leading.word.eq((total ^ Cat(total[1:], total[-1])) | smallest_normal)
        shift_amount = delayed(m, leading.count, int("count" in self.cuts), self.enable, "shift_amount")
        i = self._behind(m, "count", i)

        shifted = Signal(bits)
        dropped = Signal()
        sticky = Signal()
        # Bits of the shifted sum that become the fraction (f), and bits that rounding drops:
        #
        #     f32     1fffffffffffffffffffffffdddddddddddddddd   23 fraction bits; `dropped`: any d
        #     f16     1ffffffffffGSSSSSSSSSSSSSSSSSSSSSSSSSSSS   10 fraction bits; guard G; `sticky`: any S
        m.d.comb += [
            shifted.eq(Cat(padding, i.total) << shift_amount),
            dropped.eq(shifted[: -1 - _F32.fraction_bits].any()),
            sticky.eq(shifted[: -2 - _F16.fraction_bits].any()),
        ]
        exponent = (i.headroom + 1 - shift_amount)[:ALIGNED_EXPONENT_BITS]  # exponent field if the result is normal
        normalised = SimpleNamespace(**vars(i), shifted=shifted, exponent=exponent, dropped=dropped, sticky=sticky)
        return self._behind(m, "normalise", normalised)

    def _float(self, m: Module, i: SimpleNamespace) -> Value:
        """Return the sum, rounded to a float. This function also converts a negative sum to its magnitude."""
        halves = ResultCode.F16 in self.results
        singles = bool(self.results & {ResultCode.F32, ResultCode.E8M13})
        half = i.result == ResultCode.F16 if halves and singles else Const(halves)
        negative = i.total[-1]
        shifted = i.shifted
        magnitude = Signal(self.normalised_bits)
        m.d.comb += magnitude.eq(shifted ^ negative.replicate(self.normalised_bits))
        # A top bit of zero in the magnitude means that the number is zero, or that it is subnormal because the headroom
        # limited the left shift.
        field = Signal(ALIGNED_EXPONENT_BITS)
        m.d.comb += field.eq(Mux(magnitude[-1], i.exponent, 0))
        # The magnitude of a negative sum is its one's complement plus an increment of one in the last bit. The
        # increment carries into the fraction only if all dropped bits of the sum are zero.
        truncated = negative & ~i.dropped
        fraction = magnitude[-1 - _F32.fraction_bits : -1]
        increment = Signal()
        m.d.comb += increment.eq(truncated)
        if halves:
            guard = Signal()
            odd = Signal()
            sticky = i.sticky
            m.d.comb += [
                guard.eq(shifted[-2 - _F16.fraction_bits]),
                odd.eq(magnitude[-1 - _F16.fraction_bits]),
            ]
            # Rounding of an f16. The magnitude of a negative sum is its one's complement plus one. The increment of
            # this complement depends on guard G and sticky S of the sum before the complement:
            #
            #     G S     below the last fraction bit of the magnitude     increment
            #     0 0     zero, after a carry into the fraction            1
            #     0 1     more than a half                                 1
            #     1 0     a half                                           odd
            #     1 1     less than a half                                 0
            up = Mux(negative, (guard ^ sticky) & (sticky | odd) | ~(guard | sticky), guard & (sticky | odd))
            m.d.comb += increment.eq(Mux(half, up, truncated))
            # In an f16, ones in the bits below its last fraction bit carry the increment up to that bit.
            fraction = fraction | half.replicate(_HALF_PLACE)
        # A carry out of the fraction enters the exponent field. The carry turns the largest fraction into the next
        # power of two, the largest subnormal into the smallest normal number, and the largest f16 into Inf:
        #
        #     bit     30 ... 23    22 ... 13    12 ... 0
        #     f32     field        23 fraction bits
        #     f16     field        fraction     ones, which pass the increment on to bit 13
        m.submodules.increment = adder = Adder(_F32.bits - 1)
        m.d.comb += [adder.word0.eq(Cat(fraction, field[: _F32.exponent_bits])), adder.carry.eq(increment)]
        body = adder.total

        nan = i.nan | (i.positive_inf & i.negative_inf)
        infinite = i.positive_inf | i.negative_inf
        outputs: list[Value] = []
        if singles:
            single: Value = body
            if ResultCode.E8M13 in self.results:
                shortened = Cat(Const(0, _DROPPED_E8M13_BITS), body[_DROPPED_E8M13_BITS:])
                single = Mux(i.result == ResultCode.E8M13, shortened, body)
            outputs.append(self._special(m, i, single, field >= 0xFF, nan, infinite, "f32"))
        if halves:
            short = body[_HALF_PLACE:][: _F16.bits - 1]
            outputs.append(self._special(m, i, short, field >= 0x1F, nan, infinite, "f16"))
        return outputs[0] if len(outputs) == 1 else Mux(half, outputs[1], outputs[0])

    def _special(
        self, m: Module, i: SimpleNamespace, body: Value, overflow: Value, nan: Value, inf: Value, name: str
    ) -> Value:
        """Return a float result: a rounded magnitude with its sign, an infinity, or the canonical NaN."""
        fmt = FORMATS[name]
        inf_body = Const(((1 << fmt.exponent_bits) - 1) << fmt.fraction_bits, fmt.bits - 1)
        finite = Signal(fmt.bits - 1)
        m.d.comb += finite.eq(Mux(overflow, inf_body, body))
        ordinary = Cat(finite, i.total[-1] & finite.any())
        return Mux(nan, Const(_CANONICAL_NAN[name], fmt.bits), Mux(inf, Cat(inf_body, i.negative_inf), ordinary))

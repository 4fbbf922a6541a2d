"""Right shifter that aligns a term, with truncation toward zero."""

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .described import DescribedSignature

__all__ = ["AlignmentShifter"]


class AlignmentShifter(wiring.Component):
    """Shift a magnitude right and drop the bits below bit 0, which truncates toward zero. Combinational.

    ``output = floor(magnitude * 2**(padding - shift_amount))``, if the padded magnitude has no ones in the bits from
    `shifted_bits` on. The bits from `shifted_bits` on are not shifted.

    Source: no sticky bit, each term truncated on its magnitude (measured on an H200).

    Parameters
    ----------
    magnitude_bits : int
        Width of the input.
    padding : int
        Number of output bits below the input's last bit. A negative number drops input bits before the shift.
    shift_amount_bits : int
        Width of the shift amount.
    shifted_bits : int, optional
        Number of low bits of the output that are shifted; by default all bits.
    """

    def __init__(
        self, magnitude_bits: int, padding: int, shift_amount_bits: int, shifted_bits: int | None = None
    ) -> None:
        self.magnitude_bits = magnitude_bits
        self.padding = padding
        self.shift_amount_bits = shift_amount_bits
        self.output_bits = magnitude_bits + padding
        self.shifted_bits = self.output_bits if shifted_bits is None else min(shifted_bits, self.output_bits)
        ports = {
            "magnitude": (In(magnitude_bits), "Unsigned significand."),
            "shift_amount": (In(shift_amount_bits), "Right shift in bits: e_max minus the exponent of the term."),
            "output": (Out(self.output_bits), "Magnitude after the shift."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the alignment shifter."""
        m = Module()
        if self.padding >= 0:
            padded: Value = Cat(Const(0, self.padding), self.magnitude)
        else:
            padded = self.magnitude[-self.padding :]
        # The shifter leaves the bits from `shifted_bits` on unchanged: floats have zeros there, and integers have the
        # shift amount zero:
        #
        #     bit        output_bits - 1 ... shifted_bits    shifted_bits - 1 ... 0
        #     padded     upper bits of the magnitude         its lower bits, then `padding` zeros
        amount_bits = max(1, (self.shifted_bits - 1).bit_length())
        amount, beyond = self.shift_amount[:amount_bits], self.shift_amount[amount_bits:].any()
        shifted = Mux(beyond, 0, padded[: self.shifted_bits] >> amount)[: self.shifted_bits]
        m.d.comb += self.output.eq(Cat(shifted, padded[self.shifted_bits :]))
        return m

"""Tree that finds the maximum of several exponents, called e_max."""

from amaranth.hdl import Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .described import DescribedSignature

__all__ = ["ALIGNED_EXPONENT_BITS", "LEAST_EXPONENT", "MaxExponent"]

#: Width in bits of signed exponents that include format biases and block scales.
ALIGNED_EXPONENT_BITS = 11
#: Exponent of a term that must not affect e_max, the largest exponent. This value is below every possible exponent.
LEAST_EXPONENT = -(1 << (ALIGNED_EXPONENT_BITS - 1))


class MaxExponent(wiring.Component):
    """Find the maximum of several exponents, in a balanced tree. Combinational.

    Source: E = max(product exponents, exp(c), e_zero), measured on an H200.

    Parameters
    ----------
    count : int
        Number of exponents.
    shape : shape-like
        Shape of an exponent.
    """

    def __init__(self, count: int, shape: ShapeLike) -> None:
        self.count = count
        self.shape = shape
        exponents = (
            "Exponents of the terms; the smallest number that a port can hold for a term that does not participate."
        )
        finalists = "Last two candidates for the maximum, for logic that cannot wait for e_max."
        ports = {
            "exponents": (In(shape).array(count), exponents),
            "finalists": (Out(shape).array(min(count, 2)), finalists),
            "e_max": (Out(shape), "Maximum of the exponents."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the tree of two-input maximum selectors, with one named signal per selector."""
        m = Module()
        level = [self.exponents[i] for i in range(self.count)]
        while len(level) > 2:
            level = [
                *(self._larger(m, left, right) for left, right in zip(level[::2], level[1::2], strict=False)),
                *level[len(level) // 2 * 2 :],
            ]
        m.d.comb += [port.eq(exponent) for port, exponent in zip(self.finalists, level, strict=True)]
        m.d.comb += self.e_max.eq(self._larger(m, *level) if len(level) == 2 else level[0])
        return m

    def _larger(self, m: Module, left: Value, right: Value) -> Value:
        winner = Signal(self.shape)
        m.d.comb += winner.eq(Mux(right > left, right, left))
        return winner

"""Multiplexer that selects one of four neighbouring 8-bit or 16-bit parts of a column of B."""

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...isa.metadata import UNITS_PER_CHUNK
from .adder import kept
from .described import DescribedSignature

__all__ = ["OperandMux"]


class OperandMux(wiring.Component):
    """Select one of four neighbouring 8-bit or 16-bit units of B. Bytes may be selected separately. Combinational.

    ``output = OR of units[i] where select[i]``, for each part: the selected unit, or zero if none is selected.

    Source: measured on an H200 for 8- and 16-bit units and all sixteen nibbles.

    Parameters
    ----------
    unit_bits : int
        Width of a unit: 16 or 8.
    parts : int
        Number of parts of a unit that are selected separately: 2 (the two bytes) if two chunks are interleaved, else 1.
    """

    def __init__(self, unit_bits: int, parts: int = 1) -> None:
        self.unit_bits = unit_bits
        self.parts = parts
        select = "Select of each unit, with one bit for each part; at most one unit is selected for a part."
        ports = {
            "units": (In(unit_bits).array(UNITS_PER_CHUNK), "Units of a chunk of B, lowest k first."),
            "select": (In(parts).array(UNITS_PER_CHUNK), select),
            "output": (Out(unit_bits), "Selected unit."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the AND-OR-invert gates of the multiplexer."""
        m = Module()
        width = self.unit_bits // self.parts
        gated = [
            unit & Cat(bit.replicate(width) for bit in select)
            for unit, select in zip(self.units, self.select, strict=True)
        ]
        # Each output bit needs two AND-OR-invert gates and a NAND gate. Synthesis must keep the nets between these
        # gates. If technology mapping merges the gates with later logic, the circuit needs more gates.
        halves = [
            kept(m, ~(even | odd), f"half_{place}")
            for place, (even, odd) in enumerate(zip(gated[::2], gated[1::2], strict=True))
        ]
        m.d.comb += self.output.eq(~(halves[0] & halves[1]))
        return m

"""Operands of an ``mma``, made from those of ``wgmma`` or ``tcgen05.mma`` for one panel (eight columns of D)."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .cells.described import DescribedLayout, DescribedSignature
from .config import CoreConfig
from .fetch import panel_layout
from .step import control_layout
from .warp import FRAGMENT, LANES, REGISTER, REGISTERS, WORD_BITS, warp_operands_layout

__all__ = ["PanelOperands", "panel_instruction_layout", "segment_words"]


def panel_instruction_layout() -> DescribedLayout:
    """Return the layout of the instruction fields that all panels (eight columns each) of an instruction share."""
    selector = (
        "Sparsity selector f of PTX, 0 or 1. Elements of 16 or 32 bits: lanes 2 f and 2 f + 1 of each quad provide the "
        "metadata. The selector is ignored for smaller elements and in dense instructions."
    )
    return DescribedLayout(
        {
            "control": (control_layout(), "Control word: element formats, metadata rule, result format, block scales."),
            "sparsity_selector": (2, selector),
            "negated": (1, "1: the products are negated, since the instruction negates A or B. Ignored for integers."),
            "add": (1, "1: D = A B + C; 0: D = A B, and the accumulators are ignored."),
        }
    )


def segment_words(rows: Sequence[Value], segment: int) -> list[Value]:
    """Return the words of one 16-byte segment of eight rows, as one register in each of 32 lanes.

    Source: PTX ISA, fragments of ``mma``: each row belongs to four lanes, and each lane has four bytes of the segment.
    """
    return [rows[lane // 4].word_select(4 * segment + lane % 4, WORD_BITS) for lane in range(LANES)]


class PanelOperands(wiring.Component):
    """Convert operands of a panel (eight columns) to those of an ``mma`` with 32 stored bytes a row. Combinational."""

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        ports = {
            "instruction": (In(panel_instruction_layout()), "Fields of the instruction that multiplies the panel."),
            "e": (In(REGISTER), "Metadata register of each lane."),
            "a": (In(FRAGMENT), "Registers of A [lane][register]."),
            "panel": (In(panel_layout()), "Panel of B: bytes 16 r to 16 r + 15 of a column are register r of a quad."),
            "c": (In(FRAGMENT), "Accumulator registers of the panel [lane][register]."),
            "o": (Out(warp_operands_layout()), "Operands of an mma for the array; the block scales are not set."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the wiring between registers, the sign inversion of A, and the replacement of accumulators by zero."""
        m = Module()
        instruction, operands = self.instruction, self.o
        signs = self._signs().replicate(LANES * REGISTERS)
        segments = [segment_words(self.panel, register) for register in range(REGISTERS)]
        b = [segments[register][lane] for lane in range(LANES) for register in range(REGISTERS)]
        # The assignments copy whole fields. One assignment per register would add a megabyte to the source of the
        # compiled simulator.
        m.d.comb += [
            operands.control.eq(instruction.control),
            operands.long.eq(1),
            operands.sparsity_selector.eq(instruction.sparsity_selector),
            operands.e.eq(self.e),
            operands.a.eq(self.a.as_value() ^ Mux(instruction.negated, signs, 0)),
            operands.b.eq(Cat(b)),
            operands.c.eq(Mux(instruction.add, self.c.as_value(), 0)),
        ]
        return m

    def _signs(self) -> Value:
        """Return a mask of the sign bits in a 32-bit register of A. The mask is zero for integers."""
        # Sign bits of the elements in a 32-bit register of A:
        #
        #     f16, bf16          10000000 00000000 10000000 00000000
        #     e4m3, e5m2         10000000 10000000 10000000 10000000
        #     e3m2, e2m3         00100000 00100000 00100000 00100000
        #     e2m1 in bytes      00100000 00100000 00100000 00100000
        signs: Value = Const(0, WORD_BITS)
        for code, element in enumerate(self.config.elements):
            if not element.format.is_integer:
                sign = element.low_bit + element.format.bits - 1
                places = range(sign, WORD_BITS, element.container_bits)
                signs = Mux(self.instruction.control.a == code, sum(1 << place for place in places), signs)
        return signs

"""Storage of metadata and block scales from tensor memory, in the register layout of ``mma`` fragments."""

from collections.abc import Sequence

from amaranth.hdl import Array, Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .accumulators import ARRAYS
from .cells.described import DescribedSignature
from .fetch import PANEL_BITS
from .operand_slots import SLOTS
from .tensor_operands import Operand, tensor_column_layout
from .warp import COLUMNS, LANES, REGISTER, ROWS, WORD_BITS

__all__ = ["TensorWords"]

#: Number of lanes of tensor memory whose block scales share one column.
_PARTITION = 32


class TensorWords(wiring.Component):
    """Store metadata and block scales of two instructions in progress, and output those of one. Latency: one cycle.

    Source: CUTLASS ``tmem_e_frg``, with which JAX agrees, for metadata; PTX ISA, scale factor A and B ID, and CUTLASS
    ``tmem_sf_frg`` for block scales. Tensor memory contains four copies of the block scales; the
    copy in the first 32 lanes is used. Modelled, not measured.

    Parameters
    ----------
    arrays : int
        Number of arrays of dot-product units. Each array computes 16 rows, which take 16 lanes of tensor memory.
    """

    def __init__(self, arrays: int = ARRAYS) -> None:
        self.arrays = arrays
        e = (
            "Metadata registers for the instruction in `slot`, for each array, for sparsity selector 0. Elements of 16 "
            "or 32 bits have one column of metadata, for lanes 0 and 1 of each quad."
        )
        ports = {
            "arriving": (In(1), "Ports column and words are valid."),
            "column": (
                In(tensor_column_layout()),
                "Operand and number of the column, with the instruction slot as its tag.",
            ),
            "words": (In(WORD_BITS).array(ROWS * arrays), "Words of the column that arrives, one for each lane."),
            "slot": (In(range(SLOTS)), "Number of the slot whose instruction is multiplied."),
            "panel": (In(PANEL_BITS), "Number of the panel of B that is multiplied."),
            "e": (Out(REGISTER).array(arrays), e),
            "scales_a": (
                Out(REGISTER).array(arrays),
                "Registers with block scales of A for the instruction in `slot`, for each array.",
            ),
            "scales_b": (Out(REGISTER), "Registers with block scales of the panel's columns, for all arrays."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the registers of metadata and scales, and the wiring from tensor-memory lanes to tensor-core lanes."""
        m = Module()
        rows = data.ArrayLayout(WORD_BITS, ROWS * self.arrays)
        # Lane n of tensor-memory column p has the block scales of row 32 p + n of A, or of column 32 p + n of B. A
        # column of tensor memory therefore has the block scales of four panels (eight columns each) of B.
        columns = data.ArrayLayout(data.ArrayLayout(WORD_BITS, _PARTITION), 1 << PANEL_BITS - 2)
        # `pairs[x]` has the metadata words for lanes 2 x and 2 x + 1 of each quad of lanes.
        pairs = [self._slots(f"metadata_{x}", rows) for x in range(2)]
        scales_a, scales_b = self._slots("scale_a", rows), self._slots("scale_b", columns)
        column, words = self.column, self.words
        for slot in range(SLOTS):
            with m.If(self.arriving & (column.tag == slot)), m.Switch(column.operand):
                with m.Case(Operand.METADATA):
                    for number, stored in enumerate(pairs):
                        with m.If(column.number == number):
                            m.d.sync += stored[slot].eq(Cat(words))
                with m.Case(Operand.SCALE_A):
                    for part in range(ROWS * self.arrays // _PARTITION):
                        with m.If(column.number == part):
                            m.d.sync += Cat(scales_a[slot][_PARTITION * part + lane] for lane in range(_PARTITION)).eq(
                                Cat(words[:_PARTITION])
                            )
                with m.Case(Operand.SCALE_B):
                    m.d.sync += scales_b[slot][column.number].eq(Cat(words[:_PARTITION]))
        pair = [self._of_slot(m, f"metadata_{x}", stored) for x, stored in enumerate(pairs)]
        scales, all_scales_b = self._of_slot(m, "scale_a", scales_a), self._of_slot(m, "scale_b", scales_b)
        of_panel = Signal(WORD_BITS * COLUMNS, name="scale_b_of_panel")
        m.d.comb += of_panel.eq(all_scales_b.word_select(self.panel, WORD_BITS * COLUMNS))
        m.d.comb += self.scales_b.eq(Cat(of_panel.word_select(lane // 4, WORD_BITS) for lane in range(LANES)))
        for array in range(self.arrays):
            # A lane is 4 g + 2 x + h, with g from 0 to 7, and x and h from 0 to 1. It gets word x of row 8 h + g.
            places = [(lane // 2 % 2, ROWS * array + 8 * (lane % 2) + lane // 4) for lane in range(LANES)]
            m.d.comb += [
                self.e[array].eq(Cat(pair[x].word_select(row, WORD_BITS) for x, row in places)),
                self.scales_a[array].eq(Cat(scales.word_select(row, WORD_BITS) for _, row in places)),
            ]
        return m

    def _slots(self, name: str, layout: data.ArrayLayout) -> list[Signal]:
        """Return one register for each of the two instructions in progress."""
        return [Signal(layout, name=f"{name}_{slot}", reset_less=True) for slot in range(SLOTS)]

    def _of_slot(self, m: Module, name: str, stored: Sequence[Signal]) -> Value:
        """Return the register in `stored` of the instruction that is being multiplied, whose number is `self.slot`."""
        chosen = Signal(len(Value.cast(stored[0])), name=name)
        m.d.comb += chosen.eq(Array(map(Value.cast, stored))[self.slot])
        return chosen

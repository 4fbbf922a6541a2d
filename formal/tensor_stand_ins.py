"""What stands for the memories of a CTA's tensor cores: columns of operands and accumulators, whenever they like.

What they stand for is proved by itself (``tensor_operands.columns``, ``accumulators``). Every word has a label: its
instruction's mark, and where it belongs.
"""

from collections.abc import Callable
from itertools import product

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from ..rtl.accumulators import Accumulators
from ..rtl.tensor_operands import Operand, TensorOperands
from ..rtl.warp import LANES, REGISTERS, ROWS
from .harness import Harness
from .held import (
    PLACE_BITS,
    place_of_a,
)

__all__ = [
    "ALL_COLUMNS",
    "ARRAYS",
    "COLUMNS_OF",
    "FIRST_OF",
    "PANEL_OF_D",
    "ROWS_OF_ARRAYS",
    "Columns",
    "HeldAccumulators",
    "accumulator_word",
    "wanted_columns",
    "word_of_column",
]

#: Arrays that operands are followed to: of 64 lanes, so that block scales of A have a second column.
ARRAYS = 4
ROWS_OF_ARRAYS = ROWS * ARRAYS
#: Columns of an instruction in tensor memory, numbered in the order of reading, by operand: how many there are at most,
#: of a memory of so many lanes.
COLUMNS_OF = {Operand.METADATA: 2, Operand.SCALE_A: ROWS_OF_ARRAYS // 32, Operand.SCALE_B: 8, Operand.A: 8}
FIRST_OF = {operand: sum([*COLUMNS_OF.values()][:number]) for number, operand in enumerate(COLUMNS_OF)}
ALL_COLUMNS = sum(COLUMNS_OF.values())
#: A panel of D: whose, and which.
PANEL_OF_D = data.StructLayout({"mark": 1, "panel": 5})


class Columns:
    """What stands for the reader of tensor memory: of what an instruction has there it reads any column at any time.

    Attributes
    ----------
    arrives, place, tag, mark : Value
        A column arrives; which of all, of which slot, and of which mark.
    done : Value
        Those that have been read of the request at the input.
    complete : Value
        The last of a request arrives in this cycle, if it has any.
    """

    def __init__(self, h: Harness) -> None:
        self.reads, self.chosen = h.free("may_read_column"), h.free("column", range(ALL_COLUMNS))
        h.assume(self.chosen < ALL_COLUMNS)
        self.takes = h.free("may_take_request")
        self.arrives, self.complete = Signal(name="column_arrives"), Signal(name="columns_complete")
        self.place = Signal(range(ALL_COLUMNS), reset_less=True, name="column_place")
        self.tag, self.mark = (Signal(reset_less=True, name=name) for name in ("column_tag", "column_mark"))
        self.done = Signal(ALL_COLUMNS, name="columns_done")
        self.wanted, self.taken, self.read = (
            Signal(bits, name=name)
            for name, bits in (("columns_wanted", ALL_COLUMNS), ("columns_taken", 1), ("column_read", 1))
        )

    def component(self) -> Callable[[int], TensorOperands]:
        """Return what makes it."""
        cut = self

        class Stand(TensorOperands):
            def elaborate(self, platform: object) -> Module:
                m, asked = Module(), self.i.payload
                m.d.comb += [
                    cut.wanted.eq(
                        wanted_columns(asked.sparse, asked.wide, asked.scaled, asked.last_panel, asked.a_shared)
                    ),
                    cut.read.eq(self.i.valid & cut.reads & cut.wanted.bit_select(cut.chosen, 1)),
                    self.i.ready.eq(cut.takes & ~(cut.wanted & ~cut.done & ~(cut.read << cut.chosen)).any()),
                    cut.taken.eq(self.i.valid & self.i.ready),
                    self.arriving.eq(cut.arrives),
                    self.complete.eq(cut.complete),
                    self.column.tag.eq(cut.tag),
                ]
                m.d.sync += [
                    cut.arrives.eq(cut.read),
                    cut.complete.eq(cut.taken),
                    cut.place.eq(cut.chosen),
                    cut.done.eq(Mux(cut.taken, 0, cut.done | cut.read << cut.chosen)),
                ]
                with m.If(self.i.valid):
                    m.d.sync += [cut.tag.eq(asked.tag), cut.mark.eq(asked.a_column[0])]
                for operand, first in FIRST_OF.items():
                    with m.If((cut.place >= first) & (cut.place < first + COLUMNS_OF[operand])):
                        m.d.comb += [self.column.operand.eq(operand), self.column.number.eq(cut.place - first)]
                for lane, word in enumerate(self.words):
                    m.d.comb += word.eq(Cat(cut.mark, cut.place, Const(lane, 7)))
                return m

        return Stand


def wanted_columns(sparse: Value, wide: Value, scaled: Value, last_panel: Value, a_shared: Value) -> Value:
    """Return which columns an instruction has: metadata one if elements are wide, block scales of B one for each 32."""
    metadata = Cat(sparse, sparse & ~wide)
    of_b = Cat(scaled & ((last_panel >> 2) >= number) for number in range(COLUMNS_OF[Operand.SCALE_B]))
    return Cat(
        metadata, scaled.replicate(COLUMNS_OF[Operand.SCALE_A]), of_b, (~a_shared).replicate(COLUMNS_OF[Operand.A])
    )


def word_of_column(mark: Value, operand: Operand, number: int, lane: int) -> Value:
    """Return what a column of tensor memory holds in a lane."""
    return Cat(mark, Const(FIRST_OF[operand] + number, range(ALL_COLUMNS)), Const(lane, 7))


class HeldAccumulators:
    """What stands for the accumulators: it gives them in the order of the requests, whenever it likes.

    Attributes
    ----------
    count, panels : Value, list
        Requests that were taken and not given, the oldest first.
    """

    def __init__(self, h: Harness) -> None:
        self.may_take, self.may_give, self.noise = (h.free(name) for name in ("may_take_d", "may_give_c", "noise"))
        self.count = Signal(range(3), name="requested_accumulators")
        self.panels = [Signal(PANEL_OF_D, reset_less=True, name=f"accumulators_{place}") for place in range(2)]

    def component(self) -> Callable[[int], Accumulators]:
        """Return what makes it."""
        cut = self

        class Stand(Accumulators):
            def elaborate(self, platform: object) -> Module:
                m = Module()
                first, second = cut.panels
                enters, leaves, asked = Signal(), Signal(), Signal(PANEL_OF_D)
                column = self.i.payload.column
                m.d.comb += [
                    self.i.ready.eq(cut.may_take & (cut.count != 2)),
                    self.c.valid.eq(cut.may_give & (cut.count != 0)),
                    self.o.ready.eq(1),
                    asked.eq(Cat(column[-1], column[3:8])),
                    enters.eq(self.i.valid & self.i.ready),
                    leaves.eq(self.c.valid & self.c.ready),
                ]
                m.d.sync += cut.count.eq(cut.count + enters - leaves)
                with m.If(leaves):
                    m.d.sync += first.eq(second)
                with m.If(enters):
                    with m.If(cut.count == leaves):
                        m.d.sync += first.eq(asked)
                    with m.Else():
                        m.d.sync += second.eq(asked)
                for array, lane, register in product(range(ARRAYS), range(LANES), range(REGISTERS)):
                    word = accumulator_word(first.mark, first.panel, place_of_a(array, lane, register))
                    m.d.comb += self.c.payload[array][lane][register].eq(word)
                return m

        return Stand


def accumulator_word(mark: Value, panel: Value, place: int) -> Value:
    """Return a word of the accumulators: its instruction's mark, its panel of D, and its place in that."""
    return Cat(mark, panel, Const(place, PLACE_BITS))

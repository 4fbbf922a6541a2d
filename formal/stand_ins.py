"""Stand-ins for hardware around a component under proof: dot-product arrays, memory readers and accumulators.

A stand-in may act in any cycle in which the real component may. The real components are proved separately
(``warp.operands``, ``fetch.both``, ``tensor_operands.columns``, ``accumulators``). Every operand word carries a label:
the mark of its instruction, and its position.
"""

from itertools import product
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import data

from ..rtl.accumulators import Accumulators
from ..rtl.fetch import panel_request_layout
from ..rtl.operand_fetch import OperandFetch
from ..rtl.tensor_operands import Operand, TensorOperands
from ..rtl.warp import Warp
from .harness import Harness, stand_in
from .sizes import LANES, REGISTERS, ROWS

__all__ = [
    "ALL_COLUMNS",
    "ARRAYS",
    "COLUMNS_OF",
    "DEPTH",
    "FIRST_OF",
    "PLACE_BITS",
    "ROWS_OF_ARRAYS",
    "SEGMENTS",
    "WORD",
    "AccumulatorsStandIn",
    "ColumnReaderStandIn",
    "FetchStandIn",
    "Queue",
    "accumulator_word",
    "array_stand_in",
    "descriptor",
    "holds_core_matrix",
    "label",
    "label_of_b",
    "needed_columns",
    "place_of_a",
    "word_of_column",
]

WORD = 32
#: Width in bits of a register number: index among all registers that hold an operand, in all lanes and tensor cores.
PLACE_BITS = 10
#: Number of 16-byte segments in a row of A.
SEGMENTS = 2
#: Maximum number of panels (eight columns) that are fetched ahead of their multiplication, and maximum number of
#: multiplications that are inside the stand-in for an array of dot-product units.
DEPTH = 2
#: Queue entry for a panel (eight columns) fetched ahead: a bit that tells instructions apart, and the panel number.
_PANEL = data.StructLayout({"mark": 1, "panel": 5})

#: Fields of a read request that determine which columns of tensor memory are read.
_COLUMN_FIELDS = ("sparse", "wide", "scaled", "last_panel", "a_shared")
#: Number of arrays of dot-product units in the proof. Four arrays have 64 rows of A, whose block scales need two
#: columns of tensor memory.
ARRAYS = 4
ROWS_OF_ARRAYS = ROWS * ARRAYS
#: Maximum number of columns of each operand in tensor memory, for `ARRAYS` arrays. `FIRST_OF` contains, for each
#: operand, the total number of columns of the operands that are read before it.
COLUMNS_OF = {Operand.METADATA: 2, Operand.SCALE_A: ROWS_OF_ARRAYS // 32, Operand.SCALE_B: 8, Operand.A: 8}
FIRST_OF = {operand: sum([*COLUMNS_OF.values()][:number]) for number, operand in enumerate(COLUMNS_OF)}
ALL_COLUMNS = sum(COLUMNS_OF.values())


def label(mark: Value, place: int) -> Value:
    """Return a word of test data: bit 0 is `mark` (one of two instructions), the bits above are a register number."""
    return Cat(mark, Const(place, PLACE_BITS), Const(0, WORD - 1 - PLACE_BITS))


def place_of_a(array: int, lane: int, register: int) -> int:
    """Return a number that is unique to a register of A, from the numbers of its tensor core, lane and register."""
    return (array * LANES + lane) * REGISTERS + register


def label_of_b(mark: Value, panel: Value, column: int, word: int) -> Value:
    """Return a word of test data for B: bit 0 is `mark` (one of two instructions), then panel, column and word."""
    return Cat(mark, panel, Const(column, 3), Const(word, 4))


def lane_register(panel: int, segment: int, row: int, word: int) -> tuple[int, int, int]:
    """Return where the tensor cores store a word of A from shared memory: tensor core number, lane and register.

    PTX ISA 9.7.15.4.1: an array has 16 rows, and lane 4 g + t has word t of rows g and g + 8. Registers 0 and 1 have
    the words of the first 16 bytes of K, registers 2 and 3 the words of the second 16 bytes.
    """
    array, upper = divmod(panel, 2)
    return array, 4 * row + word, 2 * segment + upper


def holds_core_matrix(fragments: Any, mark: Value, panel: int, segment: int, bits: int = WORD) -> Value:
    """Return whether the low `bits` of each register that stores a core matrix of A are those of the test data."""
    right = []
    for row, word in product(range(8), range(4)):
        place = array, lane, register = lane_register(panel, segment, row, word)
        right.append(fragments[array][lane][register][:bits] == label(mark, place_of_a(*place))[:bits])
    return Cat(right).all()


def descriptor(mark: Value, which: int) -> Value:
    """Return a descriptor as test data: one bit is 1 for A and 0 for B, and all others equal the bit `mark`."""
    layout = panel_request_layout()["descriptor"].shape
    bits = [mark] * layout.size
    bits[layout["reserved0"].offset] = Const(which, 1)
    return Cat(bits)


def array_stand_in(h: Harness, count: int) -> type[Warp]:
    """Return a class of stand-ins for `count` dot-product arrays, which accept operands but return no results."""
    ready = iter([h.free(f"array_{array}_ready") for array in range(count)])

    def build(array: Any) -> Module:
        m = Module()
        m.d.comb += array.i.ready.eq(next(ready))
        return m

    return stand_in(Warp, build)


class Queue:
    """Queue of at most two entries, such as panels, in a stand-in for hardware. `entries` starts with the oldest."""

    def __init__(self, name: str, shape: ShapeLike = _PANEL, *, reset_less: bool = True) -> None:
        self.count = Signal(range(DEPTH + 1), name=f"{name}_count")
        self.entries = [Signal(shape, reset_less=reset_less, name=f"{name}_{place}") for place in range(DEPTH)]

    @property
    def full(self) -> Value:
        """Whether the queue is full, so that no entry can be added."""
        return self.count == DEPTH

    def build(self, m: Module, push: Value, pop: Value, item: Value) -> None:
        """Add the queue's registers to a module. With `push` an item enters, and with `pop` the oldest item leaves."""
        first, second = self.entries
        m.d.sync += self.count.eq(self.count + push - pop)
        with m.If(pop):
            m.d.sync += first.eq(second)
        with m.If(push):
            with m.If(self.count == pop):
                m.d.sync += first.eq(item)
            with m.Else():
                m.d.sync += second.eq(item)


class FetchStandIn:
    """Stand-in for the operand fetch from shared memory. It may read in any cycle, and stores up to 16 columns of B."""

    def __init__(self, h: Harness, a_panels: int) -> None:
        self.a_panels = a_panels
        self.panels = Queue("fetched")  #: Panels (eight columns) of B that were read and not multiplied yet
        #: Segment (16 bytes along K) of the requested eight rows of A that is read next, and whether a core matrix of A
        #: arrives.
        self.segment, self.arriving = Signal(name="segment_of_a"), Signal(name="a_arriving")
        layout = data.StructLayout({"panel": range(a_panels), "segment": 1, "tag": 1, "mark": 1})
        #: Place of the core matrix of A that arrives, slot of its instruction, and bit that tells instructions apart.
        self.core_matrix = Signal(layout, reset_less=True, name="core_matrix_of_a")
        names = ("may_read_b", "may_offer_b", "may_read_a")
        self._read_b, self._offer_b, self._read_a = (h.free(name) for name in names)

    def build(self, fetch: OperandFetch) -> Module:
        """Build the logic that replaces the operand fetch in the component under proof."""
        m = Module()
        oldest, arriving = self.panels.entries[0], self.core_matrix
        push, pop, reads_a = Signal(), Signal(), Signal()
        m.d.comb += [
            fetch.b.ready.eq(self._read_b & ~self.panels.full),
            fetch.panels.valid.eq(self._offer_b & (self.panels.count != 0)),
            push.eq(fetch.b.valid & fetch.b.ready),
            pop.eq(fetch.panels.valid & fetch.panels.ready),
            reads_a.eq(fetch.a.valid & self._read_a),
            fetch.a.ready.eq(self._read_a & self.segment),
            fetch.arriving.eq(self.arriving),
            *(fetch.core_matrix[name].eq(arriving[name]) for name in ("panel", "segment", "tag")),
        ]
        self.panels.build(m, push, pop, Cat(fetch.b.payload.descriptor.start[0], fetch.b.payload.panel))
        m.d.sync += self.arriving.eq(reads_a)
        with m.If(reads_a):
            m.d.sync += [
                self.segment.eq(~self.segment),
                arriving.panel.eq(fetch.a.payload.panel),
                arriving.segment.eq(self.segment),
                arriving.tag.eq(fetch.a_tag),
                arriving.mark.eq(fetch.a.payload.descriptor.start[0]),
            ]
        for column, word in product(range(8), range(16)):
            shown = label_of_b(oldest.mark, oldest.panel, column, word)
            m.d.comb += fetch.panels.payload[column].word_select(word, WORD).eq(shown)
        for row, word in product(range(8), range(4)):
            of_row = fetch.core_matrix.rows[row].word_select(word, WORD)
            for panel, segment in product(range(self.a_panels), range(SEGMENTS)):
                with m.If((arriving.panel == panel) & (arriving.segment == segment)):
                    place = place_of_a(*lane_register(panel, segment, row, word))
                    m.d.comb += of_row.eq(label(arriving.mark, place))
        return m


class ColumnReaderStandIn:
    """Stand-in for the reader of tensor memory. It may read the columns of a request in any order, in any cycle."""

    def __init__(self, h: Harness) -> None:
        self._read, self._chosen = h.free("may_read_column"), h.free("column", range(ALL_COLUMNS))
        h.assume(self._chosen < ALL_COLUMNS)
        self._accept = h.free("may_accept_request")
        #: Whether a tensor-memory column arrives, and whether a request is complete (no column is still to arrive).
        self.arriving, self.complete = Signal(name="column_arriving"), Signal(name="columns_complete")
        #: Tensor-memory column that arrives, slot of its instruction, and bit that tells instructions apart.
        self.place = Signal(range(ALL_COLUMNS), reset_less=True, name="column_place")
        self.tag, self.mark = (Signal(reset_less=True, name=name) for name in ("column_tag", "column_mark"))
        self.done = Signal(ALL_COLUMNS, name="columns_done")  #: Mask of tensor-memory columns that the request has read
        self.accepted = Signal(name="columns_accepted")  #: Whether a read request is accepted in this cycle

    def build(self, reader: TensorOperands) -> Module:
        """Build the logic that replaces the reader of tensor memory in the component under proof."""
        m, request = Module(), reader.i.payload
        needed, read = Signal(ALL_COLUMNS, name="needed_columns"), Signal(name="column_is_read")
        m.d.comb += [
            needed.eq(needed_columns(*(request[name] for name in _COLUMN_FIELDS))),
            read.eq(reader.i.valid & self._read & needed.bit_select(self._chosen, 1)),
            reader.i.ready.eq(self._accept & ~(needed & ~self.done & ~(read << self._chosen)).any()),
            self.accepted.eq(reader.i.valid & reader.i.ready),
            reader.arriving.eq(self.arriving),
            reader.complete.eq(self.complete),
            reader.column.tag.eq(self.tag),
        ]
        m.d.sync += [
            self.arriving.eq(read),
            self.complete.eq(self.accepted),
            self.place.eq(self._chosen),
            self.done.eq(Mux(self.accepted, 0, self.done | read << self._chosen)),
        ]
        with m.If(reader.i.valid):
            m.d.sync += [self.tag.eq(request.tag), self.mark.eq(request.a_column[0])]
        for operand, first in FIRST_OF.items():
            with m.If((self.place >= first) & (self.place < first + COLUMNS_OF[operand])):
                m.d.comb += [reader.column.operand.eq(operand), reader.column.number.eq(self.place - first)]
        for lane, word in enumerate(reader.words):
            m.d.comb += word.eq(Cat(self.mark, self.place, Const(lane, 7)))
        return m


def needed_columns(sparse: Value, wide: Value, scaled: Value, last_panel: Value, a_shared: Value) -> Value:
    """Return a mask of the columns of tensor memory that an instruction reads.

    Sparse instructions read one column of metadata if elements have 16 bits, else two. The scales of B have one column
    of tensor memory for every 32 columns of B.
    """
    metadata = Cat(sparse, sparse & ~wide)
    of_b = Cat(scaled & ((last_panel >> 2) >= number) for number in range(COLUMNS_OF[Operand.SCALE_B]))
    return Cat(
        metadata, scaled.replicate(COLUMNS_OF[Operand.SCALE_A]), of_b, (~a_shared).replicate(COLUMNS_OF[Operand.A])
    )


def word_of_column(mark: Value, operand: Operand, number: int, lane: int) -> Value:
    """Return a test word of tensor memory. Bit 0 tells instructions apart; the others encode column and lane."""
    return Cat(mark, Const(FIRST_OF[operand] + number, range(ALL_COLUMNS)), Const(lane, 7))


class AccumulatorsStandIn:
    """Stand-in for the accumulators in tensor memory. It may deliver columns of D at any time, in request order.

    `panels` is the queue of panels that were requested and are not multiplied yet. The highest bit of the column number
    in a request is the mark of the instruction.
    """

    def __init__(self, h: Harness) -> None:
        self.panels = Queue("requested_d")
        self._accept, self._offer = h.free("may_request_d"), h.free("may_offer_d")

    def build(self, store: Accumulators) -> Module:
        """Build the logic that replaces the store of accumulators in the component under proof."""
        m, oldest, column = Module(), self.panels.entries[0], store.i.payload.column
        push, pop = Signal(), Signal()
        m.d.comb += [
            store.i.ready.eq(self._accept & ~self.panels.full),
            store.c.valid.eq(self._offer & (self.panels.count != 0)),
            store.o.ready.eq(1),
            push.eq(store.i.valid & store.i.ready),
            pop.eq(store.c.valid & store.c.ready),
        ]
        self.panels.build(m, push, pop, Cat(column[-1], column[3:8]))
        for array, lane, register in product(range(ARRAYS), range(LANES), range(REGISTERS)):
            word = accumulator_word(oldest.mark, oldest.panel, place_of_a(array, lane, register))
            m.d.comb += store.c.payload[array][lane][register].eq(word)
        return m


def accumulator_word(mark: Value, panel: Value, place: int) -> Value:
    """Return a word of test data for C: bit 0 is `mark` (one of two instructions), then panel and register."""
    return Cat(mark, panel, Const(place, PLACE_BITS))

"""Tensor memory to registers: metadata and block scales of ``tcgen05.mma.sp`` as a warp's hardware takes them."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from .reads import ReadControl
from .warp import COLUMNS, LANES, ROWS

__all__ = [
    "COLUMN_BITS",
    "TENSOR_LANES",
    "WORD_BITS",
    "TensorMemoryReader",
    "tensor_memory_signature",
    "tensor_registers_layout",
    "tensor_request_layout",
]

TENSOR_LANES = 128
COLUMN_BITS = 9
WORD_BITS = 32
_ROW_BLOCKS = TENSOR_LANES // ROWS
#: Block scales of 32 rows of A or columns of B share a column.
_PARTITION = 32


def tensor_memory_signature() -> wiring.Signature:
    """Return the port to a tensor memory that reads one column a cycle.

    Members
    -------
    read : Out(1)
        The column is meant.
    column : Out(9)
        Which one.
    data : In(32).array(128)
        Its word in each lane, one cycle later.
    """
    return wiring.Signature({"read": Out(1), "column": Out(COLUMN_BITS), "data": In(WORD_BITS).array(TENSOR_LANES)})


def tensor_request_layout() -> data.StructLayout:
    """Return the layout of what a reader is asked for: 16 rows of A and 8 columns of B of an instruction.

    Fields
    ------
    metadata_column : 9
        First column of the metadata.
    wide : 1
        Elements of 16 or 32 bits, eight chunks a row; otherwise there are sixteen.
    sparsity_selector : 1
        PTX's sparsity selector of a wide instruction: which of two columns holds the metadata.
    rows : 3
        Which sixteen of the 128 rows.
    panel : 5
        Which eight columns of B.
    scaled : 1
        There are block scales.
    scale_a_column, scale_b_column : 9
        First columns of the block scales.
    """
    return data.StructLayout(
        {
            "metadata_column": COLUMN_BITS,
            "wide": 1,
            "sparsity_selector": 1,
            "rows": range(_ROW_BLOCKS),
            "panel": 5,
            "scaled": 1,
            "scale_a_column": COLUMN_BITS,
            "scale_b_column": COLUMN_BITS,
        }
    )


def tensor_registers_layout() -> data.StructLayout:
    """Return the layout of metadata and scale registers, for the fields of a warp's operands that have these names.

    Fields
    ------
    e : 32 lanes of 32 bits
        Metadata; the same for both sparsity selectors of ``mma.sp`` if there are two.
    scale_a, scale_b : 32 lanes of 32 bits
        Block scales, the same for all thread ids, at the byte ids that are the instruction's scale factor ids. Of no
        meaning if there are none.
    """
    lanes = data.ArrayLayout(WORD_BITS, LANES)
    return data.StructLayout({"e": lanes, "scale_a": lanes, "scale_b": lanes})


class _Part(enum.Enum, shape=2):
    """What a column holds, in the order of reading."""

    METADATA = 0
    MORE_METADATA = 1
    SCALE_A = 2
    SCALE_B = 3


class TensorMemoryReader(wiring.Component):
    """Read metadata and block scales of a 16 x 8 tile of ``tcgen05.mma.sp``, one column of tensor memory a cycle.

    One column of metadata is read if elements are wide, otherwise two, and two more if there are block scales. Of
    ``reads`` columns, the registers are offered ``reads + 1`` cycles after the request; the next one's reads begin in
    the cycle in which they are taken, so the interval is ``reads + 1`` cycles too. Rows are those of one CTA with
    M = 128 (layouts A and D); columns wrap at 512.

    Members
    -------
    i : In(stream of tensor_request_layout())
        Requests; one is taken with its last read.
    o : Out(stream of tensor_registers_layout())
        Registers, in order.
    memory : Out(tensor_memory_signature())
        Where they come from. Of block scales, which all four groups of 32 lanes hold, the first group's are used.

    Notes
    -----
    Source: CUTLASS ``tmem_e_frg``, with which JAX agrees, for metadata; PTX ISA, scale factor A and B ID, and CUTLASS
    ``tmem_sf_frg`` for block scales. Modelled: no ``tcgen05`` hardware has been measured.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "i": In(stream.Signature(tensor_request_layout())),
                "o": Out(stream.Signature(tensor_registers_layout())),
                "memory": Out(tensor_memory_signature()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the sequence of reads and the registers."""
        m = Module()
        request, memory = self.i.payload, self.memory
        part = Signal(_Part)
        following = Signal(_Part)
        last = Signal()
        m.submodules.control = control = ReadControl()
        m.d.comb += [
            control.i_valid.eq(self.i.valid),
            control.o_ready.eq(self.o.ready),
            control.last.eq(last),
            memory.read.eq(control.read),
            self.i.ready.eq(control.i_ready),
            self.o.valid.eq(control.o_valid),
        ]
        with m.Switch(part):
            with m.Case(_Part.METADATA):
                m.d.comb += [
                    memory.column.eq(request.metadata_column + (request.wide & request.sparsity_selector)),
                    last.eq(request.wide & ~request.scaled),
                    following.eq(Mux(request.wide, _Part.SCALE_A, _Part.MORE_METADATA)),
                ]
            with m.Case(_Part.MORE_METADATA):
                m.d.comb += [
                    memory.column.eq(request.metadata_column + 1),
                    last.eq(~request.scaled),
                    following.eq(_Part.SCALE_A),
                ]
            with m.Case(_Part.SCALE_A):
                m.d.comb += [
                    memory.column.eq(request.scale_a_column + request.rows[1:]),
                    following.eq(_Part.SCALE_B),
                ]
            with m.Case(_Part.SCALE_B):
                m.d.comb += [memory.column.eq(request.scale_b_column + request.panel[2:]), last.eq(1)]
        with m.If(control.read):
            m.d.sync += part.eq(Mux(last, _Part.METADATA, following))
        self._arrive(m, part, control.arriving)
        return m

    def _arrive(self, m: Module, part: Value, arriving: Value) -> None:
        """Keep the tile's words of the column that arrives."""
        request, words, registers = self.i.payload, self.memory.data, self.o.payload
        arrived = Signal(_Part, reset_less=True)
        wide = Signal(reset_less=True)
        rows = Signal(range(_ROW_BLOCKS), reset_less=True)
        panel = Signal(range(_PARTITION // COLUMNS), reset_less=True)
        m.d.sync += [
            arrived.eq(part),
            wide.eq(request.wide),
            rows.eq(request.rows),
            panel.eq(request.panel),
        ]
        block = Cat(rows[0], Mux(arrived == _Part.SCALE_A, 0, rows[1:]))
        first = arriving & (arrived == _Part.METADATA)
        second = arriving & Mux(wide, arrived == _Part.METADATA, arrived == _Part.MORE_METADATA)
        for row in range(ROWS):
            # Lanes 4 g + 2 x + h are those of row 8 h + g: pair x of a quad holds a word of eight chunks of each row,
            # or, of wide elements, what sparsity selector x picks: word h, which is four chunks of both.
            lane = 4 * (row % 8) + row // 8
            word = Array(words[ROWS * n + row] for n in range(_ROW_BLOCKS))[block]
            pair = [Signal(WORD_BITS, name=f"e_{lane + 2 * x}", reset_less=True) for x in range(2)]
            scale = Signal(WORD_BITS, name=f"scale_a_{row}", reset_less=True)
            for held, enable in (
                *zip(pair, (first, second), strict=True),
                (scale, arriving & (arrived == _Part.SCALE_A)),
            ):
                with m.If(enable):
                    m.d.sync += held.eq(word)
            m.d.comb += [registers.e[lane + 2 * x].eq(pair[x]) for x in range(2)]
            m.d.comb += [registers.scale_a[lane + 2 * x].eq(scale) for x in range(2)]
        for column in range(COLUMNS):
            word = Array(words[COLUMNS * n + column] for n in range(_PARTITION // COLUMNS))[panel]
            scale = Signal(WORD_BITS, name=f"scale_b_{column}", reset_less=True)
            with m.If(arriving & (arrived == _Part.SCALE_B)):
                m.d.sync += scale.eq(word)
            m.d.comb += [registers.scale_b[4 * column + x].eq(scale) for x in range(4)]

"""Execution of ``mma`` by a warp: collect fragments of 32 lanes, compute on the array, return results to lanes."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from .cells.described import DescribedLayout, DescribedSignature
from .codes import is_wide
from .config import WARP_COLUMNS, WARP_ROWS, WARP_SEGMENT_BYTES, CoreConfig
from .core import Core
from .round import ResultCode
from .step import control_layout
from .unit import Unit

__all__ = [
    "CHUNKS",
    "COLUMNS",
    "FRAGMENT",
    "ILLEGAL",
    "LANES",
    "REGISTER",
    "REGISTERS",
    "ROWS",
    "SCALE_SIZE",
    "WORD_BITS",
    "ScaleSizeCode",
    "Warp",
    "warp_operands_layout",
    "warp_result_layout",
]

ROWS, COLUMNS = WARP_ROWS, WARP_COLUMNS
LANES, REGISTERS, CHUNKS = 32, 4, 16
#: Width in bits of a register, and of a word of tensor memory.
WORD_BITS = 32
#: Layout of one register of a warp: a 32-bit word for each of the 32 lanes.
REGISTER = data.ArrayLayout(WORD_BITS, LANES)
#: Layout of 16 rows of A, or of the accumulators of 16 rows and eight columns: four registers in each of 32 lanes.
#: Accumulators of f16 use the first two registers.
FRAGMENT = data.ArrayLayout(data.ArrayLayout(WORD_BITS, REGISTERS), LANES)
#: Tag that accompanies a block of outputs through the core (array of units): properties of the instruction that are
#: needed again when the results are collected.
_TAG = data.StructLayout({"half": 1, "wide": 1, "step": 1, "last": 1})
#: Type of the stored results of all outputs in row-major order: a list of result words, and a list of flags, one for
#: each output, that are set if an integer sum exceeds 32 bits.
_Outputs = tuple[list[Signal], list[Signal]]


#: Texts that document the fields that several layouts have in common.
SCALE_SIZE = "Number of block scales of each row of A and of each column of B: 1, 2 or 4 (.scale_vec of PTX)."
ILLEGAL = (
    "Flags of undefined metadata [row][chunk]: 1 if control.rule does not define the nibble of the chunk. The flags "
    "are 0 for dense instructions. The results do not depend on the flags."
)


class ScaleSizeCode(enum.Enum, shape=2):
    """Code of ``.scale_vec::NX``: the number of block scales per row of A and column of B."""

    X1 = 0
    X2 = 1
    X4 = 2


def warp_operands_layout() -> DescribedLayout:
    """Return the layout of an ``mma`` instruction with the registers that the instruction reads."""
    a = "Registers [lane][register] of A in the fragment layout of PTX: registers 0 to 3 if long is 1, else 0 and 1."
    b = (
        "Registers [lane][register] of B in the fragment layout of PTX: registers 0 to 3 (sparse and long), 0 and 1 "
        "(either sparse or long), or 0 (neither). Unused registers are ignored."
    )
    c = (
        "Accumulator registers [lane][register] in the fragment layout of PTX. With result F16, registers 0 and 1 have "
        "two accumulators each, and registers 2 and 3 are ignored."
    )
    selector = (
        "Sparsity selector f of PTX, which selects the lanes of each quad that provide metadata. Elements of 16 or 32 "
        "bits: lane f, or lanes 2 f and 2 f + 1 if long is 1 (f is 0 or 1). Smaller elements: lanes 2 f and 2 f + 1 (f "
        "is 0 or 1), or all four lanes if long is 1. The selector is ignored in dense instructions."
    )
    scales = "Register of each lane with block scales of {}; ignored without block scales."
    byte = "byte-id of PTX for {}: number of the lowest byte with block scales in the register."
    thread_a = "thread-id of PTX for A: block scales are in lanes 0 and 1 of each quad (0) or in lanes 2 and 3 (1)."
    thread_b = "thread-id of PTX for B: number of the lane of each quad that provides the block scales of a column."
    return DescribedLayout(
        {
            "a": (FRAGMENT, a),
            "b": (FRAGMENT, b),
            "c": (FRAGMENT, c),
            "e": (REGISTER, "Metadata register of each lane; ignored in dense instructions."),
            "scale_a": (REGISTER, scales.format("A")),
            "scale_b": (REGISTER, scales.format("B")),
            "control": (control_layout(), "Control word: element formats, metadata rule, result format, block scales."),
            "long": (1, "1: a row of A has 32 stored bytes, four registers per lane; 0: 16 bytes, two registers."),
            "sparsity_selector": (2, selector),
            "scale_size": (ScaleSizeCode, SCALE_SIZE),
            "byte_a": (2, byte.format("A")),
            "thread_a": (1, thread_a),
            "byte_b": (2, byte.format("B")),
            "thread_b": (2, thread_b),
        }
    )


def warp_result_layout() -> DescribedLayout:
    """Return the layout of the result of an ``mma``: result registers, and flags of illegal metadata for 16 rows."""
    d = (
        "Result registers [lane][register] in the fragment layout of PTX. With result F16, registers 0 and 1 have two "
        "results each, and registers 2 and 3 are 0."
    )
    return DescribedLayout({"d": (FRAGMENT, d), "illegal": (data.ArrayLayout(CHUNKS, ROWS), ILLEGAL)})


class Warp(wiring.Component):
    """Execute ``mma`` and ``mma.sp`` of shape m16n8 from registers.

    The fragments of all shapes and types have the same byte map (PTX ISA 9.7.14.6.2, measured on an H200), so gathering
    is only wiring. The 16 x 8 outputs are divided into blocks of the core's rows x columns. One block is issued each
    cycle: all blocks for one step of K, then all blocks for the next step. The next instruction is accepted while the
    last block is issued. The interval is therefore ``blocks * steps`` cycles, or ``config.warp_interval(steps)`` cycles
    if blocks must wait for results of the previous step. The latency from acceptance to a valid result is the interval
    plus ``config.latency + 1``.

    Parameters
    ----------
    config : CoreConfig
        `rows` must divide 16, `columns` must divide 8, and `step_bytes` must be 16 or 32.
    unit_class : type
        Class of the dot-product units, as for :class:`~sptc.rtl.core.Core`.
    """

    def __init__(self, config: CoreConfig, unit_class: type[Unit] = Unit) -> None:
        config.require_warp()
        self.config = config
        self.unit_class = unit_class
        self.row_blocks = ROWS // config.rows
        self.column_blocks = COLUMNS // config.columns
        short, long = (config.warp_latency(steps) for steps in (1, 2 * WARP_SEGMENT_BYTES // config.step_bytes))
        latency = f"{short} cycles" + (f" ({long} if long)" if long != short else "")
        o = f"Results of the instructions, in order, {latency} after acceptance if no result is stalled."
        ports = {
            "i": (In(stream.Signature(warp_operands_layout())), "Instructions mma or mma.sp, with their registers."),
            "o": (Out(stream.Signature(warp_result_layout())), o),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build registers and the logic that gathers operands, feeds dot-product units and collects results."""
        m = Module()
        config = self.config
        m.submodules.core = core = Core(config, _TAG, self.unit_class)
        operands = Signal(warp_operands_layout(), reset_less=True)
        busy = Signal()
        # The stored results are the accumulators of the next step and, after the last step, the output registers.
        outputs = (
            [Signal(32, name=f"d_{n}", reset_less=True) for n in range(ROWS * COLUMNS)],
            [Signal(name=f"overflow_{n}", reset_less=True) for n in range(ROWS * COLUMNS)],
        )

        # Blocks (outputs of one cycle) are issued in this order: all blocks of one step along K, then of the next step.
        row_block = Signal(range(self.row_blocks))
        column_block = Signal(range(self.column_blocks))
        two_steps = config.step_bytes == WARP_SEGMENT_BYTES
        step = Signal() if two_steps else Const(0)
        last_step = operands.long if two_steps else Const(0)
        last_block = (row_block == self.row_blocks - 1) & (column_block == self.column_blocks - 1)
        issue = Signal()
        collect = Signal()
        m.d.comb += [
            core.i.valid.eq(busy & self._earlier_step_is_in(m, step, issue, collect)),
            issue.eq(core.i.valid & core.i.ready),
            collect.eq(core.o.valid & core.o.ready),
            self.i.ready.eq(~busy | (issue & last_block & (step == last_step))),
        ]
        with m.If(issue):
            self._advance(m, row_block, column_block)
            if two_steps:
                with m.If(last_block):
                    m.d.sync += step.eq(step != last_step)
        with m.If(self.i.ready):
            m.d.sync += busy.eq(self.i.valid)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += operands.eq(self.i.payload)
        tile, tag = core.i.payload, core.i.payload.tag
        m.d.comb += [
            tag.half.eq(operands.control.result == ResultCode.F16),
            tag.wide.eq(is_wide(config, operands.control.a)),
            tag.step.eq(step),
            tag.last.eq(last_block & (step == last_step)),
            tile.control.eq(operands.control),
            tile.control.saturate.eq(operands.control.saturate & (step == last_step)),
        ]
        self._feed(m, tile, operands, step, row_block, column_block, outputs)
        self._collect(m, core, collect, outputs)
        return m

    def _earlier_step_is_in(self, m: Module, step: Value, issue: Value, collect: Value) -> Value:
        """Return whether the results of the previous step along K, accumulators of the next outputs, are stored.

        The accumulators are always stored if a step has more blocks than the core has cycles of latency.
        """
        if self.config.step_bytes != WARP_SEGMENT_BYTES or self.config.warp_blocks > self.config.latency:
            return Const(1)
        # Example: 8 x 4 dot-product units with a latency of five cycles, and two steps along K. Step 1 waits for the
        # results of step 0 (1.2 is step 1 along K of block 2; a block is the 32 outputs of one cycle):
        #
        #     cycle       0      1      2      3      4      5      6      7      8      9
        #     issue       0.0    0.1    0.2    0.3    -      -      1.0    1.1    1.2    1.3
        #     collect                                        0.0    0.1    0.2    0.3
        outstanding = Signal(range(self.config.latency + 1))
        m.d.sync += outstanding.eq(outstanding + issue - collect)
        return (step == 0) | (outstanding < self.config.warp_blocks)

    def _advance(self, m: Module, row_block: Signal, column_block: Signal) -> None:
        """Advance to the next block of outputs: all column blocks of a row block, then the next row block."""
        with m.If(column_block == self.column_blocks - 1):
            m.d.sync += column_block.eq(0)
            m.d.sync += row_block.eq(Mux(row_block == self.row_blocks - 1, 0, row_block + 1))
        with m.Else():
            m.d.sync += column_block.eq(column_block + 1)

    def _feed(
        self,
        m: Module,
        tile: data.View,
        operands: data.View,
        step: Value,
        row_block: Signal,
        column_block: Signal,
        outputs: _Outputs,
    ) -> None:
        """Gather the operands of a block of outputs for one cycle from the registers of the instruction."""
        config, (words, overflows) = self.config, outputs
        a_rows = [self._a_row(operands, row, step) for row in range(ROWS)]
        metadata = [self._metadata_row(operands, row, step) for row in range(ROWS)]
        b_columns = [self._b_column(operands, column, step) for column in range(COLUMNS)]
        scales_a = [self._scales(operands, "a", row) for row in range(ROWS)]
        scales_b = [self._scales(operands, "b", column) for column in range(COLUMNS)]
        for i in range(config.rows):
            rows = [block * config.rows + i for block in range(self.row_blocks)]
            m.d.comb += [
                tile.a[i].eq(Array(a_rows[row] for row in rows)[row_block]),
                tile.metadata[i].eq(Array(metadata[row] for row in rows)[row_block]),
                tile.scale_a[i].eq(Array(scales_a[row] for row in rows)[row_block]),
            ]
        for j in range(config.columns):
            columns = [block * config.columns + j for block in range(self.column_blocks)]
            m.d.comb += [
                tile.b[j].eq(Array(b_columns[column] for column in columns)[column_block]),
                tile.scale_b[j].eq(Array(scales_b[column] for column in columns)[column_block]),
            ]
        half = operands.control.result == ResultCode.F16
        for i in range(config.rows):
            for j in range(config.columns):
                output = i * config.columns + j
                places = [
                    (r * config.rows + i, c * config.columns + j)
                    for r in range(self.row_blocks)
                    for c in range(self.column_blocks)
                ]
                block = row_block * self.column_blocks + column_block
                initial = Array(self._accumulator(operands, half, row, column) for row, column in places)[block]
                earlier = Array(words[row * COLUMNS + column] for row, column in places)[block]
                overflow = Array(overflows[row * COLUMNS + column] for row, column in places)[block]
                m.d.comb += [
                    tile.c[output].eq(Mux(step == 0, initial, earlier)),
                    tile.overflow[output].eq(Mux(step == 0, 0, overflow)),
                ]

    def _a_row(self, operands: data.View, row: int, step: Value) -> Value:
        """Return the stored bytes of a row of A. Bytes 16 h to 16 h + 15 are in register 2 h + (row >= 8) of a quad."""
        lanes = [4 * (row % 8) + t for t in range(4)]
        first, second = (Cat(operands.a[lane][2 * h + row // 8] for lane in lanes) for h in range(2))
        if self.config.step_bytes == WARP_SEGMENT_BYTES:
            return Mux(step, second, first)
        return Cat(first, Mux(operands.long, second, 0))

    def _b_column(self, operands: data.View, column: int, step: Value) -> Value:
        """Return the bytes of a column of B. Bytes 16 r to 16 r + 15 are in register r of the column's four lanes."""
        # Step (0 or 1) in which each register of B is read, if a step has 16 stored bytes per row of A:
        #
        #     register                 3    2    1    0
        #     step, sparse operands    1    1    0    0
        #     step, dense operands     -    -    1    0
        quad = [operands.b[4 * column + t] for t in range(4)]
        words = [Cat(lane[register] for lane in quad) for register in range(REGISTERS)]
        sparse, long = operands.control.sparse, operands.long
        low, high = Cat(words[0], words[1]), Mux(long, Cat(words[2], words[3]), 0)
        if self.config.step_bytes == WARP_SEGMENT_BYTES:
            return Mux(sparse, Mux(step, high, low), Mux(step, words[1], words[0]))
        return Mux(sparse, Cat(low, high), Cat(words[0], Mux(long, words[1], 0)))

    def _metadata_row(self, operands: data.View, row: int, step: Value) -> Value:
        """Return the metadata nibbles of a row, from its four lanes; 4 (legal) at positions without metadata."""
        quad = [operands.e[4 * (row % 8) + t] for t in range(4)]
        upper = row // 8
        half_words = Array(word.word_select(upper, 16) for word in quad)
        # Metadata of rows g and g + 8 in the four words of a quad, with h = 0 for row g and h = 1 for row g + 8. The
        # sparsity selector is f. Columns "threads" state the lanes of the quad that have the metadata, for instructions
        # with two (short) and with four (long) registers of A:
        #
        #     elements     bits 31 ... 16           bits 15 ... 0         threads, short    threads, long
        #     16-bit       4 chunks of row g + 8    4 chunks of row g     f                 2 f[0], 2 f[0] + 1
        #     8-bit        8 chunks of row g + 8 h                        2 f[0] + h        h, 2 + h
        f = operands.sparsity_selector
        unused = Const(0x44444444, 32)
        wide_long = Cat(half_words[Cat(Const(0, 1), f[0])], half_words[Cat(Const(1, 1), f[0])])
        wide = Mux(operands.long, wide_long, Cat(half_words[f], unused[:16]))
        narrow_short = Cat(Array(quad)[Cat(Const(upper, 1), f[0])], unused)
        narrow = Mux(operands.long, Cat(quad[upper], quad[2 + upper]), narrow_short)
        wide_element = is_wide(self.config, operands.control.a)
        if self.config.step_bytes == WARP_SEGMENT_BYTES:
            return Mux(wide_element, Mux(step, wide[16:], wide[:16]), Mux(step, narrow[32:], narrow[:32]))
        return Mux(wide_element, wide, narrow)

    def _scales(self, operands: data.View, operand: str, index: int) -> Value:
        """Return the block scales of a row of A or a column of B, as one byte for each group of 16 products."""
        if not self.config.scales:
            return Const(0, 32)
        if operand == "a":
            base = 4 * (index % 8) + index // 8
            word = Mux(operands.thread_a, operands.scale_a[base + 2], operands.scale_a[base])
            shifted = (word >> Cat(Const(0, 3), operands.byte_a))[:32]
        else:
            word = Array(operands.scale_b[4 * index + t] for t in range(4))[operands.thread_b]
            shifted = (word >> Cat(Const(0, 3), operands.byte_b))[:32]
        # Scale bytes (s0 to s3) for each group of 16 products. For `1X` only s0 has an effect:
        #
        #     group of 16    3     2     1     0
        #     4X             s3    s2    s1    s0
        #     2X             s1    s1    s0    s0
        #     1X             -     -     -     s0     for all products; the other bytes have no effect
        pairs = Cat(shifted[:8], shifted[:8], shifted[8:16], shifted[8:16])
        return Mux(operands.scale_size == ScaleSizeCode.X2, pairs, shifted)

    def _accumulator(self, operands: data.View, half: Value, row: int, column: int) -> Value:
        """Return the accumulator of one output. An f16 is in the low half of the word; no unit reads the high half."""
        # Row and column of C in each register of lane 4 g + t (both: column 2 t and column 2 t + 1):
        #
        #     register       3                 2             1                 0
        #     f32, s32       g + 8, 2 t + 1    g + 8, 2 t    g, 2 t + 1        g, 2 t      row, column
        #     f16                                            g + 8, both       g, both
        lane = operands.c[4 * (row % 8) + column // 2]
        register = lane[2 * (row // 8) + column % 2]
        return Cat(Mux(half, lane[row // 8].word_select(column % 2, 16), register[:16]), register[16:])

    def _collect(self, m: Module, core: Core, collect: Value, outputs: _Outputs) -> None:
        """Store the outputs that arrive in each cycle. After an ``mma``'s last outputs, offer its result registers."""
        config, result, (words, overflows) = self.config, core.o.payload, outputs
        row_block = Signal(range(self.row_blocks))
        column_block = Signal(range(self.column_blocks))
        full = Signal()
        half = Signal(reset_less=True)
        illegal = [Signal(CHUNKS, name=f"illegal_{row}", reset_less=True) for row in range(ROWS)]
        m.d.comb += [core.o.ready.eq(~full | self.o.ready), self.o.valid.eq(full)]
        with m.If(self.o.ready):
            m.d.sync += full.eq(0)
        with m.If(collect):
            self._advance(m, row_block, column_block)
            with m.If(result.tag.last):
                m.d.sync += [full.eq(1), half.eq(result.tag.half)]
        for row in range(ROWS):
            of_block = collect & (row_block == row // config.rows)
            flags = result.illegal[row % config.rows]
            later = Mux(result.tag.wide, flags << config.chunks // 2, flags << config.chunks)
            # All columns of a row have the same flags of illegal metadata, so only the flags of the first column are
            # stored.
            with m.If(of_block & (column_block == 0)):
                m.d.sync += illegal[row].eq(Mux(result.tag.step, illegal[row] | later, flags))
            for column in range(COLUMNS):
                output = row % config.rows * config.columns + column % config.columns
                with m.If(of_block & (column_block == column // config.columns)):
                    m.d.sync += [
                        words[row * COLUMNS + column].eq(result.d[output]),
                        overflows[row * COLUMNS + column].eq(result.overflow[output]),
                    ]
        registers = self.o.payload
        m.d.comb += [registers.illegal[row].eq(illegal[row]) for row in range(ROWS)]
        for lane in range(LANES):
            g, t = lane // 4, lane % 4
            for register in range(REGISTERS):
                row = g + 8 * (register // 2)
                whole = words[row * COLUMNS + 2 * t + register % 2]
                pair = [words[(g + 8 * (register % 2)) * COLUMNS + 2 * t + side][:16] for side in range(2)]
                packed = Cat(*pair) if register < 2 else Const(0)
                m.d.comb += registers.d[lane][register].eq(Mux(half, packed, whole))

"""The four tensor cores of an SM as a CTA sees them: ``tcgen05.mma`` of 128 rows of each CTA."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.formats import low_bit
from .accumulators import ARRAYS, Accumulators, accumulator_memory_signature
from .codes import is_one_of, is_wide
from .commits import GROUPS, Commits
from .config import PRESETS, CoreConfig, Element
from .fetch import (
    UNIT_BITS,
    CoreMatrixAddress,
    descriptor_layout,
    panel_layout,
    shared_memory_signature,
)
from .operand_fetch import OperandFetch
from .operand_slots import A_PANELS_OF_ARRAY, SLOTS, OperandSlots
from .placement import Placement, placement_layout
from .round import ResultCode
from .scale import ScaleCode
from .step import control_layout
from .tensor_memory import COLUMN_BITS, TENSOR_LANES, WORD_BITS, tensor_memory_signature
from .tensor_operands import Operand, TensorOperands
from .unit import Unit
from .warp import CHUNKS, COLUMNS, LANES, ROWS, ScaleSizeCode, Warp
from .wgmma import drive_operands, segment_words

__all__ = ["TCGEN05_ARRAY", "CtaOperation", "Tcgen05", "tcgen05_layout"]

#: Half of a tensor core of sm_100, at the rate measured on a B200: eight columns of 16 rows in four cycles.
TCGEN05_ARRAY = replace(PRESETS["blackwell"], rows=8, columns=4)
_PANEL_BITS = 5
#: Lanes of tensor memory whose block scales share a column.
_PARTITION = 32
#: Elements of a unit of 16 bytes in which those of less than 8 bits are padded.
_PADDED = 16


class CtaOperation(enum.Enum, shape=1):
    """What the tensor cores are told to do."""

    MULTIPLY = 0
    COMMIT = 1


def tcgen05_layout() -> data.StructLayout:
    """Return the layout of what the tensor cores are told.

    Fields
    ------
    operation : CtaOperation
        ``tcgen05.mma`` or ``tcgen05.commit``.
    control : control_layout()
        Formats, rule, result and block scales.
    a_descriptor, b_descriptor : descriptor_layout()
        Where operands in shared memory lie; the swizzle of 128 bytes in atoms of 32 is not built.
    a_shared : 1
        A is in shared memory, not in tensor memory.
    a_transposed, b_transposed : 1
        The operand is MN-major; of elements of 16 bits.
    negated : 1
        One of the operands is negated, not both.
    add : 1
        enable-input-d: D is added.
    last_panel : 5
        N / 8 - 1.
    sparsity_selector : 1
        PTX's sparsity selector of elements of 16 or 32 bits.
    d_column, a_column, metadata_column, scale_a_column, scale_b_column : 9
        First columns of what is in tensor memory.
    scale_size : ScaleSizeCode
        Block scales of a row.
    byte_a, byte_b : 2
        Byte of a word where the block scales start.
    pair : 1
        cta_group::2: columns of B are this CTA's and the other's in turn, eight at a time; N is a multiple of 16.
    odd : 1
        This is the CTA of the pair whose columns of B come second.
    """
    descriptors = dict.fromkeys(("a_descriptor", "b_descriptor"), descriptor_layout())
    flags = dict.fromkeys(("a_shared", "a_transposed", "b_transposed", "negated", "add"), 1)
    names = ("d_column", "a_column", "metadata_column", "scale_a_column", "scale_b_column")
    return data.StructLayout(
        {"operation": CtaOperation, "control": control_layout()}
        | descriptors
        | flags
        | {"last_panel": _PANEL_BITS, "sparsity_selector": 1}
        | dict.fromkeys(names, COLUMN_BITS)
        | {"scale_size": ScaleSizeCode, "byte_a": 2, "byte_b": 2, "pair": 1, "odd": 1}
    )


class Tcgen05(wiring.Component):
    """Execute ``tcgen05.mma``, sparse or dense, of 128 rows of one CTA, eight columns at a time.

    Each tensor core has two arrays, each of which takes eight columns of 16 rows in ``config.warp_blocks`` cycles:
    four, with 32 units. A panel of B is read once for all of them, with ``.cta_group::2`` by one of two CTAs for the
    arrays of both, which multiply in the same cycles. Two instructions are held: while one multiplies, A, metadata and
    block scales of the next arrive. So from one instruction to the next it takes what needs longest::

        max(blocks * N / 8, bytes from shared memory / 128, columns from tensor memory)

    One on the accumulators of the one before waits, too, until these are written, 13 cycles from where they are read:
    so less than 32 columns take longer.

    Parameters
    ----------
    config : CoreConfig
        The array, as for :class:`~sptc.rtl.warp.Warp`.
    unit_class, warp_class, address_class : type
        What stands for units, arrays and the address of core matrices.

    Members
    -------
    i : In(stream of tcgen05_layout())
        Instructions and commits, in order.
    pending : Out(range(9))
        Commits that have not arrived.
    arrive : Out(1)
        The oldest does, at its mbarrier.
    undefined : Out(placement_layout())
        What is undefined of the instruction that is taken.
    illegal : Out(128 rows of 16)
        Beside every panel of D that is written: chunks of each row whose nibble the instruction does not define.
    tensor : Out(tensor_memory_signature())
        Tensor memory, for operands.
    accumulators : Out(accumulator_memory_signature())
        Tensor memory, for D.
    memory : Out(shared_memory_signature())
        The shared memory of the CTA.
    waits, panel : Out(1), Out(panel_layout())
        For the other CTA of a pair: this one would multiply the next eight columns; B, if it is this one's.
    other_waits, other_panel : In(1), In(panel_layout())
        What the other one says.

    Notes
    -----
    Source: PTX ISA; the rate, the port to shared memory and what a pair reads as measured by others on a B200, dense.
    Modelled. Not built: ``.ws``, 64 rows, ``.ashift``, scale-input-d, disabled lanes, MN-major elements of less or more
    than 16 bits, elements of less than 8 bits of A in tensor memory but for those of 4-bit kinds.
    """

    def __init__(
        self,
        config: CoreConfig,
        unit_class: type[Unit] = Unit,
        warp_class: type[Warp] = Warp,
        address_class: type[CoreMatrixAddress] = CoreMatrixAddress,
    ) -> None:
        self.config = config
        self.unit_class = unit_class
        self.warp_class = warp_class
        self.address_class = address_class
        super().__init__(
            {
                "i": In(stream.Signature(tcgen05_layout())),
                "pending": Out(range(GROUPS + 1)),
                "arrive": Out(1),
                "undefined": Out(placement_layout()),
                "illegal": Out(data.ArrayLayout(CHUNKS, TENSOR_LANES)),
                "tensor": Out(tensor_memory_signature()),
                "accumulators": Out(accumulator_memory_signature()),
                "memory": Out(shared_memory_signature()),
                "waits": Out(1),
                "panel": Out(panel_layout()),
                "other_waits": In(1),
                "other_panel": In(panel_layout()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the slots of instructions, what brings their operands, the arrays and the commits."""
        m = Module()
        config = self.config
        m.submodules.fetch = fetch = OperandFetch(self.address_class, ARRAYS * A_PANELS_OF_ARRAY)
        m.submodules.tensor_operands = operands = TensorOperands()
        m.submodules.accumulators = store = Accumulators()
        wiring.connect(m, fetch.memory, wiring.flipped(self.memory))
        wiring.connect(m, operands.memory, wiring.flipped(self.tensor))
        wiring.connect(m, store.memory, wiring.flipped(self.accumulators))
        warps = [self.warp_class(config, self.unit_class) for _ in range(ARRAYS)]
        for number, warp in enumerate(warps):
            m.submodules[f"array_{number}"] = warp
        kept = {name: field.shape for name, field in tcgen05_layout() if name != "operation"}
        slots = OperandSlots(m, kept, ARRAYS, {"a": True, "b": False, "words": True, "d": False})
        taken = self.i.valid & self.i.ready & (self.i.payload.operation == CtaOperation.MULTIPLY)
        multiply, last, ready, mine = (Signal(name=name) for name in ("multiply", "last", "ready", "mine"))
        slots.accept(taken, self.i.payload)
        slots.request_b(fetch, _last_own_panel(slots.turns["b"].held))
        self._bring_a(m, slots, fetch)
        words = self._bring_words(m, slots, operands)
        self._request_accumulators(m, slots, store)
        slots.follow(multiply, last)
        held, a = slots.multiplying()
        m.d.comb += [
            mine.eq(~held.pair | (slots.multiplied[0] == held.odd)),
            ready.eq(
                slots.ready & store.c.valid & (fetch.panels.valid | ~mine) & Cat(warp.i.ready for warp in warps).all()
            ),
            self.waits.eq(ready & held.pair),
            self.panel.eq(fetch.panels.payload),
            multiply.eq(ready & (self.other_waits | ~held.pair)),
            last.eq(multiply & slots.multiplies_last),
            fetch.panels.ready.eq(multiply & mine),
            store.c.ready.eq(multiply),
        ]
        stored, panel = (Signal(panel_layout(), name=name) for name in ("stored_panel_of_b", "panel_of_b"))
        m.d.comb += [
            stored.eq(Mux(mine, fetch.panels.payload, self.other_panel)),
            panel.eq(_unpacked(config, stored.as_value(), held.control.b)),
        ]
        scales_b = words.scales_b(_panel_number(held, slots.multiplied))
        for number, warp in enumerate(warps):
            m.d.comb += [
                warp.i.valid.eq(multiply),
                warp.i.payload.scale_a.eq(words.scales_a[number]),
                warp.i.payload.scale_b.eq(scales_b),
                *(warp.i.payload[name].eq(held[name]) for name in ("scale_size", "byte_a", "byte_b")),
            ]
            drive_operands(
                m, config, held, words.metadata[number], a[number], panel, store.c.payload[number], warp.i.payload
            )
        self._give(m, warps, store)
        self._commit(m, taken, multiply, last, store.memory.write, slots.room)
        self._flag(m, taken)
        return m

    def _bring_a(self, m: Module, slots: OperandSlots, fetch: OperandFetch) -> None:
        """Bring A of one slot after another from shared memory; what is in tensor memory comes with the words."""
        turn = slots.turns["a"]
        complete = slots.request_a(fetch)
        with m.If(turn.wants & (complete | ~turn.held.a_shared)):
            turn.end()
        with m.If(turn.wants & ~turn.held.a_shared):
            turn.arrived(turn.slot)
        arrived = fetch.core_matrix
        rows = Signal(arrived.rows.shape(), name="rows_of_a")
        code = Array(slots.held)[arrived.tag].control.a
        m.d.comb += rows.eq(_unpacked(self.config, arrived.rows.as_value(), code))
        slots.store_a(fetch, segment_words(rows, 0))

    def _bring_words(self, m: Module, slots: OperandSlots, operands: TensorOperands) -> "_Words":
        """Bring what one slot after another has in tensor memory."""
        turn, request = slots.turns["words"], operands.i.payload
        m.d.comb += [
            operands.i.valid.eq(turn.wants),
            *self._ask(request, turn.held),
            request.tag.eq(turn.slot),
        ]
        with m.If(operands.i.valid & operands.i.ready):
            turn.end()
        with m.If(operands.complete):
            turn.arrived(operands.column.tag)
        wide = [is_wide(self.config, of_slot.control.a) for of_slot in slots.held]
        return _Words(m, slots, operands, wide)

    def _ask(self, request: data.View, told: data.View) -> list[Any]:
        """Return the assignments of what an instruction has in tensor memory."""
        names = ("a_column", "metadata_column", "scale_a_column", "scale_b_column", "a_shared", "sparsity_selector")
        return [
            *(request[name].eq(told[name]) for name in (*names, "last_panel")),
            request.sparse.eq(told.control.sparse),
            request.wide.eq(is_wide(self.config, told.control.a)),
            request.scaled.eq(told.control.scale != ScaleCode.NONE),
        ]

    def _flag(self, m: Module, taken: Value) -> None:
        """Say what is undefined of an instruction."""
        m.submodules.placement = placement = Placement()
        m.d.comb += [
            placement.taken.eq(taken),
            *self._ask(placement.request, self.i.payload),
            *(
                getattr(placement, name).eq(self.i.payload[name])
                for name in ("d_column", "a_descriptor", "b_descriptor")
            ),
            self.undefined.eq(placement.undefined),
        ]

    def _request_accumulators(self, m: Module, slots: OperandSlots, store: Accumulators) -> None:
        """Request the accumulators of one slot after another, in the order in which they are multiplied."""
        turn, requested = slots.turns["d"], Signal(_PANEL_BITS, name="requested_of_d")
        held = turn.held
        m.d.comb += [
            store.i.valid.eq(turn.wants),
            store.i.payload.column.eq(held.d_column + (_panel_number(held, requested) << COLUMNS.bit_length() - 1)),
            store.i.payload.add.eq(held.add),
            store.i.payload.half.eq(held.control.result == ResultCode.F16),
        ]
        with m.If(store.i.valid & store.i.ready):
            m.d.sync += requested.eq(requested + 1)
            with m.If(requested == held.last_panel):
                m.d.sync += requested.eq(0)
                turn.end()

    def _give(self, m: Module, warps: Sequence[Warp], store: Accumulators) -> None:
        """Write results, and say which chunks had nibbles that the instruction does not define."""
        m.d.comb += store.o.valid.eq(Cat(warp.o.valid for warp in warps).all())
        for number, warp in enumerate(warps):
            m.d.comb += [
                warp.o.ready.eq(store.o.valid & store.o.ready),
                store.o.payload[number].eq(warp.o.payload.d),
                *(self.illegal[ROWS * number + row].eq(warp.o.payload.illegal[row]) for row in range(ROWS)),
            ]

    def _commit(self, m: Module, taken: Value, multiply: Value, last: Value, written: Value, room: Value) -> None:
        """Follow what is committed, and take what can be."""
        is_commit = self.i.payload.operation == CtaOperation.COMMIT
        m.submodules.commits = commits = Commits()
        m.d.comb += [
            commits.issued.eq(taken),
            commits.multiplied.eq(multiply),
            commits.last.eq(last),
            commits.delivered.eq(written),
            commits.commit.eq(self.i.valid & self.i.ready & is_commit),
            self.pending.eq(commits.pending),
            self.arrive.eq(commits.finished),
            self.i.ready.eq(Mux(is_commit, commits.room, room)),
        ]


class _Words:
    """What instructions have in tensor memory: stored as it comes, and given as registers of each array's lanes."""

    def __init__(self, m: Module, slots: OperandSlots, operands: TensorOperands, wide: Sequence[Value]) -> None:
        lanes = data.ArrayLayout(WORD_BITS, TENSOR_LANES)
        columns = data.ArrayLayout(data.ArrayLayout(WORD_BITS, _PARTITION), 1 << _PANEL_BITS - 2)
        # Of metadata, what pair x of a quad holds.
        pairs = [
            [Signal(lanes, name=f"metadata_{slot}_{x}", reset_less=True) for slot in range(SLOTS)] for x in range(2)
        ]
        scale_a = [Signal(lanes, name=f"scale_a_{slot}", reset_less=True) for slot in range(SLOTS)]
        scale_b = [Signal(columns, name=f"scale_b_{slot}", reset_less=True) for slot in range(SLOTS)]
        column, words = operands.column, operands.words
        for slot in range(SLOTS):
            of_slot = operands.arriving & (column.tag == slot)
            with m.If(of_slot), m.Switch(column.operand):
                with m.Case(Operand.METADATA):
                    with m.If(column.number == 0):
                        m.d.sync += pairs[0][slot].eq(Cat(words))
                    with m.If((column.number == 1) | wide[slot]):
                        m.d.sync += pairs[1][slot].eq(Cat(words))
                with m.Case(Operand.SCALE_A):
                    for part in range(TENSOR_LANES // _PARTITION):
                        with m.If(column.number == part):
                            m.d.sync += Cat(scale_a[slot][_PARTITION * part + lane] for lane in range(_PARTITION)).eq(
                                Cat(words[:_PARTITION])
                            )
                with m.Case(Operand.SCALE_B):
                    m.d.sync += scale_b[slot][column.number].eq(Cat(words[:_PARTITION]))
                with m.Case(Operand.A):
                    _store_a_column(m, slots.a[slot], column.number, words)
        pair = [slots.of_slot(f"metadata_{x}", of) for x, of in enumerate(pairs)]
        scales = slots.of_slot("scale_a", scale_a)
        self._m, self._scale_b = m, slots.of_slot("scale_b", scale_b)

        def of_rows(array: int, word_of: Sequence[Value]) -> Value:
            """Lanes 4 g + 2 x + h are those of row 8 h + g."""
            places = [(lane // 2 % 2, ROWS * array + 8 * (lane % 2) + lane // 4) for lane in range(LANES)]
            return Cat(word_of[x].word_select(row, WORD_BITS) for x, row in places)

        #: Metadata and block scales of A, of each array.
        self.metadata = [of_rows(array, pair) for array in range(ARRAYS)]
        self.scales_a = [of_rows(array, [scales, scales]) for array in range(ARRAYS)]

    def scales_b(self, panel: Value) -> Value:
        """Return the block scales of a panel of B."""
        of_panel = Signal(WORD_BITS * COLUMNS, name="scale_b_of_panel")
        self._m.d.comb += of_panel.eq(self._scale_b.word_select(panel, WORD_BITS * COLUMNS))
        return Cat(of_panel.word_select(lane // 4, WORD_BITS) for lane in range(LANES))


def _store_a_column(m: Module, a: Sequence[data.View], number: Value, words: Sequence[Value]) -> None:
    """Store a column of A: lane 4 g + t, register 2 s + h has bytes 16 s + 4 t on of row 8 h + g."""
    for column in range(8):
        segment, t = divmod(column, 4)
        with m.If(number == column):
            for row, word in enumerate(words):
                h, g = divmod(row % ROWS, 8)
                m.d.sync += a[row // ROWS][4 * g + t][2 * segment + h].eq(word)


def _last_own_panel(held: data.View) -> Value:
    """Return the number of the last panel of B that this CTA has in its shared memory."""
    return Mux(held.pair, held.last_panel >> 1, held.last_panel)


def _panel_number(held: data.View, place: Value) -> Value:
    """Return which eight columns of D are in some place of the order: of a pair, those of each half in turn."""
    in_turn = (place >> 1) + Mux(place[0], (held.last_panel >> 1) + 1, 0)
    return Mux(held.pair, in_turn, place)[:_PANEL_BITS]


def _unpacked(config: CoreConfig, whole: Value, code: Value) -> Value:
    """Return units of 16 bytes with an element a byte: those of less than 8 bits lie side by side, and are padded.

    Source: PTX ISA, packing formats of ``tcgen05``.
    """
    result = whole
    narrow: dict[tuple[int, int], list[Element]] = {}
    for element in config.elements:
        bits = element.format.bits
        if element.container_bits == 8 and bits < 8:
            narrow.setdefault((bits, low_bit(element.format, 8)), []).append(element)
    for (bits, low), elements in narrow.items():
        parts: list[Value] = []
        for unit in range(len(whole) // UNIT_BITS):
            of_unit = whole.word_select(unit, UNIT_BITS)
            for place in range(_PADDED):
                parts += [Const(0, low), of_unit.word_select(place, bits), Const(0, 8 - low - bits)]
        result = Mux(is_one_of(config, code, elements), Cat(parts), result)
    return result

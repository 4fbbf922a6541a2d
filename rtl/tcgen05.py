"""The four tensor cores of an SM for one CTA: ``tcgen05.mma`` with 128 rows per CTA."""

from dataclasses import replace

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from .accumulators import ARRAYS, Accumulators, accumulator_memory_signature
from .cells.described import DescribedLayout, DescribedSignature
from .codes import is_one_of
from .commits import GROUPS, Commits
from .config import PRESETS, ConfigError, CoreConfig, Element
from .fetch import LAST_PANEL, PANEL_BITS, UNIT_BITS, descriptor_layout, panel_layout, shared_memory_signature
from .operand_fetch import OperandFetch
from .operand_slots import OperandSlots, PanelRequests
from .panel_operands import PanelOperands
from .placement import Placement, placement_layout
from .round import ResultCode
from .step import control_layout
from .stored_a import A_PANELS_OF_ARRAY, StoredA
from .tensor_memory import COLUMN_BITS, tensor_memory_signature
from .tensor_operands import COLUMN_FIELDS, Operand, TensorOperands, operand_request
from .tensor_words import TensorWords
from .unit import Unit
from .warp import CHUNKS, COLUMNS, ILLEGAL, ROWS, SCALE_SIZE, ScaleSizeCode, Warp

__all__ = ["TCGEN05_ARRAY", "CtaOperation", "Tcgen05", "tcgen05_layout"]

#: Configuration of one of the two arrays in a tensor core of sm_100. Each array computes 16 rows x 8 columns in four
#: cycles, the throughput measured on a B200.
TCGEN05_ARRAY = replace(PRESETS["blackwell"], rows=8, columns=4)
#: Number of 6-bit or 4-bit elements in 16 bytes of shared memory. The elements are packed, with padding up to 16 bytes.
_PADDED = 16


class CtaOperation(enum.Enum, shape=1):
    """Operations of a CTA's commands: multiply and commit."""

    MULTIPLY = 0
    COMMIT = 1


def tcgen05_layout() -> DescribedLayout:
    """Return the layout of a command of a CTA: an operation, and the fields of ``tcgen05.mma``."""
    descriptor = (
        "Matrix descriptor of {} in shared memory{}. The mode with atoms of 32 bytes in the 128-byte swizzle is not "
        "supported."
    )
    transposed = "1: {} is MN-major (only with elements of 16 bits); 0: K-major."
    selector = (
        "Sparsity selector of PTX: which of two adjacent columns contains the metadata of elements of 16 or 32 bits. "
        "The selector is ignored for smaller elements and in dense instructions."
    )
    byte = "Scale factor {} ID of PTX: number of the lowest byte with block scales in a 32-bit word."
    pair = (
        "1: cta_group::2, a pair of CTAs. Each CTA has half of the columns of B, and the two CTAs provide panels of "
        "eight columns in turn. N must be a multiple of 16. 0: cta_group::1."
    )
    return DescribedLayout(
        {
            "operation": (CtaOperation, "MULTIPLY: tcgen05.mma; COMMIT: tcgen05.commit, which ignores other fields."),
            "control": (control_layout(), "Control word: element formats, metadata rule, result format, block scales."),
            "a_descriptor": (descriptor_layout(), descriptor.format("A", "; ignored if a_shared is 0")),
            "b_descriptor": (descriptor_layout(), descriptor.format("B", "")),
            "a_shared": (1, "1: A is in shared memory; 0: A is in tensor memory."),
            "a_transposed": (1, transposed.format("A in shared memory")),
            "b_transposed": (1, transposed.format("B")),
            "negated": (1, "1: the products are negated, since the instruction negates A or B. Ignored for integers."),
            "add": (1, "enable-input-d of PTX: 1: D = A B + D; 0: D = A B."),
            "last_panel": (PANEL_BITS, LAST_PANEL),
            "sparsity_selector": (1, selector),
            "d_column": (COLUMN_BITS, "First column of D in tensor memory, 0 to 511."),
            **COLUMN_FIELDS,
            "scale_size": (ScaleSizeCode, SCALE_SIZE),
            "byte_a": (2, byte.format("A")),
            "byte_b": (2, byte.format("B")),
            "pair": (1, pair),
            "odd": (1, "If pair is 1: this CTA has the lower (0) or the upper half (1) of the columns of B."),
        }
    )


def _ports(arrays: int) -> DescribedSignature:
    """Return the signature of the tensor cores of one CTA."""
    undefined = (
        "Flags of operand addresses that PTX leaves undefined, in the cycle in which an instruction is accepted. The "
        "results do not depend on the flags."
    )
    waits = "For a pair of CTAs: this CTA is ready for the next panel, which is multiplied once both CTAs are ready."
    panel = "For a pair of CTAs: next panel of B [column][64 bytes], valid while waits is 1 if this CTA has the panel."
    return DescribedSignature(
        {
            "i": (In(stream.Signature(tcgen05_layout())), "Instructions and commits of the CTA, in program order."),
            "pending": (Out(range(GROUPS + 1)), "Number of commits that have not arrived at their mbarrier, 0 to 8."),
            "arrive": (Out(1), "The oldest pending commit arrives at its mbarrier in this cycle."),
            "undefined": (Out(placement_layout()), undefined),
            "illegal": (
                Out(data.ArrayLayout(CHUNKS, ROWS * arrays)),
                f"{ILLEGAL} The flags are valid while accumulators__write is 1.",
            ),
            "tensor": (Out(tensor_memory_signature(ROWS * arrays)), "Port to tensor memory, for operands."),
            "accumulators": (Out(accumulator_memory_signature(arrays)), "Port to tensor memory, for D."),
            "memory": (Out(shared_memory_signature()), "Port to the shared memory of the CTA."),
            "waits": (Out(1), waits),
            "panel": (Out(panel_layout()), panel),
            "other_waits": (In(1), "From port waits of the other CTA of a pair. Ignored if pair is 0."),
            "other_panel": (In(panel_layout()), "From port panel of the other CTA of a pair. Ignored if pair is 0."),
        }
    )


class Tcgen05(wiring.Component):
    """Execute ``tcgen05.mma``, sparse or dense, for 128 rows of one CTA, in panels of eight columns of N.

    Each tensor core has two arrays. An array multiplies 16 rows by a panel in ``config.warp_blocks`` cycles: four
    cycles with 32 units. Each panel of B is read once for all arrays. With ``.cta_group::2``, one of the two CTAs reads
    a panel for the arrays of both CTAs, which multiply the panel in the same cycle. There are two instruction slots:
    while one instruction multiplies, A, metadata and block scales of the next instruction arrive. The interval from one
    instruction to the next is the longest of three::

        max(blocks * N / 8, bytes from shared memory / 128, columns from tensor memory)

    An instruction with the same accumulators as the previous instruction also waits until the results of the previous
    instruction are written, 13 cycles after its accumulators were read. With N below 32 this wait makes the interval
    longer.

    Source: PTX ISA. The throughput, the port to shared memory and the reads of a pair of CTAs were measured by others
    on a B200, with dense instructions. All other behaviour is modelled, not measured. Not built: ``.ws``, 64 rows,
    ``.ashift``, scale-input-d, disabled lanes, MN-major elements of less or more than 16 bits, and A of less than 8
    bits in tensor memory except in 4-bit kinds.

    Parameters
    ----------
    config : CoreConfig
        The array, as for :class:`~sptc.rtl.warp.Warp`.
    arrays : int
        Number of arrays, each with 16 rows and 16 lanes of tensor memory. A whole CTA has eight arrays; fewer arrays
        are quicker to build. With block scales, which are stored for 32 rows at a time, the number must be even.
    unit_class, warp_class : type
        Component classes of the units and of the arrays.
    """

    def __init__(
        self,
        config: CoreConfig,
        arrays: int = ARRAYS,
        unit_class: type[Unit] = Unit,
        warp_class: type[Warp] = Warp,
    ) -> None:
        if config.scales and arrays % 2:
            raise ConfigError(f"the number of arrays must be even with block scales, not {arrays}")
        self.config = config
        self.arrays = arrays
        self.unit_class = unit_class
        self.warp_class = warp_class
        super().__init__(_ports(arrays))

    def elaborate(self, platform: object) -> Module:
        """Build two instruction buffers, the operand fetch, arrays of dot-product units and the commit logic."""
        m = Module()
        m.submodules.fetch = fetch = OperandFetch(A_PANELS_OF_ARRAY * self.arrays)
        m.submodules.tensor_operands = operands = TensorOperands(ROWS * self.arrays)
        m.submodules.accumulators = store = Accumulators(self.arrays, self.config.warp_items)
        wiring.connect(m, fetch.memory, wiring.flipped(self.memory))
        wiring.connect(m, operands.memory, wiring.flipped(self.tensor))
        wiring.connect(m, store.memory, wiring.flipped(self.accumulators))
        kept = data.StructLayout({name: field.shape for name, field in tcgen05_layout() if name != "operation"})
        # All of A, metadata and block scales must have arrived before the first panel is multiplied. B and D arrive
        # panel by panel (eight columns each).
        m.submodules.slots = slots = OperandSlots(kept, {"a": True, "b": False, "words": True, "d": False})
        m.submodules.stored_a = stored = StoredA(self.arrays, from_columns=True)
        m.submodules.words = words = TensorWords(self.arrays)
        self._take(m, slots)
        self._bring_b(m, slots, fetch)
        self._bring_a(m, slots, fetch, stored)
        self._bring_words(m, slots, operands, words, stored)
        self._request_accumulators(m, slots, store)
        self._multiply(m, slots, fetch, stored, words, store)
        m.submodules.placement = placement = Placement(self.config, kept)
        m.d.comb += [
            placement.taken.eq(slots.i.valid & slots.i.ready),
            placement.instruction.eq(slots.i.payload),
            self.undefined.eq(placement.undefined),
        ]
        return m

    def _take(self, m: Module, slots: OperandSlots) -> None:
        """Accept a multiplication if an instruction slot is free, and a commit unless the maximum number is pending."""
        m.submodules.commits = commits = Commits(self.config.warp_items)
        payload, taken = self.i.payload, Signal(name="taken")
        m.d.comb += [slots.i.payload[name].eq(payload[name]) for name in slots.i.payload.shape().members]
        with m.Switch(payload.operation):
            with m.Case(CtaOperation.MULTIPLY):
                m.d.comb += [
                    slots.i.valid.eq(self.i.valid),
                    self.i.ready.eq(slots.i.ready),
                    commits.issued.eq(taken),
                ]
            with m.Case(CtaOperation.COMMIT):
                m.d.comb += [self.i.ready.eq(commits.room), commits.commit.eq(taken)]
        m.d.comb += [
            taken.eq(self.i.valid & self.i.ready),
            commits.multiplied.eq(slots.multiply),
            commits.last.eq(slots.last),
            commits.delivered.eq(self.accumulators.write),
            self.pending.eq(commits.pending),
            self.arrive.eq(commits.finished),
        ]

    def _bring_b(self, m: Module, slots: OperandSlots, fetch: OperandFetch) -> None:
        """Request B of two instructions in progress, in panels of eight columns, from this CTA's shared memory."""
        m.submodules.requests_b = requests = PanelRequests(1 << PANEL_BITS)
        turn = slots.b
        instruction = turn.instruction
        wiring.connect(m, requests.o, fetch.b)
        m.d.comb += [
            requests.pending.eq(turn.pending),
            requests.descriptor.eq(instruction.b_descriptor),
            requests.mn_major.eq(instruction.b_transposed),
            requests.short.eq(~instruction.control.sparse),
            requests.last.eq(Mux(instruction.pair, instruction.last_panel >> 1, instruction.last_panel)),
            turn.end.eq(requests.end),
        ]

    def _bring_a(self, m: Module, slots: OperandSlots, fetch: OperandFetch, stored: StoredA) -> None:
        """Request A from shared memory, in turn for the two instructions in progress."""
        m.submodules.requests_a = requests = PanelRequests(A_PANELS_OF_ARRAY * self.arrays)
        turn, arrived, elsewhere = slots.a, fetch.core_matrix, Signal(name="a_is_elsewhere")
        instruction = turn.instruction
        wiring.connect(m, requests.o, fetch.a)
        code = Array(slots.stored)[arrived.tag].control.a
        m.d.comb += [
            # If A is in tensor memory, :meth:`_bring_words` reads A. In this case, nothing is requested from shared
            # memory for the instruction, and the next instruction has its turn after one cycle.
            elsewhere.eq(turn.pending & ~instruction.a_shared),
            requests.pending.eq(turn.pending & instruction.a_shared),
            requests.descriptor.eq(instruction.a_descriptor),
            requests.mn_major.eq(instruction.a_transposed),
            requests.short.eq(1),
            requests.last.eq(A_PANELS_OF_ARRAY * self.arrays - 1),
            fetch.a_tag.eq(turn.slot),
            turn.end.eq(requests.end | elsewhere),
            turn.arrives.eq(stored.complete | (elsewhere << turn.slot)),
            stored.arriving.eq(fetch.arriving),
            stored.core_matrix.eq(arrived),
            stored.core_matrix.rows.eq(_unpacked(self.config, arrived.rows.as_value(), code)),
            stored.slot.eq(slots.slot),
        ]

    def _bring_words(
        self, m: Module, slots: OperandSlots, operands: TensorOperands, words: TensorWords, stored: StoredA
    ) -> None:
        """Read metadata, block scales and A from tensor memory, in turn for the two instructions in progress."""
        turn, request, column = slots.words, operands.i.payload, operands.column
        tag = 1 << column.tag
        m.d.comb += [
            operands.i.valid.eq(turn.pending),
            *operand_request(self.config, request, turn.instruction),
            request.tag.eq(turn.slot),
            turn.end.eq(operands.i.valid & operands.i.ready),
            turn.arrives.eq(Mux(operands.complete, tag, 0)),
            words.arriving.eq(operands.arriving),
            words.column.eq(column),
            words.slot.eq(slots.slot),
            words.panel.eq(_panel_number(slots.instruction, slots.panel)),
            stored.column.eq(Mux(operands.arriving & (column.operand == Operand.A), tag, 0)),
            stored.number.eq(column.number),
            *(port.eq(word) for port, word in zip(words.words, operands.words, strict=True)),
            *(port.eq(word) for port, word in zip(stored.words, operands.words, strict=True)),
        ]

    def _request_accumulators(self, m: Module, slots: OperandSlots, store: Accumulators) -> None:
        """Request accumulators of two instructions in progress, in panels of eight columns, in multiplication order."""
        turn, requested, taken = slots.d, Signal(PANEL_BITS, name="requested_of_d"), Signal(name="d_is_requested")
        instruction = turn.instruction
        last = requested == instruction.last_panel
        m.d.comb += [
            store.i.valid.eq(turn.pending),
            store.i.payload.column.eq(
                instruction.d_column + (_panel_number(instruction, requested) << COLUMNS.bit_length() - 1)
            ),
            store.i.payload.add.eq(instruction.add),
            store.i.payload.half.eq(instruction.control.result == ResultCode.F16),
            taken.eq(store.i.valid & store.i.ready),
            turn.end.eq(taken & last),
        ]
        with m.If(taken):
            m.d.sync += requested.eq(Mux(last, 0, requested + 1))

    def _multiply(
        self,
        m: Module,
        slots: OperandSlots,
        fetch: OperandFetch,
        stored: StoredA,
        words: TensorWords,
        store: Accumulators,
    ) -> None:
        """Multiply a panel (eight columns) and write its results. Both CTAs of a pair multiply in the same cycle."""
        config, instruction = self.config, slots.instruction
        warps = [self.warp_class(config, self.unit_class) for _ in range(self.arrays)]
        multiply, ready, is_own = (Signal(name=name) for name in ("multiply", "ready", "is_own_panel"))
        panel_of_b, panel = (Signal(panel_layout(), name=name) for name in ("stored_panel_of_b", "panel_of_b"))
        m.d.comb += [
            is_own.eq(~instruction.pair | (slots.panel[0] == instruction.odd)),
            ready.eq(
                slots.ready & store.c.valid & (fetch.panels.valid | ~is_own) & Cat(warp.i.ready for warp in warps).all()
            ),
            self.waits.eq(ready & instruction.pair),
            self.panel.eq(fetch.panels.payload),
            multiply.eq(ready & (self.other_waits | ~instruction.pair)),
            slots.multiply.eq(multiply),
            fetch.panels.ready.eq(multiply & is_own),
            store.c.ready.eq(multiply),
            panel_of_b.eq(Mux(is_own, fetch.panels.payload, self.other_panel)),
            panel.eq(_unpacked(config, panel_of_b.as_value(), instruction.control.b)),
            store.o.valid.eq(Cat(warp.o.valid for warp in warps).all()),
        ]
        for number, warp in enumerate(warps):
            m.submodules[f"array_{number}"] = warp
            m.submodules[f"operands_{number}"] = operands = PanelOperands(config)
            m.d.comb += [
                *(operands.instruction[name].eq(instruction[name]) for name in ("control", "negated", "add")),
                # The metadata of the dot-product units is already that of the column of tensor memory which the
                # sparsity selector selects, so the units get selector 0.
                operands.e.eq(words.e[number]),
                operands.a.eq(stored.a[number]),
                operands.panel.eq(panel),
                operands.c.eq(store.c.payload[number]),
                warp.i.valid.eq(multiply),
                warp.i.payload.eq(operands.o),
                warp.i.payload.scale_a.eq(words.scales_a[number]),
                warp.i.payload.scale_b.eq(words.scales_b),
                *(warp.i.payload[name].eq(instruction[name]) for name in ("scale_size", "byte_a", "byte_b")),
                warp.o.ready.eq(store.o.valid & store.o.ready),
                store.o.payload[number].eq(warp.o.payload.d),
                *(self.illegal[ROWS * number + row].eq(warp.o.payload.illegal[row]) for row in range(ROWS)),
            ]


def _panel_number(instruction: data.View, place: Value) -> Value:
    """Return which panel (eight columns) is multiplied at position `place` of the order. CTAs of a pair alternate."""
    # Each CTA of a pair has half of the columns of B, and the two CTAs provide panels (eight columns) alternately.
    # Order of the panels for N = 64 (place: position in the order of multiplication):
    #
    #     place          0    1    2    3    4    5    6    7
    #     CTA with B     0    1    0    1    0    1    0    1     1: `odd`
    #     panel of D     0    4    1    5    2    6    3    7
    in_turn = (place >> 1) + Mux(place[0], (instruction.last_panel >> 1) + 1, 0)
    return Mux(instruction.pair, in_turn, place)[:PANEL_BITS]


def _unpacked(config: CoreConfig, whole: Value, code: Value) -> Value:
    """Return 16-byte words with one element per byte. In shared memory, elements of less than 8 bits are packed.

    Source: PTX ISA, packing formats of ``tcgen05``.
    """
    # Elements in a 16-byte unit of shared memory, and each element in its byte of the result (`low`: position of the
    # element's lowest bit):
    #
    #     bit of 16 bytes     127 ... 16 * bits          16 * bits - 1 ... 0
    #                         padding                    element 15 ... element 0
    #     bit of a byte       7 ... low + bits: zeros    low + bits - 1 ... low: element    low - 1 ... 0: zeros
    result = whole
    narrow: dict[tuple[int, int], list[Element]] = {}
    for element in config.elements:
        bits = element.format.bits
        if element.container_bits == 8 and bits < 8:
            narrow.setdefault((bits, element.low_bit), []).append(element)
    for (bits, low), elements in narrow.items():
        parts: list[Value] = []
        for unit in range(len(whole) // UNIT_BITS):
            of_unit = whole.word_select(unit, UNIT_BITS)
            for place in range(_PADDED):
                parts += [Const(0, low), of_unit.word_select(place, bits), Const(0, 8 - low - bits)]
        result = Mux(is_one_of(config, code, elements), Cat(parts), result)
    return result

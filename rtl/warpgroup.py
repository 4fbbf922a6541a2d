"""The four tensor cores of an SM as a warpgroup sees them: ``wgmma``, operands fetched while others multiply."""

from collections.abc import Sequence

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from ..isa.timing import RegisterCycles
from .config import CoreConfig
from .fetch import CoreMatrixAddress, shared_memory_signature
from .operand_fetch import OperandFetch
from .round import ResultCode
from .tensor_core import IN_FLIGHT, TensorCore
from .unit import Unit
from .warp import LANES, REGISTERS, Warp, warp_operands_layout, warp_result_layout
from .wgmma import accumulator_layout, drive_operands, segment_words, wgmma_layout

__all__ = ["WARPS", "Operation", "Warpgroup", "mma_layout", "ready_cycles", "warpgroup_layout"]

#: Warps of a warpgroup, each on a tensor core of its own.
WARPS = 4
_WORD = 32
#: Panels of A: eight rows each.
_A_PANELS = 8
#: Reads of each; and panels of B that come before them, as many as :class:`~sptc.rtl.operand_fetch.OperandFetch` keeps.
_A_READS, _PANELS_FIRST = 2, 2
#: Instructions whose operands are held: one multiplies while the next one's A arrives.
_SLOTS = 2
#: Committed groups that may be pending, as the widest operand of ``wait_group`` here can say.
_GROUPS = 8
#: Of the numbers of instructions, of which two that are compared are less than half of all apart.
_COUNT_BITS = 5


class Operation(enum.Enum, shape=2):
    """What a warpgroup is told to do."""

    MULTIPLY = 0
    COMMIT = 1
    WAIT = 2


def warpgroup_layout() -> data.StructLayout:
    """Return the layout of what a warpgroup is told.

    Fields
    ------
    a, e : 4 arrays of 32 lanes
        A, unless it is in shared memory, and metadata, of each warp as in :func:`~sptc.rtl.wgmma.wgmma_layout`.
    operation : Operation
        ``wgmma.mma_async``, ``wgmma.commit_group`` or ``wgmma.wait_group``.
    pending : 3
        Of a wait: for how many committed groups it does not wait.
    control, a_descriptor, b_descriptor, a_shared, a_transposed, b_transposed
        As in :func:`~sptc.rtl.wgmma.wgmma_layout`.
    negated, add, last_panel, sparsity_selector
        As in :func:`~sptc.rtl.wgmma.wgmma_layout`.
    """
    of_warp = {name: field.shape for name, field in wgmma_layout() if name != "warp"}
    registers = {name: data.ArrayLayout(of_warp.pop(name), WARPS) for name in ("a", "e")}
    return data.StructLayout(registers | {"operation": Operation, "pending": 3} | of_warp)


def ready_cycles(registers: int, panels: int, panel_reads: int) -> int:
    """Return the cycles from when an instruction is taken by itself to its first eight columns, at the earliest.

    Parameters
    ----------
    registers : int
        That the register file takes to deliver A; 0 of A in shared memory, before which two panels of B are read.
    panels, panel_reads : int
        Panels of B, and reads of each.
    """
    if registers:
        return registers + 1
    return min(panels, _PANELS_FIRST) * panel_reads + _A_PANELS * _A_READS + 2


def mma_layout() -> data.StructLayout:
    """Return the layout of an instruction of ``mma`` for one of the tensor cores.

    Fields
    ------
    operands : warp_operands_layout()
        The instruction and its registers.
    core : 2
        Which array is to multiply it.
    """
    return data.StructLayout({"operands": warp_operands_layout(), "core": range(WARPS)})


class Warpgroup(wiring.Component):
    """Execute ``wgmma.mma_async``, sparse or dense, of all 64 rows, eight columns at a time.

    Each of four warps has an array of its own, which takes eight columns of N in ``config.warp_blocks`` cycles: four,
    with 32 units. A panel of B is read once for all of them. Two instructions are held: while one multiplies, A of the
    next arrives, from registers or from shared memory, whose port of 128 bytes a cycle B has first. So from one
    instruction to the next it takes what needs longest::

        max(blocks * N / 8, bytes from shared memory / 128, cycles of the register file)

    Between its panels each array multiplies ``mma`` and ``mma.sp`` of other warps: see
    :class:`~sptc.rtl.tensor_core.TensorCore`.

    Parameters
    ----------
    config : CoreConfig
        The array of one warp, as for :class:`~sptc.rtl.warp.Warp`.
    registers : RegisterCycles
        What the register file takes to deliver operands; a parameter, since nobody knows what silicon does in them.
    unit_class, warp_class, address_class : type
        What stands for units, warps and the address of core matrices.

    Members
    -------
    i : In(stream of warpgroup_layout())
        Instructions, commits and waits, in order. A wait is taken once no more groups are pending than it says.
    c : In(stream of 4 x accumulator_layout())
        Accumulators of eight columns of each warp, in order of columns.
    o : Out(stream of 4 x warp_result_layout())
        Results, in the same order.
    pending : Out(range(9))
        Committed groups that are not finished.
    mma : In(stream of mma_layout())
        Instructions of ``mma`` of other warps; of four arrays that each take four cycles at least, one begins a cycle.
    mma_room : Out(4)
        Which arrays would take an instruction in this cycle.
    mma_result : Out(stream of warp_result_layout()), four
        Results of each array's instructions, in order.
    memory : Out(shared_memory_signature())
        The shared memory of the block.
    """

    def __init__(
        self,
        config: CoreConfig,
        registers: RegisterCycles | None = None,
        unit_class: type[Unit] = Unit,
        warp_class: type[Warp] = Warp,
        address_class: type[CoreMatrixAddress] = CoreMatrixAddress,
    ) -> None:
        self.config = config
        self.registers = registers or RegisterCycles()
        self.unit_class = unit_class
        self.warp_class = warp_class
        self.address_class = address_class
        super().__init__(
            {
                "i": In(stream.Signature(warpgroup_layout())),
                "c": In(stream.Signature(data.ArrayLayout(accumulator_layout(), WARPS))),
                "o": Out(stream.Signature(data.ArrayLayout(warp_result_layout(), WARPS))),
                "pending": Out(range(_GROUPS + 1)),
                "mma": In(stream.Signature(mma_layout())),
                "mma_room": Out(WARPS),
                "mma_result": Out(stream.Signature(warp_result_layout())).array(WARPS),
                "memory": Out(shared_memory_signature()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the two slots of instructions, the fetch, the four warps and the groups."""
        m = Module()
        m.submodules.fetch = fetch = OperandFetch(self.address_class)
        wiring.connect(m, fetch.memory, wiring.flipped(self.memory))
        cores = []
        for number in range(WARPS):
            core = TensorCore(self.config, self.registers, self.unit_class, self.warp_class)
            m.submodules[f"core_{number}"] = core
            wiring.connect(m, wiring.flipped(self.mma_result[number]), core.o)
            m.d.comb += [
                core.i.valid.eq(self.mma.valid & (self.mma.payload.core == number)),
                core.i.payload.eq(self.mma.payload.operands),
                self.mma_room[number].eq(core.i.ready),
            ]
            cores.append(core)
        m.d.comb += self.mma.ready.eq(self.mma_room.bit_select(self.mma.payload.core, 1))
        slots = _Slots(m)
        taken = self.i.valid & self.i.ready & (self.i.payload.operation == Operation.MULTIPLY)
        waits, multiply, last = Signal(), Signal(), Signal()
        m.d.comb += last.eq(multiply & slots.multiplies_last)
        slots.accept(taken, self.i.payload)
        slots.request_b(fetch.b)
        slots.bring_a(fetch, self.registers)
        slots.follow(multiply, last)

        m.d.comb += [
            waits.eq(fetch.panels.valid & self.c.valid & slots.ready),
            multiply.eq(waits & Cat(core.panel.ready for core in cores).all()),
            fetch.panels.ready.eq(multiply),
            self.c.ready.eq(multiply),
            self.o.valid.eq(Cat(core.panel_result.valid for core in cores).all()),
        ]
        held, a = slots.multiplying()
        for number, core in enumerate(cores):
            m.d.comb += [
                core.panel_waits.eq(waits),
                core.panel.valid.eq(multiply),
                core.panel_result.ready.eq(self.o.ready & self.o.valid),
                self.o.payload[number].eq(core.panel_result.payload),
            ]
            drive_operands(
                m, self.config, held, held.e[number], a[number], fetch.panels.payload, self.c.payload[number],
                core.panel.payload,
            )  # fmt: skip
        self._groups(m, taken, multiply, last, slots.room)
        return m

    def _groups(self, m: Module, taken: Value, multiply: Value, last: Value, room: Value) -> None:
        """Follow instructions to their last result, and committed groups to their last instruction."""
        i, operation = self.i, self.i.payload.operation
        m.submodules.ends = ends = SyncFIFO(width=1, depth=IN_FLIGHT)
        m.submodules.marks = marks = SyncFIFO(width=_COUNT_BITS, depth=_GROUPS)
        issued, finished = (Signal(_COUNT_BITS, name=name) for name in ("issued", "finished"))
        delivered = self.o.valid & self.o.ready
        m.d.comb += [
            ends.w_en.eq(multiply),
            ends.w_data.eq(last),
            ends.r_en.eq(delivered),
            marks.w_en.eq(i.valid & i.ready & (operation == Operation.COMMIT)),
            marks.w_data.eq(issued),
            # In order: a group is finished when no fewer instructions are than had been issued at its commit.
            marks.r_en.eq(marks.r_rdy & ~(finished - marks.r_data)[_COUNT_BITS - 1]),
            self.pending.eq(marks.level),
        ]
        m.d.sync += [issued.eq(issued + taken), finished.eq(finished + (delivered & ends.r_data[0]))]
        with m.Switch(operation):
            with m.Case(Operation.MULTIPLY):
                m.d.comb += i.ready.eq(room)
            with m.Case(Operation.COMMIT):
                m.d.comb += i.ready.eq(marks.w_rdy)
            with m.Case(Operation.WAIT):
                m.d.comb += i.ready.eq(self.pending <= i.payload.pending)
            with m.Default():
                m.d.comb += i.ready.eq(1)


class _Slots:
    """Two instructions that are held: taken in turns, A brought in turns, B requested in turns, multiplied in turns."""

    def __init__(self, m: Module) -> None:
        self._m = m
        kept = {name: field.shape for name, field in warpgroup_layout() if name not in ("a", "operation", "pending")}
        layout = data.StructLayout(kept)
        self._names = [*kept]
        self._held = [Signal(layout, name=f"held_{slot}", reset_less=True) for slot in range(_SLOTS)]
        fragment = data.ArrayLayout(data.ArrayLayout(_WORD, REGISTERS), LANES)
        self._a = [
            [Signal(fragment, name=f"a_{slot}_{warp}", reset_less=True) for warp in range(WARPS)]
            for slot in range(_SLOTS)
        ]
        self._occupied, self._wants_b, self._wants_a, self._misses_a = (
            [Signal(name=f"{name}_{slot}") for slot in range(_SLOTS)]
            for name in ("occupied", "wants_b", "wants_a", "misses_a")
        )
        # Which slot is next to be taken, to have its B and its A requested, and to be multiplied.
        self._next, self._of_b, self._of_a, self._now = (
            Signal(range(_SLOTS), name=name) for name in ("next_slot", "slot_of_b", "slot_of_a", "slot_now")
        )
        self._multiplied = Signal(wgmma_layout()["last_panel"].shape, name="multiplied")
        #: Whether an instruction can be taken, one can be multiplied, and what is multiplied is its last panel.
        self.room = ~Array(self._occupied)[self._next]
        self.ready = Array(self._occupied)[self._now] & ~Array(self._misses_a)[self._now]
        self.multiplies_last = self._multiplied == Array(self._held)[self._now].last_panel

    def multiplying(self) -> tuple[data.View, Sequence[Value]]:
        """Return the instruction that is multiplied, and A of each warp."""
        held = Signal(self._held[0].shape(), name="held")
        a = [Signal(_WORD * LANES * REGISTERS, name=f"a_{warp}") for warp in range(WARPS)]
        self._m.d.comb += held.eq(Array(self._held)[self._now])
        for warp in range(WARPS):
            choices = Array(of_slot[warp].as_value() for of_slot in self._a)
            self._m.d.comb += a[warp].eq(choices[self._now])
        return held, a

    def accept(self, taken: Value, payload: data.View) -> None:
        """Take an instruction into the next slot."""
        m = self._m
        m.d.sync += self._next.eq(self._next + taken)
        for slot in range(_SLOTS):
            with m.If(taken & (self._next == slot)):
                m.d.sync += [
                    *(self._held[slot][name].eq(payload[name]) for name in self._names),
                    *(self._a[slot][warp].eq(payload.a[warp]) for warp in range(WARPS)),
                    *(flags[slot].eq(1) for flags in (self._occupied, self._wants_b, self._wants_a, self._misses_a)),
                ]

    def request_b(self, requests: stream.Interface) -> None:
        """Request the panels of B of one slot after another."""
        m, held = self._m, Array(self._held)[self._of_b]
        panel = Signal(self._multiplied.shape(), name="panel_of_b")
        m.d.comb += [
            requests.valid.eq(Array(self._wants_b)[self._of_b]),
            requests.payload.descriptor.eq(held.b_descriptor),
            requests.payload.panel.eq(panel),
            requests.payload.mn_major.eq(held.b_transposed),
            requests.payload.short.eq(~held.control.sparse),
        ]
        with m.If(requests.valid & requests.ready):
            m.d.sync += panel.eq(panel + 1)
            with m.If(panel == held.last_panel):
                m.d.sync += [panel.eq(0), self._of_b.eq(self._of_b + 1), Array(self._wants_b)[self._of_b].eq(0)]

    def bring_a(self, fetch: OperandFetch, registers: RegisterCycles) -> None:
        """Bring A of one slot after another, from shared memory or out of the register file."""
        m, held, wanted = self._m, Array(self._held)[self._of_a], Array(self._wants_a)[self._of_a]
        panel = Signal(range(_A_PANELS), name="panel_of_a")
        cycle = Signal(range(max(registers.dense, registers.narrow, registers.wide)), name="register_cycle")
        is_narrow = (held.control.result == ResultCode.F16) | (held.last_panel == 0)
        cycles = Mux(held.control.sparse, Mux(is_narrow, registers.narrow, registers.wide), registers.dense)
        from_registers = wanted & ~held.a_shared
        complete = Mux(held.a_shared, fetch.a.ready & (panel == _A_PANELS - 1), cycle == cycles - 1)
        m.d.comb += [
            fetch.a.valid.eq(wanted & held.a_shared),
            fetch.a.payload.descriptor.eq(held.a_descriptor),
            fetch.a.payload.panel.eq(panel),
            fetch.a.payload.mn_major.eq(held.a_transposed),
            fetch.a.payload.short.eq(1),
            fetch.a_tag.eq(self._of_a),
        ]
        with m.If(fetch.a.valid & fetch.a.ready):
            m.d.sync += panel.eq(panel + 1)
        with m.If(from_registers):
            m.d.sync += cycle.eq(Mux(complete, 0, cycle + 1))
        with m.If(wanted & complete):
            m.d.sync += [self._of_a.eq(self._of_a + 1), Array(self._wants_a)[self._of_a].eq(0)]
        with m.If(from_registers & complete):
            m.d.sync += Array(self._misses_a)[self._of_a].eq(0)
        self._store_a(fetch)

    def _store_a(self, fetch: OperandFetch) -> None:
        """Store what arrives, as :class:`~sptc.rtl.wgmma.WgmmaWarp` does: a segment h of eight rows."""
        m, arrived = self._m, fetch.core_matrix
        words = segment_words(arrived.rows, 0)
        for slot in range(_SLOTS):
            of_slot = fetch.arriving & (arrived.tag == slot)
            with m.If(of_slot & (arrived.panel == _A_PANELS - 1) & arrived.segment):
                m.d.sync += self._misses_a[slot].eq(0)
            for panel in range(_A_PANELS):
                for segment in range(2):
                    with m.If(of_slot & (arrived.panel == panel) & (arrived.segment == segment)):
                        fragment, register = self._a[slot][panel // 2], 2 * segment + panel % 2
                        m.d.sync += [fragment[lane][register].eq(words[lane]) for lane in range(LANES)]

    def follow(self, multiply: Value, last: Value) -> None:
        """Move on with every panel that is multiplied; the last one frees the slot."""
        m = self._m
        with m.If(multiply):
            m.d.sync += self._multiplied.eq(Mux(last, 0, self._multiplied + 1))
        with m.If(last):
            m.d.sync += [self._now.eq(self._now + 1), Array(self._occupied)[self._now].eq(0)]

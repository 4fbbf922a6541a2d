"""The four tensor cores of an SM as a warpgroup sees them: ``wgmma``, operands fetched while others multiply."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.timing import RegisterCycles
from .commits import GROUPS, Commits
from .config import CoreConfig
from .fetch import CoreMatrixAddress, shared_memory_signature
from .life_cycle import LifeCycle, Operation, life_cycle_layout
from .operand_fetch import OperandFetch
from .operand_slots import A_PANELS_OF_ARRAY, OperandSlots
from .round import ResultCode
from .tensor_core import TensorCore
from .unit import Unit
from .warp import Warp, warp_operands_layout, warp_result_layout
from .wgmma import accumulator_layout, drive_operands, segment_words, wgmma_layout

__all__ = [
    "WARPS",
    "Warpgroup",
    "flag",
    "follow_panels",
    "mma_layout",
    "ready_cycles",
    "take",
    "warpgroup_layout",
]

#: Warps of a warpgroup, each on a tensor core of its own.
WARPS = 4
#: Panels of A: eight rows each.
_A_PANELS = WARPS * A_PANELS_OF_ARRAY
#: Reads of each; and panels of B that come before them, as many as :class:`~sptc.rtl.operand_fetch.OperandFetch` keeps.
_A_READS, _PANELS_FIRST = 2, 2


def warpgroup_layout() -> data.StructLayout:
    """Return the layout of what a warpgroup is told.

    Fields
    ------
    a, e : 4 arrays of 32 lanes
        A, unless it is in shared memory, and metadata, of each warp as in :func:`~sptc.rtl.wgmma.wgmma_layout`.
    operation : Operation
        ``wgmma.mma_async``, ``wgmma.commit_group``, ``wgmma.wait_group`` or ``wgmma.fence``.
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
    accessed : In(1)
        Threads read or write registers of accumulators or of A, which decides nothing but what is flagged.
    undefined : Out(life_cycle_layout())
        What PTX leaves undefined in this cycle.
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
                "pending": Out(range(GROUPS + 1)),
                "accessed": In(1),
                "undefined": Out(life_cycle_layout()),
                "mma": In(stream.Signature(mma_layout())),
                "mma_room": Out(WARPS),
                "mma_result": Out(stream.Signature(warp_result_layout())).array(WARPS),
                "memory": Out(shared_memory_signature()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the two slots of instructions, the fetch, the four warps and the groups."""
        m = Module()
        m.submodules.fetch = fetch = OperandFetch(self.address_class, _A_PANELS)
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
        kept = {name: field.shape for name, field in warpgroup_layout() if name not in ("a", "operation", "pending")}
        slots = OperandSlots(m, kept, WARPS, {"a": True, "b": False})
        taken = self.i.valid & self.i.ready & (self.i.payload.operation == Operation.MULTIPLY)
        waits, multiply, last = Signal(), Signal(), Signal()
        m.d.comb += last.eq(multiply & slots.multiplies_last)
        slots.accept(taken, self.i.payload, self.i.payload.a)
        slots.request_b(fetch)
        self._bring_a(m, slots, fetch)
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
        m.submodules.commits = commits = Commits()
        m.submodules.life_cycle = life_cycle = LifeCycle(self.config)
        m.d.comb += [
            *follow_panels(commits, taken, multiply, last, self.o.valid & self.o.ready),
            *take(self.i, commits, slots.room),
            *flag(self.i, life_cycle, self.accessed),
            self.pending.eq(commits.pending),
            self.undefined.eq(life_cycle.undefined),
        ]
        return m

    def _bring_a(self, m: Module, slots: OperandSlots, fetch: OperandFetch) -> None:
        """Bring A of one slot after another, from shared memory or out of the register file."""
        turn, registers = slots.turns["a"], self.registers
        held = turn.held
        cycle = Signal(range(max(registers.dense, registers.narrow, registers.wide)), name="register_cycle")
        is_narrow = (held.control.result == ResultCode.F16) | (held.last_panel == 0)
        cycles = Mux(held.control.sparse, Mux(is_narrow, registers.narrow, registers.wide), registers.dense)
        from_registers = turn.wants & ~held.a_shared
        complete = Mux(held.a_shared, slots.request_a(fetch), cycle == cycles - 1)
        with m.If(from_registers):
            m.d.sync += cycle.eq(Mux(complete, 0, cycle + 1))
        with m.If(turn.wants & complete):
            turn.end()
        with m.If(from_registers & complete):
            turn.arrived(turn.slot)
        slots.store_a(fetch, segment_words(fetch.core_matrix.rows, 0))


def follow_panels(commits: Commits, issued: Value, multiplied: Value, last: Value, delivered: Value) -> list[Any]:
    """Return what tells commits of instructions and panels: taken, multiplied, the last of one, and delivered."""
    return [
        commits.issued.eq(issued),
        commits.multiplied.eq(multiplied),
        commits.last.eq(last),
        commits.delivered.eq(delivered),
    ]


def take(i: stream.Interface, commits: Commits, room: ValueLike) -> list[Any]:
    """Return what takes a warpgroup's command: a multiplication where there is room, a wait once it is over."""
    operation = i.payload.operation
    ready = room
    for of, when in {
        Operation.COMMIT: commits.room,
        Operation.WAIT: commits.pending <= i.payload.pending,
        Operation.FENCE: 1,
    }.items():
        ready = Mux(operation == of, when, ready)
    return [i.ready.eq(ready), commits.commit.eq(i.valid & i.ready & (operation == Operation.COMMIT))]


def flag(i: stream.Interface, life_cycle: LifeCycle, accessed: Value) -> list[Any]:
    """Return what tells the flags of a warpgroup's commands what they look at."""
    fields = ("operation", "control", "last_panel", "a_shared", "a_descriptor", "b_descriptor", "pending")
    return [
        life_cycle.taken.eq(i.valid & i.ready),
        *(getattr(life_cycle, name).eq(i.payload[name]) for name in fields),
        life_cycle.accessed.eq(accessed),
    ]

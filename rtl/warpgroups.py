"""Several warpgroups on the four tensor cores of an SM: in turns, each with groups and waits of its own."""

from collections.abc import Sequence

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.timing import RegisterCycles
from .commits import GROUPS, Commits
from .config import CoreConfig
from .due import DueList
from .fetch import CoreMatrixAddress, shared_memory_signature
from .life_cycle import LifeCycle, Operation, life_cycle_layout
from .operand_slots import SLOTS
from .tensor_core import IN_FLIGHT
from .unit import Unit
from .warp import Warp, warp_result_layout
from .warpgroup import WARPS, Warpgroup, flag, follow_panels, mma_layout, take, warpgroup_layout
from .wgmma import accumulator_layout

__all__ = ["Warpgroups"]


class Warpgroups(wiring.Component):
    """Execute ``wgmma`` of several warpgroups, one instruction after the other.

    A multiplication of each is taken in turns; commits, waits and fences are each one's own and wait for no other. The
    tensor cores multiply in the order in which they take, so that several warpgroups are as fast as one: each panel of
    B is read once for every warpgroup that wants it.

    Parameters
    ----------
    config : CoreConfig
        The array of one warp.
    count : int
        Warpgroups.
    registers : RegisterCycles
        What the register file takes to deliver operands.
    unit_class, warp_class, address_class : type
        As for :class:`~sptc.rtl.warpgroup.Warpgroup`.

    Members
    -------
    i, c, o, pending, accessed, undefined : array of as many
        Of each warpgroup, as of :class:`~sptc.rtl.warpgroup.Warpgroup`. One whose accumulators are not offered, or
        whose results are not taken, keeps the others waiting.
    mma, mma_room, mma_result, memory
        As there.

    Notes
    -----
    Source: measured on an H200, where two and three warpgroups finish as many instructions in a time as one.
    """

    def __init__(
        self,
        config: CoreConfig,
        count: int = 2,
        registers: RegisterCycles | None = None,
        unit_class: type[Unit] = Unit,
        warp_class: type[Warp] = Warp,
        address_class: type[CoreMatrixAddress] = CoreMatrixAddress,
    ) -> None:
        self.config = config
        self.count = count
        self._parts = (registers, unit_class, warp_class, address_class)
        super().__init__(
            {
                "i": In(stream.Signature(warpgroup_layout())).array(count),
                "c": In(stream.Signature(data.ArrayLayout(accumulator_layout(), WARPS))).array(count),
                "o": Out(stream.Signature(data.ArrayLayout(warp_result_layout(), WARPS))).array(count),
                "pending": Out(range(GROUPS + 1)).array(count),
                "accessed": In(1).array(count),
                "undefined": Out(life_cycle_layout()).array(count),
                "mma": In(stream.Signature(mma_layout())),
                "mma_room": Out(WARPS),
                "mma_result": Out(stream.Signature(warp_result_layout())).array(WARPS),
                "memory": Out(shared_memory_signature()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the choice of a multiplication, the tensor cores, the lists of whose is what, and the groups."""
        m = Module()
        m.submodules.tensor_cores = cores = Warpgroup(self.config, *self._parts)
        m.submodules.instructions = instructions = DueList(self._owner(last_panel=5), SLOTS)
        m.submodules.panels = panels = DueList(self._owner(), IN_FLIGHT)
        wiring.connect(m, cores.memory, wiring.flipped(self.memory))
        wiring.connect(m, wiring.flipped(self.mma), cores.mma)
        m.d.comb += self.mma_room.eq(cores.mma_room)
        for mine, theirs in zip(self.mma_result, cores.mma_result, strict=True):
            wiring.connect(m, theirs, wiring.flipped(mine))
        chosen = self._choose(m, cores)
        issued, multiplied, last, delivered, holds = (
            Signal(name=name) for name in ("issued", "multiplied", "last", "delivered", "holds")
        )
        oldest, done = instructions.entries[0], Signal.like(instructions.entries[0].last_panel, name="done")
        m.d.comb += [
            holds.eq(instructions.count != 0),
            issued.eq(cores.i.valid & cores.i.ready),
            multiplied.eq(cores.c.valid & cores.c.ready),
            last.eq(multiplied & (done == oldest.last_panel)),
            delivered.eq(cores.o.valid & cores.o.ready),
            instructions.push.eq(issued),
            instructions.entry.owner.eq(chosen),
            instructions.entry.last_panel.eq(cores.i.payload.last_panel),
            instructions.pop.eq(last),
            panels.push.eq(multiplied),
            panels.entry.owner.eq(oldest.owner),
            panels.pop.eq(delivered),
        ]
        with m.If(multiplied):
            m.d.sync += done.eq(done + 1)
        with m.If(last):
            m.d.sync += done.eq(0)
        for number in range(self.count):
            issues, multiplies, delivers = (
                Signal(name=f"{name}_{number}") for name in ("issues", "multiplies", "delivers")
            )
            m.d.comb += [
                issues.eq(chosen == number),
                multiplies.eq(holds & (oldest.owner == number)),
                delivers.eq(panels.entries[0].owner == number),
                self.c[number].ready.eq(cores.c.ready & multiplies),
                self.o[number].valid.eq(cores.o.valid & delivers),
                self.o[number].payload.eq(cores.o.payload),
            ]
            with m.If(multiplies):
                m.d.comb += [cores.c.valid.eq(self.c[number].valid), cores.c.payload.eq(self.c[number].payload)]
            with m.If(delivers):
                m.d.comb += cores.o.ready.eq(self.o[number].ready)
            moves = (issued & issues, multiplied & multiplies, last & multiplies, delivered & delivers)
            self._follow(m, number, moves, cores.i.ready & issues)
        return m

    def _owner(self, **fields: int) -> data.StructLayout:
        """Return the layout of whose something is, and of what else is known of it."""
        return data.StructLayout({"owner": range(self.count)} | fields)

    def _choose(self, m: Module, cores: Warpgroup) -> Value:
        """Offer a multiplication of one warpgroup, the next one that has any behind the last; return whose it is."""
        chosen, before = (Signal(range(self.count), name=name) for name in ("chosen", "before"))
        waits = Signal(name="waits")
        wants = [i.valid & (i.payload.operation == Operation.MULTIPLY) for i in self.i]
        m.d.comb += chosen.eq(before)
        with m.If(~waits), m.Switch(before):
            for last in range(self.count):
                with m.Case(last):
                    for distance in reversed(range(1, self.count + 1)):
                        number = (last + distance) % self.count
                        with m.If(wants[number]):
                            m.d.comb += chosen.eq(number)
        for number, (want, i) in enumerate(zip(wants, self.i, strict=True)):
            with m.If(chosen == number):
                m.d.comb += [cores.i.valid.eq(want), cores.i.payload.eq(i.payload)]
        # What is offered stays until it is taken.
        m.d.sync += [before.eq(chosen), waits.eq(cores.i.valid & ~cores.i.ready)]
        return chosen

    def _follow(self, m: Module, number: int, moves: Sequence[Value], room: Value) -> None:
        """Follow the groups of a warpgroup, take what it says, and flag what is undefined of that."""
        m.submodules[f"commits_{number}"] = commits = Commits()
        m.submodules[f"life_cycle_{number}"] = life_cycle = LifeCycle(self.config)
        issued, multiplied, last, delivered = moves
        m.d.comb += [
            *follow_panels(commits, issued, multiplied, last, delivered),
            *take(self.i[number], commits, room),
            *flag(self.i[number], life_cycle, self.accessed[number]),
            self.pending[number].eq(commits.pending),
            self.undefined[number].eq(life_cycle.undefined),
        ]

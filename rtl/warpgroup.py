"""Execution of ``wgmma`` for one or several warpgroups: multiplications, commits, waits and fences."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.timing import RegisterCycles
from .cells.described import DescribedLayout, DescribedSignature
from .commits import GROUPS, PENDING_BITS, Commits
from .config import CoreConfig
from .life_cycle import LifeCycle, Operation, life_cycle_layout
from .operand_slots import SLOTS
from .ring import Ring
from .tensor_cores import WARPS, TensorCores, multiplication_layout, shared_members
from .unit import Unit
from .warp import FRAGMENT, Warp, warp_result_layout

__all__ = ["Warpgroup", "warpgroup_layout"]


def warpgroup_layout() -> DescribedLayout:
    """Return the layout of a warpgroup's command: its kind (multiply, commit, wait, fence) and the ``wgmma`` fields."""
    multiplication = dict(multiplication_layout().fields)
    registers = {name: multiplication.pop(name) for name in ("a", "e")}
    operation = (
        "Command: MULTIPLY is wgmma.mma_async, COMMIT wgmma.commit_group, WAIT wgmma.wait_group, FENCE wgmma.fence. "
        "WAIT ignores all fields except pending; COMMIT and FENCE ignore all other fields."
    )
    pending = "N of wgmma.wait_group: WAIT is accepted once at most N committed groups are unfinished."
    own = {"operation": (Operation, operation), "pending": (PENDING_BITS, pending)}
    return DescribedLayout(registers | own | multiplication)


#: Fields of a warpgroup's command from which the hardware determines its flags of undefined behaviour.
_FLAGGED = ("operation", "pending", "control", "a_descriptor", "b_descriptor", "a_shared", "last_panel")


def _own_ports() -> dict[str, tuple[wiring.Member, str]]:
    """Return the ports that a module has for each warpgroup: by name, the Amaranth member and its documentation."""
    c = (
        "Accumulators of one panel (eight columns) [warp][lane][register] in the fragment layout of mma, panels in "
        "ascending order. Every multiplication takes N / 8 transfers, also if its field add is 0."
    )
    accessed = "1: threads access registers of accumulators or A in this cycle. Only undefined depends on it."
    undefined = (
        "Flags of usage that PTX leaves undefined, each valid for one cycle. Results do not depend on the flags."
    )
    results = Out(stream.Signature(data.ArrayLayout(warp_result_layout(), WARPS)))
    return {
        "i": (In(stream.Signature(warpgroup_layout())), "Commands of the warpgroup, in program order."),
        "c": (In(stream.Signature(data.ArrayLayout(FRAGMENT, WARPS))), c),
        "o": (results, "Results of one panel for each of the four warps, in the order of the accumulators."),
        "pending": (Out(range(GROUPS + 1)), "Number of committed groups that are not finished, 0 to 8."),
        "accessed": (In(1), accessed),
        "undefined": (Out(life_cycle_layout()), undefined),
    }


class Commands(wiring.Component):
    """Accept the commands of one warpgroup, count its commit groups, and flag usage that PTX leaves undefined."""

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        own = _own_ports()
        command = data.StructLayout({name: field.shape for name, field in warpgroup_layout() if name in _FLAGGED})
        ports = {
            "i": (In(stream.Signature(command)), "Commands of a warpgroup, without operands."),
            "room": (In(1), "The tensor cores accept a multiplication of this warpgroup in this cycle."),
            "multiplied": (In(1), "A panel of this warpgroup is multiplied in this cycle."),
            "last": (In(1), "The panel that is multiplied is the last panel of its instruction."),
            "delivered": (In(1), "A panel of results of this warpgroup is delivered in this cycle."),
            "accessed": own["accessed"],
            "multiplies": (Out(1), "The command at port i is valid and is a multiplication."),
            "pending": own["pending"],
            "undefined": own["undefined"],
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the ready signal of each operation, the tracking of commit groups, and the flags of undefined usage."""
        m = Module()
        m.submodules.commits = commits = Commits(self.config.warp_items)
        m.submodules.life_cycle = life_cycle = LifeCycle(self.config)
        payload, taken = self.i.payload, Signal()
        with m.Switch(payload.operation):
            with m.Case(Operation.MULTIPLY):
                m.d.comb += [self.multiplies.eq(self.i.valid), self.i.ready.eq(self.room), commits.issued.eq(taken)]
            with m.Case(Operation.COMMIT):
                m.d.comb += [self.i.ready.eq(commits.room), commits.commit.eq(taken)]
            with m.Case(Operation.WAIT):
                m.d.comb += self.i.ready.eq(commits.pending <= payload.pending)
            with m.Case(Operation.FENCE):
                m.d.comb += self.i.ready.eq(1)
        m.d.comb += [
            taken.eq(self.i.valid & self.i.ready),
            commits.multiplied.eq(self.multiplied),
            commits.last.eq(self.last),
            commits.delivered.eq(self.delivered),
            self.pending.eq(commits.pending),
            life_cycle.taken.eq(taken),
            *(getattr(life_cycle, name).eq(payload[name]) for name in _FLAGGED),
            life_cycle.accessed.eq(self.accessed),
            self.undefined.eq(life_cycle.undefined),
        ]
        return m


class Arbiter(wiring.Component):
    """Round-robin arbiter that decides which of `count` warpgroups may start its multiplication."""

    def __init__(self, count: int) -> None:
        self.count = count
        ports = {
            "requests": (In(count), "Bit n is 1 if warpgroup n offers a multiplication."),
            "accepted": (In(1), "The multiplication of the warpgroup with number chosen is accepted in this cycle."),
            "chosen": (Out(range(count)), "Warpgroup that is served; constant until its multiplication is accepted."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the round-robin search, which starts after the warpgroup that was served last."""
        m = Module()
        before, waits = Signal.like(self.chosen, name="before"), Signal()
        # The arbiter's choice is constant while the chosen request waits. Otherwise the arbiter chooses the nearest
        # requesting warpgroup after `before`: the loop assigns this warpgroup last, and the last assignment wins.
        m.d.comb += self.chosen.eq(before)
        with m.If(~waits), m.Switch(before):
            for last in range(self.count):
                with m.Case(last):
                    for distance in reversed(range(1, self.count + 1)):
                        number = (last + distance) % self.count
                        with m.If(self.requests[number]):
                            m.d.comb += self.chosen.eq(number)
        m.d.sync += [before.eq(self.chosen), waits.eq(self.requests.bit_select(self.chosen, 1) & ~self.accepted)]
        return m


class Owners(wiring.Component):
    """Record, in order, which of `count` warpgroups owns each multiplication and each panel (eight columns) of results.

    At most `in_flight` panels (eight columns each) are multiplied and not yet delivered.
    """

    def __init__(self, count: int, in_flight: int) -> None:
        self.count, self.in_flight = count, in_flight
        multiplies = "Bit n is 1 if the oldest instruction with panels to multiply belongs to warpgroup n."
        ports = {
            "issued": (In(1), "A multiplication is accepted in this cycle."),
            "owner": (In(range(count)), "Warpgroup of the multiplication that is accepted."),
            "multiplied": (In(1), "A panel is multiplied in this cycle."),
            "last": (In(1), "The panel that is multiplied is the last panel of its instruction."),
            "delivered": (In(1), "A panel of results is delivered in this cycle."),
            "multiplies": (Out(count), multiplies),
            "delivers": (Out(range(count)), "Warpgroup of the next panel of results."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the two FIFOs of warpgroup numbers: one for instructions, one for panels (eight columns) of results."""
        m = Module()
        m.submodules.instructions = instructions = Ring(range(self.count), SLOTS)
        m.submodules.panels = panels = Ring(range(self.count), self.in_flight)
        # Instructions and results need a FIFO each, because the result of a panel (eight columns) is delivered some
        # cycles after its multiplication. Example with two instructions of three panels each, the first of warpgroup 0
        # and the second of warpgroup 1. One panel is multiplied per turn. Entries of the table are warpgroups:
        #
        #     turn          0    1    2    3    4    5    6    7
        #     multiplies    0    0    0    1    1    1
        #     delivers                0    0    0    1    1    1
        m.d.comb += [
            instructions.push.eq(self.issued),
            instructions.entry.eq(self.owner),
            instructions.pop.eq(self.multiplied & self.last),
            panels.push.eq(self.multiplied),
            panels.entry.eq(instructions.oldest),
            panels.pop.eq(self.delivered),
            self.multiplies.eq(instructions.valid.any() << instructions.oldest),
            self.delivers.eq(panels.oldest),
        ]
        return m


class Warpgroup(wiring.Component):
    """Execute ``wgmma.mma_async``, sparse or dense, of one warpgroup or of several that share the tensor cores.

    Operand fetch and multiplication overlap; :class:`~sptc.rtl.tensor_cores.TensorCores` states the throughput.
    Multiplications of the warpgroups are accepted round-robin and executed in the order of acceptance. Each warpgroup
    has its own commits, waits and fences, which do not wait for other warpgroups. Several warpgroups together have the
    throughput of one warpgroup: they share no panels of B, so each warpgroup reads its own panels.

    With several warpgroups, the ports `i`, `c`, `o`, `pending`, `accessed` and `undefined` are arrays of `count` ports.
    A warpgroup that does not offer its accumulators, or does not take its results, stalls the other warpgroups.

    Source: measured on an H200: two and three warpgroups complete as many instructions per time as one.

    Parameters
    ----------
    config : CoreConfig
        The array of one warp, as for :class:`~sptc.rtl.warp.Warp`.
    registers : RegisterCycles
        Cycles in which the register file delivers operands. These cycles are a parameter, since their cause in silicon
        is not known.
    count : int
        Number of warpgroups.
    unit_class, warp_class : type
        Component classes of the units and of the arrays.
    """

    def __init__(
        self,
        config: CoreConfig,
        registers: RegisterCycles | None = None,
        count: int = 1,
        unit_class: type[Unit] = Unit,
        warp_class: type[Warp] = Warp,
    ) -> None:
        self.config = config
        self.count = count
        self._parts = (registers, unit_class, warp_class)
        own = _own_ports()
        self._names = tuple(own)
        if count > 1:
            own = {name: (member.array(count), meaning) for name, (member, meaning) in own.items()}
        super().__init__(DescribedSignature(own | shared_members()))

    def elaborate(self, platform: object) -> Module:
        """Build the tensor cores, the command logic of each warpgroup and, for several warpgroups, the arbiter."""
        m = Module()
        m.submodules.tensor_cores = cores = TensorCores(self.config, *self._parts)
        wiring.connect(m, cores.memory, wiring.flipped(self.memory))
        wiring.connect(m, wiring.flipped(self.mma), cores.mma)
        m.d.comb += self.mma_room.eq(cores.mma_room)
        for outer, inner in zip(self.mma_result, cores.mma_result, strict=True):
            wiring.connect(m, inner, wiring.flipped(outer))
        issued, multiplied, delivered = (Signal(name=name) for name in ("issued", "multiplied", "delivered"))
        m.d.comb += [
            issued.eq(cores.i.valid & cores.i.ready),
            multiplied.eq(cores.c.valid & cores.c.ready),
            delivered.eq(cores.o.valid & cores.o.ready),
        ]
        commands_of = [Commands(self.config) for _ in range(self.count)]
        chosen, multiplies, delivers = Const(0), Const(1), Const(0)
        if self.count > 1:
            m.submodules.arbiter = arbiter = Arbiter(self.count)
            m.submodules.owners = owners = Owners(self.count, self.config.warp_items)
            m.d.comb += [
                arbiter.requests.eq(Cat(commands.multiplies for commands in commands_of)),
                arbiter.accepted.eq(issued),
                owners.issued.eq(issued),
                owners.owner.eq(arbiter.chosen),
                owners.multiplied.eq(multiplied),
                owners.last.eq(cores.last),
                owners.delivered.eq(delivered),
            ]
            chosen, multiplies, delivers = arbiter.chosen, owners.multiplies, owners.delivers
        for number, commands in enumerate(commands_of):
            m.submodules[f"commands_{number}"] = commands
            i, c, o, pending, accessed, undefined = (
                getattr(self, name)[number] if self.count > 1 else getattr(self, name) for name in self._names
            )
            is_chosen, is_multiplied, is_delivered = (
                Signal(name=f"{name}_{number}") for name in ("is_chosen", "is_multiplied", "is_delivered")
            )
            m.d.comb += [
                is_chosen.eq(chosen == number),
                is_multiplied.eq(multiplies[number]),
                is_delivered.eq(delivers == number),
                commands.room.eq(cores.i.ready & is_chosen),
                commands.multiplied.eq(multiplied & is_multiplied),
                commands.last.eq(cores.last),
                commands.delivered.eq(delivered & is_delivered),
                commands.accessed.eq(accessed),
                pending.eq(commands.pending),
                undefined.eq(commands.undefined),
                c.ready.eq(cores.c.ready & is_multiplied),
                o.valid.eq(cores.o.valid & is_delivered),
                o.payload.eq(cores.o.payload),
            ]
            m.d.comb += [
                commands.i.valid.eq(i.valid),
                i.ready.eq(commands.i.ready),
                *(commands.i.payload[name].eq(i.payload[name]) for name in _FLAGGED),
            ]
            with m.If(is_chosen):
                m.d.comb += cores.i.valid.eq(commands.multiplies)
                m.d.comb += [cores.i.payload[name].eq(i.payload[name]) for name in multiplication_layout().members]
            with m.If(is_multiplied):
                m.d.comb += [cores.c.valid.eq(c.valid), cores.c.payload.eq(c.payload)]
            with m.If(is_delivered):
                m.d.comb += cores.o.ready.eq(o.ready)
        return m

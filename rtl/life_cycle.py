"""Flags of ``wgmma`` usage that PTX leaves undefined, as far as the hardware of a warpgroup can detect it."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from .cells.described import DescribedLayout, DescribedSignature
from .codes import is_one_of
from .commits import GROUPS, PENDING_BITS
from .config import CoreConfig
from .fetch import LAST_PANEL, PANEL_BITS, descriptor_layout, sets_reserved
from .step import control_layout

__all__ = ["LifeCycle", "Operation", "life_cycle_layout"]


class Operation(enum.Enum, shape=2):
    """Operation of a warpgroup's command: multiply, commit, wait or fence."""

    MULTIPLY = 0
    COMMIT = 1
    WAIT = 2
    FENCE = 3


def life_cycle_layout() -> DescribedLayout:
    """Return the layout of the flags of undefined ``wgmma`` usage. A flag is set for one cycle."""
    unfenced = (
        "A multiplication is accepted, but there was no fence yet, or no fence since an access to registers or since a "
        "multiplication of another shape."
    )
    reserved = "A multiplication is accepted whose matrix descriptor has a nonzero reserved bit."
    return DescribedLayout(
        {
            "unfenced": (1, unfenced),
            "uncommitted": (1, "Input accessed is 1 although a multiplication is not yet committed."),
            "unwaited": (1, "Input accessed is 1 although a committed multiplication was not yet waited for."),
            "reserved": (1, reserved),
        }
    )


class LifeCycle(wiring.Component):
    """Track the commands of a warpgroup and flag undefined behaviour. Results do not depend on the flags.

    All multiplications are assumed to use the same registers, since commands do not name registers. Input `accessed`
    reports an access to these registers. The access precedes a command that is accepted in the same cycle.

    Source: PTX ISA 9.7.15.7, as in :class:`sptc.isa.life_cycle.WgmmaSequence`.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        ports = {
            "taken": (In(1), "A command is accepted in this cycle."),
            "operation": (In(Operation), "Operation of the command that is accepted."),
            "control": (In(control_layout()), "Control word of a multiplication."),
            "last_panel": (In(PANEL_BITS), LAST_PANEL),
            "a_shared": (In(1), "Operand A of a multiplication is in shared memory."),
            "a_descriptor": (In(descriptor_layout()), "Matrix descriptor of A of a multiplication."),
            "b_descriptor": (In(descriptor_layout()), "Matrix descriptor of B of a multiplication."),
            "pending": (In(PENDING_BITS), "Number of committed groups that may be unfinished after a wait."),
            "accessed": (In(1), "Threads read or write registers of multiplications in this cycle."),
            "undefined": (Out(life_cycle_layout()), "Flags of undefined usage in this cycle."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the registers that track fences, the open commit group, and commit groups that were not waited for."""
        m = Module()
        undefined = self.undefined
        fenced, touched, multiplied = (Signal(name=name) for name in ("fenced", "touched", "multiplied"))
        shape = Cat(self.last_panel, self._doublings())
        before = Signal(len(shape), name="shape_before", reset_less=True)
        # `is_open` is 1 if the open commit group has a multiplication. A bit of `groups` is 1 if a committed group has
        # a multiplication that no wait has covered yet: bit 0 for the newest group, bit 1 for the group before, and the
        # highest bit for all older groups together. A wait with N (at most 7) clears bits N and above.
        is_open, groups = Signal(), Signal(GROUPS)
        is_of = {operation: self.taken & (self.operation == operation) for operation in Operation}
        multiplies, commits, waits, fences = (is_of[operation] for operation in Operation)
        m.d.comb += [
            undefined.unfenced.eq(multiplies & (~fenced | touched | self.accessed | (multiplied & (shape != before)))),
            undefined.uncommitted.eq(self.accessed & is_open),
            undefined.unwaited.eq(self.accessed & groups.any()),
            undefined.reserved.eq(
                multiplies & (sets_reserved(self.b_descriptor) | (self.a_shared & sets_reserved(self.a_descriptor)))
            ),
        ]
        m.d.sync += [
            fenced.eq(fenced | fences),
            touched.eq((touched | self.accessed) & ~fences),
            multiplied.eq((multiplied | multiplies) & ~fences),
            is_open.eq((is_open | multiplies) & ~commits),
        ]
        with m.If(multiplies):
            m.d.sync += before.eq(shape)
        with m.If(commits):
            # Bits of `groups` (committed groups with a multiplication) after a commit. The two highest bits merge:
            #
            #     bit              7                   6 ... 1         0
            #     next `groups`    bit 7 or bit 6      bits 5 ... 0    is_open
            m.d.sync += groups.eq(Cat(is_open, groups[:-2], groups[-2:].any()))
        with m.Elif(waits):
            m.d.sync += groups.eq(groups & ((1 << self.pending) - 1)[:GROUPS])
        return m

    def _doublings(self) -> Value:
        """Return log2(K) - 3 of a multiplication. K doubles if elements are half as wide, and if A is sparse."""
        elements = self.config.elements
        doublings: Value = Const(0, 2)
        for narrow in (16, 8):
            doublings += is_one_of(self.config, self.control.a, [e for e in elements if e.container_bits <= narrow])
        return (doublings + self.control.sparse)[:2]

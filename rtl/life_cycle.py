"""What PTX leaves undefined of ``wgmma``, as far as a warpgroup's hardware can see it: flags beside what it is told."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from .codes import is_one_of
from .config import CoreConfig
from .fetch import descriptor_layout, sets_reserved
from .step import control_layout

__all__ = ["LifeCycle", "Operation", "life_cycle_layout"]

#: Groups that the widest operand of ``wait_group`` here can leave, and one bit for all older ones.
_GROUPS = 8
_PENDING_BITS = 3


class Operation(enum.Enum, shape=2):
    """What a warpgroup is told to do."""

    MULTIPLY = 0
    COMMIT = 1
    WAIT = 2
    FENCE = 3


def life_cycle_layout() -> data.StructLayout:
    """Return the layout of what is undefined in a cycle.

    Fields
    ------
    unfenced : 1
        A multiplication is taken before any fence, or of another shape than the one before it, or after an access to
        its registers, and no fence came between.
    uncommitted : 1
        Registers are accessed that a multiplication uses which was not committed.
    unwaited : 1
        Registers are accessed that a multiplication uses which was not waited for.
    reserved : 1
        A multiplication is taken of which a descriptor sets a reserved bit.
    """
    return data.StructLayout(dict.fromkeys(("unfenced", "uncommitted", "unwaited", "reserved"), 1))


class LifeCycle(wiring.Component):
    """Follow what a warpgroup takes, and say what of it is undefined; its results do not depend on it.

    All multiplications are taken to use the same registers, since nobody tells the hardware which; an access is one to
    these, ahead of what is taken in the same cycle.

    Parameters
    ----------
    config : CoreConfig
        Whose element codes the control word has.

    Members
    -------
    taken : In(1)
        Something is taken in this cycle.
    operation : In(Operation)
        What.
    control : In(control_layout())
        Of a multiplication.
    last_panel : In(5)
        Of a multiplication.
    a_shared : In(1)
        Of a multiplication.
    a_descriptor, b_descriptor : In(descriptor_layout())
        Of a multiplication.
    pending : In(3)
        Of a wait.
    accessed : In(1)
        Threads read or write registers of multiplications.
    undefined : Out(life_cycle_layout())
        What is undefined in this cycle.

    Notes
    -----
    Source: PTX ISA 9.7.15.7, as :class:`sptc.isa.life_cycle.WgmmaSequence` has it.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        super().__init__(
            {
                "taken": In(1),
                "operation": In(Operation),
                "control": In(control_layout()),
                "last_panel": In(5),
                "a_shared": In(1),
                "a_descriptor": In(descriptor_layout()),
                "b_descriptor": In(descriptor_layout()),
                "pending": In(_PENDING_BITS),
                "accessed": In(1),
                "undefined": Out(life_cycle_layout()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build what is known of fences, and of groups that were not waited for."""
        m = Module()
        undefined = self.undefined
        fenced, touched, multiplied = (Signal(name=name) for name in ("fenced", "touched", "multiplied"))
        shape = Cat(self.last_panel, self._doublings())
        before = Signal(len(shape), name="shape_before", reset_less=True)
        # The group that is not committed, and those that were and were not waited for, the last one lowest: is there
        # a multiplication in it?
        is_open, groups = Signal(), Signal(_GROUPS)
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
            m.d.sync += groups.eq(Cat(is_open, groups[:-2], groups[-2:].any()))
        with m.Elif(waits):
            m.d.sync += groups.eq(groups & ((1 << self.pending) - 1)[:_GROUPS])
        return m

    def _doublings(self) -> Value:
        """Return the binary logarithm of K, less three: elements half as wide double it, and so does sparsity."""
        elements = self.config.elements
        found: Value = Const(0, 2)
        for narrow in (16, 8):
            found += is_one_of(self.config, self.control.a, [e for e in elements if e.container_bits <= narrow])
        return (found + self.control.sparse)[:2]

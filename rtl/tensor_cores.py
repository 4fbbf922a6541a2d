"""The four tensor cores of an SM, for ``wgmma`` with M = 64. Operand fetch and multiplication overlap."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.timing import RegisterCycles
from .cells.described import DescribedLayout, DescribedSignature
from .config import CoreConfig
from .fetch import LAST_PANEL, PANEL_BITS, descriptor_layout, shared_memory_signature
from .operand_fetch import OperandFetch
from .operand_slots import OperandSlots, PanelRequests
from .panel_operands import PanelOperands, panel_instruction_layout
from .round import ResultCode
from .stored_a import A_PANELS_OF_ARRAY, StoredA
from .tensor_core import TensorCore
from .unit import Unit
from .warp import FRAGMENT, REGISTER, Warp, warp_operands_layout, warp_result_layout

__all__ = ["WARPS", "TensorCores", "mma_layout", "multiplication_layout", "ready_cycles", "shared_members"]

#: Number of warps per warpgroup. Each warp has its own tensor core.
WARPS = 4
#: Number of panels of A (eight rows each) per instruction.
_A_PANELS = WARPS * A_PANELS_OF_ARRAY
#: Number of shared-memory reads per panel (eight rows) of A, and number of panels (eight columns) of B that are read
#: before A. The second number is the number of panel buffers in :class:`~sptc.rtl.operand_fetch.OperandFetch`.
_A_READS, _PANELS_FIRST = 2, 2


def multiplication_layout() -> DescribedLayout:
    """Return the layout of a ``wgmma.mma_async`` instruction, sparse or dense."""
    common = panel_instruction_layout().fields
    a = "Registers of A [warp][lane][register], in the fragment layout of PTX; ignored if a_shared is 1."
    e = "Metadata registers [warp][lane]; ignored in dense instructions."
    transposed = "imm-trans-{} of PTX: 1: {} is MN-major (only with elements of 16 bits); 0: K-major."
    return DescribedLayout(
        {
            "a": (data.ArrayLayout(FRAGMENT, WARPS), a),
            "e": (data.ArrayLayout(REGISTER, WARPS), e),
            "control": common["control"],
            "a_descriptor": (descriptor_layout(), "Matrix descriptor of A in shared memory; ignored if a_shared is 0."),
            "b_descriptor": (descriptor_layout(), "Matrix descriptor of B in shared memory."),
            "a_shared": (1, "1: A is in shared memory; 0: A is in registers."),
            "a_transposed": (1, transposed.format("a", "A in shared memory")),
            "b_transposed": (1, transposed.format("b", "B")),
            "negated": common["negated"],
            "add": common["add"],
            "last_panel": (PANEL_BITS, LAST_PANEL),
            "sparsity_selector": common["sparsity_selector"],
        }
    )


def mma_layout() -> DescribedLayout:
    """Return the layout of an ``mma`` instruction with the number of the tensor core that executes it."""
    return DescribedLayout(
        {
            "operands": (warp_operands_layout(), "The mma instruction, with its registers."),
            "core": (range(WARPS), "Number of the tensor core that executes the instruction, 0 to 3."),
        }
    )


def ready_cycles(registers: int, panels: int, panel_reads: int) -> int:
    """Return the minimum number of cycles from acceptance of a ``wgmma`` to multiplication of its first eight columns.

    Parameters
    ----------
    registers : int
        Number of cycles in which the register file delivers A, or 0 if A is in shared memory. In the latter case, two
        panels of B are read before A.
    panels, panel_reads : int
        Number of panels (eight columns) of B, and number of shared-memory reads per panel of B.
    """
    if registers:
        return registers + 1
    return min(panels, _PANELS_FIRST) * panel_reads + _A_PANELS * _A_READS + 2


def shared_members() -> dict[str, tuple[wiring.Member, str]]:
    """Return the ports that all warps of an SM share: ports for ``mma`` of other warps and for shared memory."""
    mma = "mma and mma.sp instructions of other warps, at most one per cycle. A waiting panel of wgmma has priority."
    mma_result = "Results of the mma instructions of the tensor core with the number of this port, in order."
    results = Out(stream.Signature(warp_result_layout())).array(WARPS)
    return {
        "mma": (In(stream.Signature(mma_layout())), mma),
        "mma_room": (Out(WARPS), "Bit n is 1 if tensor core n can accept an mma instruction in this cycle."),
        "mma_result": (results, mma_result),
        "memory": (Out(shared_memory_signature()), "Port to the shared memory of the CTA."),
    }


class RegisterDelivery(wiring.Component):
    """Count the cycles in which the register file delivers A and metadata of one instruction."""

    def __init__(self, registers: RegisterCycles) -> None:
        self.registers = registers
        ports = {
            "pending": (In(1), "Operands are being delivered; all inputs must stay constant until end is 1."),
            "sparse": (In(1), "The instruction has metadata."),
            "narrow": (In(1), "The results are f16, or N is 8."),
            "end": (Out(1), "This cycle is the last cycle of the delivery."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the counter of cycles in which the register file of the SM delivers operands."""
        m = Module()
        registers = self.registers
        cycle = Signal(range(max(registers.dense, registers.narrow, registers.wide)))
        cycles = Mux(self.sparse, Mux(self.narrow, registers.narrow, registers.wide), registers.dense)
        m.d.comb += self.end.eq(self.pending & (cycle == cycles - 1))
        with m.If(self.pending):
            m.d.sync += cycle.eq(Mux(self.end, 0, cycle + 1))
        return m


class TensorCores(wiring.Component):
    """Multiply ``wgmma`` with M = 64 on the four tensor cores of an SM, in panels of eight columns of N.

    Each of the four warps has its own array, which multiplies a panel in ``config.warp_blocks`` cycles: four cycles
    with 32 units. Each panel of B is read once for all four arrays. There are two instruction slots: while one
    instruction multiplies, A of the next instruction arrives from registers or from shared memory. The port to shared
    memory reads 128 bytes a cycle, B before A. The interval from one instruction to the next is the longest of three::

        max(blocks * N / 8, bytes from shared memory / 128, cycles of the register file)

    Between panels each array executes ``mma`` and ``mma.sp`` of other warps: see
    :class:`~sptc.rtl.tensor_core.TensorCore`.

    Parameters
    ----------
    config, registers, unit_class, warp_class
        The same parameters as those of :class:`~sptc.rtl.warpgroup.Warpgroup`.
    """

    def __init__(
        self,
        config: CoreConfig,
        registers: RegisterCycles | None = None,
        unit_class: type[Unit] = Unit,
        warp_class: type[Warp] = Warp,
    ) -> None:
        self.config = config
        self.registers = registers or RegisterCycles()
        self.unit_class = unit_class
        self.warp_class = warp_class
        accumulators = In(stream.Signature(data.ArrayLayout(FRAGMENT, WARPS)))
        results = Out(stream.Signature(data.ArrayLayout(warp_result_layout(), WARPS)))
        ports = {
            "i": (In(stream.Signature(multiplication_layout())), "Instructions wgmma.mma_async, in program order."),
            "c": (accumulators, "Accumulators of one panel (eight columns) for each warp, in order of columns."),
            "last": (Out(1), "The panel that c accepts next is the last panel of its instruction."),
            "o": (results, "Results of one panel for each warp, in the order of the accumulators."),
        }
        super().__init__(DescribedSignature(ports | shared_members()))

    def elaborate(self, platform: object) -> Module:
        """Build the buffers of two instructions, the operand fetch and the four tensor cores."""
        m = Module()
        # Example: a sparse instruction with A in shared memory is accepted in cycle 0. Four cycles read a panel (eight
        # columns) of B into one of two buffers. The arrays need four cycles for a panel. The arrays take the panel in
        # the first of these cycles, which frees the buffer:
        #
        #     cycles    1 ... 4    5 ... 8    9 ... 24    25    26 ... 29    30 ... 33    34 ... 37
        #     memory    B 0        B 1        all of A          B 2          B 3          B 4
        #     arrays                                            panel 0      panel 1      panel 2
        m.submodules.fetch = fetch = OperandFetch(_A_PANELS)
        wiring.connect(m, fetch.memory, wiring.flipped(self.memory))
        kept = data.StructLayout({name: field.shape for name, field in multiplication_layout() if name != "a"})
        m.submodules.slots = slots = OperandSlots(kept, {"a": True, "b": False})
        m.submodules.stored_a = stored = StoredA(WARPS, from_registers=True)
        m.d.comb += [
            slots.i.valid.eq(self.i.valid),
            self.i.ready.eq(slots.i.ready),
            *(slots.i.payload[name].eq(self.i.payload[name]) for name in kept.members),
            # A in registers is stored in the cycle in which the instruction is accepted. `delivery` only counts the
            # cycles that the register file needs.
            stored.load.eq((self.i.valid & self.i.ready) << slots.next_slot),
            *(stored.registers[warp].eq(self.i.payload.a[warp]) for warp in range(WARPS)),
            stored.slot.eq(slots.slot),
        ]
        self._bring(m, slots, stored, fetch)
        cores = [TensorCore(self.config, self.registers, self.unit_class, self.warp_class) for _ in range(WARPS)]
        # All four tensor cores take a panel (eight columns) of B in the same cycle. While the panel waits, the signal
        # `waits` prevents each tensor core from starting an `mma`.
        waits, multiply = Signal(), Signal()
        m.d.comb += [
            waits.eq(fetch.panels.valid & self.c.valid & slots.ready),
            multiply.eq(waits & Cat(core.panel.ready for core in cores).all()),
            slots.multiply.eq(multiply),
            fetch.panels.ready.eq(multiply),
            self.c.ready.eq(multiply),
            self.last.eq(slots.last),
            self.o.valid.eq(Cat(core.panel_result.valid for core in cores).all()),
            self.mma.ready.eq(self.mma_room.bit_select(self.mma.payload.core, 1)),
        ]
        for number, core in enumerate(cores):
            m.submodules[f"core_{number}"] = core
            m.submodules[f"operands_{number}"] = operands = PanelOperands(self.config)
            wiring.connect(m, wiring.flipped(self.mma_result[number]), core.o)
            m.d.comb += [
                core.i.valid.eq(self.mma.valid & (self.mma.payload.core == number)),
                core.i.payload.eq(self.mma.payload.operands),
                self.mma_room[number].eq(core.i.ready),
                *(
                    operands.instruction[name].eq(slots.instruction[name])
                    for name in panel_instruction_layout().members
                ),
                operands.e.eq(slots.instruction.e[number]),
                operands.a.eq(stored.a[number]),
                operands.panel.eq(fetch.panels.payload),
                operands.c.eq(self.c.payload[number]),
                core.panel_waits.eq(waits),
                core.panel.valid.eq(multiply),
                core.panel.payload.eq(operands.o),
                core.panel_result.ready.eq(self.o.ready & self.o.valid),
                self.o.payload[number].eq(core.panel_result.payload),
            ]
        return m

    def _bring(self, m: Module, slots: OperandSlots, stored: StoredA, fetch: OperandFetch) -> None:
        """Fetch B from shared memory, and A from shared memory or from the register file."""
        m.submodules.requests_b = requests_b = PanelRequests(1 << PANEL_BITS)
        m.submodules.requests_a = requests_a = PanelRequests(_A_PANELS)
        m.submodules.delivery = delivery = RegisterDelivery(self.registers)
        wiring.connect(m, requests_b.o, fetch.b)
        wiring.connect(m, requests_a.o, fetch.a)
        a, b = slots.a.instruction, slots.b.instruction
        m.d.comb += [
            requests_b.pending.eq(slots.b.pending),
            requests_b.descriptor.eq(b.b_descriptor),
            requests_b.mn_major.eq(b.b_transposed),
            requests_b.short.eq(~b.control.sparse),
            requests_b.last.eq(b.last_panel),
            slots.b.end.eq(requests_b.end),
            requests_a.pending.eq(slots.a.pending & a.a_shared),
            requests_a.descriptor.eq(a.a_descriptor),
            requests_a.mn_major.eq(a.a_transposed),
            requests_a.short.eq(1),
            requests_a.last.eq(_A_PANELS - 1),
            fetch.a_tag.eq(slots.a.slot),
            delivery.pending.eq(slots.a.pending & ~a.a_shared),
            delivery.sparse.eq(a.control.sparse),
            delivery.narrow.eq((a.control.result == ResultCode.F16) | (a.last_panel == 0)),
            slots.a.end.eq(requests_a.end | delivery.end),
            slots.a.arrives.eq(stored.complete | (delivery.end << slots.a.slot)),
            stored.arriving.eq(fetch.arriving),
            stored.core_matrix.eq(fetch.core_matrix),
        ]

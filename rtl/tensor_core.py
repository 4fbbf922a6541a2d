"""A tensor core of an SM: its array executes ``wgmma`` in panels of eight columns, and ``mma`` while no panel waits."""

from dataclasses import replace

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.timing import RegisterCycles
from .cells.described import DescribedSignature
from .config import PRESETS, CoreConfig
from .ring import Ring
from .unit import Unit
from .warp import Warp, warp_operands_layout, warp_result_layout

__all__ = ["TENSOR_CORE", "TensorCore"]

#: Configuration of the array in a tensor core of sm_90. The array computes 16 rows x 8 columns in four cycles, the
#: throughput of ``wgmma`` on an H200.
TENSOR_CORE = replace(PRESETS["hopper"], rows=8, columns=4)


class TensorCore(wiring.Component):
    """Execute panels (eight columns) of ``wgmma``, and ``mma`` of one warp scheduler while no panel waits.

    The array takes ``config.warp_blocks`` cycles for a panel, an ``mma`` or an ``mma.sp``: four cycles with 32 units.
    The register file limits the interval between two ``mma``: it delivers the operands of the second ``mma`` after the
    first has begun. No ``mma`` begins while a panel waits; measured on an H200, an ``mma`` beside ``wgmma`` of other
    warps takes hundreds of cycles.

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
        operands, results = stream.Signature(warp_operands_layout()), stream.Signature(warp_result_layout())
        ports = {
            "panel_waits": (In(1), "A panel of wgmma is available; other arrays may not be ready for this panel yet."),
            "panel": (In(operands), "Panels of wgmma, each as an mma instruction."),
            "i": (In(operands), "mma instructions with their registers."),
            "panel_result": (Out(results), "Results of panels, in order."),
            "o": (Out(results), "Results of mma instructions, in order."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the multiplexer of ``wgmma`` and ``mma``, the counter of cycles between ``mma``, and result paths."""
        m = Module()
        m.submodules.warp = warp = self.warp_class(self.config, self.unit_class)
        # One bit for each operation in the array: 1 for an `mma` instruction, 0 for a panel (eight columns) of `wgmma`.
        m.submodules.sources = sources = Ring(1, self.config.warp_items)
        # Example: the register file takes 8 cycles for the operands of a sparse `mma` with four registers of A, and the
        # array takes four cycles for an `mma` or a panel (`left`: cycles left until the next `mma` can begin):
        #
        #     cycle     0      1 ... 3    4        5 ... 7    8
        #     begins    mma               panel               mma
        #     left      0      7 ... 5    4        3 ... 1    0
        paces = self.registers.of_mma
        # Cycles until the next `mma` can begin, less one, for each kind of `mma`. Bit 0 of the index is `sparse`, and
        # bit 1 is `long` (A takes four registers per lane).
        pace = Array(Const(paces[sparse, long] - 1) for long in (False, True) for sparse in (False, True))
        left = Signal(range(max(paces.values())))
        from_registers = ~self.panel_waits & ~self.panel.valid
        begins = Signal()
        control = self.i.payload.control
        m.d.comb += [
            self.i.ready.eq(from_registers & (left == 0) & warp.i.ready),
            self.panel.ready.eq(warp.i.ready),
            begins.eq(self.i.valid & self.i.ready),
            warp.i.valid.eq(self.panel.valid | (self.i.valid & from_registers & (left == 0))),
            warp.i.payload.eq(Mux(self.panel.valid, self.panel.payload, self.i.payload)),
            sources.push.eq(warp.i.valid & warp.i.ready),
            sources.entry.eq(begins),
            sources.pop.eq(warp.o.valid & warp.o.ready),
        ]
        m.d.sync += left.eq(Mux(begins, pace[Cat(control.sparse, self.i.payload.long)], left - (left != 0)))
        for is_instruction, results in enumerate((self.panel_result, self.o)):
            is_own = sources.oldest == is_instruction
            m.d.comb += [results.valid.eq(warp.o.valid & is_own), results.payload.eq(warp.o.payload)]
            with m.If(is_own):
                m.d.comb += warp.o.ready.eq(results.ready)
        return m

"""One warp's share of ``wgmma.mma_async``, sparse or dense: A from registers or shared memory, B from shared memory."""

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa.formats import low_bit
from .config import CoreConfig
from .fetch import PanelFetcher, descriptor_layout, shared_memory_signature
from .step import control_layout
from .unit import Unit
from .warp import LANES, REGISTERS, Warp, warp_result_layout

__all__ = ["WgmmaWarp", "accumulator_layout", "drive_operands", "segment_words", "wgmma_layout"]

_WORD = 32
#: Panels of A that a warp owns.
_A_PANELS = 2
_PANEL_NUMBER_BITS = 5


def accumulator_layout() -> data.ArrayLayout:
    """Return the layout of the accumulators of eight columns: 32 lanes of 4 registers; f16 uses the first two."""
    return data.ArrayLayout(data.ArrayLayout(_WORD, REGISTERS), LANES)


def wgmma_layout() -> data.StructLayout:
    """Return the layout of one instruction as a warp of the warpgroup sees it.

    Fields
    ------
    control : control_layout()
        Formats, rule and result.
    a : 32 lanes of 4 registers of 32 bits
        A, unless it is in shared memory.
    e : 32 lanes of 32 bits
        Metadata.
    a_descriptor, b_descriptor : descriptor_layout()
        Where the operands lie.
    a_shared : 1
        A is in shared memory.
    a_transposed, b_transposed : 1
        imm-trans: the operand is MN-major.
    negated : 1
        imm-scale is -1 of one operand: A bears the sign of the products, since B is selected from halves of elements.
    add : 1
        scale-d: D is added.
    warp : 2
        Which 16 rows of the 64.
    last_panel : 5
        N / 8 - 1.
    sparsity_selector : 2
        PTX's sparsity selector: which threads of a quad hold the metadata.
    """
    return data.StructLayout(
        {
            "control": control_layout(),
            "a": data.ArrayLayout(data.ArrayLayout(_WORD, REGISTERS), LANES),
            "e": data.ArrayLayout(_WORD, LANES),
            "a_descriptor": descriptor_layout(),
            "b_descriptor": descriptor_layout(),
            "a_shared": 1,
            "a_transposed": 1,
            "b_transposed": 1,
            "negated": 1,
            "add": 1,
            "warp": 2,
            "last_panel": _PANEL_NUMBER_BITS,
            "sparsity_selector": 2,
        }
    )


class WgmmaWarp(wiring.Component):
    """Execute ``wgmma.mma_async``, sparse or dense, for the 16 rows of one warp, eight columns at a time.

    Two panels of A are fetched first if A is in shared memory; then panels of B, each of which a
    :class:`~sptc.rtl.warp.Warp` multiplies while the next one is fetched. A panel of B is the B fragment of an
    ``mma`` of 32 stored bytes a row, sparse or dense, so that handing it on is wiring. Four of these, or four runs of
    one, make a warpgroup. Eight columns take ``max(blocks, 5)`` cycles, where ``blocks`` is that of the warp; the first
    eight follow the instruction after 6 cycles, with A in shared memory after 12, while the warp may still be busy.
    Each of these is two cycles less for a dense instruction, whose panels of B are half as long.

    Parameters
    ----------
    config : CoreConfig
        As for :class:`~sptc.rtl.warp.Warp`.
    unit_class : type
        As for :class:`~sptc.rtl.core.Core`.
    warp_class : type
        What multiplies: :class:`~sptc.rtl.warp.Warp`, or a component with the same ports that stands for it.
    fetcher_class : type
        What fetches, likewise: :class:`~sptc.rtl.fetch.PanelFetcher`.

    Members
    -------
    i : In(stream of wgmma_layout())
        Instructions.
    c : In(stream of accumulator_layout())
        Accumulators of eight columns each, in order of columns.
    o : Out(stream of warp_result_layout())
        Results of eight columns each, in the same order.
    memory : Out(shared_memory_signature())
        The shared memory of the block.
    """

    def __init__(
        self,
        config: CoreConfig,
        unit_class: type[Unit] = Unit,
        warp_class: type[Warp] = Warp,
        fetcher_class: type[PanelFetcher] = PanelFetcher,
    ) -> None:
        self.config = config
        self.unit_class = unit_class
        self.warp_class = warp_class
        self.fetcher_class = fetcher_class
        super().__init__(
            {
                "i": In(stream.Signature(wgmma_layout())),
                "c": In(stream.Signature(accumulator_layout())),
                "o": Out(stream.Signature(warp_result_layout())),
                "memory": Out(shared_memory_signature()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the requests, the register of A and the hand-over of B."""
        m = Module()
        m.submodules.fetcher = fetcher = self.fetcher_class()
        m.submodules.warp = warp = self.warp_class(self.config, self.unit_class)
        wiring.connect(m, fetcher.memory, wiring.flipped(self.memory))
        wiring.connect(m, warp.o, wiring.flipped(self.o))
        kept = {name: field.shape for name, field in wgmma_layout() if name != "a"}
        held = Signal(data.StructLayout(kept), reset_less=True)
        a = [[Signal(_WORD, name=f"a_{lane}_{r}", reset_less=True) for r in range(REGISTERS)] for lane in range(LANES)]
        busy = Signal()
        requesting = Signal()
        wanted_of_a = Signal(range(_A_PANELS + 1))
        missing_of_a = Signal(range(_A_PANELS + 1))
        requested = Signal(_PANEL_NUMBER_BITS)
        multiplied = Signal(_PANEL_NUMBER_BITS)
        multiply = Signal()
        last = multiplied == held.last_panel
        m.d.comb += self.i.ready.eq(~busy | (multiply & last))
        with m.If(self.i.ready):
            m.d.sync += [busy.eq(self.i.valid), requesting.eq(self.i.valid)]
        with m.If(self.i.valid & self.i.ready):
            a_panels = Mux(self.i.payload.a_shared, _A_PANELS, 0)
            m.d.sync += [
                *(held[name].eq(self.i.payload[name]) for name in kept),
                Cat(a).eq(self.i.payload.a),
                wanted_of_a.eq(a_panels),
                missing_of_a.eq(a_panels),
                requested.eq(0),
                multiplied.eq(0),
            ]

        # Requests: the two panels of A, then every panel of B.
        for_a = wanted_of_a != 0
        request = fetcher.i.payload
        m.d.comb += [
            fetcher.i.valid.eq(requesting),
            request.descriptor.eq(Mux(for_a, held.a_descriptor, held.b_descriptor)),
            request.panel.eq(Mux(for_a, Cat(wanted_of_a == 1, held.warp), requested)),
            request.mn_major.eq(Mux(for_a, held.a_transposed, held.b_transposed)),
            request.short.eq(for_a | ~held.control.sparse),
        ]
        with m.If(fetcher.i.valid & fetcher.i.ready):
            with m.If(for_a):
                m.d.sync += wanted_of_a.eq(wanted_of_a - 1)
            with m.Else():
                m.d.sync += [requested.eq(requested + 1), requesting.eq(requested != held.last_panel)]

        panel, is_a = fetcher.o.payload, missing_of_a != 0
        self._take_a(m, a, panel, fetcher.o.valid & is_a, missing_of_a)
        m.d.comb += [
            warp.i.valid.eq(fetcher.o.valid & ~is_a & self.c.valid),
            multiply.eq(warp.i.valid & warp.i.ready),
            self.c.ready.eq(multiply),
            fetcher.o.ready.eq(is_a | multiply),
        ]
        with m.If(multiply & ~last):
            m.d.sync += multiplied.eq(multiplied + 1)
        drive_operands(m, self.config, held, held.e, Cat(a), panel, self.c.payload, warp.i.payload)
        return m

    def _take_a(self, m: Module, a: Sequence[Sequence[Signal]], panel: data.View, take: Value, missing: Signal) -> None:
        """Store eight rows of A: bytes 16 h to 16 h + 15 of a row are register 2 h + (row >= 8) of its quad."""
        with m.If(take):
            m.d.sync += missing.eq(missing - 1)
        for upper in range(_A_PANELS):
            with m.If(take & (missing == _A_PANELS - upper)):
                for h in range(2):
                    words = segment_words(panel, h)
                    m.d.sync += [a[lane][2 * h + upper].eq(words[lane]) for lane in range(LANES)]


def segment_words(rows: Sequence[Value], segment: int) -> list[Value]:
    """Return the registers of 32 lanes that hold 16 bytes of each of eight rows, those of one segment of K.

    Source: PTX ISA, fragments of ``mma``: a quad of lanes has a row, each lane four bytes of a segment.
    """
    return [rows[lane // 4].word_select(4 * segment + lane % 4, _WORD) for lane in range(LANES)]


def drive_operands(
    m: Module, config: CoreConfig, held: Any, e: Value, a: Value, panel: data.View, c: Value, operands: data.View
) -> None:
    """Give a warp the operands of eight columns.

    Parameters
    ----------
    m : Module
        Where the assignments go.
    config : CoreConfig
        The warp's.
    held : View
        The instruction: control, sparsity_selector, negated and add of :func:`wgmma_layout`.
    e, a, c : Value
        Metadata, A and accumulators of the warp's lanes, lane 0 lowest.
    panel : View of panel_layout()
        B; bytes 16 r to 16 r + 15 of a column are register r of its quad.
    operands : View of warp_operands_layout()
        The warp's input.
    """
    signs = _signs(config, held.control).replicate(LANES * REGISTERS)
    segments = [segment_words(panel, register) for register in range(REGISTERS)]
    b = [segments[register][lane] for lane in range(LANES) for register in range(REGISTERS)]
    # Whole fields at once: assignments register by register become a megabyte of simulator.
    m.d.comb += [
        operands.control.eq(held.control),
        operands.long.eq(1),
        operands.sparsity_selector.eq(held.sparsity_selector),
        operands.e.eq(e),
        operands.a.eq(a ^ Mux(held.negated, signs, 0)),
        operands.b.eq(Cat(b)),
        operands.c.eq(Mux(held.add, c, 0)),
    ]


def _signs(config: CoreConfig, control: data.View) -> Value:
    """Return the sign bits of a register's elements."""
    signs: Value = Const(0, _WORD)
    for code, element in enumerate(config.elements):
        if not element.format.is_integer:
            sign = low_bit(element.format, element.container_bits) + element.format.bits - 1
            places = range(sign, _WORD, element.container_bits)
            signs = Mux(control.a == code, sum(1 << place for place in places), signs)
    return signs

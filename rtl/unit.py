"""A unit: the dot product of one row of A and one column of B, with an accumulator and a rounded result."""

from typing import TypeVar

from amaranth.hdl import Cat, Module, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, PureInterface

from .align import AlignStage
from .cells.described import DescribedSignature
from .cells.pipeline import delayed
from .codes import is_one_of
from .config import CoreConfig
from .multiply import MultiplyStage
from .reduce import ReduceStage
from .round import SPECIAL_VALUES, RoundStage
from .select import SelectStage
from .step import ENABLE, STEP, result_meaning, unit_result_layout, unit_step_layout
from .widths import Widths

__all__ = ["Unit"]

_T = TypeVar("_T", bound=ValueLike)
#: Outputs of the align stage that bypass the reduce stage and go to the round stage.
_ROUNDED = ("headroom", *SPECIAL_VALUES)


class Unit(wiring.Component):
    """The dot product of one row of A and one column of B, in five stages with a pipeline register at each cut.

    The ``align`` register is inside the adder tree of the reduce stage, where fewer bits must be stored. The cuts that
    do not have the name of a stage divide the longest paths within stages.

    ``d = round(c + sum of products of the kept slots)``, one truncated fused dot-product-add. A unit takes one step
    each cycle, with a latency of ``config.latency`` cycles and without a handshake: see :class:`~sptc.rtl.core.Core`
    for streams.

    Source: measured on an H200; block-scaled kinds after published models (modelled).

    Parameters
    ----------
    config : CoreConfig
        Formats, widths, multiplexers and pipeline cuts. Logic for other formats is not built.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self.widths = Widths(config)
        ports = {
            "step": (In(unit_step_layout(config)), STEP),
            "enable": (In(1, init=1), ENABLE),
            "result": (Out(unit_result_layout()), result_meaning(config)),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the five stages of the dot-product unit and the pipeline registers between them."""
        m = Module()
        config, step, control = self.config, self.step, self.step.control
        # Datapath of a dot-product unit, with the cuts (positions of pipeline registers) in brackets. The registers of
        # the cuts `product`, `align`, `tree`, `reduce`, `count` and `normalise` are inside stages. Values that bypass a
        # stage are delayed here by registers for the same cuts.
        #
        #     B mux [select] unpack, products [product] e_max [multiply] alignment, three levels of adders [align]
        #     other levels [tree] carry-propagating addition [reduce] leading digit [count] left shift [normalise]
        #     complement, increment [round]
        b: Value = step.b[: 8 * config.step_bytes]
        if config.sparse:
            m.submodules.select = select = SelectStage(config)
            m.d.comb += [select.b.eq(step.b), select.selects.eq(step.selects)]
            b = select.selected
        # The accumulator is not clamped between two cycles of an integer instruction, so its sign is bit 32.
        c = Cat(step.c, step.c[-1] ^ step.overflow)
        control, a, b, c, scale_a, scale_b = (
            self._cut(m, "select", value) for value in (control, step.a, b, c, step.scale_a, step.scale_b)
        )
        m.submodules.multiply = multiply = MultiplyStage(config)
        m.d.comb += [
            multiply.enable.eq(self.enable),
            multiply.control.eq(control),
            multiply.a.eq(a),
            multiply.b.eq(b),
            multiply.c.eq(c),
            multiply.scale_a.eq(scale_a),
            multiply.scale_b.eq(scale_b),
        ]
        for cut in ("product", "multiply"):
            control, c, scale_a, scale_b = (self._cut(m, cut, value) for value in (control, c, scale_a, scale_b))
        m.submodules.align = align = AlignStage(config)
        self._connect(m, "multiply", multiply.o, align.i)
        m.d.comb += [align.control.eq(control), align.c.eq(c), align.scale_a.eq(scale_a), align.scale_b.eq(scale_b)]
        m.submodules.reduce = accumulate = ReduceStage(config, config.cuts)
        wiring.connect(m, align.o.addends, accumulate.i)
        integers = [element for element in self.widths.narrow if element.format.is_integer]
        m.d.comb += [
            accumulate.enable.eq(self.enable),
            accumulate.integer_groups.eq(is_one_of(config, control.a, integers)),
        ]
        for cut in ("align", "tree"):
            control = self._cut(m, cut, control)

        widths = self.widths
        m.submodules.round = rounder = RoundStage(widths.total_bits, widths.integer_bits, widths.results, config.cuts)
        m.d.comb += [
            rounder.enable.eq(self.enable),
            rounder.result.eq(control.result),
            rounder.saturate.eq(control.saturate),
            rounder.total.eq(accumulate.total),
        ]
        if self.widths.floating:
            for name in _ROUNDED:
                value = self._cut(m, "tree", self._cut(m, "align", getattr(align.o, name)))
                m.d.comb += getattr(rounder, name).eq(value)
        m.d.comb += [
            self.result.d.eq(self._cut(m, "round", rounder.output)),
            self.result.overflow.eq(self._cut(m, "round", rounder.overflow)),
        ]
        return m

    def _cut(self, m: Module, name: str, value: _T) -> _T:
        """Return `value`, delayed by a register if the configuration has a pipeline register at the cut `name`."""
        return delayed(m, value, int(name in self.config.cuts), self.enable, name)

    def _connect(self, m: Module, cut: str, source: PureInterface, sink: PureInterface) -> None:
        """Connect the outputs of a stage to the inputs of the next stage, through the register of a cut, if present."""
        pairs = zip(source.signature.flatten(source), sink.signature.flatten(sink), strict=True)
        for (_, _, value), (_, _, port) in pairs:
            m.d.comb += port.eq(self._cut(m, cut, value))

"""One dot-product unit: a step of stored A, B, metadata and accumulator in, a rounded result out."""

from typing import TypeVar

from amaranth.hdl import Cat, Const, Module, Signal, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, PureInterface

from .accumulate import Accumulate
from .codes import runs, runs_wide
from .config import CoreConfig
from .products import Products
from .round import Round, smallest_normal
from .select import OperandSelect
from .step import result_layout, step_layout
from .terms import Terms
from .widths import Widths

__all__ = ["Unit"]

_T = TypeVar("_T", bound=ValueLike)
#: What the align stage hands to the rounding, past the sum.
_ROUNDED = ("room", "nan", "positive_inf", "negative_inf")


class Unit(wiring.Component):
    """A dot-product unit: five stages, with a register behind each that the configuration cuts at.

    ``d = round(c + sum of products of the kept slots)``, one truncated fused dot-product-add. Latency
    ``config.latency`` cycles, one step each cycle, no handshake: see :class:`~sptc.rtl.core.Core` for streams.

    Parameters
    ----------
    config : CoreConfig
        Formats, widths, selector and pipeline cuts. Logic of formats that it lacks is not built.

    Members
    -------
    step : In(step_layout(config))
        Operands and control.
    enable : In(1)
        The pipeline advances.
    result : Out(result_layout(config))
        The step of `config.latency` enabled cycles ago.

    Notes
    -----
    Source: measured on an H200; block-scaled kinds after published models (modelled).
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self.widths = Widths(config)
        super().__init__(
            {"step": In(step_layout(config)), "enable": In(1, init=1), "result": Out(result_layout(config))}
        )

    def elaborate(self, platform: object) -> Module:
        """Build the stages and the registers between them."""
        m = Module()
        config, step, control = self.config, self.step, self.step.control
        a, b, illegal = self._select(m) if config.sparse else (step.a, step.b[: 8 * config.step_bytes], Const(0))
        c = Cat(step.c, step.c[-1] ^ step.overflow)
        control, a, b, c, scale_a, scale_b, illegal = (
            self._cut(m, "select", value) for value in (control, a, b, c, step.scale_a, step.scale_b, illegal)
        )
        m.submodules.multiply = multiply = Products(config)
        m.d.comb += [
            multiply.control.eq(control),
            multiply.a.eq(a),
            multiply.b.eq(b),
            multiply.c.eq(c),
            multiply.scale_a.eq(scale_a),
            multiply.scale_b.eq(scale_b),
        ]
        control, c, scale_a, scale_b, illegal = (
            self._cut(m, "multiply", value) for value in (control, c, scale_a, scale_b, illegal)
        )
        m.submodules.align = align = Terms(config)
        self._connect(m, "multiply", multiply.o, align.i)
        m.d.comb += [
            align.control.eq(control),
            align.c.eq(c),
            align.scale_a.eq(scale_a),
            align.scale_b.eq(scale_b),
        ]
        control, illegal = (self._cut(m, "align", value) for value in (control, illegal))
        m.submodules.reduce = accumulate = Accumulate(config)
        self._connect(m, "align", align.o.addends, accumulate.i)
        integers = [element for element in self.widths.narrow if element.format.is_integer]
        m.d.comb += accumulate.integer_groups.eq(runs(config, control.a, integers))

        m.submodules.round = rounder = Round(self.widths.total_bits, self.widths.integer_bits, self.widths.results)
        control, illegal = (self._cut(m, "reduce", value) for value in (control, illegal))
        m.d.comb += [
            rounder.result.eq(control.result),
            rounder.saturate.eq(control.saturate),
            rounder.total.eq(self._cut(m, "reduce", accumulate.total)),
        ]
        if self.widths.floating:
            aligned = {name: self._cut(m, "align", getattr(align.o, name)) for name in _ROUNDED}
            aligned["smallest"] = smallest_normal(aligned["room"], rounder.shifted_bits)
            for name, value in aligned.items():
                m.d.comb += getattr(rounder, name).eq(self._cut(m, "reduce", value))
        m.d.comb += [
            self.result.d.eq(self._cut(m, "round", rounder.output)),
            self.result.overflow.eq(self._cut(m, "round", rounder.overflow)),
            self.result.illegal.eq(self._cut(m, "round", illegal)),
        ]
        return m

    def _select(self, m: Module) -> tuple[Value, Value, Value]:
        """Return A, the operands of B that meet it, and the chunks with illegal metadata."""
        step, config = self.step, self.config
        m.submodules.select = select = OperandSelect(config)
        m.d.comb += [
            select.a.eq(step.a),
            select.b.eq(step.b),
            select.nibbles.eq(step.metadata),
            select.wide.eq(runs_wide(config, step.control.a)),
            select.sparse.eq(step.control.sparse),
            select.rule.eq(step.control.rule),
        ]
        return select.stored, select.selected, select.illegal

    def _cut(self, m: Module, name: str, value: _T) -> _T:
        """Return `value` registered if the configuration cuts there. Payload registers need no reset."""
        if name not in self.config.cuts:
            return value
        register = Signal(value.shape(), name=f"{name}_register", reset_less=True)
        with m.If(self.enable):
            m.d.sync += register.eq(value)
        return register

    def _connect(self, m: Module, cut: str, source: PureInterface, sink: PureInterface) -> None:
        """Connect what a stage hands on to the next, behind a cut."""
        pairs = zip(source.signature.flatten(source), sink.signature.flatten(sink), strict=True)
        for (_, _, value), (_, _, port) in pairs:
            m.d.comb += port.eq(self._cut(m, cut, value))

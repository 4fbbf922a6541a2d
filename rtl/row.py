"""A row of an array with only one column: a metadata decoder and a dot-product unit, with new inputs in every cycle."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .cells.described import DescribedSignature
from .cells.pipeline import delayed
from .codes import is_wide
from .config import CoreConfig
from .metadata import MetadataStage
from .step import ENABLE, STEP, result_meaning, row_result_layout, row_step_layout
from .unit import Unit

__all__ = ["Row"]


class Row(wiring.Component):
    """A row of an array with one column: metadata decoder, dot-product unit, and flags of illegal metadata.

    ``d = round(c + sum of products of the kept slots)``. A row takes one step each cycle, with a latency of
    ``config.latency`` cycles and without a handshake: see :class:`~sptc.rtl.core.Core` for streams.

    Source: see :class:`~sptc.rtl.metadata.MetadataStage` and :class:`~sptc.rtl.unit.Unit`.

    Parameters
    ----------
    config : CoreConfig
        Formats, widths, multiplexers and pipeline cuts. Logic for other formats is not built.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        ports = {
            "step": (In(row_step_layout(config)), STEP),
            "enable": (In(1, init=1), ENABLE),
            "result": (Out(row_result_layout(config)), result_meaning(config)),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the metadata decoder and the dot-product unit, and connect them."""
        m = Module()
        config, step = self.config, self.step
        m.submodules.unit = unit = Unit(config)
        names = ("b", "c", "scale_a", "scale_b", "control", "overflow")
        m.d.comb += [
            *(unit.step[name].eq(step[name]) for name in names),
            unit.enable.eq(self.enable),
            self.result.d.eq(unit.result.d),
            self.result.overflow.eq(unit.result.overflow),
        ]
        if not config.sparse:
            m.d.comb += unit.step.a.eq(step.a)
            return m
        m.submodules.decode = decode = MetadataStage(config)
        m.d.comb += [
            decode.a.eq(step.a),
            decode.nibbles.eq(step.metadata),
            decode.wide.eq(is_wide(config, step.control.a)),
            decode.sparse.eq(step.control.sparse),
            decode.rule.eq(step.control.rule),
            unit.step.a.eq(decode.stored),
            unit.step.selects.eq(decode.selects),
            self.result.illegal.eq(delayed(m, decode.illegal, config.latency, self.enable, "illegal")),
        ]
        return m

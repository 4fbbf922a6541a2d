"""Designs that are told what drives them, so that a proof need not look at what never comes: ``$assume`` cells."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Assume, Cat, Const, Elaboratable, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring

from ...rtl.config import CoreConfig
from ...rtl.round import RoundStage
from ...rtl.row import Row
from ...rtl.step import control_layout, row_result_layout, row_step_layout
from ..benches.bench import ComponentBench
from ..benches.blocks import native
from ..benches.components import Harness
from ..engine.steps import control_word
from .pipelines import Pipeline

__all__ = ["AssumedComponents", "AssumedRow", "AssumedStream", "assumed_control", "row_pipeline"]


class AssumedComponents(Harness):
    """Components that are told only the element codes of their configuration, and the codes of results there are."""

    def __init__(self, config: CoreConfig, benches: Mapping[str, ComponentBench]) -> None:
        super().__init__({name: bench.component for name, bench in benches.items()})
        self._elements = len(config.elements)
        self._codes = {f"{name}__{port}" for name, bench in benches.items() for port in bench.codes}

    def elaborate(self, platform: object) -> Module:
        """Say that codes are those of the configuration."""
        m = super().elaborate(platform)
        m.submodules.assumption = assumption = Module()
        known = [port.value < self._elements for port in self.ports if port.name in self._codes]
        for name, component in self.components.items():
            if isinstance(component, RoundStage):
                (result,) = (port.value for port in self.of(name) if port.name == f"{name}__result")
                known.append(Cat(result == code for code in component.results).any())
        assumption.d.comb += Assume(Cat(known).all())
        return m


#: Fields of a control word that an instruction decides.
_DECIDED = ("a", "b", "result", "sparse", "scale")


def _decided(config: CoreConfig, arch: str) -> list[tuple[int, ...]]:
    """Return what :data:`_DECIDED` are in all instructions of a datapath."""
    layout = control_layout()
    words = {control_word(config, instruction, last=True) for instruction in native(config, arch)}
    fields = [layout[name] for name in _DECIDED]
    return sorted({tuple((word >> field.offset) & (1 << field.width) - 1 for field in fields) for word in words})


def assumed_control(control: Any, config: CoreConfig, arch: str) -> Module:
    """Return a module that assumes of a control word that it is some instruction's of the datapath."""
    layout = control_layout()
    said = Cat(Value.cast(control[name]) for name in _DECIDED)
    m = Module()
    m.d.comb += Assume(
        Cat(
            said == Cat(Const(code, layout[name].width) for name, code in zip(_DECIDED, codes, strict=True))
            for codes in _decided(config, arch)
        ).any()
    )
    return m


def row_pipeline(config: CoreConfig, arch: str) -> Pipeline:
    """Return what is known of :class:`AssumedRow`: a case for each pair of element codes."""
    layout, offset = control_layout(), row_step_layout(config)["control"].offset
    elements = {codes[: _DECIDED.index("result")] for codes in _decided(config, arch)}
    cases = tuple(
        {
            offset + layout[name].offset + bit: code >> bit & 1
            for name, code in zip(_DECIDED, pair, strict=False)
            for bit in range(layout[name].width)
        }
        for pair in sorted(elements)
    )
    return Pipeline("enable", "step", cases)


class AssumedRow(Elaboratable):
    """A row that is told only what some instruction of the datapath says."""

    def __init__(self, config: CoreConfig, arch: str) -> None:
        self._row = Row(config)
        self._arch = arch
        self.step = Signal(row_step_layout(config).size)
        self.enable = Signal()
        self.result = Signal(row_result_layout(config).size)

    def elaborate(self, platform: object) -> Module:
        """Say that the control word is some instruction's."""
        m = Module()
        m.submodules.row = row = self._row
        m.d.comb += [row.step.eq(self.step), row.enable.eq(self.enable), self.result.eq(row.result)]
        m.submodules.assumption = assumed_control(row.step.control, row.config, self._arch)
        return m


class AssumedStream(wiring.Component):
    """A stream component that is driven as streams are, by instructions that there are, and shows nothing in vain.

    What waits at an input stays; payloads that are not valid and addresses that are not read are zero, since nobody
    looks at them.

    Parameters
    ----------
    design : wiring.Component
        With streams ``i`` and ``o``, perhaps ``c``, and perhaps a ``memory``; a submodule of that name.
    assumed : Module, optional
        What more is assumed.
    """

    def __init__(self, design: wiring.Component, assumed: Module | None = None) -> None:
        self._design, self._assumed = design, assumed
        super().__init__(design.signature)

    def elaborate(self, platform: object) -> Module:
        """Connect the design."""
        m = Module()
        m.submodules.design = design = self._design
        m.submodules.assumption = assumption = Module()
        if self._assumed:
            assumption.submodules.more = self._assumed
        ports = zip(self.signature.flatten(self), self.signature.flatten(design), strict=True)
        for (path, member, outer), (_, _, inner) in ports:
            if member.flow is wiring.In:
                m.d.comb += Value.cast(inner).eq(Value.cast(outer))
            else:
                meant = Value.cast(inner)
                if path[:2] == ("o", "payload"):
                    meant = Mux(design.o.valid, meant, 0)
                elif path[0] == "memory" and path[1] != "read":
                    meant = Mux(design.memory.read, meant, 0)
                assumption.d.comb += Value.cast(outer).eq(meant)
        for name in {"i", "c"} & self.signature.members.keys():
            self._stays(assumption, name, getattr(self, name))
        return m

    @staticmethod
    def _stays(m: Module, name: str, source: Any) -> None:
        payload = Value.cast(source.payload)
        waited, before = Signal(name=f"{name}_waited"), Signal(len(payload), name=f"{name}_before")
        m.d.sync += [waited.eq(source.valid & ~source.ready), before.eq(payload)]
        reset = ResetSignal()
        m.d.comb += [
            Assume(~waited | reset | (source.valid & (payload == before))),
            Assume(~(source.valid & reset)),
        ]

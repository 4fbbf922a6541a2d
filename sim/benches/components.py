"""Top module for component tests: contains one instance of every combinational component of a datapath."""

from collections.abc import Mapping

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import wiring

from ...rtl.config import CoreConfig
from ..engine.ports import Port, ports_of
from .arithmetic import arithmetic_benches
from .bench import ComponentBench
from .directed import with_directed_vectors
from .operands import operand_benches

__all__ = ["Harness", "component_benches"]


def component_benches(config: CoreConfig) -> dict[str, ComponentBench]:
    """Return the benches of all combinational components of a configuration. The keys are component names."""
    benches = operand_benches(config) | arithmetic_benches(config)
    return {name: with_directed_vectors(config, name, bench) for name, bench in benches.items()}


class Harness(Elaboratable):
    """Top module with all combinational `components`; its ports are named ``component__port``."""

    def __init__(self, components: Mapping[str, wiring.Component]) -> None:
        self.components = dict(components)
        inner = [port for name, component in components.items() for port in ports_of(component, prefix=f"{name}__")]
        self._inner = inner
        self.ports = [Port(port.name, Signal(port.bits, name=port.name), port.is_input) for port in inner]

    def of(self, name: str) -> list[Port]:
        """Return the ports of the top module that are connected to one component."""
        return [port for port in self.ports if port.name.startswith(f"{name}__")]

    def elaborate(self, platform: object) -> Module:
        """Connect every port of the top module to the component port of the same name."""
        m = Module()
        for name, component in self.components.items():
            m.submodules[name] = component
        for outer, inner in zip(self.ports, self._inner, strict=True):
            target, source = (inner, outer) if outer.is_input else (outer, inner)
            m.d.comb += target.value.eq(source.value)
        return m

"""A combinational component compiled by Verilator, with structured arrays of its ports."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from amaranth.hdl import Cat, Const, Elaboratable, Module, Signal, Value
from amaranth.lib import wiring
from numpy.typing import NDArray
from sptc.infra.verilator import compile_library
from sptc.rtl.convert import to_verilog
from sptc.sim.engine.driver import driver
from sptc.sim.engine.ports import ComponentLibrary, Port, joined, port_dtype, ports_of

#: C++ compiler options for models that run briefly: short compile time instead of fast code.
OPTIMISATION = ("-O0",)


class CompiledComponent:
    """A combinational component that Verilator compiled to a library, loaded into this process.

    `inputs` and `outputs` are its ports, and `platform` is passed to its elaboration. Each library needs a path of its
    own.
    """

    def __init__(self, component: wiring.Component, library: Path, *, platform: object = None) -> None:
        top = _Packed(component)
        self.inputs, self.outputs = top.inputs, top.outputs
        text = to_verilog(top, "top", ports=[top.i, top.o], platform=platform)
        self._packed = [np.dtype([(name, f"V{len(port) // 8}")]) for name, port in (("i", top.i), ("o", top.o))]
        program = driver("components.cpp", {}, top="top", ports=("i", "o"))
        compile_library(text, "top", program, library, optimisation=OPTIMISATION)
        self._library = ComponentLibrary(library, ("i", "o"))

    def run(self, vectors: NDArray) -> NDArray:
        """Return the outputs for input vectors, shape (count,)."""
        assert vectors.dtype == port_dtype(self.inputs)
        given, answered = self._packed
        return self._library.run(vectors.view(given), answered).view(port_dtype(self.outputs))


class _Packed(Elaboratable):
    """A component with its ports packed into one input and one output, which compile faster than hundreds of ports."""

    def __init__(self, component: wiring.Component) -> None:
        self._component = component
        ports = ports_of(component)
        self.inputs = [port for port in ports if port.is_input]
        self.outputs = [port for port in ports if not port.is_input]
        self.i = Signal(8 * port_dtype(self.inputs).itemsize)
        self.o = Signal(8 * port_dtype(self.outputs).itemsize)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.component = self._component
        for port, start in self._places(self.inputs):
            m.d.comb += port.value.eq(self.i[start : start + port.bits])
        parts: list[Value] = []
        end = 0
        for port, start in self._places(self.outputs):
            parts += [Const(0, start - end), port.value]
            end = start + port.bits
        m.d.comb += self.o.eq(Cat(parts))
        return m

    @staticmethod
    def _places(ports: list[Port]) -> Iterator[tuple[Port, int]]:
        """Yield each port with its lowest bit in the packed input or output."""
        fields = port_dtype(ports).fields
        return ((port, 8 * fields[port.name][1]) for port in ports)


def integers(vectors: NDArray, ports: Iterable[Port]) -> dict[str, NDArray]:
    """Return the values of each port as signed or unsigned integers, the inverse of `ports.split`."""
    values = {}
    for port in ports:
        field = vectors[port.name]
        sign = 1 << port.bits - 1 if port.signed else 0
        if port.bits > 64:
            values[port.name] = np.array([(value ^ sign) - sign for value in joined(field)], object)
        elif port.bits == 64:
            values[port.name] = field.view(np.int64) if port.signed else field
        else:
            values[port.name] = (field.astype(np.int64) ^ sign) - sign
    return values

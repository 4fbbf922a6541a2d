"""Combinational components compiled by Verilator: structured arrays of inputs in, of outputs out."""

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.hdl import Cat, Const, Elaboratable, Module, Signal, Value
from amaranth.lib import wiring
from numpy.typing import NDArray

from ...infra.verilator import compile_library
from ...rtl.convert import to_verilog
from .driver import CompiledModel, driver
from .ports import Port, port_dtype, ports_of

__all__ = ["CompiledComponent", "ComponentLibrary"]

#: C++ compiler options for models that run briefly: short compile time instead of fast code.
_OPTIMISATION = ("-O0",)


class _Vectors(ctypes.Structure):
    _fields_ = (("places", ctypes.c_void_p), ("count", ctypes.c_size_t), ("bytes", ctypes.c_size_t))


class ComponentLibrary(CompiledModel):
    """Combinational components of one compiled model.

    The library is built with ``drivers/components.cpp``; `ports` are those of the model, in the order of its
    configuration.
    """

    prefix, checks = "components", False
    arguments = (ctypes.c_size_t, *[ctypes.c_void_p] * 4)

    def __init__(self, library: Path, ports: Sequence[str]) -> None:
        super().__init__(ctypes.CDLL(str(library)))
        self._numbers = {port: number for number, port in enumerate(ports)}

    def run(self, vectors: NDArray, outputs: np.dtype) -> NDArray:
        """Return the outputs for vectors of some inputs, shape (count,), as an array of the type `outputs`."""
        assert vectors.flags.c_contiguous
        answers = np.zeros(len(vectors), outputs)
        # `_in` and `_out` keep the arrays of places alive during the call.
        (_in, given), (_out, got) = (self._described(layout) for layout in (vectors.dtype, outputs))
        self.run_driver(len(vectors), ctypes.byref(given), vectors.ctypes.data, ctypes.byref(got), answers.ctypes.data)
        return answers

    def _described(self, layout: np.dtype) -> tuple[NDArray[np.int32], _Vectors]:
        """Return the places of the ports in a vector, and the structure that the driver takes."""
        fields: Mapping[str, Any] = layout.fields or {}
        places = np.array(
            [(self._numbers[port], offset, field.itemsize) for port, (field, offset, *_) in fields.items()], np.int32
        )
        return places, _Vectors(places.ctypes.data, len(places), layout.itemsize)


class CompiledComponent:
    """A combinational component compiled by Verilator to a library, loaded into this process.

    `inputs` and `outputs` are its ports, and `platform` is one for elaboration. No other library may have been loaded
    from the path of this one.
    """

    def __init__(self, component: wiring.Component, library: Path, *, platform: object = None) -> None:
        top = _Packed(component)
        self.inputs, self.outputs = top.inputs, top.outputs
        text = to_verilog(top, "top", ports=[top.i, top.o], platform=platform)
        self._packed = [np.dtype([(name, f"V{len(port) // 8}")]) for name, port in (("i", top.i), ("o", top.o))]
        compile_library(
            text, "top", driver("components.cpp", {}, top="top", ports=("i", "o")), library, optimisation=_OPTIMISATION
        )
        self._library = ComponentLibrary(library, ("i", "o"))

    def run(self, vectors: NDArray) -> NDArray:
        """Return the outputs for input vectors, shape (count,)."""
        assert vectors.dtype == port_dtype(self.inputs)
        given, answered = self._packed
        return self._library.run(vectors.view(given), answered).view(port_dtype(self.outputs))


class _Packed(Elaboratable):
    """A component with one wide input and one wide output, laid out like structured arrays of its ports.

    A model with two wide ports compiles much faster than one with hundreds of narrow ports.
    """

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
        """Yield each port with its first bit in the wide port."""
        fields = port_dtype(ports).fields
        assert fields
        return ((port, 8 * fields[port.name][1]) for port in ports)

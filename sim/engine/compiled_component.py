"""Combinational components compiled by Verilator: vectors in, answers out, as structured arrays of their ports."""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from amaranth.hdl import Cat, Const, Elaboratable, Module, Signal, Value
from amaranth.lib import wiring
from numpy.typing import NDArray

from ...infra.verilator import compile_library
from ...rtl.convert import to_verilog
from .ports import Port, port_dtype, ports_of

__all__ = ["CompiledComponent", "ComponentFunction", "component_driver"]

#: Options of the C++ compiler for models of which none runs long: built fast rather than fast.
_OPTIMISATION = ("-O0",)
#: Drives one component: all inputs in, all outputs out, vector after vector.
_DRIVER = """
extern "C" void run_{name}(size_t count, const char* in, char* out) {{
    for (size_t i = 0; i < count; i++, in += {in_bytes}, out += {out_bytes}) {{
{drive}        top.eval();
{read}    }}
}}
"""


def component_driver(name: str, inputs: np.dtype, outputs: np.dtype) -> str:
    """Return C++ that drives a combinational component of a model called ``top``.

    Parameters
    ----------
    name : str
        What :class:`ComponentFunction` knows it by.
    inputs, outputs : dtype
        Ports of the model, with the layout of :func:`~sptc.sim.engine.ports.port_dtype`.
    """

    def copies(layout: np.dtype, line: str) -> str:
        assert layout.fields
        return "".join(
            # Two underscores in a row are Verilator's own.
            line.format(port=f"top.{port.replace('__', '___05F')}", offset=offset, size=field.itemsize)
            for port, (field, offset, *_) in layout.fields.items()
        )

    return _DRIVER.format(
        name=name,
        in_bytes=inputs.itemsize,
        out_bytes=outputs.itemsize,
        drive=copies(inputs, "        std::memcpy(&{port}, in + {offset}, {size});\n"),
        read=copies(outputs, "        std::memcpy(out + {offset}, &{port}, {size});\n"),
    )


class ComponentFunction:
    """A combinational component in a loaded library.

    Parameters
    ----------
    library : ctypes.CDLL
        A model with its :func:`component_driver`.
    name : str
        The component.
    inputs, outputs : dtype
        Layout of its ports.
    """

    def __init__(self, library: ctypes.CDLL, name: str, inputs: np.dtype, outputs: np.dtype) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._run = getattr(library, f"run_{name}")
        self._run.argtypes = [ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
        self._run.restype = None

    def __call__(self, vectors: NDArray) -> NDArray:
        """Return the answers to vectors, of the type of the outputs, shape (count,)."""
        assert vectors.dtype == self.inputs
        assert vectors.flags.c_contiguous
        answers = np.zeros(len(vectors), self.outputs)
        self._run(len(vectors), vectors.ctypes.data, answers.ctypes.data)
        return answers


class CompiledComponent:
    """A combinational component compiled by Verilator, loaded into this process.

    Parameters
    ----------
    component : wiring.Component
        The component.
    library : Path
        Where the library goes; no other may have been loaded from there.
    platform : object
        What it is elaborated for, as for :func:`~sptc.rtl.convert.to_rtlil`.

    Attributes
    ----------
    inputs, outputs : list of Port
        Its ports.

    Raises
    ------
    BackendError
        Verilator or a compiler is missing or fails; one sentence that says what to install.
    """

    def __init__(self, component: wiring.Component, library: Path, *, platform: object = None) -> None:
        top = _Packed(component)
        self.inputs, self.outputs = top.inputs, top.outputs
        text = to_verilog(top, "top", ports=[top.i, top.o], platform=platform)
        packed = (np.dtype([(name, f"V{len(port) // 8}")]) for name, port in (("i", top.i), ("o", top.o)))
        driver = "static Vtop top;\n" + component_driver("component", *packed)
        compile_library(text, "top", driver, library, optimisation=_OPTIMISATION)
        layouts = port_dtype(self.inputs), port_dtype(self.outputs)
        self._function = ComponentFunction(ctypes.CDLL(str(library)), "component", *layouts)

    def run(self, vectors: NDArray) -> NDArray:
        """Return the answers to vectors, of the type of the outputs, shape (count,)."""
        return self._function(vectors)


class _Packed(Elaboratable):
    """A component between one wide input and one wide output, laid out as its ports are in structured arrays.

    A model of two wide ports is compiled much faster than one of hundreds of narrow ones.
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
        """Yield each port with its first bit."""
        fields = port_dtype(ports).fields
        assert fields
        return ((port, 8 * fields[port.name][1]) for port in ports)

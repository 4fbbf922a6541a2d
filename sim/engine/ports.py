"""Conversion between values of a component's ports and NumPy arrays.

The ports of a component are the fields of a structured array, with one element for each vector. The payload of a stream
is an array of 32-bit words. Compiled components take and return structured arrays.
"""

import ctypes
import gc
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from amaranth.hdl import UnusedElaboratable, Value
from amaranth.lib import data, wiring
from numpy.typing import NDArray

from .driver import CompiledModel

__all__ = [
    "ComponentLibrary",
    "Port",
    "clocked_ports",
    "flags_of",
    "joined",
    "payload_bits",
    "payload_words",
    "port_dtype",
    "ports_of",
    "ports_only",
    "split",
    "words_of",
]

_WORD = 32


@dataclass(frozen=True)
class Port:
    """Port of a component: one leaf of the component's signature."""

    name: str  #: Path of the port in the signature, joined by double underscores as in the emitted Verilog
    value: Value
    is_input: bool  #: Whether the port is an input of the component

    @property
    def bits(self) -> int:
        """Width of the port in bits."""
        return len(self.value)


def ports_of(component: wiring.Component, *, prefix: str = "") -> list[Port]:
    """Return the ports of a component in the order of its signature, without ports of zero bits."""
    leaves = component.signature.flatten(component)
    ports = [
        Port(prefix + "__".join(map(str, path)), Value.cast(value), member.flow is wiring.In)
        for path, member, value in leaves
    ]
    return [port for port in ports if port.bits]


def clocked_ports(component: wiring.Component) -> list[str]:
    """Return the port names of a clocked component's model: clock, reset, and the ports of its signature."""
    return ["clk", "rst", *(port.name for port in ports_of(component))]


def ports_only(make: Callable[[], wiring.Component]) -> list[str]:
    """Create a clocked component only to read its ports, and return the port names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnusedElaboratable)
        names = clocked_ports(make())
        gc.collect()  # free the component here, where Amaranth's warning about unused components is ignored
    return names


def port_dtype(ports: list[Port]) -> np.dtype:
    """Return a structured NumPy type with one field per port, laid out as in Verilator's C++ model."""
    fields: list[tuple[str, str] | tuple[str, str, tuple[int]]] = []
    for port in ports:
        size = next((size for size in (1, 2, 4, 8) if port.bits <= 8 * size), 0)
        fields.append((port.name, f"<u{size}") if size else (port.name, "<u4", (-(-port.bits // _WORD),)))
    return np.dtype(fields, align=True)


def split(values: Mapping[str, NDArray], ports: list[Port], prefix: str = "") -> NDArray:
    """Return integer port values of any width as one structured array; ports that are missing in `values` are zero."""
    count = len(next(iter(values.values())))
    vectors = np.zeros(count, port_dtype(ports))
    for port in ports:
        given = values.get(port.name.removeprefix(prefix))
        if given is None:
            continue
        mask = (1 << port.bits) - 1
        if given.dtype == object and port.bits <= 2 * _WORD:
            vectors[port.name] = [int(value) & mask for value in given]
        elif port.bits <= 2 * _WORD:
            vectors[port.name] = given.astype(np.int64).view(np.uint64) & np.uint64(mask)
        else:
            size = vectors[port.name].shape[1] * 4
            octets = b"".join((int(value) & mask).to_bytes(size, "little") for value in given)
            vectors[port.name] = np.frombuffer(octets, "<u4").reshape(count, -1)
    return vectors


def joined(field: NDArray) -> list[int]:
    """Return one field of a structured array as a list of Python integers."""
    if field.ndim == 1:
        return [int(value) for value in field]
    return [int.from_bytes(row.tobytes(), "little") for row in field]


def payload_bits(layout: data.Layout, fields: Any) -> int:
    """Return a payload, packed from the values of its fields, as an integer."""
    return int(layout.const(fields).as_value().value)


def payload_words(layout: data.Layout, fields: Mapping[str, Any], first: str = "") -> NDArray[np.uint32]:
    """Return the data of a stream transfer (payload) as 32-bit words, from the word that contains field `first` on."""
    start = layout[first].offset // _WORD if first else 0
    return words_of(payload_bits(layout, fields) >> _WORD * start, layout.size - _WORD * start)


def words_of(payload: int, bits: int) -> NDArray[np.uint32]:
    """Split an integer of `bits` bits into 32-bit words, lowest word first."""
    return np.frombuffer(payload.to_bytes(4 * -(-bits // _WORD), "little"), np.uint32)


def flags_of(words: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return the bits of 32-bit words as booleans along the last axis, lowest bit first."""
    return np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little").astype(np.bool_)


class _Vectors(ctypes.Structure):
    _fields_ = (("places", ctypes.c_void_p), ("count", ctypes.c_size_t), ("bytes", ctypes.c_size_t))


class ComponentLibrary(CompiledModel):
    """Model that contains combinational components; each run drives and reads the ports of one component.

    The library is built with ``drivers/components.cpp``; `ports` are all ports of the model, in the order in which they
    were passed to :func:`~sptc.sim.engine.driver.driver`.
    """

    prefix, checks = "components", False
    arguments = (ctypes.c_size_t, *[ctypes.c_void_p] * 4)

    def __init__(self, library: ctypes.CDLL, ports: Sequence[str]) -> None:
        super().__init__(library)
        self._numbers = {port: number for number, port in enumerate(ports)}

    def run(self, vectors: NDArray, outputs: np.dtype) -> NDArray:
        """Compute the outputs for a batch of input vectors; return an array of the structured type `outputs`."""
        assert vectors.flags.c_contiguous
        answers = np.zeros(len(vectors), outputs)
        # keep references to the offset arrays, to which the C structures point, during the call
        (_in, given), (_out, got) = (self._described(layout) for layout in (vectors.dtype, outputs))
        self.run_driver(len(vectors), ctypes.byref(given), vectors.ctypes.data, ctypes.byref(got), answers.ctypes.data)
        return answers

    def _described(self, layout: np.dtype) -> tuple[NDArray[np.int32], _Vectors]:
        """Return number, offset and size of each port in a vector of port values, and a C structure that holds them."""
        fields: Mapping[str, Any] = layout.fields or {}
        places = np.array(
            [(self._numbers[port], offset, field.itemsize) for port, (field, offset, *_) in fields.items()], np.int32
        )
        return places, _Vectors(places.ctypes.data, len(places), layout.itemsize)

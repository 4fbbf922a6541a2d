"""Compiled components exchange values of ports in structured arrays, for all widths, signs and nesting levels."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from amaranth.hdl import Module, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from numpy.typing import NDArray
from sptc.infra.loader import load_library
from sptc.infra.verilator import compile_library
from sptc.rtl.convert import to_verilog
from sptc.sim.engine.driver import driver
from sptc.sim.engine.ports import ComponentLibrary, Port, joined, port_dtype, ports_of, split

WIDTHS = (1, 5, 8, 13, 16, 31, 32, 33, 63, 64, 65, 96, 130)
COUNT = 300


class Inverter(wiring.Component):
    """Component that outputs the complements of signed and unsigned inputs of all widths. One input has no bits."""

    def __init__(self) -> None:
        numbers = {f"u{bits}": bits for bits in WIDTHS} | {f"s{bits}": signed(bits) for bits in WIDTHS}
        bit = wiring.Signature({"bit": Out(1)})
        ports = {f"i_{name}": In(shape) for name, shape in numbers.items()}
        ports |= {f"o_{name}": Out(shape) for name, shape in numbers.items()}
        ports |= {"i": In(bit), "o": Out(bit), "i_words": In(9).array(2), "o_words": Out(9).array(2), "nothing": In(0)}
        super().__init__(ports)
        self.names = [*numbers]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [getattr(self, f"o_{name}").eq(~getattr(self, f"i_{name}")) for name in self.names]
        m.d.comb += self.o.bit.eq(~self.i.bit)
        m.d.comb += [self.o_words[index].eq(~self.i_words[index]) for index in range(2)]
        return m


def drawn(rng: np.random.Generator, bits: int, sign: bool) -> np.ndarray:
    numbers = [int.from_bytes(rng.bytes(17), "little") % (1 << bits) for _ in range(COUNT)]
    numbers[:2] = [0, (1 << bits) - 1]
    if sign:
        numbers = [number - (number >> bits - 1 << bits) for number in numbers]
    return np.array(numbers, object if bits > 64 else np.int64 if sign or bits < 64 else np.uint64)


def compiled(component: wiring.Component, library: Path) -> ComponentLibrary:
    """Compile a combinational component to a library without optimisation, which takes little time."""
    ports = ports_of(component)
    names = [port.name for port in ports]
    text = to_verilog(component, "top", ports=[port.value for port in ports])
    compile_library(text, "top", driver("components.cpp", {}, top="top", ports=names), library, optimisation=("-O0",))
    return ComponentLibrary(load_library(library), names)


def integers(vectors: NDArray, ports: Iterable[Port]) -> dict[str, list[int]]:
    """Return the values of each port as signed or unsigned integers, the inverse of `split`."""
    values = {}
    for port in ports:
        sign = 1 << port.bits - 1 if port.value.shape().signed else 0
        values[port.name] = [(value ^ sign) - sign for value in joined(vectors[port.name])]
    return values


def test_a_component(tmp_path: Path, rng: np.random.Generator) -> None:
    """Outputs are right for all widths. Inputs without a value are zero."""
    component = Inverter()
    inputs, outputs = ([port for port in ports_of(component) if port.is_input == side] for side in (True, False))
    library = compiled(component, tmp_path / "a.so")
    ports = {port.name: port for port in inputs}
    assert {"i__bit", "i_words__0", "i_words__1", "i_s130"} <= ports.keys()
    assert "nothing" not in ports
    assert len(outputs) == len(ports) == 2 * len(WIDTHS) + 3
    numbers = {
        name: drawn(rng, port.bits, port.value.shape().signed) for name, port in ports.items() if name != "i_words__0"
    }
    result = integers(library.run(split(numbers, inputs), port_dtype(outputs)), outputs)
    for name, values in numbers.items():
        ones = -1 if ports[name].value.shape().signed else (1 << ports[name].bits) - 1
        assert result[name.replace("i", "o", 1)] == [value ^ ones for value in values.tolist()], name
    assert set(result["o_words__0"]) == {511}

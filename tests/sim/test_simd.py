"""SIMD simulation of sixteen steps equals Verilator, for operations of any width and for rows of every datapath."""

import ctypes
import json
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from sptc.infra.compiler import compile_shared
from sptc.infra.yosys import run_yosys
from sptc.rtl.config import PRESET_OF_ARCHITECTURE, PRESETS, CoreConfig
from sptc.rtl.convert import to_rtlil
from sptc.rtl.step import row_result_layout, row_step_layout
from sptc.sim.benches.blocks import native
from sptc.sim.engine import libraries
from sptc.sim.engine.compiled_row import CompiledRow
from sptc.sim.engine.driver import driver
from sptc.sim.engine.libraries import can_be_specialised
from sptc.sim.engine.ports import port_dtype, ports_of
from sptc.sim.engine.row_interface import row_interface
from sptc.sim.engine.simd import LANES, OPTIMISATION, PREPARED, vectorised
from sptc.sim.engine.steps import Steps, control_word, step_words
from sptc.tests.sim.test_compiled_component import compiled

pytestmark = pytest.mark.skipif(not can_be_specialised(), reason="Yosys is not installed")
Random = np.random.Generator
STEP_BITS = 448
COUNT = 4 * LANES + 3
_RUN = """
#include "computed.h"
extern "C" void run(size_t count, const uint32_t* const* steps, uint32_t* const* results) {
    compute(count, steps, results);
}
"""


class Operations(wiring.Component):
    """Component with every operation that rows may use. The operands are parts of a step, and have various widths."""

    def __init__(self, rng: Random, rounds: int = 6) -> None:
        self._rng = rng
        self.parts: list[Value] = []
        self._module, self._step = Module(), Signal(STEP_BITS, name="given")
        for _ in range(rounds):
            self._all_of(self._word(), self._word(), self._word())
        self.parts += self._products()
        super().__init__({"step": In(STEP_BITS), "result": Out(-(-len(Cat(self.parts)) // 32) * 32)})

    def _word(self) -> tuple[int, int, bool]:
        """Return lowest bit and width of a random part of the step, and whether it is signed."""
        width = int(self._rng.choice([1, 2, 5, 31, 32, 33, 63, 64, 65, 96, 100, int(self._rng.integers(1, 110))]))
        return int(self._rng.integers(STEP_BITS - width)), width, bool(self._rng.integers(2))

    def _cut(self, word: tuple[int, int, bool]) -> Value:
        first, width, is_signed = word
        value = Signal(signed(width) if is_signed else width)
        self._module.d.comb += value.eq(self._step[first : first + width])
        return value

    def _all_of(self, *words: tuple[int, int, bool]) -> None:
        a, b, c = (self._cut(word) for word in words)
        amount, choice = self._step[int(self._rng.integers(400)) :][: int(self._rng.integers(2, 8))], c.any()
        chosen, matched = Signal(40), Signal(70)
        self._module.d.comb += chosen.eq(Array([a, b, c, a + b, a ^ c])[amount[:3]])
        with self._module.Switch(amount):
            with self._module.Case(0):
                self._module.d.comb += matched.eq(a)
            with self._module.Case(1, 2):
                self._module.d.comb += matched.eq(b)
            with self._module.Default():
                self._module.d.comb += matched.eq(~c)
        self.parts += [
            *(a + b, a - b, -c, a & b, a | c, b ^ c, ~a, a == b, a != c, b == b[:3], chosen, matched),
            *(a < b, a <= c, b > c, c >= a, a < a[1:], c.any(), c.all(), c.xor(), c.bool(), ~b.bool()),
            *(a.as_unsigned() >> amount, b.as_unsigned() >> amount[:2], c << amount[:4], (a << amount)[:50]),
            *(Mux(choice, a, b), Cat(b[0].replicate(40), a)),
        ]

    def _products(self) -> list[Value]:
        """Return products of unsigned and of signed factors with 11 to 14 bits."""
        starts = self._rng.integers(STEP_BITS - 16, size=(4, 2))
        return [
            self._cut((int(a), 11 + number, number % 2 == 1)) * self._cut((int(b), 11 + number, number % 2 == 1))
            for number, (a, b) in enumerate(starts)
        ]

    def elaborate(self, platform: object) -> Module:
        self._module.d.comb += [self._step.eq(self.step), self.result.eq(Cat(self.parts))]
        return self._module


def steps(rng: Random, count: int) -> np.ndarray:
    """Return random words. Some words are all zeros or all ones, so that carries pass through many bits."""
    words = rng.integers(0, 1 << 32, (count, STEP_BITS // 32), np.uint32)
    words[rng.random(words.shape) < 0.2] = 0
    words[rng.random(words.shape) < 0.2] = 0xFFFFFFFF
    return words


def any_steps(config: CoreConfig, control: int, count: int, rng: Random) -> np.ndarray:
    """Return steps of a row with random bits and a fixed control word."""
    words = rng.integers(0, 1 << 32, (count, step_words(config).total), np.uint32)
    words[:, -1] &= (1 << row_step_layout(config).size % 32) - 1 or 0xFFFFFFFF
    low, width = row_interface(config).step["control"]
    words[:, low // 32] &= ~np.uint32((1 << width) - 1 << low % 32)
    words[:, low // 32] |= np.uint32(control << low % 32)
    return words


def netlist(component: wiring.Component, folder: Path) -> dict:
    """Return the flattened netlist of a combinational component in the JSON format of Yosys."""
    (folder / "top.il").write_text(to_rtlil(component, "top"), encoding="utf-8")
    run_yosys(folder, f"read_rtlil top.il\nproc\nflatten\n{PREPARED}write_json top.json\n")
    return json.loads((folder / "top.json").read_text(encoding="utf-8"))["modules"]["top"]


def computed(library: Path, given: np.ndarray, words: int) -> np.ndarray:
    """Return the results of steps, which a library computes in batches."""
    results = np.zeros((len(given), words), np.uint32)
    loaded = ctypes.CDLL(str(library))
    for first in range(0, len(given), LANES):
        some = [*zip(given[first:][:LANES], results[first:][:LANES], strict=True)]
        pointers = ((ctypes.c_void_p * len(some))(*(pair[k].ctypes.data for pair in some)) for k in range(2))
        loaded.run(ctypes.c_size_t(len(some)), *pointers)
    return results


def test_every_operation(rng: Random, tmp_path: Path) -> None:
    seed = int(rng.integers(1 << 32))
    one, other = (Operations(np.random.default_rng(seed)) for _ in range(2))
    sources = {**driver("computed.h", {}), "function.h": vectorised(netlist(one, tmp_path)), "run.cpp": _RUN}
    compile_shared(sources, tmp_path / "lanes.so", OPTIMISATION, "it")
    given = steps(rng, COUNT)
    ports = {port.name: port for port in ports_of(other)}
    vectors = np.zeros(COUNT, port_dtype([ports["step"]]))
    vectors["step"] = given
    expected = compiled(other, tmp_path / "verilated.so").run(vectors, port_dtype([ports["result"]]))["result"]
    result = computed(tmp_path / "lanes.so", given, expected.shape[1])
    assert expected.any(axis=1).all()
    np.testing.assert_array_equal(result, expected)


def test_unsupported_cells_are_reported(tmp_path: Path) -> None:
    class Quotient(wiring.Component):
        step: In(8)
        result: Out(4)

        def elaborate(self, platform: object) -> Module:
            m = Module()
            m.d.comb += self.result.eq(self.step[:4] // self.step[4:])
            return m

    with pytest.raises(NotImplementedError, match=r"a cell of type \$div"):
        vectorised(netlist(Quotient(), tmp_path))


@pytest.mark.regression
@pytest.mark.parametrize("arch", PRESET_OF_ARCHITECTURE)
def test_rows_of_every_datapath(arch: str, rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    config = PRESETS[PRESET_OF_ARCHITECTURE[arch]]
    monkeypatch.setattr(libraries, "WORTH", 1)
    row = CompiledRow(config)
    mask = np.uint64((1 << row_result_layout(config).size) - 1)
    instructions = native(config, arch)
    for place in rng.choice(len(instructions), size=2, replace=False):
        words = any_steps(config, control_word(config, instructions[place], last=True), 20_000, rng)
        given = Steps.of_words(words, step_words(config))
        result = row.run(given)
        general = row._models[row._libraries.of_every_instruction()]
        assert row._model_for(given) is not general
        np.testing.assert_array_equal(result & mask, general.run(given) & mask, err_msg=str(instructions[place]))
        assert len(np.unique(result)) > 300  # with random bits, most f16 sums are NaN or infinite

"""The interface of a row and the words of a warp's instruction equal the layouts of the hardware."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from amaranth.lib import data
from sptc.isa.instructions import every_instruction, parse
from sptc.isa.operands import HeldOperands, Immediates
from sptc.rtl.config import PRESETS
from sptc.rtl.metadata import RuleCode
from sptc.rtl.round import ResultCode
from sptc.rtl.scale import ScaleCode
from sptc.rtl.step import control_layout
from sptc.rtl.warp import ScaleSizeCode, warp_operands_layout
from sptc.sim.engine.engine import engine
from sptc.sim.engine.row_interface import row_interface
from sptc.sim.engine.steps import control_word
from sptc.sim.engine.warp_operands import warp_words

_ASK = """
import sys
from sptc.rtl.config import PRESETS
from sptc.sim.engine.row_interface import row_interface
print("amaranth" in sys.modules, row_interface(PRESETS[sys.argv[1]]), "amaranth" in sys.modules, sep="\\n")
"""
_RUN = """
import sys
import numpy as np
from sptc.golden.matrix import multiply
from sptc.isa.instructions import parse
from sptc.isa.operands import MatrixOperands
from sptc.rtl.config import PRESETS
from sptc.sim.engine.engine import engine
rng = np.random.default_rng(int(sys.argv[1]))
i = parse("mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32")
a, b = (rng.integers(0, 256, shape, np.uint8) for shape in ((20, 16, 32), (20, 64, 8)))
nibbles = rng.choice(np.array([0b0100, 0b1110, 0b1001], np.uint8), (20, 16, 16))
operands = MatrixOperands(a, b, rng.integers(0, 1 << 32, (20, 16, 8), np.uint32), nibbles)
np.testing.assert_array_equal(engine(PRESETS["tiny"]).multiply(i, operands).d, multiply(i, "sm_90", operands))
print("amaranth" in sys.modules)
"""

_EDITED = """
import sys
from sptc.errors import BackendError
from sptc.rtl.config import PRESETS
from sptc.sim.engine import fingerprint
from sptc.sim.engine.engine import engine
from sptc.sim.engine.row_interface import row_interface
if sys.argv[1] == "later":
    row_interface(PRESETS["tiny"])
assert "amaranth" not in sys.modules
fingerprint._hash_sources = lambda: "edited"
for _ in range(2):
    try:
        engine(PRESETS["tiny"])
    except BackendError as error:
        print(error)
"""
SHORT = "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16"
LONG = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
SCALED = "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
SCALED += ".f32.e2m1.e2m1.f32.ue4m3"
#: By instruction: numbers of registers of A, B and C, and names of further operands.
CASES = {SHORT: ((2, 1, 2), ()), LONG: ((4, 4, 4), ("e",)), SCALED: ((4, 4, 4), ("e", "scale_a", "scale_b"))}


def say(script: str, argument: str, cache: Path | None = None) -> list[str]:
    """Run a script in its own process, and return the lines that the script prints."""
    environment = os.environ if cache is None else {**os.environ, "SPTC_CACHE": str(cache)}
    words = [sys.executable, "-c", script, argument]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "preset", [pytest.param(name, marks=() if name == "tiny" else pytest.mark.regression) for name in PRESETS]
)
def test_the_cached_interface_equals_that_of_the_hardware(preset: str, tmp_path: Path) -> None:
    say(_ASK, "blackwell" if preset == "tiny" else "tiny", tmp_path)
    (other,) = tmp_path.glob("*.json")
    said = str(row_interface(PRESETS[preset]))
    assert say(_ASK, preset, tmp_path) == ["False", said, "True"]
    (kept,) = {*tmp_path.glob("*.json")} - {other}
    assert say(_ASK, preset, tmp_path) == ["False", said, "False"]
    kept.write_bytes(kept.read_bytes()[:-9])  # if the file is damaged, the interface is built again
    assert say(_ASK, preset, tmp_path) == ["False", said, "True"]
    assert say(_ASK, preset, tmp_path) == ["False", said, "False"]


def test_a_built_row_runs_without_amaranth(seed: int) -> None:
    engine(PRESETS["tiny"])
    say(_RUN, str(seed))  # after this run, the cache has the interface
    assert say(_RUN, str(seed)) == ["False"]


@pytest.mark.parametrize("edited", ["first", "later"])
def test_sources_that_change_during_a_process(edited: str, tmp_path: Path) -> None:
    """If the sources change before the interface or the library is stored, neither is stored under the old digest."""
    if edited == "later":
        say(_ASK, "tiny", tmp_path)
    before = {*tmp_path.glob("*.json")}
    sentence = "source files of the hardware have changed since this process started: restart the process"
    assert say(_EDITED, edited, tmp_path) == [sentence] * 2
    # The folder `code` of the cache contains digests of sources.
    assert {path for path in tmp_path.iterdir() if path.suffix != ".lock" and path.name != "code"} == before


@pytest.mark.parametrize("preset", PRESETS)
def test_control_words_are_those_of_the_layout(preset: str) -> None:
    config = PRESETS[preset]
    held = [i for i in every_instruction() if config.holds(i)]
    assert len(held) > 10
    for i in held:
        for last in (False, True):
            said = data.Const(control_layout(), control_word(config, i, last))
            assert said.a == config.element_code(i.a, i.container_bits)
            assert said.b == config.element_code(i.b, i.container_bits)
            assert (said.saturate, said.sparse) == (i.satfinite and last, bool(i.sparse))
            assert ResultCode(said.result).name in (i.d.name.upper(), "E8M13")
            assert RuleCode(said.rule).name == (i.rule.name.upper() if i.rule else "PLAIN")
            assert ScaleCode(said.scale).name == (i.scale_format.name.upper() if i.scale_format else "NONE")


@pytest.mark.parametrize("text", CASES)
def test_every_field(text: str, rng: np.random.Generator) -> None:
    i, config, (registers, others) = parse(text), PRESETS["rtx-blackwell"], CASES[text]
    counts = zip("abc", registers, strict=True)
    arrays = {name: rng.integers(0, 1 << 32, (3, 32, count), np.uint32) for name, count in counts}
    arrays |= {name: rng.integers(0, 1 << 32, (3, 32), np.uint32) for name in others}
    ids = (0, 1, 0, 3) if i.scale_size else (0, 0, 0, 0)
    operands = HeldOperands(arrays, Immediates(sparsity_selector=i.sparsity_selectors - 1, scale_ids=ids))
    words = warp_words(config, i, operands)
    np.testing.assert_array_equal(warp_words(config, i, operands, slice(1, 2)), words[1:2])
    for case, of_case in enumerate(words):
        view = warp_operands_layout().from_bits(int.from_bytes(of_case.tobytes(), "little"))
        for name in ("a", "b", "c"):
            result = np.array([[view[name][lane][register] for register in range(4)] for lane in range(32)])
            count = arrays[name].shape[2]
            np.testing.assert_array_equal(result[:, :count], arrays[name][case], err_msg=name)
            assert not result[:, count:].any()
        for name in ("e", "scale_a", "scale_b"):
            result = np.array([view[name][lane] for lane in range(32)])
            np.testing.assert_array_equal(result, arrays[name][case] if name in arrays else 0 * result, err_msg=name)
        assert view["control"].as_bits() == control_word(config, i, last=True)
        assert view["long"] == (registers[0] == 4)
        assert view["sparsity_selector"] == i.sparsity_selectors - 1
        assert view["scale_size"] == ScaleSizeCode[f"X{i.scale_size or 1}"]
        assert tuple(view[name] for name in ("byte_a", "thread_a", "byte_b", "thread_b")) == ids

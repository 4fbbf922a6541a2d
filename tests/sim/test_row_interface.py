"""What is kept of a row's interface is what the hardware says, and a row that is built runs without Amaranth."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.lib import data
from sptc.isa.instructions import every_instruction
from sptc.rtl.config import PRESETS
from sptc.rtl.metadata import RuleCode
from sptc.rtl.round import ResultCode
from sptc.rtl.scale import ScaleCode
from sptc.rtl.step import control_layout
from sptc.sim.engine.engine import engine
from sptc.sim.engine.row_interface import row_interface
from sptc.sim.engine.steps import control_word

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
given = MatrixOperands(a, b, rng.integers(0, 1 << 32, (20, 16, 8), np.uint32), nibbles)
np.testing.assert_array_equal(engine(PRESETS["tiny"]).multiply(i, given).d, multiply(i, "sm_90", given))
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


def say(script: str, argument: str, cache: Path | None = None) -> list[str]:
    """Run a script in a process of its own; return the lines that it prints."""
    environment = os.environ if cache is None else {**os.environ, "SPTC_CACHE": str(cache)}
    words = [sys.executable, "-c", script, argument]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "preset", [pytest.param(name, marks=() if name == "tiny" else pytest.mark.regression) for name in PRESETS]
)
def test_what_is_kept_is_what_the_hardware_says(preset: str, tmp_path: Path) -> None:
    say(_ASK, "blackwell" if preset == "tiny" else "tiny", tmp_path)
    (other,) = tmp_path.glob("*.json")
    said = str(row_interface(PRESETS[preset]))
    assert say(_ASK, preset, tmp_path) == ["False", said, "True"]
    (kept,) = {*tmp_path.glob("*.json")} - {other}
    assert say(_ASK, preset, tmp_path) == ["False", said, "False"]
    kept.write_bytes(kept.read_bytes()[:-9])  # a damaged one is made again
    assert say(_ASK, preset, tmp_path) == ["False", said, "True"]
    assert say(_ASK, preset, tmp_path) == ["False", said, "False"]


def test_a_built_row_runs_without_amaranth(seed: int) -> None:
    engine(PRESETS["tiny"])
    say(_RUN, str(seed))  # keeps the interface, if nothing did before
    assert say(_RUN, str(seed)) == ["False"]


@pytest.mark.parametrize("edited", ["first", "later"])
def test_sources_that_change_meanwhile(edited: str, tmp_path: Path) -> None:
    """Before the interface is kept, or the library: neither is kept of other sources under the name of these."""
    if edited == "later":
        say(_ASK, "tiny", tmp_path)
    before = {*tmp_path.glob("*.json")}
    sentence = "the sources of the hardware have changed since this process began: start it again"
    assert say(_EDITED, edited, tmp_path) == [sentence] * 2
    # The digest of the sources is kept, under the sources.
    assert {path for path in tmp_path.iterdir() if path.suffix != ".lock" and path.name != "code"} == before


@pytest.mark.parametrize("preset", PRESETS)
def test_control_words_are_those_of_the_layout(preset: str) -> None:
    """Field by field, as Amaranth packs them."""
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

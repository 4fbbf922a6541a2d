"""A layout as an object: what the command prints, and what a notebook shows."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sptc.cli import main
from sptc.errors import InstructionError, OperandError
from sptc.rtl.config import ConfigError
from sptc.show.datapath import datapath
from sptc.show.layout import layout
from sptc.show.step import draw_step
from sptc.verify.trace_output import trace

WORDS = "m16n8k32 f16 ordered_metadata f32"


def test_it_is_what_the_command_prints(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "layout.svg"
    given = ["explain", *WORDS.split(), "--selector", "1"]
    assert main([*given, "--svg", str(path)]) == 0
    found = layout(WORDS, selector=1)
    assert capsys.readouterr().out == f"{found}\n"
    assert path.read_bytes() == found.as_svg()
    assert main([*given, "--json", "--row", "3"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(layout(WORDS, selector=1, row=3).as_dict()))


def test_objects_draw_themselves() -> None:
    pytest.importorskip("matplotlib")
    assert ElementTree.fromstring(layout(WORDS)._repr_svg_()).tag.endswith("svg")
    picture = datapath("hopper")
    assert picture._repr_svg_().encode() == picture.svg()


def test_what_there_is_not() -> None:
    with pytest.raises(InstructionError, match=r"^\d+ instructions have these words; say which$"):
        layout("m16n8k32")
    with pytest.raises(OperandError, match="selector"):
        layout(WORDS, selector=2)
    with pytest.raises(OperandError, match="no operand has an element of row 16"):
        layout(WORDS, row=16)
    with pytest.raises(ConfigError, match=r"^preset must be one of ampere, .*, not 'volta'$"):
        datapath("volta")
    with pytest.raises(ConfigError, match=r"^top must be one of unit, core, warp, warpgroup, tcgen05, not 'gpu'$"):
        datapath("hopper", "gpu")


def test_a_step_that_there_is_not(tmp_path: Path) -> None:
    instruction = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    assert main(["vectors", instruction, "--tiles", "1", "-o", str(tmp_path)]) == 0
    found = trace(tmp_path / "vectors.npz", hardware=False)
    assert draw_step(found).svg() == draw_step(found, 0).svg()
    with pytest.raises(OperandError, match=r"^step must be 0 to 0, not 1$"):
        draw_step(found, 1)

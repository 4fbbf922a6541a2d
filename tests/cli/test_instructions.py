"""``sptc instructions`` and the README's table, which is its output."""

import json
from pathlib import Path

import pytest
from sptc.cli import main
from sptc.cli.instructions import markdown_table
from sptc.isa.instructions import every_instruction

README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- instructions: begin -->\n", "<!-- instructions: end -->"


def test_readme_shows_the_table() -> None:
    text = README.read_text(encoding="utf-8")
    shown = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    assert shown == markdown_table() + "\n", "run `sptc instructions` and put its output between the markers"


@pytest.mark.parametrize("number", [0, 1])
def test_readme_examples_run(number: int) -> None:
    code = README.read_text(encoding="utf-8").split("```python\n")[1:][number].split("```")[0]
    exec(compile(code, str(README), "exec"), {})


def test_json_lists_every_instruction(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["instructions", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["instructions"]
    assert {entry["instruction"] for entry in listed} == {str(instruction) for instruction in every_instruction()}
    by_text = {entry["instruction"]: entry["evidence"] for entry in listed}
    f16 = by_text["mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"]
    assert f16["sm_90"] == "measured"
    assert f16["sm_80"] == "modelled"
    scaled = by_text[
        "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"
    ]
    assert scaled["sm_90"] == ""
    assert scaled["sm_120"] == "modelled"

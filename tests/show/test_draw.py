"""The text in block diagrams and layouts agrees with the hardware, and with computed and printed values."""

import json
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from amaranth.hdl import Fragment
from sptc.cli import hardware, main
from sptc.errors import InstructionError, OperandError
from sptc.infra.diagram import Theme
from sptc.rtl import align, multiply, reduce, select
from sptc.rtl.config import PRESETS, ConfigError, CoreConfig
from sptc.rtl.unit import Unit
from sptc.show.datapath import TOPS, datapath
from sptc.show.layout import layout
from sptc.show.step import draw_step
from sptc.verify.trace_output import trace

CONFIGS = [
    *PRESETS.values(),
    CoreConfig(name="dense", formats=("f16",), sparse=False, cuts=()),
    CoreConfig(name="integers", formats=("s8",), step_bytes=4, cuts=("round",)),
    CoreConfig(name="wide", formats=("f16", "tf32"), mux="mux3"),
]
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
WORDS = "m16n8k32 f16 ordered_metadata f32"


def words_of(svg: bytes) -> list[str]:
    """Return every line of text of a picture, and check that no shape is outside the picture."""
    root = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    assert root[0].tag == f"{space}title"
    assert root[1].tag == f"{space}desc"
    width, height = (float(root.get(name, "nan")) for name in ("width", "height"))
    results = []
    for text in root.iter(f"{space}text"):
        size, x, words = float(text.get("font-size", "nan")), float(text.get("x", "nan")), text.text or ""
        across = 0.5 * size * len(words) * (0.5 if text.get("text-anchor") == "middle" else 1)
        assert x - across >= 0 or text.get("text-anchor") == "start", words
        assert x + across <= width or text.get("text-anchor") == "end", words
        assert 0 < float(text.get("y", "nan")) < height, words
        results.append(words)
    return results


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_a_unit_is_drawn_as_it_is_built(config: CoreConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    built: Counter[tuple[object, ...]] = Counter()
    modules = {"OperandMux": select, "SlotMultiplier": multiply, "AlignmentShifter": align, "CarrySaveTree": reduce}
    for name, module in modules.items():
        part = getattr(module, name)

        class Counted(part):  # type: ignore[misc, valid-type]
            def __init__(self, *arguments: object, name: str = name, **named: object) -> None:
                built[(name, *map(str, arguments))] += 1
                super().__init__(*arguments, **named)

        monkeypatch.setattr(module, name, Counted)
    Fragment.get(Unit(config), None).prepare()

    words = words_of(datapath(config).svg())
    multiplexers = {int(key[1]): count for key, count in built.items() if key[0] == "OperandMux"}
    inputs = 4 if config.mux == "mux4" else 3
    for bits, count in multiplexers.items():
        assert f"{count} x {inputs}:1" in words
        assert f"units of {bits} bits" in words
    assert bool(multiplexers) == any(":1" in line for line in words) == config.sparse
    multipliers: Counter[int] = Counter()
    for line in words:
        if found := re.fullmatch(r"(\d+) x \((\d+) x \2 bits\)", line):
            multipliers[int(found[2])] += int(found[1])
    expected: Counter[int] = Counter()
    for key, count in built.items():
        if key[0] == "SlotMultiplier":
            expected[int(str(key[1]))] += count
    assert multipliers == expected
    shifters = sum(count for key, count in built.items() if key[0] == "AlignmentShifter")
    drawn = pairwise(words)
    of_products = sum(int(line.split()[0]) for line, after in drawn if after == "shifted right")
    groups = next((line for line in words if "groups of 16" in line), "0")
    of_groups = int(groups.split()[0]) if any("scaled, shifted" in line for line in words) else 0
    assert of_products + of_groups + ("shift C" in words) == shifters
    ((tree, count),) = ((key, count) for key, count in built.items() if key[0] == "CarrySaveTree")
    assert count == 1
    assert f"{len(json.loads(str(tree[1])))} terms" in words
    assert f"adder, {tree[2]} bits" in words
    assert sum(line.startswith("cycle ") for line in words) == len(config.cuts) == config.latency


@pytest.mark.parametrize("top", TOPS)
def test_every_top_is_drawn_light_and_dark(top: str) -> None:
    config = replace(PRESETS["hopper"], rows=8, columns=4)
    light, dark, auto = (datapath(config, top, theme).svg() for theme in (Theme.LIGHT, Theme.DARK, Theme.AUTO))
    assert words_of(light) == words_of(dark) == words_of(auto)
    assert len({light, dark, auto}) == 3
    assert b"prefers-color-scheme: dark" in auto
    assert b"prefers" not in light + dark
    assert hardware._DRAWN == TOPS  # the command has its own list of modules, because it does not import Amaranth


def test_texts_of_an_array_and_of_a_warpgroup() -> None:
    config = replace(PRESETS["hopper"], rows=8, columns=2)
    words = words_of(datapath(config, "core").svg())
    assert {"unit 0, 0", "unit 7, 1", "B, column 1", "A, row 7", "..."} <= {*words}
    assert "unit 7, 2" not in words
    assert "input: C of 16 outputs, 512 bits; output: D of these 16 outputs, and flags of 16 chunks per row" in words
    words = words_of(datapath(config, "warpgroup").svg())
    assert "4 arrays of 8 x 2 units; each array multiplies a panel of eight columns of B in 8 cycles" in words
    assert {"tensor core 3", "rows 48 to 63"} <= {*words}
    words = words_of(datapath(config, "tcgen05").svg())
    assert "8 arrays of 8 x 2 units; each array multiplies a panel of eight columns of B in 8 cycles" in words
    assert {"array 7", "lanes 112 to 127"} <= {*words}
    words = words_of(datapath("tiny", "warp").svg())
    second_step = "the second step of K starts from the results of the first" in words
    assert second_step == (PRESETS["tiny"].step_bytes == 16)


def test_a_command_draws(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "unit.svg"
    assert main(["draw", "--preset", "tiny", "-o", str(path)]) == 0
    assert "unit of tiny" in words_of(path.read_bytes())
    path.unlink()
    assert main(["draw", "--preset", "tiny", "--columns", "3", "--top", "warpgroup", "-o", str(path)]) == 2
    assert main(["draw", "-o", str(path)]) == 2
    first, second = capsysbinary.readouterr().err.splitlines()
    assert b"columns" in first
    assert b"--preset" in second
    assert not path.exists()


def test_a_step_is_drawn_with_its_values(tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int) -> None:
    path = tmp_path / "step.svg"
    for instruction in (
        SPARSE,
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
        "mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.s8.s32",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale.scale_vec::2X"
        ".f32.e2m1.e2m1.f32.ue8m0",
    ):
        given = ["trace", instruction, "--seed", str(seed), "--golden-only", "--json", "--datapath", str(path)]
        assert main(given) == 0
        step = json.loads(capsys.readouterr().out)["golden"]["steps"][0]
        text = "\n".join(words_of(path.read_bytes()))
        for product in step["products"]:
            assert f"A[{product['element']}] 0x" in text, instruction
            nibble = f"{product['nibble']}: " if product["nibble"] else ""
            assert f"{nibble}B[{product['selected']}] 0x" in text, instruction
        for term in step["terms"]:
            if term["shift"] is not None:
                assert f">> {term['shift']}: {term['kept']}" in text, instruction
        assert step["total"] is None or f"\n{step['total']}\n" in text, instruction
        assert step["d"] in text, instruction
    given = ["trace", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "--arch", "sm_80", "--golden-only"]
    assert main([*given, "--datapath", str(path), "--step", "2"]) == 0
    assert any("step 2 of 2" in line for line in words_of(path.read_bytes()))
    path.unlink()
    capsys.readouterr()
    assert main([*given, "--datapath", str(path), "--step", "3"]) == 2
    assert main([*given, "--step", "1"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "sptc trace: --step 3: the trace has 2 steps",
        "sptc trace: --step needs --datapath FILE.svg",
    ]
    assert not path.exists()


def test_objects_draw_what_the_command_prints(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "layout.svg"
    given = ["explain", *WORDS.split(), "--selector", "1"]
    assert main([*given, "--svg", str(path)]) == 0
    found = layout(WORDS, selector=1)
    assert capsys.readouterr().out == f"{found}\n"
    assert path.read_bytes() == found.as_svg()
    assert main([*given, "--json", "--row", "3"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(layout(WORDS, selector=1, row=3).as_dict()))
    assert ElementTree.fromstring(layout(WORDS)._repr_svg_()).tag.endswith("svg")
    picture = datapath("hopper")
    assert picture._repr_svg_().encode() == picture.svg()


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    assert main(["vectors", SPARSE, "--tiles", "1", "-o", str(tmp_path)]) == 0
    traced = trace(tmp_path / "vectors.npz", hardware=False)
    assert draw_step(traced).svg() == draw_step(traced, 0).svg()
    for draw_it, error, message in (
        (lambda: layout("m16n8k32"), InstructionError, r"^\d+ instructions have the words 'm16n8k32'; they differ in "),
        (lambda: layout(WORDS, selector=2), OperandError, "selector"),
        (lambda: layout(WORDS, row=16), OperandError, "no operand has an element at row 16"),
        (lambda: datapath("volta"), ConfigError, r"^preset must be one of ampere, .*, not 'volta'$"),
        (lambda: datapath("hopper", "gpu"), ConfigError,
         r"^top must be one of unit, core, warp, warpgroup, tcgen05, not 'gpu'$"),
        (lambda: draw_step(traced, 1), OperandError, r"^the index of the step must be 0 to 0, not 1$"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            draw_it()

"""``sptc area`` prints tables and JSON, draws pictures, and rejects invalid input with one line."""

import importlib.util
import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from sptc.cli.configuration import read_configuration
from sptc.errors import FileError
from sptc.infra.installation import install_line
from sptc.rtl.config import PRESETS
from sptc.synth import price
from sptc.tests.cli.command_line import CommandLine

pytestmark = pytest.mark.usefixtures("cache_of_netlists")
COMMAND = "area"
LEAST = {"formats": ["s8"], "step_bytes": 4, "rows": 1, "columns": 3, "cuts": ["reduce"]}


@pytest.fixture
def least(tmp_path: Path) -> Path:
    path = tmp_path / "least.json"
    path.write_text(json.dumps(LEAST))
    return path


@pytest.mark.regression
def test_the_table(least: Path, liberty: Path, cli: CommandLine) -> None:
    output = cli.text("--config", least, "--liberty", liberty, "--by-stage", "--jobs", "2")
    assert re.match(r"sptc \S+  amaranth \S+  pyosys \S+  abc ", output)
    assert "name = least  formats = s8  scales = none  step_bytes = 4  " in output
    for line in (
        r"library: little\.lib  SHA-256 [0-9a-f]{64}",
        r"part +count +area +gates +delay \[ps\] +seconds",
        r"between the stages +1( +[\d.]+){4}",
        r"\d+\.\d s",
    ):
        assert re.search(f"^{line}$", output, re.MULTILINE), line


@pytest.mark.regression
def test_json(least: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cli.json("--config", least)
    derived = {name: first["configuration"][name] for name in ("alignment_bits", "fp8_alignment_bits")}
    assert first["configuration"] == asdict(PRESETS["tiny"]) | LEAST | {"name": "least", "scales": [], **derived}
    assert first["array"]["sum"]["gates"] == 3 * first["unit"]["gates"] + first["array"]["around_units"]["gates"]
    assert first["unit"]["cells"] != first["dense_unit"]["cells"]
    with monkeypatch.context() as patch:
        patch.setattr(price, "run_yosys", None)  # the report is read from the cache, without Yosys
        assert cli.json("--config", least)["unit"] == first["unit"] | {"cached": True}
    report = cli.json("--config", least, "--dense")
    assert (report["configuration"]["sparse"], report["dense_unit"], report["sparsity_percent"]) == (False, None, None)
    report = cli.json("--config", least, "--unit-only")
    assert report["unit"]["gates"] > 0
    assert [report[key] for key in ("dense_unit", "sparsity_percent", "array", "warp")] == 4 * [None]


@pytest.mark.regression
def test_a_picture(least: Path, cli: CommandLine) -> None:
    picture = Path("least.svg")
    words = ["--config", least.name, "--fpga", "ice40", "--dense", "--cuts", "none", "--plot"]
    assert "LUT" in cli.text(*words, picture)
    assert "<svg" in picture.read_text()
    assert sorted(Path().iterdir()) == [Path(least.name), picture]
    errors = "sptc area: missing/least.svg cannot be written (No such file or directory)\n"
    assert cli.streams(*words, "missing/least.svg", status=2) == ("", errors)  # checked before the synthesis


def test_files_of_configurations(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    for config in PRESETS.values():
        path.write_text(json.dumps(asdict(config)))
        assert read_configuration(path) == config
    path.write_text('{"formats": ["s8"]}')
    assert read_configuration(path).name == "file"
    for text, message in (
        ("\xff", " is not JSON"),
        ("[]", " must hold a JSON object with the fields of a configuration"),
        ('{"format": ["s8"]}', ": unknown field 'format'; the fields are name, formats, "),
        ("{}", ": the field formats is missing"),
        ('{"formats": "s8"}', ': formats must be a list of strings, not "s8"'),
        ('{"formats": ["s8"], "rows": true}', ": rows must be an integer, not true"),
        ('{"formats": ["s8"], "sparse": 1}', ": sparse must be true or false, not 1"),
        ('{"formats": ["s8"], "name": null}', ": name must be a string, not null"),
        ('{"formats": ["s9"]}', ": formats: 's9' is not the name of an element format"),
    ):
        path.write_text(text, encoding="latin-1")
        with pytest.raises(FileError) as caught:
            read_configuration(path)
        assert str(caught.value).startswith(f"{path}{message}"), text[:80]


def test_bad_words_and_missing_packages(cli: CommandLine, least: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.refuses_each(
        (["--preset", "tiny", "--config", "x"], "argument --config: not allowed with argument --preset"),
        (["--fpga", "ecp5", "--liberty", "x"], "argument --liberty: not allowed with argument --fpga"),
        (["--full-adders"], "--full-adders needs a cell library: add --liberty FILE"),
        (["--least-area", "--top", "wgmma"], "--least-area needs a cell library: add --liberty FILE"),
        (["--clock-gating"], "--clock-gating needs a cell library: add --liberty FILE"),
        (["--fpga", "ecp5", "--combinational"], "--combinational cannot be combined with --fpga (use --cuts none)"),
        (["--liberty", "x", "--clock-gating", "--combinational"], "--combinational cannot be combined with"),
    )
    monkeypatch.setenv("SPTC_CACHE", str(Path("empty").absolute()))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    install = f"install it with `{install_line('area')}`"
    cli.refuses("--config", least, message=f"Yosys is not installed: {install}")
    cli.refuses("--config", least, "--plot", "x.svg", message=f"pictures need matplotlib: {install}")

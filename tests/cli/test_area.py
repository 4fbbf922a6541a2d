"""``sptc area``: tables, JSON, pictures, and one line for whatever is wrong."""

import importlib.util
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from sptc.cli import area, main
from sptc.cli.configuration import read_configuration
from sptc.errors import FileError
from sptc.infra.installation import install_line
from sptc.rtl.config import PRESETS
from sptc.synth import price
from sptc.synth.recipe import FPGAS

# Workers are forked on purpose, from a process whose numerical library has threads; newer Pythons warn of any fork.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

LEAST = {"formats": ["s8"], "step_bytes": 4, "rows": 1, "columns": 3, "cuts": ["reduce"]}


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _cache(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPTC_CACHE", str(shared_cache))


@pytest.fixture
def least(tmp_path: Path) -> Path:
    path = tmp_path / "least.json"
    path.write_text(json.dumps(LEAST))
    return path


def exit_status(*words: object) -> object:
    """Return the status of a call that may end inside the parser."""
    try:
        return main(["area", *map(str, words)])
    except SystemExit as end:
        return end.code


def test_what_there_is_to_choose_from() -> None:
    assert tuple(FPGAS) == area._FPGAS


@pytest.mark.regression
def test_the_table(least: Path, liberty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("--config", least, "--liberty", liberty, "--by-stage", "--jobs", "2") == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    assert re.match(r"sptc \S+  amaranth \S+  pyosys \S+  abc ", output)
    assert re.search(r"^library: little\.lib  SHA-256 [0-9a-f]{64}$", output, re.MULTILINE)
    assert "name = least  formats = s8  scales = none  step_bytes = 4  " in output
    assert re.search(r"^part +count +area +gates +delay \[ps\] +seconds$", output, re.MULTILINE)
    assert re.search(r"^unit +1( +\d+){3} +\d+\.\d$", output, re.MULTILINE)
    assert re.search(r"^dense unit +1( +\d+){3} +\d+\.\d$", output, re.MULTILINE)
    assert re.search(r"^units +3( +\d+){2} +-$", output, re.MULTILINE)
    assert re.search(
        r"^sparsity, against the dense unit: \+\d+\.\d % area, \+\d+\.\d % gates, .* % delay$", output, re.MULTILINE
    )
    assert "\nno warp: " in output
    assert re.search(r"^between the stages +1( +[\d.]+){4}$", output, re.MULTILINE)
    assert re.search(r"^\d+\.\d s$", output.splitlines()[-1])


@pytest.mark.regression
def test_json(least: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert exit_status("--config", least, "--json") == 0
    first = json.loads(capsys.readouterr().out)
    assert first["configuration"] == asdict(PRESETS["tiny"]) | LEAST | {
        "name": "least",
        "scales": [],
        **{name: first["configuration"][name] for name in ("alignment_bits", "fp8_alignment_bits")},
    }
    assert first["array"]["sum"]["gates"] == 3 * first["unit"]["gates"] + first["array"]["around_units"]["gates"]
    assert first["unit"]["cells"] != first["dense_unit"]["cells"]

    def refuse(*_: object) -> str:
        raise AssertionError("Yosys was called")

    monkeypatch.setattr(price, "run_yosys", refuse)
    assert exit_status("--config", least, "--json") == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    again = json.loads(output)
    assert again["unit"] == first["unit"] | {"cached": True}


@pytest.mark.regression
def test_the_dense_twin_alone(least: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("--config", least, "--dense", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["configuration"]["sparse"], found["dense_unit"], found["sparsity_percent"]) == (False, None, None)


@pytest.mark.regression
def test_one_unit(least: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("--config", least, "--unit-only", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["unit"]["gates"] > 0
    assert [found[key] for key in ("dense_unit", "sparsity_percent", "array", "warp")] == 4 * [None]


@pytest.mark.regression
def test_a_picture(least: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "least.svg"
    assert exit_status("--config", least, "--fpga", "ice40", "--dense", "--combinational", "--plot", picture) == 0
    assert "LUT" in capsys.readouterr().out
    assert "<svg" in picture.read_text()
    assert sorted(tmp_path.iterdir()) == [least, picture]


@pytest.mark.regression
def test_a_picture_that_cannot_be_written(least: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "missing" / "least.svg"
    assert exit_status("--config", least, "--plot", picture) == 2
    output, errors = capsys.readouterr()
    assert output.startswith("sptc ")
    assert errors == f"sptc area: {picture} cannot be written (No such file or directory)\n"


def test_a_name_of_its_own(tmp_path: Path) -> None:
    """Every preset is read back as `sptc presets --json` prints it."""
    for config in PRESETS.values():
        path = tmp_path / "file.json"
        path.write_text(json.dumps(asdict(config)))
        assert read_configuration(path) == config
    path.write_text('{"formats": ["s8"]}')
    assert read_configuration(path).name == "file"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("\xff", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "must hold a JSON object with the fields of a configuration"),
        ('{"format": ["s8"]}', ": there is no field 'format'; there are name, formats, "),
        ("{}", ": the field formats is missing"),
        ('{"formats": "s8"}', ': formats must be a list of strings, not "s8"'),
        ('{"formats": [8]}', ": formats must be a list of strings, not [8]"),
        ('{"formats": ["s8"], "rows": true}', ": rows must be an integer, not true"),
        ('{"formats": ["s8"], "rows": 1.5}', ": rows must be an integer, not 1.5"),
        ('{"formats": ["s8"], "sparse": 1}', ": sparse must be true or false, not 1"),
        ('{"formats": ["s8"], "name": null}', ": name must be a string, not null"),
        ('{"formats": ["s9"]}', ": formats: 's9' is no element format"),
        ('{"formats": ["s8"], "step_bytes": 5}', ": step_bytes must be a multiple of 4, not 5"),
    ],
)
def test_no_configurations(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(FileError, match=rf"^{re.escape(str(path))}:? ?{re.escape(message.lstrip(': '))}"):
        read_configuration(path)


def no_configuration(folder: Path) -> list[object]:
    return ["--config", folder / "missing.json"]


def no_library(folder: Path) -> list[object]:
    return ["--preset", "tiny", "--liberty", folder / "missing.lib"]


def a_library_of_nothing(folder: Path) -> list[object]:
    (folder / "empty.lib").write_text("library (empty) { }")
    return ["--preset", "tiny", "--liberty", folder / "empty.lib"]


WRONG: list[tuple[Callable[[Path], list[object]], str]] = [
    (no_configuration, "missing.json cannot be read (No such file or directory)"),
    (no_library, "missing.lib cannot be read (No such file or directory)"),
    (a_library_of_nothing, "empty.lib is not a liberty file that holds cells"),
    (lambda _: ["--preset", "volta"], "invalid choice: 'volta'"),
    (lambda _: ["--fpga", "max10"], "invalid choice: 'max10'"),
    (lambda _: ["--preset", "tiny", "--config", "x"], "argument --config: not allowed with argument --preset"),
    (lambda _: ["--fpga", "ecp5", "--liberty", "x"], "argument --liberty: not allowed with argument --fpga"),
    (lambda _: ["--full-adders"], "--full-adders needs the full adder of a library; add --liberty FILE"),
    (lambda _: ["--jobs", "0"], "argument --jobs: must be an integer of 1 or more, not '0'"),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[message[-40:] for _, message in WRONG])
def test_bad_words(
    words: Callable[[Path], list[object]], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(*words(tmp_path)) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("sptc area: ")
    assert message in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], f"this needs Yosys: install it with `{install_line('yosys')}`"),
        (["--plot", "x.svg"], f"pictures need matplotlib: install it with `{install_line('area')}`"),
    ],
)
def test_what_is_not_installed(
    words: list[str],
    message: str,
    least: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPTC_CACHE", str(tmp_path / "empty"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert exit_status("--config", least, *words) == 2
    assert capsys.readouterr() == ("", f"sptc area: {message}\n")

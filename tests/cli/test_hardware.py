"""``sptc presets``, ``config``, ``ports`` and ``verilog`` write the right output, and reject bad options."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import sptc
from sptc.cli import area, hardware, main
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.rtl.emit import TOPS
from sptc.rtl.ports import ports
from sptc.rtl.systemverilog import lines_of_ports, package
from sptc.synth.recipe import FPGAS
from sptc.synth.sweep import Place, point_at
from sptc.tests.cli.command_line import CommandLine

TINY = ("verilog", "--preset", "tiny", "-o")


def configuration(fields: dict[str, object]) -> CoreConfig:
    return CoreConfig(**{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()})


def test_presets_are_listed(cli: CommandLine) -> None:
    header, *lines = cli.text("presets").splitlines()
    assert header.split() == ["preset", "units", "step", "F", "mux", "latency", "formats"]
    listed = {line.split()[0]: line.split()[1:] for line in lines}
    assert [line.split()[0] for line in lines] == list(PRESETS)
    for name, config in PRESETS.items():
        units, step, unit_of_step, alignment, mux, latency, *formats = listed[name]
        assert (step, unit_of_step) == (str(config.step_bytes), "B")
        assert alignment.split("/")[0] == str(config.alignment_bits)
        assert (mux, latency, units) == (config.mux, str(config.latency), f"{config.rows}x{config.columns}")
        assert formats == [*config.formats, *(["with", *config.scales] if config.scales else [])]
    assert [listed[name][3] for name in ("ampere", "hopper", "blackwell")] == ["24", "25/13", "25/35"]
    assert {name: configuration(fields) for name, fields in cli.json("presets").items()} == PRESETS


@pytest.fixture
def _written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sptc.rtl.emit.emit", lambda config, top, name: f"module {name}; endmodule // {top}\n")


@pytest.mark.usefixtures("_written_at_once")
def test_verilog_is_written(cli: CommandLine) -> None:
    output = Path("tiny.v")
    output.write_text("something older\n")
    assert cli.text(*TINY, output) == ""
    assert [*Path().iterdir()] == [output]
    lines = output.read_text(encoding="utf-8").splitlines()
    comments = [line for line in lines[:80] if line.startswith("//")]
    assert comments == lines[: len(comments)]
    assert comments[0] == f"// sptc {sptc.__version__}: core of preset tiny"
    parameters = {name: value for name, value in asdict(PRESETS["tiny"]).items() if name != "name"}
    assert comments[1 : len(parameters) + 1] == [f"//   {name} = {value}" for name, value in parameters.items()]
    table = [f"// {line}".rstrip() for line in lines_of_ports(ports(PRESETS["tiny"], "core"))]
    assert comments[len(parameters) + 1 :] == ["//", *table]
    assert lines[-1] == "module sptc_tiny_core; endmodule // core"


@pytest.mark.usefixtures("_written_at_once")
def test_verilog_is_printed_and_structures_are_written(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["-"], ["row.v", "--sv-package", "row.sv"]):
        assert main([*TINY, *words, "--top", "row", "--dense"]) == 0
    printed = capfdbinary.readouterr().out
    assert printed == Path("row.v").read_bytes()
    assert re.match(rb"// sptc \S+ row of tiny\n(?s:.*)\nmodule sptc_tiny_row; endmodule // row\n", printed)
    assert Path("row.sv").read_text() == package(replace(PRESETS["tiny"], sparse=False), "row", "sptc_tiny_row")


def test_a_datapath_of_ones_own(cli: CommandLine) -> None:
    words = ["--formats", "f16,e4m3", "--products", "8", "--cuts", "none", "--rows", "2"]
    text = cli.text("config", *words, "--json")
    expected = CoreConfig(name="own", formats=("f16", "e4m3"), step_bytes=16, cuts=(), rows=2)
    assert configuration(json.loads(text)) == expected
    Path("own.json").write_text(text)
    for chosen in (words, ["--config", "own.json"], ["--preset", "tiny", *words, "--columns", "4"]):
        assert cli.text("ports", *chosen, "--top", "row").splitlines() == lines_of_ports(ports(expected, "row")), chosen


def test_alignment_widths(cli: CommandLine) -> None:
    """``--alignment`` also sets the alignment bits of 8-bit floats, unless the datapath keeps fewer bits for them."""
    names = ("alignment_bits", "fp8_alignment_bits", "block_alignment_bits")
    for words, expected in (
        (["--formats", "e4m3", "--alignment", 17, "--products", 8], (17, 17, 35)),
        (["--formats", "f16,e4m3", "--alignment", 30], (30, 30, 35)),
        (["--formats", "f16,e4m3", "--alignment", 22, "--fp8-alignment", 14], (22, 14, 35)),
        (["--preset", "hopper", "--alignment", 22], (22, 13, 35)),
        (["--preset", "hopper", "--formats", "e4m3", "--alignment", 9], (9, 9, 35)),
        (["--preset", "blackwell", "--alignment", 38], (38, 38, 38)),
    ):
        assert tuple(cli.json("config", *words)[name] for name in names) == expected, words
    point = point_at(Place(("f16", "e4m3"), 30, 32, "mux4", ()))
    assert point.config
    assert (point.config.alignment_bits, point.config.fp8_alignment_bits) == (30, 30)


def test_derived_sizes_and_ports_as_json(cli: CommandLine) -> None:
    sizes = {"cycles of 16 x 8 outputs, 32 bytes of A per row": "8", "latency of the outputs in a warp, cycles": "14"}
    for more, expected in (
        ([], {"products of e4m3 a cycle": "32", "bits of the sum": "39"} | sizes),
        (["--dense"], {"name": "hopper", "metadata nibbles a cycle": "0"}),
    ):
        lines = cli.text("config", "--preset", "hopper", *more).splitlines()
        assert dict(re.split(r"  +", line, maxsplit=1) for line in lines).items() >= expected.items()
    report = cli.json("ports", "--preset", "hopper", "--top", "warp")["ports"]
    (payload,) = (port for port in report if port["name"] == "i__payload")
    fields = {field["name"]: (field["low"], field["type"]["width"]) for field in payload["type"]["fields"]}
    assert (payload["is_input"], payload["type"]["width"]) == (True, 15389)
    assert (fields["sparsity_selector"], fields["a"]) == ((15378, 2), (0, 4096))


@pytest.mark.usefixtures("_written_at_once")
def test_bad_words(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("missing/tiny.v", ""):
        cli.refuses(*TINY, Path(name), message=f"{Path(name)} cannot be written (...)")
    cli.refuses_each(
        (["ports"], "no datapath is given: add --preset NAME, --config FILE or --formats LIST"),
        (["ports", "--formats", "s8", "--alignment", "30"], "--alignment has no effect, because no format is a float"),
        (["config", "--formats", "f16", "--fp8-alignment", "9"], "--fp8-alignment has no effect, because no format is"),
        (["ports", "--formats", "s4", "--products", "3"], "--products 3: 3 elements of 4 bits do not fill whole bytes"),
        (["ports", "--preset", "tiny", "--rows", "3", "--top", "wgmma"], "rows must divide 16"),
        (["verilog", "--preset", "tiny", "--top", "chip", "-o", "tiny.v"], "'chip'"),
        (["presets", "tiny"], "tiny"), (["verilog", "--preset", "tiny"], "required: -o/--output"),
    )  # fmt: skip
    monkeypatch.setattr("sptc.rtl.emit.emit", None)  # outputs are checked before the Verilog is emitted
    cli.refuses(*TINY, "none/u.v", "--sv-package", "p.sv", message="none/u.v cannot be written")


def test_names_of_tops_and_fpgas() -> None:
    """The parser repeats the names of all tops and FPGAs, because the modules that define them are slow to import."""
    assert tuple(FPGAS) == area._FPGAS
    assert hardware._TOPS == TOPS

"""Untrusted names and texts that are written to output files become neither code nor markup nor commands."""

import argparse
import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from sptc.cli.configuration import read_configuration
from sptc.cli.hardware import _header
from sptc.cli.reports import Check, report
from sptc.errors import FileError
from sptc.infra.diagram import Diagram
from sptc.infra.escapes import NAME, comment, fitted_name, plot_text
from sptc.rtl.config import PRESETS
from sptc.rtl.emit import module_name
from sptc.rtl.systemverilog import package
from sptc.sim.coverage.groups import Axis, Coverage, Group
from sptc.synth.liberty import Library
from sptc.synth.netlist import Netlist
from sptc.synth.plot import Spot, plot_spots
from sptc.synth.recipe import Recipe
from sptc.verify.report_files import Case, Findings
from sptc.verify.report_page import report_page
from sptc.verify.testbench import bench_files

#: Texts that would become code in some output language without escaping.
NASTY = (
    'x\n`include "/etc/passwd"\nmodule evil;endmodule\n//',
    "x\r\nendmodule module evil",
    "x\v`define y\f`undef y\x85z\u2028evil\u2029",
    "x */ evil /*",
    "x\\",
    "x?" + "?/",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "]]><!--&lt;&#0;",
    "x\n::error::evil",
    "%0A::error title=x,y:z::evil",
    "| a | b |\n|---|---|",
    "$\\frac{1}{$",
    "; exec evil; [exec evil] $(evil) `evil`",
    "'; evil; '",
    "\x00\x1b[31m\x1b]0;evil\x07\ud800\u202e",
    "{{ 7 * 7 }}{% evil %}",
    "é" * 65,
    "../../evil",
    "-o",
    "",
)


@pytest.fixture(params=NASTY, ids=range(len(NASTY)))
def nasty(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_names_are_checked_where_they_are_read(nasty: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(json.dumps({"name": nasty, "formats": ["s8"]}))
    with pytest.raises(FileError, match=r"name must be a letter or underscore") as caught:
        read_configuration(path)
    assert len(str(caught.value).splitlines()) == 1
    assert NAME.fullmatch(fitted_name(nasty))


def test_names_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "8 bits$.json"
    path.write_text('{"formats": ["s8"]}')
    assert read_configuration(path).name == "_8_bits_"
    assert all(NAME.fullmatch(name) for name in PRESETS)
    assert NAME.fullmatch("x" * 64)
    assert not NAME.fullmatch("x" * 65)
    assert not NAME.fullmatch("x\n")
    plain, nasty = (dataclasses.replace(PRESETS["tiny"], name=name) for name in ("plain", NASTY[0]))
    assert package(nasty, "unit", "top") == package(plain, "unit", "top")
    assert comment("x\\") == "x\\."
    assert plot_text("$x$\n") == r"\$x\$\n"
    assert comment("a\nb") == "a\\nb"


def test_verilog(nasty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments and names in Verilog are safe, even if a configuration made in Python has an unchecked name."""
    monkeypatch.setattr("sptc.rtl.ports.ports", lambda *_: [])
    monkeypatch.setattr("sptc.verify.testbench.emit", lambda *_: "")
    config = dataclasses.replace(PRESETS["tiny"], name=nasty)
    for line in _header(config, "unit").split("\n"):
        assert re.fullmatch(r"(//.*(?<!\\))?|/\* verilator \w+ \w+ \*/", line), line
        assert line.isprintable()
    name = module_name(config, "row")
    assert re.fullmatch(r"sptc_[A-Za-z0-9_]*_row", name)
    table: Any = SimpleNamespace(name="inputs", bits=8, count=1, shape=(1, 1, 1, 1))
    plain = dataclasses.replace(config, name=name.removeprefix("sptc_").removesuffix("_row"))
    assert bench_files(config, "row", (table, table), 0) == bench_files(plain, "row", (table, table), 0)


LIBRARY = """library (l) {{
  cell ("{cell}") {{ area : 1; pin (A) {{ direction : input; }} pin (B) {{ direction : input; }}
    pin (C) {{ direction : input; }} pin (S) {{ direction : output; function : "A ^ B ^ C"; }}
    pin (T) {{ direction : output; function : "(A B) | (A C) | (B C)"; }} }} }}
"""


def test_yosys_scripts(nasty: str, tmp_path: Path) -> None:
    """The cell name of a liberty file becomes an escaped Verilog identifier, or the file is rejected."""
    path = tmp_path / "l.lib"
    name = nasty.replace('"', "'")
    path.write_bytes(LIBRARY.format(cell=name).encode(errors="replace"))
    plain = tmp_path / "plain.lib"
    plain.write_text(LIBRARY.format(cell="FA"))
    if not re.fullmatch(r"[!-\[\]-~]+", name):  # an escaped identifier has neither space nor backslash
        with pytest.raises(FileError) as caught:
            Library.read(path)
        assert str(caught.value).isprintable()
        return
    netlist, library = Netlist("unit", ""), Library.read(path)
    recipes = [Recipe(each, full_adders=True) for each in (library, Library.read(plain))]
    assert library.cells[0].name == name
    assert f"      \\{name}  adder (.A(A[i])".encode() in recipes[0].files(netlist)["adders.v"]
    assert recipes[0].script(netlist) == recipes[1].script(netlist)


def test_svg(nasty: str) -> None:
    drawing = Diagram(100, 100, nasty, nasty)
    drawing.box((0, 0, 9, 9), [nasty], "logic")
    tags = {element.tag.partition("}")[2] for element in ElementTree.fromstring(drawing.svg()).iter()}
    assert tags == {"svg", "title", "desc", "style", "rect", "text"}


@pytest.mark.regression
def test_plots(tmp_path: Path) -> None:
    for nasty in ("$\\frac{1}{$", "<script>x</script>", "a\nb\x1b[31m"):
        plot_spots([Spot("f16", "none", 1.0, 1.0, (0.0, 0.0), (0.0, 0.0))], "x", "y", nasty, tmp_path / "plot.svg")
        tree = ElementTree.parse(tmp_path / "plot.svg")
        assert not {"script", "img"} & {element.tag.partition("}")[2] for element in tree.iter()}


def test_html() -> None:
    text = report_page(Findings(Path("evil<b>"), cases=[Case(nasty, nasty, 0.0, nasty) for nasty in NASTY])).decode()
    assert text.count("evil;") > 3
    assert not re.search(r"<script>|<img|evil<b>|[^\n\t\x20-\x7e\xa0-\uffff]|\u202e", text)


def test_junit_and_annotations(nasty: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "junit.xml"
    report(argparse.Namespace(command="prove", junit=path, github=True), [Check(nasty, nasty, f"x{nasty}", 1.0)])
    (case,) = ElementTree.parse(path).iter("testcase")
    assert [element.tag for element in case] == ["failure"]
    lines = capsys.readouterr().err.split("\n")
    assert [line.partition(" ")[0] for line in lines] == ["::error", "::notice", ""]
    title, _, message = lines[0].removeprefix("::error title=").partition("::")
    assert not re.search(r"[:,]|%(?!0A|25|3A|2C)", title)
    assert lines[0].isprintable()
    assert message


def test_terminals(nasty: str) -> None:
    """The report of an untrusted coverage file sends no control character to the terminal."""
    group = Group(nasty, nasty, nasty, (Axis(nasty, (nasty,)),))
    assert all(line.isprintable() for line in Coverage([group]).table(3).split("\n"))

"""The HTML page of a regression shows files of every kind, names missing results, and escapes text."""

import json
import os
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from sptc.cli import main
from sptc.sim.coverage.groups import Axis, Coverage, Group
from sptc.tests.cli.command_line import CommandLine
from sptc.verify.report_files import read_findings
from sptc.verify.report_page import report_page

COMMAND = "report"
HOSTILE = "<script>alert('x')</script>&\"\x1b[31m"
#: JUnit XML as pytest and `sptc` write it.
TESTS = """<?xml version="1.0"?>
<testsuites><testsuite name="pytest" tests="4"><properties><property name="seed" value="2026"/></properties>
<testcase classname="tests.cli.test_a" name="test_right" time="1.5"/>
<testcase classname="tests.cli.test_a" name="test_wrong[&lt;b&gt;]" time="2">
<failure message="it broke &lt;img src=x&gt;">the whole story</failure></testcase>
<testcase classname="tests.rtl.test_b" name="test_error" time="0"><error message="no fixture">trace</error></testcase>
<testcase classname="tests.rtl.test_b" name="test_left" time="0"><skipped message="no GPU"/></testcase>
</testsuite></testsuites>"""
FAULTS = (
    '{"faults": 3, "seed": 0}',
    '[{"preset": "tiny", "top": "row", "number": 0, "component": "", "command": "c0", "verdict": "killed"},'
    ' {"preset": "tiny", "top": "row", "number": 1, "component": "", "command": "c1", "verdict": "survived"},'
    ' {"preset": "tiny", "top": "row", "number": 2, "component": "", "command": "c2", "verdict": "survived"}]',
    '[{"preset": "tiny", "top": "row", "number": 1, "component": "", "command": "c1", "verdict": "equivalent"}]',
    '[{"preset": "tiny", "top": "row", "numb',
)
OUTCOME = {"passed": 3, "failed": [], "skipped": {"tests.x::test_s": "no time"}, "seconds": 9.0, "seed": 5}


class Seen(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.words = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name == "src"]

    def handle_data(self, data: str) -> None:
        self.words += data


def reported(folder: Path) -> Seen:
    output = folder.parent / "report.html"
    assert main(["report", str(folder), "-o", str(output)]) == 0
    return Seen(output)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "left"
    (made / "deeper").mkdir(parents=True)
    return made


def coverage_file(path: Path) -> None:
    group = Group("hopper", "nibbles", "each nibble", (Axis("nibble", ("0", "1", "2", "3")),))
    group.count(np.array([0, 1, 1]))
    group.declare_unreachable([False, False, False, True], "nibble 3 never occurs")
    Coverage([group]).write(path)


def test_results_and_what_is_missing(folder: Path) -> None:
    coverage_file(folder / "coverage.json")
    words = reported(folder).words
    for kind in ("JUnit XML", "faults", "proofs", "area", "figures"):
        assert f"Missing: {kind}" in words
    assert "Missing: coverage" not in words
    (folder / "deeper" / "anything").write_text(TESTS)
    right = [(case.failure is None, case.skipped) for case in read_findings(folder).cases]
    assert right == [(True, None), (False, None), (False, None), (True, "no GPU")]
    seen = reported(folder)
    for words in ("2 of 4 failed", "it broke <img src=x>\nthe whole story", "1 skipped: no GPU", "tests/rtl", "2026"):
        assert words in seen.words


def test_every_kind(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    coverage_file(folder / "a")
    coverage_file(folder / "b")
    (folder / "c").write_text("\n".join(FAULTS))
    assert main(["prove", "metadata.legal", "--preset", "tiny", "--json", "--junit", str(folder / "d.xml")]) == 0
    (folder / "e").write_text(capsys.readouterr().out)
    (folder / "f").write_text(json.dumps([{"name": "golden", "unit": "G MAC/s", "value": 0.28}]))
    findings = read_findings(folder)
    assert next(iter(findings.coverage)).hits.tolist() == [2, 4, 0, 0]
    assert len(findings.proofs) == 1
    seen = reported(folder)
    for words in ("66.67 % of bins", "50.00 % killed", "1 of 1 proved", "G MAC/s", "nibble 3 never occurs", "c2"):
        assert words in seen.words
    assert "survived: tiny row: c1" not in seen.words
    amounts = {"gates": 1234.5, "depth": 30.0, "cells": {}, "seconds": 1.0, "cached": False}
    area = {"units": {"gates": "NAND2", "depth": "gates"}, "configuration": {"name": "hopper"}, "unit": amounts}
    area |= dict.fromkeys(("unit_with_full_adders", "dense_unit_with_full_adders", "array", "warp"))
    area |= {"dense_unit": amounts, "sparsity_percent": {"gates": 4.5}}
    (folder / "x").write_text(json.dumps(area))
    for words in ("1,234.5", "+4.5 % gates"):
        assert words in reported(folder).words


def test_a_regression_s_own_files(folder: Path) -> None:
    """If a test file has JUnit XML, its recorded outcome is ignored. Otherwise, the recorded outcome is reported."""
    (folder / "tests-cli-test_a.xml").write_text(TESTS)
    (folder / "a.json").write_text(json.dumps({"file": "tests/cli/test_a.py", **OUTCOME}))
    (folder / "b.json").write_text(json.dumps({"file": "tests/sim/test_c.py", **OUTCOME}))
    (folder / "c").write_text('{"seed": 7, "total": {}, "pairs": [{"preset": "ada", "pair": "f16", "mismatches": 1}]}')
    xml = '<testsuite><testcase classname="sptc.campaign.ada" name="s8"><failure>wrong</failure></testcase></testsuite>'
    (folder / "x.xml").write_text(xml)  # another campaign of the same preset
    (folder / "x.log").write_text("a log")
    findings = read_findings(folder)
    assert {case.group for case in findings.cases[:4]} == {"tests.cli.test_a", "tests.rtl.test_b"}
    others = [(case.group, case.failure) for case in findings.cases[4:]]
    ada = "sptc.campaign.ada"
    assert others == [(ada, "wrong"), *[("tests.sim.test_c", None)] * 4, (ada, "wrong outputs: 1")]
    assert findings.seeds == {"2026", "5", "7"}
    assert findings.passed_over == [("x.log", "unknown kind of file")]


def test_a_test_file_that_crashed(folder: Path) -> None:
    (folder / "x").write_text('<testsuite><testcase classname="tests.a" name="b" time="0"/></testsuite>')
    for name in ("tests/a.py", "tests/b.py"):
        results = {"passed": 0, "failed": [f"{name} ended with status -11"], "skipped": {}, "seconds": 1.0, "seed": 5}
        (folder / name.replace("/", "-")).write_text(json.dumps({"file": name, **results}))
    seen = reported(folder)
    assert "2 of 3 failed" in seen.words
    assert "tests/b.py ended with status -11" in seen.words


def test_text_is_escaped_once(folder: Path) -> None:
    (folder / "<script>").write_text(json.dumps([{"name": HOSTILE, "unit": HOSTILE, "value": 1}]))
    (folder / os.fsdecode(b"\xff<script>\n")).write_text("{")
    seen = reported(folder)
    assert "script" not in seen.elements
    assert "alert('x')" in seen.words
    assert "\\x1b[31m" in seen.words
    assert "\x1b" not in seen.words
    (folder / "x").write_text(json.dumps([{"name": '<b>&"', "unit": "u", "value": 1}]))
    page = report_page(read_findings(folder))
    assert b"<td>&lt;b&gt;&amp;&#34;</td>" in page
    assert b"&amp;lt;" not in page
    assert b"default-src 'none'" in page


SPOILED = {
    "no XML": b"<testsuites>", "another XML": b"<html/>", "no JSON": b"{", "another list": b"[1, 2]",
    "binary": bytes(range(256)), "coverage of something": b'{"kind": "x", "groups": []}',
    "entities": b'<!DOCTYPE x [<!ENTITY a "aaaa">]><testsuite name="&a;"/>',
    "no time": b'<testsuite><testcase classname="a" name="b" time="nan"/></testsuite>',
    "damaged proofs": b'{"proofs": [{"result": 1}], "proved": 1, "failed": 0}',
    "damaged area": b'{"configuration": 1, "unit": {}, "units": {}, "array": null}',
    "endless": b'{"file": "a", "passed": 1e300, "failed": [], "skipped": {}, "seconds": 1, "seed": 1}',
    "infinite": b'[{"name": "a", "unit": "b", "value": Infinity}]',
}  # fmt: skip


def test_what_is_spoiled_is_passed_over(folder: Path) -> None:
    (folder / "x.xml").write_text(TESTS)
    for kind, content in SPOILED.items():
        (folder / "spoiled").write_bytes(content)
        findings = read_findings(folder)
        assert [name for name, _ in findings.read] == ["x.xml"], kind
        [(name, why)] = findings.passed_over
        assert name == "spoiled", kind
        assert why, kind
        assert (len(findings.cases), len(findings.proofs), len(findings.figures)) == (4, 0, 0), kind


def test_what_cannot_be_reported(cli: CommandLine) -> None:
    Path("empty").mkdir()
    Path("file").write_text(TESTS)
    assert cli.streams("x", "-o", "y", status=2)[1] == "sptc report: x cannot be read (No such file or directory)\n"
    cli.refuses("file", "-o", "page", message="cannot be read (Not a directory)")
    cli.refuses("empty", "-o", "page", message="files, but none with results of a regression")
    Path("empty/x").write_text(TESTS)
    cli.refuses("empty", "-o", "no/page", message="cannot be written")

"""JUnit XML and GitHub annotations report passed and failed results, and escape special characters."""

import argparse
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sptc.cli.reports import Check, report
from sptc.tests.cli.command_line import CommandLine
from sptc.verify.register_file import read, shipped, write

COMMAND = "run"
FILE = next(path for path in shipped() if path.name.startswith("mma"))


def written(path: Path) -> ElementTree.Element:
    return ElementTree.fromstring(path.read_bytes())


def test_a_run_that_agrees_and_a_proof(cli: CommandLine) -> None:
    _, errors = cli.streams(FILE, "--backend", "golden", "--limit", "2", "--junit", "run.xml", "--github")
    root = written(Path("run.xml"))
    assert (root.get("tests"), root.get("failures")) == ("1", "0")
    (case,) = root.iter("testcase")
    assert case.get("classname") == "sptc.run.sm_90"
    assert str(case.get("name")).startswith("mma")
    assert list(case) == []
    assert errors == "::notice title=sptc run::1 right, 0 wrong\n"
    CommandLine(cli.capsys, "prove").text("metadata.legal", "--preset", "tiny", "--junit", "prove.xml")
    (case,) = written(Path("prove.xml")).iter("testcase")
    assert (case.get("classname"), case.get("name")) == ("sptc.prove.metadata", "legal mux4")
    assert float(str(case.get("time"))) > 0


def test_a_run_that_does_not(cli: CommandLine) -> None:
    file, recording = Path("spoiled.npz"), read(FILE)
    recording.d[0, 0, 0] ^= 1
    write(file, recording)
    output, errors = cli.streams(file, "--backend", "golden", "--junit", "run.xml", "--github", status=1)
    (failure,) = written(Path("run.xml")).iter("failure")
    assert failure.text
    first = failure.text.splitlines()[-1]
    assert first.startswith("first mismatch: ")
    assert first in output
    annotation, notice = errors.splitlines()
    assert annotation.startswith("::error title=sptc run%3A mma")
    assert annotation.endswith(f"%0A{first}")
    assert notice == "::notice title=sptc run::0 right, 1 wrong"
    # If the report file cannot be written, the command fails before it computes anything.
    cli.refuses(file, "--junit", "missing/run.xml", message="cannot be written")


def test_the_seed_and_text_with_special_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = argparse.Namespace(command="run", junit=tmp_path / "it.xml", github=True)
    report(options, [Check("a<b", 'say "no": 5%, 6\x00', "first\nsecond & \x1b[31m last")], seed=2026)
    (seed,) = written(options.junit).iter("property")
    assert seed.attrib == {"name": "seed", "value": "2026"}
    (case,) = written(options.junit).iter("testcase")
    assert (case.get("classname"), case.get("name")) == ("sptc.run.a<b", 'say "no": 5%, 6?')
    assert case[0].get("message") == "first"
    assert case[0].text == "first\nsecond & ?[31m last"
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith('::error title=sptc run%3A say "no"%3A 5%25%2C 6')
    assert "first%0Asecond & " in line

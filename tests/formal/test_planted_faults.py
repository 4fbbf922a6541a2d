"""Each property sees a fault planted in the design: the command says so, and with which values."""

import json
from importlib import import_module
from pathlib import Path

import pytest
from sptc.cli import main
from sptc.formal.catalogue import PROPERTIES
from sptc.tests.planted import faults

FAULTS = {name: fault for name, fault in faults("rtl").items() if not name.startswith("rtl.")}


def test_there_is_a_fault_for_each() -> None:
    assert FAULTS.keys() == {item.name for item in PROPERTIES}


#: One for each engine, in the quick tier.
QUICK = ("metadata.legal", "operands.exact", "core.order")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.regression) for name in FAULTS]
)
def test_a_planted_fault_is_seen(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fault, waves = FAULTS[name], tmp_path / "waves"
    fault.plant(import_module(fault.module), monkeypatch.setattr)
    words = ["prove", name, "--preset", fault.preset, "--jobs", "1", "--first", "--json", "--trace", str(waves)]
    status = main(words)
    said = capsys.readouterr()
    assert (status, said.err) == (1, "")
    broken = [row for row in json.loads(said.out)["proofs"] if row["result"] == "broken"]
    assert broken
    for row in broken:
        assert row["property"] == name
        assert row["broken"]
        assert row["counterexample"][-1]
        assert Path(row["trace"]).read_text(encoding="ascii").startswith("$")


def test_without_a_fault_it_is_proved(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["prove", "metadata.legal", "--preset", "tiny"])
    assert (status, capsys.readouterr().err) == (0, "")

"""If a fault is planted in the design, the proof of its property fails, and `sptc prove` prints a counterexample."""

import gc
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from sptc.cli import main
from sptc.formal.catalogue import PROPERTIES, chosen
from sptc.formal.digest import problem_digest
from sptc.formal.properties import cases
from sptc.rtl.config import PRESETS
from sptc.tests.planted import Fault, faults

FAULTS = {name: fault for name, fault in faults("rtl").items() if not name.startswith("rtl.")}
#: Record for each fault: the broken proof case, and the digests of its problems. The regression repeats a proof only if
#: the fault now leads to another problem, or if ``--again`` is given. New records are written to NEWER.
RECORD = Path(__file__).with_name("broken.json")
BROKEN: dict[str, dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8"))
NEWER = Path(__file__).parents[2] / "build" / "regression" / "broken"
#: Planted faults that the quick tier tests, one for each proof engine.
QUICK = ("metadata.legal", "operands.exact", "core.order")


def test_every_property_has_a_planted_fault() -> None:
    assert {fault.property for fault in FAULTS.values()} == {item.name for item in PROPERTIES}


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.regression) for name in FAULTS]
)
def test_a_planted_fault_is_seen(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    fault, waves = FAULTS[name], tmp_path / "waves"
    fault.plant(import_module(fault.module), monkeypatch.setattr)
    record = None if name in QUICK or request.config.getoption("--again") else BROKEN.get(fault.name)
    if record and record["digests"] == digests(fault, record["case"]):
        return  # this proof is recorded as failed
    words = ["prove", fault.property, "--preset", fault.preset, "--jobs", "1", "--first", "--seconds", "3600"]
    status = main([*words, "--json", "--trace", str(waves)])
    gc.collect()  # free components that were never elaborated, while the test ignores warnings about them
    output = capsys.readouterr()
    assert (status, output.err) == (1, "")
    broken = [row for row in json.loads(output.out)["proofs"] if row["result"] == "broken"]
    assert broken
    for row in broken:
        assert row["property"] == fault.property
        assert row["broken"]
        assert row["counterexample"][-1]
        assert Path(row["trace"]).read_text(encoding="ascii").startswith("$")
    if name not in QUICK:
        case = broken[0]["parameters"]
        NEWER.mkdir(parents=True, exist_ok=True)
        row = json.dumps({"case": case, "digests": digests(fault, case)})
        (NEWER / f"{name.replace(':', '-')}.json").write_text(row)


def digests(fault: Fault, described: str) -> list[str]:
    """Return digests of the proof problems with this description, of the property that a planted fault breaks."""
    selected = cases(chosen([fault.property]), [PRESETS[fault.preset]])
    return [problem_digest(case.harness()) for case in selected if case.described == described]

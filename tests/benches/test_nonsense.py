"""Benches fail on hardware with wrong results. The top-level modules are small, so that they are built in seconds."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from amaranth.hdl import Const, Elaboratable, Module, Signal
from amaranth.lib import wiring
from sptc.errors import BackendError
from sptc.rtl.convert import to_verilog
from sptc.rtl.core import Core
from sptc.rtl.row import Row
from sptc.sim.benches.components import Harness, component_benches
from sptc.sim.benches.items import TAG
from sptc.sim.benches.runner import Bench, Failure, build
from sptc.sim.benches.settings import Settings
from sptc.sim.engine.ports import ports_of

pytestmark = [pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable"), pytest.mark.usefixtures("collect")]
ITEMS = 20


class Nonsense(wiring.Component):
    """Faulty component with stream ports: all results are zero, or, with `mute`, the component hangs after one item."""

    def __init__(self, like: wiring.Component, mute: bool) -> None:
        super().__init__(like.signature)
        self._mute = mute

    def elaborate(self, platform: object) -> Module:
        m = Module()
        full: Any = Signal()
        taken = Const(0) if self._mute else self.o.ready
        m.d.comb += [self.i.ready.eq(~full | taken), self.o.valid.eq(full & (not self._mute))]
        with m.If(self.i.ready):
            m.d.sync += full.eq(self.i.valid)
        return m


class Silent(Elaboratable):
    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += Signal(name="some_register").eq(1)
        return m


def failures(top: str, folder: Path, seed: int, text: str) -> list[Failure]:
    return build(Settings("tiny", top, ITEMS), folder, verilog_text=text).run(seed)


@pytest.mark.regression
@pytest.mark.parametrize(("mute", "message"), [(False, "bits differ from the golden model"), (True, "no result for")])
def test_a_stream(mute: bool, message: str, seed: int, tmp_path: Path) -> None:
    core = Core(Settings("tiny", "core", ITEMS).config, TAG)
    reported = failures("core", tmp_path, seed, to_verilog(Nonsense(core, mute), "bench"))
    assert len(reported) == 2
    for failure in reported:
        assert message in failure.message


RESULTS = """<testsuites><testsuite><testcase name="right"/>
<testcase name="wrong"><failure error_msg="the result is 0x0"/></testcase>
<testcase name="broken"><error message="no such port"/></testcase></testsuite></testsuites>"""


def test_failures_of_a_run(tmp_path: Path) -> None:
    """Failures in the results file are returned. A missing file, or a file without a matching test, is an error."""
    written: list[str] = []
    runner: Any = SimpleNamespace(test=lambda results_xml, **_: [Path(results_xml).write_text(w) for w in written])
    bench = Bench(Settings("tiny", "row", 1), tmp_path, runner, writes_waves=False)
    with pytest.raises(BackendError, match="the simulator ended without results"):
        bench.run(0)
    written[:] = [RESULTS]
    assert bench.run(0) == [Failure("wrong", "the result is 0x0"), Failure("broken", "no such port")]
    written[:] = ["<testsuites/>"]
    with pytest.raises(BackendError, match="the bench of row has no test that matches 'x'"):
        bench.run(0, test="x")


@pytest.mark.regression
def test_a_row(seed: int, tmp_path: Path) -> None:
    row = Row(Settings("tiny", "row", ITEMS).config)
    text = to_verilog(Silent(), "bench", ports=[port.value for port in ports_of(row)])
    reported = failures("row", tmp_path, seed, text)
    assert len(reported) == 2
    assert all("the result is 0x0, not" in failure.message for failure in reported)


@pytest.mark.regression
def test_components(seed: int, tmp_path: Path) -> None:
    harness = Harness({name: b.component for name, b in component_benches(Settings("tiny", "row", 1).config).items()})
    text = to_verilog(Silent(), "bench", ports=[port.value for port in harness.ports])
    assert {failure.test for failure in failures("components", tmp_path, seed, text)} == harness.components.keys()

"""Proofs about faults in a pipeline: recognition of pipelines, and one proof for each control code."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from amaranth.hdl import Assume, Cat, EnableInserter, Module, Mux, Signal
from sptc.infra.yosys import run_yosys
from sptc.rtl.convert import to_rtlil
from sptc.rtl.step import row_step_layout
from sptc.sim.benches.settings import Settings
from sptc.sim.engine.pipelines import flat_module, is_balanced
from sptc.sim.faults.assumptions import step_pipeline
from sptc.sim.faults.equivalence import Pipeline, Verdict, settled
from sptc.sim.faults.mutants import REST, mutated
from sptc.sim.faults.regressions import faulty_row
from sptc.tests.benches.conftest import fault_at

#: Pipeline with control codes 0 to 2. With code 2, the second factor of its multiplier is zero.
PIPELINE = Pipeline("enable", "code", tuple({0: code & 1, 1: code >> 1} for code in range(3)))


def design(connect: Callable[[Module, Signal, Signal], None], *, enabled: bool = True) -> str:
    inner, outer = Module(), Module()
    x, y, enable = Signal(4, name="x"), Signal(4, name="y"), Signal(name="enable")
    connect(inner, x, y)
    outer.submodules.inner = EnableInserter(enable)(inner) if enabled else inner
    if not enabled:
        outer.d.comb += Signal().eq(enable)
    return to_rtlil(outer, "bench", ports=[x, y, enable])


def connect(form: str, m: Module, x: Signal, y: Signal) -> None:
    """Connect x to y by registers. Only `two stages` is a balanced pipeline of registers without a reset."""
    first, second, beside = (Signal(4, reset_less=form != "reset") for _ in range(3))
    if form == "two stages":
        m.d.sync += [first.eq(x + 1), beside.eq(Mux(x[0], 0, x)), second.eq(first ^ beside)]
    elif form == "half enabled":
        with m.If(x[0]):
            m.d.sync += first.eq(x + 1)
    else:
        m.d.sync += first.eq(x + (first if form == "feedback" else 1))
    outputs = {"two stages": second & 7, "two lengths": first ^ x, "outputs of two lengths": Cat(first[:2], x[:2] + 1)}
    m.d.comb += y.eq(outputs.get(form, first))


@pytest.mark.parametrize(
    ("form", "enabled", "balanced"),
    [
        ("two stages", True, True), ("two stages", False, False), ("reset", True, False), ("two lengths", True, False),
        ("outputs of two lengths", True, False), ("feedback", True, False), ("half enabled", True, False),
    ],
)  # fmt: skip
def test_what_is_a_pipeline(tmp_path: Path, form: str, enabled: bool, balanced: bool) -> None:
    (tmp_path / "design.il").write_text(design(partial(connect, form), enabled=enabled), encoding="utf-8")
    run = "hierarchy -top bench\nproc\nflatten\nopt -full\nopt_clean\n"
    run_yosys(tmp_path, f"read_rtlil design.il\n{run}write_rtlil flat.il\n")
    assert is_balanced(flat_module("flat.il", "bench", tmp_path), "enable") == balanced


@pytest.fixture(scope="module")
def multiplier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a design: a register, operands selected by a code, a multiplier, and a register."""
    folder = tmp_path_factory.mktemp("multiplier")
    m, inner = Module(), Module()
    code, enable, result = Signal(2, name="code"), Signal(name="enable"), Signal(24, name="result")
    a, b = Signal(12, name="a"), Signal(12, name="b")
    held = {signal.name: Signal.like(signal, name=f"held_{signal.name}", reset_less=True) for signal in (code, a, b)}
    product = Signal(24, reset_less=True)
    inner.d.sync += [held[signal.name].eq(signal) for signal in (code, a, b)]
    factors = Signal(12, name="factor_a"), Signal(12, name="factor_b")
    with inner.Switch(held["code"]):
        with inner.Case(0):
            inner.d.comb += [factors[0].eq(held["a"]), factors[1].eq(held["b"])]
        with inner.Case(1):
            inner.d.comb += [factors[0].eq(held["a"][:6]), factors[1].eq(held["b"][:6])]
        with inner.Case(2):
            inner.d.comb += factors[0].eq(held["a"][6:])
        with inner.Default():
            inner.d.comb += factors[1].eq(held["a"])
    inner.d.sync += product.eq(factors[0] * factors[1])
    inner.d.comb += result.eq(product)
    m.submodules.inner = EnableInserter(enable)(inner)
    m.submodules.assumption = assumption = Module()
    assumption.d.comb += Assume(code != 3)
    mutated(to_rtlil(m, "bench", ports=[code, enable, a, b, result]), "bench", {"whole": REST}, 1, 0, folder)
    return folder


@pytest.mark.parametrize(
    ("mode", "code", "verdict"),
    [
        ("const0", 0, Verdict.TOLD_APART),
        ("const0", 1, Verdict.TOLD_APART),
        ("const0", 2, Verdict.EQUIVALENT),  # code 2 multiplies by zero, also with the fault
    ],
)
def test_each_case(multiplier: Path, mode: str, code: int, verdict: Verdict) -> None:
    kind, text = {0: ("logic_not", "A_WIDTH 2"), 1: ("eq", "2'01"), 2: ("eq", "2'10")}[code]
    fault = fault_at(multiplier, kind, f"{mode} -port Y -portbit 0", text)
    assert settled("bench", [fault], multiplier, 60.0, PIPELINE) == {fault: verdict}


@pytest.mark.regression
def test_a_register_that_is_not_enabled(multiplier: Path) -> None:
    fault = fault_at(multiplier, "dffe", "const0 -port EN -portbit 0")
    assert settled("bench", [fault], multiplier, 60.0, PIPELINE) == {fault: Verdict.TOLD_APART}


def test_what_is_no_pipeline_is_not_taken_for_one(tmp_path: Path) -> None:
    """This design is no balanced pipeline: if wires replaced its registers, its output would always be zero."""

    def rising(m: Module, x: Signal, y: Signal) -> None:
        before = Signal(4, reset_less=True)
        m.d.sync += before.eq(x)
        m.d.comb += y.eq(x & ~before)

    mutated(design(rising), "bench", {"whole": REST}, 1, 0, tmp_path)
    fault = fault_at(tmp_path, "and", "const0 -port Y -portbit 1")
    assert settled("bench", [fault], tmp_path, 60.0, Pipeline("enable", "x", ({},))) == {fault: Verdict.TOLD_APART}


@pytest.mark.regression
def test_every_fault_of_a_row_is_decided(tmp_path: Path, seed: int) -> None:
    """Every drawn fault of a row is decided, because each proof is easy once the control word is fixed."""
    settings = Settings("tiny", "row", 1)
    netlist = faulty_row(settings.config, settings.arch, 24, seed, tmp_path)
    pipeline = step_pipeline(settings.config, settings.arch, row_step_layout(settings.config))
    actual = settled("bench", netlist.faults, tmp_path, 120, pipeline)
    assert Verdict.UNDECIDED not in actual.values()
    assert Verdict.TOLD_APART in actual.values()

"""Fault injection: the fault regression compares every output bit, and proofs decide the faults that it misses."""

import re
from collections.abc import Callable, Iterable
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Assume, Const, Instance, Module, Mux, Signal
from sptc.errors import BackendError
from sptc.infra.yosys import run_yosys
from sptc.rtl.convert import to_rtlil
from sptc.rtl.step import row_result_layout, row_step_layout
from sptc.rtl.tcgen05 import TCGEN05_ARRAY
from sptc.sim.benches.components import Harness
from sptc.sim.benches.settings import Settings
from sptc.sim.engine.array_units import ARRAY
from sptc.sim.faults import equivalence, mutants, regressions, slices
from sptc.sim.faults.assumptions import AssumedComponents, step_pipeline
from sptc.sim.faults.equivalence import Verdict, settled
from sptc.sim.faults.mutants import REST, SELECT, TOP, UNTOUCHED, Fault, Netlist, faulty_verilog, mutated
from sptc.sim.faults.regressions import Regression, regression
from sptc.tests.benches.conftest import fault_at
from sptc.verify.bench_jobs import echoing_programs, random_warpgroup_jobs

ITEMS = {"components": 20_000, "row": 20_000, "core": 2_000}
FAULTS = {"components": 60, "row": 16, "core": 16}
#: Limit in seconds for a proof of a small design. No proof needs more than one second unless the machine is busy.
PATIENCE = 600.0
#: Maximum number of faults that are neither detected nor proved to change no output.
LEFT = 1
VERDICTS = {True: Verdict.EQUIVALENT, False: Verdict.TOLD_APART}


def absorbed() -> str:
    """Return the RTLIL of a | (a & b), which equals `a`. Only a prover shows that cell $2, the AND, has no effect."""
    m, (a, b, y) = Module(), (Signal(4, name=name) for name in "aby")
    m.d.comb += y.eq(a | (a & b))
    return to_rtlil(m, "bench", ports=[a, b, y])


ABSORBED = absorbed()


@pytest.fixture(scope="module")
def injected(tmp_path_factory: pytest.TempPathFactory, seed: int) -> Callable[[str], tuple[Regression, Path]]:
    made: dict[str, tuple[Regression, Path]] = {}

    def get(top: str) -> tuple[Regression, Path]:
        if top not in made:
            folder = tmp_path_factory.mktemp(top)
            made[top] = regression(Settings("tiny", top, ITEMS[top]), FAULTS[top], seed, folder), folder
        return made[top]

    return get


def survivors(of_top: Regression) -> list[Fault]:
    """Return the faults that a regression does not detect. The fault-free design must pass before and afterwards."""
    assert of_top.first_failure(None) is None
    left = [fault for fault in of_top.netlist.faults if of_top.first_failure(fault) is None]
    assert of_top.first_failure(None) is None, "the fault-free design fails after runs with faults"
    return left


@pytest.mark.regression
@pytest.mark.parametrize("top", ITEMS)
def test_every_fault_is_killed_or_changes_nothing(injected: Callable, top: str) -> None:
    of_top, folder = injected(top)
    faults = of_top.netlist.faults
    assert len(faults) >= FAULTS[top]
    assert len({fault.command for fault in faults}) == len(faults)
    assert {fault.component for fault in faults} == of_top.netlist.areas.keys()
    settings = Settings("tiny", top, 1)
    pipeline = step_pipeline(settings.config, settings.arch, row_step_layout(settings.config)) if top == "row" else None
    verdicts = settled(TOP, survivors(of_top), folder, 300, pipeline)
    left = [str(fault) for fault, verdict in verdicts.items() if verdict is not Verdict.EQUIVALENT]
    assert len(left) <= LEFT, left


@pytest.mark.regression
def test_every_bit_of_a_row_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """In a row whose outputs are all zero, the regression detects each fault that sets one bit of result or flags."""
    settings = Settings("tiny", "row", 64)
    step, result = row_step_layout(settings.config).size, row_result_layout(settings.config).size
    text = f"""
    module bench(input clk, input rst, input enable, input [{step - 1}:0] step, input [15:0] {SELECT},
                 output reg [{result - 1}:0] result);
        always @(posedge clk) result <= {SELECT} == 0 ? {result}'d0 : {result}'d1 << ({SELECT} - 1);
    endmodule
    """
    faults = tuple(Fault(number, "row", "") for number in range(1, result + 1))
    monkeypatch.setattr(regressions, "faulty_row", lambda *_: Netlist(text, faults, {}))
    row = regression(settings, len(faults), seed, tmp_path)
    row._results[:] = 0
    assert row.first_failure(None) is None
    assert [fault.number for fault in faults if row.first_failure(fault) is None] == []


def zero_components(harness: Harness) -> Netlist:
    """Return components whose outputs are zero, with one fault for each output bit, which sets the bit."""
    header, body, faults = [f"input [15:0] {SELECT}"], "", []
    for port in harness.ports:
        header.append(f"{'input' if port.is_input else 'output'} [{port.bits - 1}:0] {port.name}")
        if not port.is_input:
            place, component = f"({SELECT} - 16'd{len(faults) + 1})", port.name.partition("__")[0]
            body += f"assign {port.name} = {place} < {port.bits} ? {port.bits}'d1 << {place} : 0;\n"
            faults += [Fault(len(faults) + 1 + bit, component, "") for bit in range(port.bits)]
    return Netlist(f"module bench({', '.join(header)});\n{body}endmodule\n", tuple(faults), {})


@pytest.mark.regression
def test_every_bit_of_components_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    made: list[Harness] = []

    class Assumed(AssumedComponents):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(regressions, "AssumedComponents", Assumed)
    monkeypatch.setattr(regressions, "mutated", lambda *_: zero_components(made[0]))
    components: Any = regression(Settings("tiny", "components", 4), 1, seed, tmp_path)
    faults = components.netlist.faults
    for means, every in ((0xFF, True), (0, False)):
        for _, expected, meant in components._vectors.values():
            expected.view(np.uint8)[:], meant.view(np.uint8)[:] = 0, means
        assert components.first_failure(None) is None
        seen = [fault for fault in faults if components.first_failure(fault) is not None]
        assert seen == [fault for fault in faults if every]


@pytest.mark.bench
def test_faults_of_a_warpgroup(tmp_path: Path, seed: int) -> None:
    """The fault-free design passes. Most faults are detected; all others but at most one provably change no output."""
    settings = Settings("hopper", "warpgroup", 60)
    jobs = [*islice(random_warpgroup_jobs(settings.config, np.random.default_rng(seed)), 60)]
    of_top = regression(settings, 12, seed, tmp_path, jobs)
    faults, left = of_top.netlist.faults, survivors(of_top)
    assert 3 * len(left) < len(faults), [str(fault) for fault in left]
    verdicts = settled(TOP, left, tmp_path, 60, box=ARRAY)
    assert [fault for fault in left if verdicts[fault] is Verdict.TOLD_APART] == []
    undecided = [fault for fault in left if verdicts[fault] is Verdict.UNDECIDED]
    assert len(undecided) <= LEFT, [str(fault) for fault in undecided]
    parts = {fault.component for fault in faults}
    complete = parts - {fault.component for fault in undecided}
    assert complete
    assert {fault.component for fault in faults if fault not in left} | complete == parts


@pytest.mark.bench
def test_faults_of_the_tensor_cores_of_a_cta(tmp_path: Path, seed: int) -> None:
    """The fault-free design passes. Most faults are detected, and a detected fault is not proved to change nothing."""
    settings = Settings("blackwell", "tcgen05", 24)
    of_top = regression(settings, 24, seed, tmp_path, echoing_programs(TCGEN05_ARRAY, 24, np.random.default_rng(seed)))
    faults, left = of_top.netlist.faults, survivors(of_top)
    assert 3 * len(left) < len(faults), [str(fault) for fault in left]
    (seen,) = islice((fault for fault in faults if fault not in left), 1)
    assert settled(TOP, [seen], tmp_path, 5, box=ARRAY) != {seen: Verdict.EQUIVALENT}


def test_draws(tmp_path: Path) -> None:
    """The seed determines the drawn faults, each of which has its own number. At most all faults are drawn."""
    (few, again, other), every = (
        [mutated(ABSORBED, "bench", {"whole": REST}, count, seed, tmp_path).faults for seed in seeds]
        for count, seeds in ((10, (1, 1, 2)), (10_000, (1,)))
    )
    assert few == again != other
    assert len(few) == 10 < len(every[0]) < 10_000
    assert {fault.command for fault in few} < {fault.command for fault in every[0]}
    assert [fault.number for fault in few] == [*range(1, 11)]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("command", "same"),
    [
        ("const0 -module bench -cell $2 -port Y -portbit 1", True),
        ("cnot1 -module bench -cell $2 -port B -portbit 0 -ctrlbit 2", True),
        ("const1 -module bench -cell $2 -port Y -portbit 1", False),
        ("inv -module bench -cell $3 -port A -portbit 3", False),
    ],
)
def test_proofs(tmp_path: Path, command: str, same: bool) -> None:
    mutated(ABSORBED, "bench", {"whole": REST}, 1, 0, tmp_path)
    fault = Fault(1, "whole", f"mutate -mode {command}")
    assert settled("bench", [fault], tmp_path, PATIENCE) == {fault: VERDICTS[same]}


@pytest.mark.regression
@pytest.mark.parametrize(
    ("command", "same"),
    [
        ("const0 -module bench -cell $3 -port Y -portbit 5", True),  # the fault does not change the multiplier's inputs
        ("inv -module bench -cell $4 -port Y -portbit 0", True),  # the multiplier does not read bit 0
        ("inv -module bench -cell $4 -port Y -portbit 5", False),
    ],
)
def test_proofs_around_a_multiplier(tmp_path: Path, command: str, same: bool) -> None:
    """The faulty cell drives a multiplier. No solver ends this proof in time unless the multiplier is a black box."""
    part, whole, product = Module(), Module(), Signal(23, name="product")
    x, a, b = Signal(24, name="x"), Signal(24, name="a"), Signal(24, name="b")
    part.d.comb += product.eq(x[1:13] * x[13:])
    result = Signal(23, name="result")
    whole.submodules.part = Instance("bench_unit", i_x=a | (a & b), o_product=result)
    text = to_rtlil(whole, "bench", ports=[a, b, result]) + "\n" + to_rtlil(part, "bench_unit", ports=[x, product])
    mutated(text, "bench", {"whole": REST}, 1, 0, tmp_path, whole="bench_unit")
    (verdict,) = settled("bench", [Fault(1, "whole", f"mutate -mode {command}")], tmp_path, PATIENCE).values()
    assert (verdict is Verdict.EQUIVALENT) == same


@pytest.mark.parametrize(
    ("command", "same"),
    [
        ("const0 -port A -portbit 1", True),  # the fault turns code 7 into 5, but 7 never occurs
        ("const1 -port A -portbit 1", False),
        ("const0 -port A -portbit 2", False),
        ("inv -port Y -portbit 0", False),
    ],
)
def test_proofs_use_assumptions(tmp_path: Path, command: str, same: bool) -> None:
    code, held, result, m = Signal(3, name="code"), Signal(3), Signal(4, name="result"), Module()
    m.submodules.assumption = assumption = Module()
    assumption.d.comb += Assume(code < 7)
    m.d.sync += held.eq(code)
    m.d.comb += result.eq(Mux(held == 5, held, 9))
    mutated(to_rtlil(m, "bench", ports=[code, result]), "bench", {"whole": REST}, 1, 0, tmp_path)
    fault = fault_at(tmp_path, "eq", command)
    assert settled("bench", [fault], tmp_path, PATIENCE) == {fault: VERDICTS[same]}


def test_a_fault_whose_condition_never_holds_is_equivalent(tmp_path: Path) -> None:
    """The fault inverts a bit of ``2 << held`` if the lowest bit of this number is one, which never happens."""
    code, held, result, m = Signal(2, name="code"), Signal(2), Signal(5, name="result"), Module()
    m.d.sync += held.eq(code)
    m.d.comb += result.eq(Const(2, 2) << held)
    mutated(to_rtlil(m, "bench", ports=[code, result]), "bench", {"whole": REST}, 1, 0, tmp_path)
    fault = fault_at(tmp_path, "shl", "cnot1 -port Y -portbit 2 -ctrlbit 0")
    assert settled("bench", [fault], tmp_path, PATIENCE) == {fault: Verdict.EQUIVALENT}


def written_word(assumed: int) -> str:
    """Return the RTLIL of a register of eight bits, whose bits in the mask `assumed` are assumed to be zero."""
    m, (a, b) = Module(), (Signal(name=name) for name in "ab")
    word, held, result = (Signal(8, name=name) for name in ("word", "held", "result"))
    m.submodules.assumption = assumption = Module()
    assumption.d.comb += Assume((word & assumed) == 0)
    with m.If(a | (a & b)):
        m.d.sync += held.eq(word)
    m.d.comb += result.eq(held)
    return to_rtlil(m, "bench", ports=[a, b, word, result])


@pytest.mark.parametrize("largest", [0, 5000])
@pytest.mark.parametrize(("assumed", "verdict"), [(0xFF, Verdict.EQUIVALENT), (0x0F, Verdict.TOLD_APART)])
def test_bits_with_different_assumptions_are_proved_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, assumed: int, verdict: Verdict, largest: int
) -> None:
    """Without writes, only bits that an assumption keeps zero are right, even if a slice omits the assumption."""
    monkeypatch.setattr(slices, "_LARGEST_ASSUMPTION", largest)
    mutated(written_word(assumed), "bench", {"whole": REST}, 1, 0, tmp_path)
    fault = fault_at(tmp_path, "or", "const0 -port Y -portbit 0")
    assert settled("bench", [fault], tmp_path, PATIENCE) == {fault: verdict}


def test_one_bit_of_a_word_is_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search of whole slices proves one of eight claims about a word, since the claims differ only in the data."""
    counts, write, answers = [], slices.Slices.write, ["Networks are UNDECIDED.", "UNSATISFIABLE"]

    def observed(self: slices.Slices, path: Path, claims: list[slices.Claim], *arguments: Any, **options: Any) -> None:
        counts.append(len(claims))
        write(self, path, claims, *arguments, **options)

    monkeypatch.setattr(slices.Slices, "write", observed)
    monkeypatch.setattr(equivalence, "run_abc", lambda *_: answers.pop(0))
    mutated(written_word(0), "bench", {"whole": REST}, 1, 0, tmp_path)
    fault = fault_at(tmp_path, "and", "const0 -port Y -portbit 0")
    assert settled("bench", [fault], tmp_path, PATIENCE) == {fault: Verdict.EQUIVALENT}
    assert counts == [8, 1]


@pytest.mark.parametrize(
    ("cell", "command", "same"),
    [("and", "const0 -port Y -portbit 0", True), ("or", "const0 -port A -portbit 0", False)],
)
def test_short_slices_have_few_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: str, command: str, same: bool
) -> None:
    """The first search reads back two cycles of two delay lines of nine cycles each, which suffices for a proof."""
    m, inputs, result = Module(), [Signal(name=name) for name in "ab"], Signal(name="result")
    outputs = []
    for value in inputs:
        for _ in range(9):
            m.d.sync += (delayed := Signal(reset_less=True)).eq(value)
            value = delayed
        outputs.append(value)
    m.d.comb += result.eq(outputs[0] | (outputs[0] & outputs[1]))
    mutated(to_rtlil(m, "bench", ports=[*inputs, result]), "bench", {"whole": REST}, 1, 0, tmp_path)
    headers, prove = [], equivalence.run_abc

    def observed(folder: Path, file: str, *arguments: Any) -> str:
        headers.append((folder / file).read_bytes().split()[:4])
        return prove(folder, file, *arguments)

    monkeypatch.setattr(equivalence, "run_abc", observed)
    fault = fault_at(tmp_path, cell, command)
    assert settled("bench", [fault], tmp_path, PATIENCE) == {fault: VERDICTS[same]}
    (_, _, free, registers), *others = headers
    assert (int(free), int(registers), bool(others)) == (2, 4, not same)


@pytest.mark.regression
@pytest.mark.parametrize("top", [top for top in ITEMS if top != "row"])
def test_a_detected_fault_is_not_equivalent(injected: Callable, top: str) -> None:
    """The first proof that ends in time gives a counterexample for a detected fault. test_pipelines.py tests rows."""
    of_top, folder = injected(top)
    killed = [fault for fault in of_top.netlist.faults if of_top.first_failure(fault) is not None]
    verdicts = (settled(TOP, [fault], folder, 60)[fault] for fault in killed[:: max(1, len(killed) // 8)])
    assert next(verdict for verdict in verdicts if verdict is not Verdict.UNDECIDED) is Verdict.TOLD_APART


def test_what_is_not_decided_is_not_equivalent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutated(ABSORBED, "bench", {"whole": REST}, 1, 0, tmp_path)
    monkeypatch.setattr(equivalence, "run_abc", lambda *_: "Networks are UNDECIDED.")
    fault = Fault(1, "whole", "mutate -mode inv -module bench -cell $3 -port A -portbit 3")
    assert settled("bench", [fault], tmp_path, PATIENCE) == {fault: Verdict.UNDECIDED}

    def late(*_: object) -> str:
        raise TimeoutError

    monkeypatch.setattr(equivalence, "run_abc", late)
    assert settled("bench", [fault], tmp_path, PATIENCE) == {fault: Verdict.UNDECIDED}


def answers(folder: Path, file: str, selected: Iterable[str]) -> list[str]:
    """Evaluate :data:`ABSORBED` in Yosys for all values of `a` and three of `b`; return its outputs for each fault."""
    every = product(selected, range(16), (0, 6, 9))
    evaluated = "".join(f"eval -set a {a} -set b {b} {select} -show y\n" for select, a, b in every)
    result = run_yosys(folder, f"read_verilog {file}\nhierarchy -top bench\nproc\nopt_clean\n{evaluated}")
    matches = re.findall(r"Eval result: \\y = (\S+)\.", result)
    return [" ".join(matches[start : start + 48]) for start in range(0, len(matches), 48)]


def test_each_number_selects_its_fault(tmp_path: Path) -> None:
    """Number 0 selects no fault. A design with one permanent fault gives the same outputs as the selected fault."""
    faults = mutated(ABSORBED, "bench", {"whole": REST}, 12, 0, tmp_path).faults
    right, *wrong = answers(tmp_path, "faulty.v", [f"-set {SELECT} {number}" for number in range(len(faults) + 1)])
    assert right == " ".join(f"4'{a:04b}" for a in range(16) for _ in range(3))
    assert sum(found != right for found in wrong) >= 6
    for fault, found in zip(faults, wrong, strict=True):
        (tmp_path / "alone.v").write_text(faulty_verilog(fault, tmp_path), encoding="utf-8")
        assert answers(tmp_path, "alone.v", [""]) == [found], str(fault)


def test_every_cell_is_as_likely_and_no_clock_is_a_fault(rng: np.random.Generator) -> None:
    wide = [f"mutate -mode inv -module m -cell wide -port A -portbit {bit}" for bit in range(1000)]
    narrow = ["mutate -mode inv -module m -cell narrow -port A -portbit 0"]
    assert 60 < sum(narrow == fault for fault in [mutants._draw([*wide, *narrow], 1, rng) for _ in range(200)]) < 140
    lines = [f"mutate -mode inv -module m -cell register -port {port} -portbit 0" for port in ("CLK", "D", "EN")]
    assert sorted(mutants._draw(lines, 3, rng)) == [lines[1], lines[2]]


@pytest.mark.parametrize(
    ("areas", "count", "shares"),
    [([100, 300], 8, [2, 6]), ([1, 999], 8, [1, 8]), ([1, 1, 998], 120, [10, 10, 120]), ([5], 7, [7])],
)
def test_shares_follow_areas(areas: list[int], count: int, shares: list[int]) -> None:
    assert mutants._shares(areas, count) == shares


def test_areas_of_components(tmp_path: Path) -> None:
    """The area of a component is its number of transistors: six per bit of an AND or an OR, and two of an inverter."""
    ands, whole = Module(), Module()
    a, b, y, anded = (Signal(4, name=name) for name in ("a", "b", "y", "anded"))
    ands.d.comb += anded.eq(a & b)
    whole.submodules.ands = ands
    whole.d.comb += y.eq(a | ~anded)
    text = to_rtlil(whole, "bench", ports=[a, b, y])
    result = mutated(text, "bench", {"and_": ("ands",), "or_": REST}, 8, 0, tmp_path)
    assert result.areas == {"and_": 24, "or_": 32}
    cells = {name: {f.command.split()[6] for f in result.faults if f.component == name} for name in result.areas}
    assert all("ands" in cell for cell in cells["and_"])
    assert not any("ands" in cell for cell in cells["or_"])
    only = mutated(text, "bench", {"or_": REST, UNTOUCHED: ("ands",)}, 8, 0, tmp_path)
    assert {fault.component for fault in only.faults} == {"or_"}
    assert not any("ands" in fault.command for fault in only.faults)
    with pytest.raises(BackendError, match="component none of the design has no cells"):
        mutated(ABSORBED, "bench", {"none": ("nothing",)}, 8, 0, tmp_path)

"""Faults of the proof engines and of the reports of proofs."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import Change, computes, fault, instead, register_all


@instead("formal.harness.claim", "formal.harness", "Harness.claim")
def _(harness: Any, right: Any, self: Any, name: str, condition: Any) -> None:
    """A claim is entered as a cover, so that nothing can violate it."""
    held = ~self._started | harness.Value.cast(condition).bool()
    self.m.d.comb += harness.Cover(self._flag(f"claim_{name}", held))
    self.claims.append(f"claim_{name}")


@instead("formal.harness.reset", "formal.harness", "Harness.clocked")
def _(harness: Any, right: Any, self: Any, *, any_state: bool = False) -> Any:
    """A proof from any initial state assumes that the reset is active in every cycle, not only in the first."""
    reset = right(self, any_state=any_state)
    if any_state:
        self.assume(reset)
    return reset


@instead("formal.model.together", "formal.model", "Model.violation")
def _(model: Any, right: Any, self: Any, claims: Sequence[str], steps: int) -> Any:
    """Each claim is checked under the assumption that all other claims hold in the same cycle."""
    for step in range(steps):
        self._unroll(step + 1)
        held = [f"(|top_n {claim}| s{step})" for claim in claims]
        for place, claim in enumerate(held):
            if self._possible(" ".join(["(and (not", claim + ")", *held[:place], *held[place + 1 :], "true)"])):
                return self._trace(step + 1)
    return None


@instead("formal.model.assumptions", "formal.model", "Model._unroll")
def _(model: Any, right: Any, self: Any, steps: int) -> None:
    """Assumptions hold only in the first cycle of a run."""
    while self._steps < steps:
        step = self._steps
        self._parse(f"(declare-fun s{step} () |top_s|)\n")
        self._assert(f"(|top_h| s{step})")
        self._assert(f"(|top_t| s{step - 1} s{step})" if step else "(and (|top_i| s0) (|top_u| s0))")
        self._steps += 1


@fault("formal.abc.first", "formal.abc")
def _(abc: Any, change: Change) -> None:
    """Only the first of several claims is checked."""
    soon, after = abc._broken_soon, abc._broken_after
    change(abc, "_broken_soon", lambda folder, claims, seconds: soon(folder, claims[:1], seconds))
    change(abc, "_broken_after", lambda folder, claims, seconds: after(folder, claims[:1], seconds))


@instead("formal.abc.undecided", "formal.abc", "_broken_after")
def _(abc: Any, right: Any, folder: Path, claims: range, seconds: float) -> int | None:
    """A claim that ABC's reachability analysis does not decide before the time limit counts as proved."""
    try:
        return right(folder, claims, seconds)
    except abc.UndecidedError:
        return None


@instead("formal.abc.apart", "formal.abc", "_broken_after")
def _(abc: Any, right: Any, folder: Path, claims: range, seconds: float) -> int | None:
    """If the claims are too hard to prove together, only the first is then proved alone; the others count as proved."""
    first = int((folder / abc.BINARY_GRAPH).read_bytes().split()[4])
    return right(folder, claims, seconds) if len(claims) > 1 or claims.start == first else None


@instead("formal.exhaustive.blocks", "formal.exhaustive", "first_violation")
def _(exhaustive: Any, right: Any, path: Path) -> dict[str, int] | None:
    """Only the first batch of assignments of values to the inputs is tried."""
    result = right(path)
    assignment = sum(bit << place for place, bit in enumerate((result or {}).values()))
    return None if assignment >= 64 * exhaustive._WORDS else result


@instead("formal.proof.vacuous", "formal.proof", "_covers")
def _(proof: Any, right: Any, *arguments: Any) -> dict[str, int | None]:
    """If one cover is reached, all covers count as reached."""
    found: dict[str, int | None] = right(*arguments)
    return dict.fromkeys(found, next((cycles for cycles in found.values() if cycles), None))


@instead("formal.properties.described", "formal.properties", "cases")
def _(properties: Any, right: Any, chosen: Iterable[Any], presets: Iterable[Any]) -> list[Any]:
    """Of several parameter sets that have equal text in the printed table, only the first is proved."""
    found: dict[tuple[str, str], Any] = {}
    for case in right(chosen, presets):
        key = case.subject.name, case.described
        presets = (found[key].presets if key in found else ()) + case.presets
        found[key] = properties.replace(found.get(key, case), presets=presets)
    return list(found.values())


@fault("formal.properties.anonymous", "formal.properties")
def _(properties: Any, change: Change) -> None:
    """Units with equal alignment but different formats count as equal, so only one of them is proved."""
    first: dict[Any, Any] = {}

    def anonymous(config: Any) -> Any:
        key = config.step_bytes, config.alignment_bits, config.fp8_alignment_bits, config.mux
        return first.setdefault(key, properties.replace(config, name="unit", rows=1, columns=1))

    change(properties, "anonymous", anonymous)


@instead("formal.report.total", "formal.report", "Table.row")
def _(report: Any, right: Any, self: Any, outcome: Any) -> str:
    """The totals of the report count every claim that is not violated as proved, even an undecided claim."""
    line = right(self, outcome)
    if outcome.result != "broken":
        self._results[-1] = "proved"
    return str(line)


register_all(computes, [
    ("formal.model.undecided", "formal.model", "Model._possible",
     "A condition that the solver does not decide before the time limit counts as impossible.",
     lambda model, right, self, condition:
         bool(self._solver.check_sat(self._parser.parse_term(condition)) == self._results.SAT)),
    ("formal.abc.soon", "formal.abc", "_broken_soon", "A claim without a short counterexample counts as proved.",
     lambda abc, right, folder, claims, seconds:
         abc._cycles(abc._run(folder, f"cone -O {claims.start} -R {len(claims)}; {abc._INDUCTION}", seconds))),
    ("formal.abc.frame", "formal.abc", "reached_after",
     "The cycles until a cover is reached are counted from 0, not from 1.",
     lambda abc, right, *arguments: (cycles := right(*arguments)) and cycles - 1),
    ("formal.proof.last", "formal.proof", "Model.violation",
     "Only the last of several claims is checked by the solver.",
     lambda proof, right, self, claims, steps: right(self, claims[-1:], steps)),
    ("formal.report.cycles", "formal.report", "counterexample",
     "The report of a long counterexample shows its first cycles, not the cycles in which the claim is violated.",
     lambda report, right, outcome: right(replace(outcome, values=outcome.values[: report._SHOWN_CYCLES]))),
    ("formal.report.waves", "formal.report", "write_trace",
     "Every cycle of the waveform shows the values of the first cycle.",
     lambda report, right, trace, path:
         right(report.Trace(trace.widths, trace.steps[:1] * len(trace.steps)), path)),
    ("formal.abc.satisfiable", "formal.abc", "_cycles", "ABC's answer UNSATISFIABLE is read as SATISFIABLE.",
     lambda abc, right, text: int(asserted[1]) + 1
     if (asserted := re.search(r"was asserted in frame (\d+)", text)) else 1 if "SATISFIABLE" in text else None),
    ("formal.exhaustive.last", "formal.exhaustive", "first_violation",
     "The last assignment of values to the inputs is never tried.",
     lambda exhaustive, right, path: None if (result := right(path)) and all(result.values()) else result),
])  # fmt: skip

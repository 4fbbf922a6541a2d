"""Faults of what proves."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from . import Change, fault


@fault("formal.harness.claim", "formal.harness")
def _(harness: Any, change: Change) -> None:
    """A claim is entered as what should be possible, so that no graph has anything to break."""

    def claim(self: Any, name: str, condition: Any) -> None:
        held = ~self._started | harness.Value.cast(condition).bool()
        self.m.d.comb += harness.Cover(self._flag(f"claim_{name}", held))
        self.claims.append(f"claim_{name}")

    change(harness.Harness, "claim", claim)


@fault("formal.harness.reset", "formal.harness")
def _(harness: Any, change: Change) -> None:
    """Of registers that begin anyhow every cycle is assumed to be one of reset, not the first alone."""
    right = harness.Harness.clocked

    def clocked(self: Any, *, any_state: bool = False) -> Any:
        reset = right(self, any_state=any_state)
        if any_state:
            self.assume(reset)
        return reset

    change(harness.Harness, "clocked", clocked)


@fault("formal.model.together", "formal.model")
def _(model: Any, change: Change) -> None:
    """Each claim is asked with all others taken for granted."""

    def violation(self: Any, claims: Sequence[str], steps: int) -> Any:
        for step in range(steps):
            self._unroll(step + 1)
            held = [f"(|top_n {claim}| s{step})" for claim in claims]
            for place, claim in enumerate(held):
                if self._possible(" ".join(["(and (not", claim + ")", *held[:place], *held[place + 1 :], "true)"])):
                    return self._trace(step + 1)
        return None

    change(model.Model, "violation", violation)


@fault("formal.model.assumptions", "formal.model")
def _(model: Any, change: Change) -> None:
    """Assumptions count in the first cycle of a run alone."""

    def unroll(self: Any, steps: int) -> None:
        while self._steps < steps:
            step = self._steps
            self._parse(f"(declare-fun s{step} () |top_s|)\n")
            self._assert(f"(|top_h| s{step})")
            self._assert(f"(|top_t| s{step - 1} s{step})" if step else "(and (|top_i| s0) (|top_u| s0))")
            self._steps += 1

    change(model.Model, "_unroll", unroll)


@fault("formal.model.undecided", "formal.model")
def _(model: Any, change: Change) -> None:
    """What the solver did not decide in its time is taken to be impossible."""

    def possible(self: Any, condition: str) -> bool:
        return bool(self._solver.check_sat(self._parser.parse_term(condition)) == self._results.SAT)

    change(model.Model, "_possible", possible)


@fault("formal.abc.first", "formal.abc")
def _(abc: Any, change: Change) -> None:
    """Of several claims the first alone is asked."""
    soon, after = abc._broken_soon, abc._broken_after
    change(abc, "_broken_soon", lambda folder, claims, seconds: soon(folder, claims[:1], seconds))
    change(abc, "_broken_after", lambda folder, claims, seconds: after(folder, claims[:1], seconds))


@fault("formal.abc.soon", "formal.abc")
def _(abc: Any, change: Change) -> None:
    """What no short run breaks is taken to be proved."""

    def broken_soon(folder: Path, claims: range, seconds: float) -> int | None:
        commands = f"cone -O {claims.start} -R {len(claims)}; " + abc._INDUCTION.format(seconds=abc.ceil(seconds))
        return abc._cycles(abc._run(folder, commands, seconds))

    change(abc, "_broken_soon", broken_soon)


@fault("formal.abc.undecided", "formal.abc")
def _(abc: Any, change: Change) -> None:
    """What reachability did not decide in its time is taken to be proved."""

    def broken_after(folder: Path, claims: range, seconds: float) -> int | None:
        commands = f"cone -O {claims.start} -R {len(claims)}; " + abc._PROVE.format(seconds=abc.ceil(seconds))
        return abc._cycles(abc._run(folder, commands, seconds))

    change(abc, "_broken_after", broken_after)


@fault("formal.abc.apart", "formal.abc")
def _(abc: Any, change: Change) -> None:
    """Claims that are too much at once are not asked one by one, but the first alone."""
    right = abc._broken_after

    def broken_after(folder: Path, claims: range, seconds: float) -> int | None:
        first = int((folder / abc.BINARY_GRAPH).read_bytes().split()[4])
        return right(folder, claims, seconds) if len(claims) > 1 or claims.start == first else None

    change(abc, "_broken_after", broken_after)


@fault("formal.abc.satisfiable", "formal.abc")
def _(abc: Any, change: Change) -> None:
    """The answer UNSATISFIABLE is read as SATISFIABLE."""

    def cycles(text: str) -> int | None:
        asserted = re.search(r"was asserted in frame (\d+)", text)
        return int(asserted[1]) + 1 if asserted else 1 if "SATISFIABLE" in text else None

    change(abc, "_cycles", cycles)


@fault("formal.abc.frame", "formal.abc")
def _(abc: Any, change: Change) -> None:
    """The cycle of a cover is counted from 0."""
    right = abc.reached_after

    def reached_after(folder: Path, output: int, cycles: int, seconds: float) -> int | None:
        found = right(folder, output, cycles, seconds)
        return found and found - 1

    change(abc, "reached_after", reached_after)


@fault("formal.exhaustive.last", "formal.exhaustive")
def _(exhaustive: Any, change: Change) -> None:
    """The last assignment is never tried."""
    right = exhaustive.first_violation

    def first_violation(path: Path) -> dict[str, int] | None:
        found = right(path)
        return None if found and all(found.values()) else found

    change(exhaustive, "first_violation", first_violation)


@fault("formal.exhaustive.blocks", "formal.exhaustive")
def _(exhaustive: Any, change: Change) -> None:
    """Only as many assignments are tried as are looked at in one go."""
    right = exhaustive.first_violation

    def first_violation(path: Path) -> dict[str, int] | None:
        found = right(path)
        assignment = sum(bit << place for place, bit in enumerate((found or {}).values()))
        return None if assignment >= 64 * exhaustive._WORDS else found

    change(exhaustive, "first_violation", first_violation)


@fault("formal.proof.vacuous", "formal.proof")
def _(proof: Any, change: Change) -> None:
    """One cover that is reached stands for all."""
    right = proof._covers

    def covers(*arguments: Any) -> dict[str, int | None]:
        found: dict[str, int | None] = right(*arguments)
        some = next((cycles for cycles in found.values() if cycles), None)
        return dict.fromkeys(found, some)

    change(proof, "_covers", covers)


@fault("formal.proof.last", "formal.proof")
def _(proof: Any, change: Change) -> None:
    """Of several claims the last alone is put to the solver."""
    right = proof.Model.violation
    change(proof.Model, "violation", lambda self, claims, steps: right(self, claims[-1:], steps))


@fault("formal.properties.described", "formal.properties")
def _(properties: Any, change: Change) -> None:
    """Parameters that look alike in the table are taken for equal, and proved once."""
    right = properties.cases

    def cases(chosen: Iterable[Any], presets: Iterable[Any]) -> list[Any]:
        found: dict[tuple[str, str], Any] = {}
        for case in right(chosen, presets):
            key = case.subject.name, case.described
            presets = (found[key].presets if key in found else ()) + case.presets
            found[key] = properties.replace(found.get(key, case), presets=presets)
        return list(found.values())

    change(properties, "cases", cases)


@fault("formal.properties.anonymous", "formal.properties")
def _(properties: Any, change: Change) -> None:
    """Units that align alike but differ in their formats count as equal."""
    first: dict[Any, Any] = {}

    def anonymous(config: Any) -> Any:
        key = config.step_bytes, config.alignment_bits, config.fp8_alignment_bits, config.mux
        return first.setdefault(key, properties.replace(config, name="unit", rows=1, columns=1))

    change(properties, "anonymous", anonymous)


@fault("formal.report.cycles", "formal.report")
def _(report: Any, change: Change) -> None:
    """Of a long run the first cycles are shown, not those in which the claim breaks."""
    right = report.counterexample

    def counterexample(outcome: Any) -> str:
        from dataclasses import replace

        return str(right(replace(outcome, values=outcome.values[: report._SHOWN_CYCLES])))

    change(report, "counterexample", counterexample)


@fault("formal.report.waves", "formal.report")
def _(report: Any, change: Change) -> None:
    """Waves hold still: each cycle shows the values of the first."""
    right = report.write_trace

    def write_trace(trace: Any, path: Path) -> None:
        right(report.Trace(trace.widths, trace.steps[:1] * len(trace.steps)), path)

    change(report, "write_trace", write_trace)


@fault("formal.report.total", "formal.report")
def _(report: Any, change: Change) -> None:
    """What is not broken is added up as proved."""
    right = report.Table.row

    def row(self: Any, outcome: Any) -> str:
        line = right(self, outcome)
        if outcome.result != "broken":
            self._results[-1] = "proved"
        return str(line)

    change(report.Table, "row", row)

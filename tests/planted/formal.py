"""Faults of what proves."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from . import Change, fault, instead


@instead("formal.harness.claim", "formal.harness", "Harness.claim")
def _(harness: Any, right: Any, self: Any, name: str, condition: Any) -> None:
    """A claim is entered as what should be possible, so that no graph has anything to break."""
    held = ~self._started | harness.Value.cast(condition).bool()
    self.m.d.comb += harness.Cover(self._flag(f"claim_{name}", held))
    self.claims.append(f"claim_{name}")


@instead("formal.harness.reset", "formal.harness", "Harness.clocked")
def _(harness: Any, right: Any, self: Any, *, any_state: bool = False) -> Any:
    """Of registers that begin anyhow every cycle is assumed to be one of reset, not the first alone."""
    reset = right(self, any_state=any_state)
    if any_state:
        self.assume(reset)
    return reset


@instead("formal.model.together", "formal.model", "Model.violation")
def _(model: Any, right: Any, self: Any, claims: Sequence[str], steps: int) -> Any:
    """Each claim is asked with all others taken for granted."""
    for step in range(steps):
        self._unroll(step + 1)
        held = [f"(|top_n {claim}| s{step})" for claim in claims]
        for place, claim in enumerate(held):
            if self._possible(" ".join(["(and (not", claim + ")", *held[:place], *held[place + 1 :], "true)"])):
                return self._trace(step + 1)
    return None


@instead("formal.model.assumptions", "formal.model", "Model._unroll")
def _(model: Any, right: Any, self: Any, steps: int) -> None:
    """Assumptions count in the first cycle of a run alone."""
    while self._steps < steps:
        step = self._steps
        self._parse(f"(declare-fun s{step} () |top_s|)\n")
        self._assert(f"(|top_h| s{step})")
        self._assert(f"(|top_t| s{step - 1} s{step})" if step else "(and (|top_i| s0) (|top_u| s0))")
        self._steps += 1


@instead("formal.model.undecided", "formal.model", "Model._possible")
def _(model: Any, right: Any, self: Any, condition: str) -> bool:
    """What the solver did not decide in its time is taken to be impossible."""
    return bool(self._solver.check_sat(self._parser.parse_term(condition)) == self._results.SAT)


@fault("formal.abc.first", "formal.abc")
def _(abc: Any, change: Change) -> None:
    """Of several claims the first alone is asked."""
    soon, after = abc._broken_soon, abc._broken_after
    change(abc, "_broken_soon", lambda folder, claims, seconds: soon(folder, claims[:1], seconds))
    change(abc, "_broken_after", lambda folder, claims, seconds: after(folder, claims[:1], seconds))


@instead("formal.abc.soon", "formal.abc", "_broken_soon")
def _(abc: Any, right: Any, folder: Path, claims: range, seconds: float) -> int | None:
    """What no short run breaks is taken to be proved."""
    commands = f"cone -O {claims.start} -R {len(claims)}; " + abc._INDUCTION.format(seconds=abc.ceil(seconds))
    return abc._cycles(abc._run(folder, commands, seconds))


@instead("formal.abc.undecided", "formal.abc", "_broken_after")
def _(abc: Any, right: Any, folder: Path, claims: range, seconds: float) -> int | None:
    """What reachability did not decide in its time is taken to be proved."""
    commands = f"cone -O {claims.start} -R {len(claims)}; " + abc._PROVE.format(seconds=abc.ceil(seconds))
    return abc._cycles(abc._run(folder, commands, seconds))


@instead("formal.abc.apart", "formal.abc", "_broken_after")
def _(abc: Any, right: Any, folder: Path, claims: range, seconds: float) -> int | None:
    """Claims that are too much at once are not asked one by one, but the first alone."""
    first = int((folder / abc.BINARY_GRAPH).read_bytes().split()[4])
    return right(folder, claims, seconds) if len(claims) > 1 or claims.start == first else None


@instead("formal.abc.satisfiable", "formal.abc", "_cycles")
def _(abc: Any, right: Any, text: str) -> int | None:
    """The answer UNSATISFIABLE is read as SATISFIABLE."""
    asserted = re.search(r"was asserted in frame (\d+)", text)
    return int(asserted[1]) + 1 if asserted else 1 if "SATISFIABLE" in text else None


@instead("formal.abc.frame", "formal.abc", "reached_after")
def _(abc: Any, right: Any, folder: Path, output: int, cycles: int, seconds: float) -> int | None:
    """The cycle of a cover is counted from 0."""
    found = right(folder, output, cycles, seconds)
    return found and found - 1


@instead("formal.exhaustive.last", "formal.exhaustive", "first_violation")
def _(exhaustive: Any, right: Any, path: Path) -> dict[str, int] | None:
    """The last assignment is never tried."""
    found = right(path)
    return None if found and all(found.values()) else found


@instead("formal.exhaustive.blocks", "formal.exhaustive", "first_violation")
def _(exhaustive: Any, right: Any, path: Path) -> dict[str, int] | None:
    """Only as many assignments are tried as are looked at in one go."""
    found = right(path)
    assignment = sum(bit << place for place, bit in enumerate((found or {}).values()))
    return None if assignment >= 64 * exhaustive._WORDS else found


@instead("formal.proof.vacuous", "formal.proof", "_covers")
def _(proof: Any, right: Any, *arguments: Any) -> dict[str, int | None]:
    """One cover that is reached stands for all."""
    found: dict[str, int | None] = right(*arguments)
    some = next((cycles for cycles in found.values() if cycles), None)
    return dict.fromkeys(found, some)


@instead("formal.proof.last", "formal.proof", "Model.violation")
def _(proof: Any, right: Any, self: Any, claims: Any, steps: Any) -> Any:
    """Of several claims the last alone is put to the solver."""
    return right(self, claims[-1:], steps)


@instead("formal.properties.described", "formal.properties", "cases")
def _(properties: Any, right: Any, chosen: Iterable[Any], presets: Iterable[Any]) -> list[Any]:
    """Parameters that look alike in the table are taken for equal, and proved once."""
    found: dict[tuple[str, str], Any] = {}
    for case in right(chosen, presets):
        key = case.subject.name, case.described
        presets = (found[key].presets if key in found else ()) + case.presets
        found[key] = properties.replace(found.get(key, case), presets=presets)
    return list(found.values())


@fault("formal.properties.anonymous", "formal.properties")
def _(properties: Any, change: Change) -> None:
    """Units that align alike but differ in their formats count as equal."""
    first: dict[Any, Any] = {}

    def anonymous(config: Any) -> Any:
        key = config.step_bytes, config.alignment_bits, config.fp8_alignment_bits, config.mux
        return first.setdefault(key, properties.replace(config, name="unit", rows=1, columns=1))

    change(properties, "anonymous", anonymous)


@instead("formal.report.cycles", "formal.report", "counterexample")
def _(report: Any, right: Any, outcome: Any) -> str:
    """Of a long run the first cycles are shown, not those in which the claim breaks."""
    from dataclasses import replace

    return str(right(replace(outcome, values=outcome.values[: report._SHOWN_CYCLES])))


@instead("formal.report.waves", "formal.report", "write_trace")
def _(report: Any, right: Any, trace: Any, path: Path) -> None:
    """Waves hold still: each cycle shows the values of the first."""
    right(report.Trace(trace.widths, trace.steps[:1] * len(trace.steps)), path)


@instead("formal.report.total", "formal.report", "Table.row")
def _(report: Any, right: Any, self: Any, outcome: Any) -> str:
    """What is not broken is added up as proved."""
    line = right(self, outcome)
    if outcome.result != "broken":
        self._results[-1] = "proved"
    return str(line)

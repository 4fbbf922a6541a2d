"""Reports of proofs: a table, JSON, and a trace for a waveform viewer."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vcd import VCDWriter

from ..infra.files import whole_file
from .model import Trace
from .proof import Outcome
from .properties import Case, Engine, Property
from .record import RECORD, read_record

__all__ = ["Table", "as_dict", "counterexample", "listed", "listed_as_dict", "write_trace"]

_CYCLE_PS = 1000
_SHOWN_CYCLES = 40
_HEAD = ("property", "of", "presets", "engine", "depth", "result", "seconds")
#: Presets for which the list of properties shows separate proof times.
_LISTED = ("tiny", "hopper")
#: Widths, in characters, of those table columns that are equally wide for all lists of proof cases.
_DECIDED_WIDTHS = (max(len(engine.value) for engine in Engine), len("all inputs"), len("undecided"), 0)


def as_dict(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome of a proof as plain values for JSON."""
    case = outcome.case
    return {
        "property": case.subject.name,
        "statement": case.subject.statement,
        "parameters": case.described,
        "presets": list(case.presets),
        "engine": outcome.engine,
        "depth": outcome.depth,
        "result": outcome.result,
        "seconds": round(outcome.seconds, 2),
        "covers": outcome.covers,
        "broken": list(outcome.broken),
        "counterexample": list(outcome.values),
    }


def _of_case(case: Case) -> tuple[str, str, str]:
    return case.subject.name, case.described, " ".join(case.presets)


class Table:
    """Table of proof results, which grows by one line per proof. The planned proofs, `cases`, set the column widths."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self._cases = len(cases)
        self._results: list[str] = []
        self._seconds = 0.0
        of_cases = zip(_HEAD, *map(_of_case, cases), strict=False)  # table columns as wide as their longest cell
        self._widths = [*(max(map(len, column)) for column in of_cases), *_DECIDED_WIDTHS]

    @property
    def head(self) -> str:
        """Header line of the result table."""
        return self._line(_HEAD)

    def row(self, outcome: Outcome) -> str:
        """Add the outcome of a proof to the totals, and return the table line for it."""
        self._results.append(outcome.result)
        self._seconds += outcome.seconds
        decided = outcome.engine, outcome.depth, outcome.result, f"{outcome.seconds:.1f}"
        return self._line((*_of_case(outcome.case), *decided))

    @property
    def total(self) -> str:
        """Last line of the result table, which contains totals."""
        counts = [f"{self._results.count(name)} {name}" for name in dict.fromkeys(["proved", *self._results])]
        left = self._cases - len(self._results)
        return f"{', '.join(counts)}{f'; {left} not tried' if left else ''}; {self._seconds:.0f} s of processor time"

    def _line(self, words: tuple[str, ...]) -> str:
        return "  ".join(word.ljust(width) for word, width in zip(words, self._widths, strict=True)).rstrip()


def counterexample(outcome: Outcome) -> str:
    """Return a failed proof as text, with the decoded values that change in the last cycles of the counterexample."""
    case = outcome.case
    lines = [f"{case.subject.name} of {case.described} is {outcome.result}: {case.subject.statement}"]
    if outcome.result == "vacuous":
        missing = [cover for cover, cycles in outcome.covers.items() if cycles is None]
        return "\n".join([*lines, f"  never reached: {', '.join(missing)}"])
    if outcome.broken:
        lines.append(f"  does not hold: {', '.join(claim.removeprefix('claim_') for claim in outcome.broken)}")
    before: dict[str, str] = {}
    for cycle, values in enumerate(outcome.values):
        changed = {name: value for name, value in values.items() if before.get(name) != value}
        before = values
        words = ", ".join(f"{name} = {value}" for name, value in changed.items())
        if len(outcome.values) - cycle <= _SHOWN_CYCLES:
            lines.append(f"  cycle {cycle}: {words}" if len(outcome.values) > 1 else f"  {words}")
    return "\n".join(lines)


def listed(properties: Sequence[Property]) -> str:
    """Return the names and statements of properties as text, with the recorded processor times of their proofs."""
    seconds = _recorded_seconds()
    lines = []
    for item in properties:
        lines += [item.name, f"    {item.statement}"]
        if taken := seconds.get(item.name):
            words = (f"{taken[name]:.1f} s for {name}" for name in _LISTED if name in taken)
            lines.append("    " + ", ".join([*words, f"{taken['every']:.1f} s for all of {', '.join(item.presets)}"]))
    return "\n".join([*lines, "", "All times are processor seconds of the recorded proofs."])


def listed_as_dict(properties: Sequence[Property]) -> dict[str, dict[str, Any]]:
    """Return names, statements, recorded processor times and presets of properties as plain values for JSON."""
    seconds = _recorded_seconds()
    return {
        item.name: {"statement": item.statement, "seconds": seconds.get(item.name), "presets": item.presets}
        for item in properties
    }


def _recorded_seconds() -> dict[str, dict[str, float]]:
    """Return the recorded seconds of each property, for the presets in `_LISTED` and for all presets together."""
    seconds: dict[str, dict[str, float]] = {}
    for proof in read_record(RECORD).proofs:
        taken = seconds.setdefault(proof.property, {})
        for name in ("every", *(preset for preset in _LISTED if preset in proof.presets)):
            taken[name] = round(taken.get(name, 0.0) + (proof.seconds or 0.0), 2)
    return seconds


def write_trace(trace: Trace, path: Path) -> None:
    """Write the counterexample of a failed proof as a VCD file. Raise a `FileError` if the file cannot be written."""
    with (
        whole_file(path) as file,
        io.TextIOWrapper(file, encoding="utf-8") as text,
        VCDWriter(text, timescale="1 ps") as writer,
    ):
        scopes = {name: name.rpartition(".") for name in trace.widths}
        variables = {
            name: writer.register_var(scope or "top", leaf.replace(" ", "_"), "wire", width)
            for (name, width), (scope, _, leaf) in zip(trace.widths.items(), scopes.values(), strict=True)
        }
        for cycle, values in enumerate(trace.steps):
            for name, variable in variables.items():
                writer.change(variable, cycle * _CYCLE_PS, values[name])
        writer.close(len(trace.steps) * _CYCLE_PS)

"""What proofs came to, as a table, as JSON, and as a trace for a waveform viewer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vcd import VCDWriter

from ..errors import FileError
from .model import Trace
from .proof import Outcome

__all__ = ["as_dict", "counterexample", "table", "write_trace"]

_CYCLE_PS = 1000
_SHOWN_CYCLES = 40


def as_dict(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain values."""
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


def table(outcomes: Sequence[Outcome]) -> str:
    """Return a line for each outcome, and a total."""
    rows = [("property", "of", "presets", "engine", "depth", "result", "seconds")]
    for outcome in outcomes:
        case = outcome.case
        presets = " ".join(case.presets)
        words = (case.subject.name, case.described, presets, outcome.engine, outcome.depth, outcome.result)
        rows.append((*words, f"{outcome.seconds:.1f}"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    results = [outcome.result for outcome in outcomes]
    counts = ", ".join(f"{results.count(name)} {name}" for name in dict.fromkeys(["proved", *results]))
    lines.append(f"{counts}; {sum(outcome.seconds for outcome in outcomes):.0f} s of work")
    return "\n".join(lines)


def counterexample(outcome: Outcome) -> str:
    """Return what went wrong, decoded: the values of each cycle, of many cycles those that change."""
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


def write_trace(trace: Trace, path: Path) -> None:
    """Write a run as a VCD file.

    Raises
    ------
    FileError
        The file cannot be written.
    """
    try:
        with path.open("w", encoding="utf-8") as file, VCDWriter(file, timescale="1 ps") as writer:
            scopes = {name: name.rpartition(".") for name in trace.widths}
            variables = {
                name: writer.register_var(scope or "top", leaf.replace(" ", "_"), "wire", width)
                for (name, width), (scope, _, leaf) in zip(trace.widths.items(), scopes.values(), strict=True)
            }
            for cycle, values in enumerate(trace.steps):
                for name, variable in variables.items():
                    writer.change(variable, cycle * _CYCLE_PS, values[name])
            writer.close(len(trace.steps) * _CYCLE_PS)
    except OSError as error:
        raise FileError(f"{path} cannot be written ({error.strerror})") from None

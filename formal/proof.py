"""Proof of a property: choose the engine, run it, and check that the claims are not vacuous."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import abc, exhaustive
from .harness import Harness
from .model import TEXT_GRAPH, Model, Trace, UndecidedError, written
from .properties import Case, Engine

__all__ = ["Outcome", "settle"]


@dataclass(frozen=True)
class Outcome:
    """Result of the proof of a property for one set of parameters."""

    case: Case
    engine: str  #: Name of the engine that decided the property
    depth: str  #: Scope of the proof: ``all inputs``, or ``no bound`` if the number of cycles is unlimited
    #: Status: ``proved``, ``broken``, ``undecided`` at the time limit, or ``vacuous`` if a cover is unreachable.
    result: str
    seconds: float  #: Processor time in seconds, solvers included
    #: Number of cycles after which each cover was reached, or None if the cover was not reached.
    covers: dict[str, int | None]
    trace: Trace | None  #: Run that breaks the property, or None if no such run was found
    #: For each cycle of the run that breaks the property: values of free and named signals, as text.
    values: tuple[dict[str, str], ...]
    broken: tuple[str, ...]  #: Names of the claims that are false in the last cycle of the run that breaks the property


def settle(case: Case, seconds: float | None) -> Outcome:
    """Try to prove a property. Each solver query may take `seconds`, or any time if `seconds` is None."""
    start = _processor_seconds()
    with tempfile.TemporaryDirectory() as scratch:
        harness, folder = case.harness(), Path(scratch)
        engine = Engine.REACHABILITY if harness.registers else case.subject.engine
        model = Model(written(harness, folder, graph=engine is not Engine.SOLVER), seconds)
        covers: dict[str, int | None] = {}
        try:
            trace = _counterexample(harness, engine, model, folder, seconds)
            result = "broken" if trace else "proved"
            if not trace:
                covers = _covers(harness, engine, model, folder, case.cycles, seconds)
                result = "vacuous" if None in covers.values() else result
        except UndecidedError:
            trace, result = None, "undecided"
    steps = trace.steps if trace else []
    return Outcome(
        case,
        engine.value,
        "no bound" if engine is Engine.REACHABILITY else "all inputs",
        result,
        _processor_seconds() - start,
        covers,
        trace,
        tuple(harness.decoded(step) for step in steps),
        tuple(claim for claim in harness.claims if steps and not steps[-1][claim]),
    )


def _processor_seconds() -> float:
    """Return the processor time in seconds of this process and of its finished child processes."""
    return sum(os.times()[:4])


def _counterexample(
    harness: Harness, engine: Engine, model: Model, folder: Path, seconds: float | None
) -> Trace | None:
    if engine is Engine.SOLVER:
        return model.violation(harness.claims, 1)
    if engine is Engine.EXHAUSTIVE:
        inputs = exhaustive.first_violation(folder / TEXT_GRAPH)
        return model.with_inputs(inputs) if inputs is not None else None
    cycles = abc.broken_after(folder, seconds)
    if cycles is None:
        return None
    trace = model.violation(harness.claims, cycles)
    if trace is None:  # ABC reports a broken claim, but Bitwuzla finds no run that breaks it: undecided
        raise UndecidedError
    return trace


def _covers(
    harness: Harness, engine: Engine, model: Model, folder: Path, cycles: int, seconds: float | None
) -> dict[str, int | None]:
    if engine is Engine.REACHABILITY:
        return {
            cover: abc.reached_after(folder, output, cycles, seconds) for output, cover in enumerate(harness.covers)
        }
    return {cover: 1 if model.reachable(cover) else None for cover in harness.covers}

"""Run the tool ABC on designs with registers: unbounded proofs of claims, and searches for cycles that reach covers."""

import re
from contextlib import suppress
from pathlib import Path

from ..infra.abc import run_abc
from .model import BINARY_GRAPH, UndecidedError

__all__ = ["broken_after", "reached_after"]

#: ABC commands of a proof: merge signals that provably agree over two cycles, then search for invariants. If no
#: registers remain, `iprove` only searches for an input assignment that breaks a claim.
_PROVE = "orpos; strash; scorr -F 2 -C 10000; dc2; scorr; pdr; iprove"
#: Limit, in seconds of processor time, of the ABC run that proves all claims together.
_TOGETHER = 150
#: ABC commands of two short runs. `bmc3` searches for a broken claim in the first cycles. `ind` checks whether the
#: claims are inductive: they hold in the first two cycles, and in each cycle that follows a cycle in which they hold.
#: Inductive claims need no search for invariants. Both runs stop after a number of solver conflicts, so results do not
#: depend on the load of the machine.
_INDUCTION = "orpos; strash; lcorr; bmc3 -F 12 -C 20000; ind -F 2 -C 500000"
_REACH = "strash; bmc3 -F {frames}; iprove"


def _run(folder: Path, commands: str, seconds: float | None) -> str:
    try:
        return run_abc(folder, BINARY_GRAPH, commands, seconds)
    except TimeoutError:
        raise UndecidedError from None


def broken_after(folder: Path, seconds: float | None) -> int | None:
    """Return the number of cycles after which a claim can break, or None if ABC proves that no claim can break.

    `folder` contains the and-inverter graph. Raise an `UndecidedError` if a query takes more than `seconds` of
    processor time.
    """
    with (folder / BINARY_GRAPH).open("rb") as graph:
        covers, _, claims = map(int, graph.readline().split()[4:7])
    if not claims:  # the graph contains no claim: when it was built, all claims were simplified to true
        return None
    all_claims = range(covers, covers + claims)
    with suppress(UndecidedError):
        return _broken_soon(folder, all_claims, seconds)
    # Prove all claims together, because they share invariants. If that fails, prove each claim alone, because a single
    # claim needs fewer invariants.
    with suppress(UndecidedError):
        return _broken_after(folder, all_claims, _TOGETHER if seconds is None else min(_TOGETHER, seconds))
    undecided = False
    for claim in all_claims:
        try:
            cycles = _broken_after(folder, range(claim, claim + 1), seconds)
        except UndecidedError:
            undecided = True  # the remaining claims are still tried, because one of them may break
            continue
        if cycles:
            return cycles
    if undecided:
        raise UndecidedError
    return None


def _broken_soon(folder: Path, claims: range, seconds: float | None) -> int | None:
    """Return the number of cycles after which a short ABC run breaks a claim, or None if all claims are inductive."""
    text = _run(folder, f"cone -O {claims.start} -R {len(claims)}; {_INDUCTION}", seconds)
    cycles = _cycles(text)
    if cycles is None and not (_unset_frames(text) >= 2 and "Networks are equivalent" in text):
        raise UndecidedError
    return cycles


def _broken_after(folder: Path, claims: range, seconds: float | None) -> int | None:
    text = _run(folder, f"cone -O {claims.start} -R {len(claims)}; {_PROVE}", seconds)
    cycles = _cycles(text)
    if cycles is None and "Property proved" not in text and "UNSATISFIABLE" not in text:
        raise UndecidedError
    return cycles


def reached_after(folder: Path, output: int, cycles: int, seconds: float | None) -> int | None:
    """Search up to `cycles` cycles for a cycle in which an output of the and-inverter graph can be 1.

    Return the number of this cycle, counted from 1, or None if the output stays 0. Raise an `UndecidedError` if the
    time limit was reached.
    """
    text = _run(folder, f"cone -O {output}; " + _REACH.format(frames=cycles), seconds)
    reached = _cycles(text)
    if reached is None and _unset_frames(text) < cycles and "UNSATISFIABLE" not in text:
        raise UndecidedError
    return reached


def _unset_frames(text: str) -> int:
    """Return the number of cycles for which ABC proved that all outputs of the and-inverter graph are 0."""
    unset = re.search(r"No output asserted in (\d+) frames", text)
    return int(unset.group(1)) if unset else 0


def _cycles(text: str) -> int | None:
    """Return the number (from 1) of the cycle in which ABC found an output that is 1, or None if all outputs stay 0."""
    asserted = re.search(r"was asserted in frame (\d+)", text)
    if asserted:
        return int(asserted.group(1)) + 1
    return 1 if re.search(r"\bSATISFIABLE", text) else None

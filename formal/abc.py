"""ABC, for claims about designs with registers: property-directed reachability without a bound, and runs to covers."""

import importlib.util
import re
import subprocess
from contextlib import suppress
from math import ceil
from pathlib import Path

from ..errors import BackendError
from .model import BINARY_GRAPH, UndecidedError

__all__ = ["broken_after", "reached_after"]

#: Signals that provably agree over two cycles are merged first; then invariants are sought, or, if no register is left,
#: a case.
_PROVE = "orpos; strash; scorr -F 2 -C 10000; dc2; scorr; pdr -T {seconds}; iprove"
#: Seconds for all claims at once.
_TOGETHER = 60
_REACH = "strash; bmc3 -F {frames} -T {seconds}; iprove"


def _run(folder: Path, commands: str, seconds: float) -> str:
    found = importlib.util.find_spec("pyosys")
    if found is None or found.origin is None:
        raise BackendError("proofs need ABC: install it with `pip install 'sptc[formal]'`")
    program = Path(found.origin).parent / "yosys-abc"
    words = [str(program), "-q", f"read_aiger {BINARY_GRAPH}; fold; {commands}"]
    # ABC looks at its clock now and then only.
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=2 * seconds + 30)
    except subprocess.TimeoutExpired:
        raise UndecidedError from None
    if done.returncode:
        raise BackendError(f"ABC failed: {(done.stdout + done.stderr).strip().splitlines()[-1:]}")
    return done.stdout


def broken_after(folder: Path, seconds: float) -> int | None:
    """Return after how many cycles some claim can be broken, or None if that is proved never to happen.

    Parameters
    ----------
    folder : Path
        Where the graph is.
    seconds : float
        For each question.

    Raises
    ------
    UndecidedError
        Time was up.
    """
    with (folder / BINARY_GRAPH).open("rb") as graph:
        covers, _, claims = map(int, graph.readline().split()[4:7])
    if not claims:  # all that was claimed followed from the structure alone
        return None
    # All at once they share invariants; one by one each needs fewer.
    with suppress(UndecidedError):
        return _broken_after(folder, range(covers, covers + claims), min(_TOGETHER, seconds))
    found = (_broken_after(folder, range(claim, claim + 1), seconds) for claim in range(covers, covers + claims))
    return next((cycles for cycles in found if cycles), None)


def _broken_after(folder: Path, claims: range, seconds: float) -> int | None:
    text = _run(folder, f"cone -O {claims.start} -R {len(claims)}; " + _PROVE.format(seconds=ceil(seconds)), seconds)
    cycles = _cycles(text)
    if cycles is None and "Property proved" not in text and "UNSATISFIABLE" not in text:
        raise UndecidedError
    return cycles


def reached_after(folder: Path, output: int, cycles: int, seconds: float) -> int | None:
    """Return after how many cycles, of at most so many, an output can be set, or None."""
    text = _run(folder, f"cone -O {output}; " + _REACH.format(frames=cycles, seconds=ceil(seconds)), seconds)
    return _cycles(text)


def _cycles(text: str) -> int | None:
    """Return in which cycle an output was set, from 1, or None."""
    asserted = re.search(r"was asserted in frame (\d+)", text)
    if asserted:
        return int(asserted.group(1)) + 1
    return 1 if re.search(r"\bSATISFIABLE", text) else None

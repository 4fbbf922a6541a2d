"""Which test sees which planted fault: ``python tests/planted/table.py [NAME ...]``.

For each fault pytest runs the quick tests: those named like the faulty file first, then those of its folder that
import it, the rest of the folder, the others, and what compiles much last; each of these in a process of its own, since
collecting all tests takes longer than most faults live. It stops at the first test that fails. That test must then pass
without the fault: one that fails anyway has found nothing, and is left out from then on. Results are kept in a file, so
that what was found is not asked for again. Status 1: some fault is not found.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from sptc.tests.planted import ROOMS, Fault, faults

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
#: Tests of the faults themselves: with one planted already, they would plant two.
_NOT_ASKED = {TESTS / "formal" / "test_planted_faults.py", TESTS / "planted" / "test_planted.py"}
#: Folders and files that compile, synthesise, prove or package, in the order of their patience.
_SLOW = ("native", "verify", "api", "sim", "cli", "gemm", "formal", "benches", "synth")
#: Seconds after which tests of a stage are taken to hang, and what is said of them.
_PATIENCE = 600
_HANGS = "hangs:"


@dataclass(frozen=True)
class Found:
    """What became of a fault.

    Attributes
    ----------
    test : str or None
        The first test that fails because of it, or the files of which one hangs; None without one.
    seconds : float
        Until then, start of pytest included.
    """

    test: str | None
    seconds: float


def stages(fault: Fault) -> list[list[str]]:
    """Return the test files in the order in which they are likely to see a fault, and soon."""
    _, *rooms, module = fault.module.split(".")

    def stage(path: Path) -> int:
        folder = path.parent.name
        if folder in rooms:
            imports_it = fault.module in path.read_text(encoding="utf-8")
            return 0 if path.stem == f"test_{module}" else 1 if imports_it else 2
        return 4 + _SLOW.index(folder) if folder in _SLOW else 3 if path.parent != TESTS else 4 + len(_SLOW)

    by_stage: dict[int, list[str]] = {}
    for path in sorted(set(TESTS.rglob("test_*.py")) - _NOT_ASKED):
        by_stage.setdefault(stage(path), []).append(str(path.relative_to(ROOT)))
    return [files for _, files in sorted(by_stage.items())]


def first_failure(fault: str, tests: list[str], broken: set[str], seed: int) -> str | None:
    """Run tests up to the first that fails, and return that.

    Parameters
    ----------
    fault : str
        What is planted; nothing if empty.
    tests : list of str
        Files or tests.
    broken : set of str
        Tests that are left out.
    seed : int
        Of random tests.

    Raises
    ------
    RuntimeError
        pytest itself fails.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider"]
    command += [
        "-m",
        "not regression and not bench",
        f"--seed={seed}",
        *(f"--deselect={test}" for test in sorted(broken)),
        *tests,
    ]
    environment = {**os.environ, "SPTC_PLANT": fault}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired:
        return f"{_HANGS} {' '.join(tests)}"
    if done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return None
    if found := re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE):
        return found[1]
    raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def search(fault: Fault, broken: set[str], seed: int) -> Found:
    """Look for a test that sees a fault; what fails without it too is added to `broken`."""
    start = time.monotonic()
    for files in stages(fault):
        while test := first_failure(fault.name, files, broken, seed):
            seconds = time.monotonic() - start
            if test.startswith(_HANGS):
                return Found(test, round(seconds, 1))
            if not first_failure("", [test], set(), seed):
                return Found(test, round(seconds, 1))
            broken.add(test)
    return Found(None, round(time.monotonic() - start, 1))


def main() -> int:
    """Fill the table, print it, and return the status."""
    everything = {name: found for room in ROOMS for name, found in faults(room).items()}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults (default: all)")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "planted.json", help="what was found so far")
    parser.add_argument("--again", action="store_true", help="ask again for what was asked before")
    parser.add_argument("--seed", type=int, default=0, help="seed of random tests (default %(default)s)")
    options = parser.parse_args()
    if unknown := set(options.names) - everything.keys():
        parser.error(f"there is no fault {', '.join(sorted(unknown))}; there are {', '.join(everything)}")
    wanted = options.names or list(everything)
    kept = json.loads(options.results.read_text()) if options.results.exists() else {}
    results = {name: Found(**found) for name, found in kept.items()}
    broken: set[str] = set()
    width = max(map(len, wanted))
    for index, name in enumerate(wanted, 1):
        if options.again or name not in results:
            results[name] = search(everything[name], broken, options.seed)
            options.results.parent.mkdir(parents=True, exist_ok=True)
            options.results.write_text(json.dumps({key: asdict(found) for key, found in results.items()}, indent=1))
        found = results[name]
        count = f"{index:{len(str(len(wanted)))}}/{len(wanted)}"
        print(f"{count}  {name:{width}}  {found.seconds:7.1f} s  {found.test or 'NOT FOUND'}", flush=True)
    lost = [name for name in wanted if results[name].test is None]
    for name in lost:
        print(f"no quick test sees {name}: {everything[name].mistake}")
    for test in sorted(broken):
        print(f"left out, since it fails without a fault too: {test}")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())

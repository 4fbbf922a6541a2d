"""Find the test that detects each planted fault: ``python tests/planted/table.py [NAME ...]``.

For each fault, pytest runs quick tests in stages until one fails: the test that detected the fault in the last search
(``tests/planted/found.json``), then files that are named like the faulty module, files that import it, the rest of its
folder, other folders, and last the folders that compile much. Each stage is a process of its own, because the
collection of all tests would take longer than the search for most faults. A test that has failed must pass without the
fault, which is tried once for each test; a test that fails anyway is left out from then on.

Results are kept in a file, and faults that have a result are skipped. ``--again --results tests/planted/found.json``
writes a new record of all faults. The exit status is 1 if no quick test detects some fault.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from sptc.tests.planted import ROOMS, Fault, faults

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
#: Recorded results: the test that detected each fault in the last search of all faults.
FOUND = TESTS / "planted" / "found.json"
#: Test files that are not searched, because they plant faults themselves.
_NOT_ASKED = {TESTS / "formal" / "test_planted_faults.py", TESTS / "planted" / "test_planted.py"}
#: Test file that fails with every fault in `rtl`, because processes with such a fault import Amaranth at their start.
_WITHOUT_AMARANTH = TESTS / "sim" / "test_row_interface.py"
#: Folders of tests that compile, synthesise or prove, in ascending order of their duration.
_SLOW = ("native", "verify", "api", "sim", "cli", "gemm", "formal", "benches", "synth")
#: Seconds after which the tests of a stage are assumed to hang, and the first word of a result that names them.
_PATIENCE = 600
_HANGS = "hangs:"


@dataclass(frozen=True)
class Found:
    """Result of the search for a test that detects a fault."""

    test: str | None  #: First test that fails because of the fault, or the files that hang, or None if no test fails
    seconds: float  #: Duration of the search, start of pytest included


def stages(fault: Fault) -> list[list[str]]:
    """Return lists of test files. Files that are likely to detect the fault soon are in the first lists."""
    _, *rooms, module = fault.module.split(".")

    def stage(path: Path) -> int:
        folder, is_named = path.parent.name, path.stem in (f"test_{word}" for word in (module, *rooms))
        imports_it = fault.module in path.read_text(encoding="utf-8")
        if folder in rooms:
            return 0 if is_named else 1 if imports_it else 3
        if is_named or imports_it:
            return 0 if is_named else 2
        return 5 + _SLOW.index(folder) if folder in _SLOW else 4 if path.parent != TESTS else 5 + len(_SLOW)

    by_stage: dict[int, list[str]] = {}
    skipped = {_WITHOUT_AMARANTH} if rooms[0] == "rtl" else set()
    for path in sorted(set(TESTS.rglob("test_*.py")) - _NOT_ASKED - skipped):
        by_stage.setdefault(stage(path), []).append(str(path.relative_to(ROOT)))
    return [files for _, files in sorted(by_stage.items())]


def first_failure(fault: str, tests: list[str], broken: set[str], seed: int) -> str | None:
    """Run tests with a planted fault (or none) until the first test fails, and return the name of this test.

    Tests in `broken` are left out. Raises a `RuntimeError` if pytest itself fails.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider"]
    command += ["-m", "not regression and not bench", f"--seed={seed}"]
    command += [*(f"--deselect={test}" for test in sorted(broken)), *tests]
    environment = {**os.environ, "SPTC_PLANT": fault}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired:
        return f"{_HANGS} {' '.join(tests)}"
    if done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) or "not found: " in done.stderr:
        return None
    if found := re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE):
        return found[1]
    raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def search(fault: Fault, last: str | None, sound: set[str], broken: set[str], seed: int) -> Found:
    """Find a test that detects a fault. The test `last`, which detected the fault in the last search, is tried first.

    `sound` and `broken`, the tests that are known to pass, and to fail, without a fault, are extended.
    """
    start = time.monotonic()
    for tests in [[last], *stages(fault)] if last else stages(fault):
        while test := first_failure(fault.name, tests, broken, seed):
            seconds = time.monotonic() - start
            if test.startswith(_HANGS):
                return Found(test, round(seconds, 1))
            if test in sound or not first_failure("", [test], set(), seed):
                sound.add(test)
                return Found(test, round(seconds, 1))
            broken.add(test)
    return Found(None, round(time.monotonic() - start, 1))


def read(path: Path) -> dict[str, Found]:
    """Return the search results in a file by fault name, or an empty dictionary if the file does not exist."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {name: Found(**found) for name, found in kept.items()}


def write(path: Path, results: dict[str, Found]) -> None:
    """Write a file of results with one line per fault."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(asdict(results[name]))}" for name in sorted(results))
    path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def main() -> int:
    """Search for a test that detects each fault, print the table, and return the exit status."""
    everything = {name: found for room in ROOMS for name, found in faults(room).items()}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of faults (default: all)")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "planted.json", help="file of results")
    parser.add_argument("--again", action="store_true", help="also search for faults that already have a result")
    parser.add_argument("--seed", type=int, default=0, help="seed of random tests (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="parallel searches (default: all cores)")
    options = parser.parse_args()
    if unknown := set(options.names) - everything.keys():
        parser.error(f"there is no fault {', '.join(sorted(unknown))}; the faults are {', '.join(everything)}")
    wanted = options.names or list(everything)
    results = {} if options.again else read(options.results)
    last = {name: found.test for name, found in read(FOUND).items() if not (found.test or _HANGS).startswith(_HANGS)}
    sound: set[str] = set()
    broken: set[str] = set()
    width = max(map(len, wanted))
    with ThreadPoolExecutor(options.jobs) as pool:
        searches = {
            pool.submit(search, everything[name], last.get(name), sound, broken, options.seed): name
            for name in wanted
            if name not in results
        }
        try:
            for number, done in enumerate(as_completed(searches), 1):
                name = searches[done]
                results[name] = found = done.result()
                write(options.results, results)
                line = f"{number}/{len(searches)}  {name:{width}}  {found.seconds:7.1f} s  {found.test or 'NOT FOUND'}"
                print(line, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            return 130
    lost = [name for name in wanted if results[name].test is None]
    print(f"{len(wanted) - len(lost)} of {len(wanted)} faults are detected by quick tests")
    for name in lost:
        print(f"no quick test detects {name}: {everything[name].mistake}")
    for test in sorted(broken):
        print(f"not used, because it also fails without a fault: {test}")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())

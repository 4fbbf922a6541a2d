"""The regression tier: every test there is, a file at a time on all cores; run again, it goes on where it stopped.

``python tests/regression.py`` (or ``make regression``) runs pytest on one test file after another, the longest first,
each in a process of its own. What a file gave is kept in ``build/regression`` under a digest of the sources, so that an
interrupted run, or one with failures, is taken up again and repeats nothing that passed. At the end stands
``build/regression/summary.md``: totals, what failed and what was skipped and why, and what took longest; and
``build/regression/latest`` leads to the results, of which ``sptc report`` makes a page.
"""

import argparse
import hashlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

from filelock import FileLock, Timeout
from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "regression"
#: Leads to the results of the last run.
LATEST = "latest"
#: Where the last complete run left how long each file takes.
SECONDS = "seconds.json"


@dataclass
class Outcome:
    """What one test file gave.

    Attributes
    ----------
    file : str
        The test file, from the root.
    passed : int
        Tests that passed.
    failed : list of str
        Names of those that did not, or what kept the file from running.
    skipped : dict of str to str
        Reason for each that was skipped.
    seconds : float
        How long it took.
    seed : int
        Seed of its random tests.
    """

    file: str
    passed: int
    failed: list[str]
    skipped: dict[str, str]
    seconds: float
    seed: int


def sources() -> list[Path]:
    """Return every file that a test could depend on."""
    kept = []
    for folder, names, files in os.walk(ROOT):
        names[:] = sorted(n for n in names if not n.startswith(".") and n not in ("build", "dist", "__pycache__"))
        names[:] = [name for name in names if not name.endswith(".egg-info")]
        kept += [Path(folder) / name for name in sorted(files) if not name.startswith(".")]
    return kept


def digest() -> str:
    """Return a digest of the sources, which tells one tree from another."""
    found = hashlib.sha256()
    for path in sources():
        found.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:16]


def run(file: str, seed: int, folder: Path, options: list[str]) -> Outcome:
    """Run one test file in a process of its own and keep what it gave: as JSON if all of it passed."""
    name = file.replace("/", "-").removesuffix(".py")
    report, log, failed = (folder / f"{name}.{kind}" for kind in ("xml", "log", "failed"))
    for path in (report, failed):
        path.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "not bench",
        "-p",
        "no:cacheprovider",
        f"--junitxml={report}",
    ]
    begun = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(
            [*command, "--seed", str(seed), *options, file], cwd=ROOT, stdout=output, stderr=output, check=False
        )
    outcome = Outcome(file, 0, [], {}, time.monotonic() - begun, seed)
    for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
        test = f"{case.get('classname')}::{case.get('name')}"
        if (skipped := case.find("skipped")) is not None:
            outcome.skipped[test] = str(skipped.get("message"))
        elif case.find("failure") is not None or case.find("error") is not None:
            outcome.failed.append(test)
        else:
            outcome.passed += 1
    if (done.returncode not in (0, 5) or not report.exists()) and not outcome.failed:
        outcome.failed.append(f"{file} ended with status {done.returncode}; see {log.relative_to(ROOT)}")
    part = folder / f"{name}.part"
    part.write_text(json.dumps(asdict(outcome)), encoding="utf-8")
    part.replace(failed if outcome.failed else folder / f"{name}.json")
    return outcome


def summary(outcomes: list[Outcome], folder: Path, missing: int) -> str:
    """Return the page at the end."""
    passed, failed = sum(o.passed for o in outcomes), [name for o in outcomes for name in o.failed]
    skipped = {name: reason for o in outcomes for name, reason in o.skipped.items()}
    seconds = sum(o.seconds for o in outcomes)
    lines = [
        "# Regression",
        "",
        f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped in {len(outcomes)} files; "
        f"{seconds / 60:.1f} minutes of work" + (f"; {missing} files not run" if missing else ""),
        "",
        f"Sources {folder.name}. Seeds {', '.join(map(str, sorted({o.seed for o in outcomes})))}.",
        "",
        *(["## Failed", "", *(f"* {name}" for name in failed), ""] if failed else []),
        *(["## Skipped", "", *(f"* {name}: {reason}" for name, reason in skipped.items()), ""] if skipped else []),
        "## Longest",
        "",
        "| file | tests | seconds |",
        "|---|---|---|",
        *(
            f"| {o.file} | {o.passed} | {o.seconds:.0f} |"
            for o in sorted(outcomes, key=lambda o: o.seconds, reverse=True)[:25]
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run what is left; return 1 if anything failed, 2 if another run holds the folder, 130 if interrupted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes (default: all cores)")
    parser.add_argument("--seed", type=int, help="seed of the random tests (default: a new one)")
    parser.add_argument("--again", action="store_true", help="forget what has passed before")
    parser.add_argument("options", nargs="*", help="options for pytest, behind --")
    chosen = parser.parse_args()
    folder = FOLDER / digest()
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(FOLDER / "lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        print("a regression is running here already", file=sys.stderr)
        return 2
    part = FOLDER / f"{LATEST}.part"
    part.unlink(missing_ok=True)
    part.symlink_to(folder.name)
    part.replace(FOLDER / LATEST)
    if chosen.again:
        for path in folder.glob("*.json"):
            path.unlink()
    outcomes = [Outcome(**json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))]
    known = FOLDER / SECONDS
    seconds = json.loads(known.read_text(encoding="utf-8")) if known.exists() else {}
    files = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
    left = [file for file in files if file not in {outcome.file for outcome in outcomes}]
    left.sort(key=lambda file: seconds.get(file, float("inf")), reverse=True)
    seed = secrets.randbelow(2**31) if chosen.seed is None else chosen.seed
    print(f"{len(files)} files, {len(outcomes)} passed before; random tests use --seed {seed}", flush=True)
    interrupted = False
    with ThreadPoolExecutor(chosen.jobs) as pool, tqdm(total=len(files), initial=len(outcomes), unit="file") as bar:
        waiting: set[Future[Outcome]] = {pool.submit(run, file, seed, folder, chosen.options) for file in left}
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    outcome = future.result()
                    outcomes.append(outcome)
                    bar.update()
                    for name in outcome.failed:
                        bar.write(f"FAILED {name}")
        except KeyboardInterrupt:
            interrupted = True
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # pytest was told as well, and ends by itself
            for future in waiting:
                future.cancel()
    page = summary(outcomes, folder, len(files) - len(outcomes))
    (FOLDER / "summary.md").write_text(page, encoding="utf-8")
    known.write_text(json.dumps(seconds | {o.file: o.seconds for o in outcomes}, indent=1), encoding="utf-8")
    print(page.splitlines()[2])
    print(f"see {(FOLDER / 'summary.md').relative_to(ROOT)}")
    return 130 if interrupted else int(any(outcome.failed for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())

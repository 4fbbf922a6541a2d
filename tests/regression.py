"""Prove what ``formal/proved.json`` does not record, and run all test files on all cores, each in its own process.

A result is stored with a digest of all files on which the test file depends (:mod:`sptc.tests.dependencies`). A later
run repeats only test files that have failed, or whose digest has changed. ``--again`` repeats all proofs and tests; if
it is interrupted, the next run continues it.

``tests/regression.json`` records the result of each test file when it last passed, on any machine. The recorded
durations decide which files run first, the longest. With ``--recorded``, several machines can share the work. Each run
writes ``build/regression/regression.json``, which is the record with its own results added.
"""

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

from filelock import FileLock, Timeout
from sptc.formal import record
from sptc.tests.dependencies import digest_of, needs
from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "regression"
#: Time limit in elapsed seconds for one solver query, far above the time of any query on a busy machine.
PROOF_SECONDS = 3600
#: Folder with the result of the last run of each test file.
RESULTS = FOLDER / "latest"
#: Record of proofs: those of the committed record, and those of regressions on this machine.
PROVED = FOLDER / "proved.json"
#: File that exists while a run with ``--again`` is incomplete.
AGAIN = FOLDER / "again"
#: Committed record with the result of each test file when it last passed.
RECORD = ROOT / "tests" / "regression.json"


@dataclass
class Outcome:
    """Result of one test file."""

    file: str  #: Test file, relative to the root
    passed: int  #: Number of tests that passed
    failed: list[str]  #: Names of the tests that failed, or the reason why the file did not run
    skipped: dict[str, str]  #: Reason for each skipped test
    seconds: float  #: Duration in seconds
    seed: int  #: Seed of the random tests
    sources: str  #: Digest of the files and options that affect the result, as :func:`stamp` returns it


def run(file: str, seed: int, options: list[str], *, again: bool) -> Outcome:
    """Run one test file in its own process. Store its result as JSON if all tests passed."""
    sources = stamp(file, options)
    kinds = ("xml", "log", "failed", "part", "json", "cost")
    report, log, failed, part, passed, cost = (kept_in(file, kind) for kind in kinds)
    for path in (report, failed):
        path.unlink(missing_ok=True)
    command = [
        sys.executable, "-m", "pytest", "-q", "-m", "not bench", "-p", "no:cacheprovider", f"--junitxml={report}",
        f"--cost={cost}", f"--rooms={','.join(sorted(needs(ROOT / file)))}", *(["--again"] if again else []),
    ]  # fmt: skip
    begun = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        words = [*command, "--seed", str(seed), *options, file]
        done = subprocess.run(words, cwd=ROOT, stdout=output, stderr=output, check=False)
    outcome = Outcome(file, 0, [], {}, time.monotonic() - begun, seed, sources)
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
    if not outcome.failed and stamp(file, options) != sources:
        outcome.failed.append(f"{file}: a file on which it depends was changed while it ran")
    part.write_text(json.dumps(asdict(outcome)), encoding="utf-8")
    part.replace(failed if outcome.failed else passed)
    return outcome


def prove(jobs: int, *, again: bool) -> Outcome:
    """Prove the properties of presets that are not recorded as proved, with `jobs` processes."""
    committed, begun = record.read_record(record.RECORD), time.monotonic()
    outcome = Outcome(record.RECORD.relative_to(ROOT).as_posix(), len(committed.proofs), [], {}, 0.0, 0, "")
    if committed.sources == record.source_digest() and not again:
        return outcome
    earlier = record.read_record(PROVED)
    for proof in () if again else committed.proofs:
        earlier = earlier if proof in earlier.proofs else earlier.with_proof(proof)
    earlier.write(PROVED)
    words = [sys.executable, "-m", "sptc", "prove", "--json", "--seconds", str(PROOF_SECONDS), "--jobs", str(jobs)]
    done = subprocess.run([*words, "--record", str(PROVED)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    outcome.seconds = time.monotonic() - begun
    if done.returncode not in (0, 1):
        outcome.failed.append(f"sptc prove ended with status {done.returncode}")
        return outcome
    rows = json.loads(done.stdout)["proofs"]
    broken = [row for row in rows if row["result"] != "proved"]
    outcome.passed = len(rows) - len(broken)
    outcome.failed += [f"{row['property']} of {row['parameters']} is {row['result']}" for row in broken]
    return outcome


def kept_in(file: str, kind: str) -> Path:
    """Return the path of a stored file of a test file: its result, log or report, by the suffix `kind`."""
    return RESULTS / f"{file.replace('/', '-').removesuffix('.py')}.{kind}"


def stamp(file: str, options: list[str]) -> str:
    """Return a digest of all files and pytest options that affect the result of a test file."""
    return " ".join([digest_of(ROOT / file), *options])


def kept(options: list[str]) -> Iterator[Outcome]:
    """Yield stored results of earlier runs for files whose dependencies have not changed. Delete all other results."""
    for path in sorted(RESULTS.glob("*.json")):
        outcome = Outcome(**json.loads(path.read_text(encoding="utf-8")))
        if (ROOT / outcome.file).exists() and stamp(outcome.file, options) == outcome.sources:
            yield outcome
        else:
            path.unlink()


def recorded() -> dict[str, Outcome]:
    """Return the results in the committed record, by test file."""
    return {fields["file"]: Outcome(**fields) for fields in json.loads(RECORD.read_text(encoding="utf-8"))}


def write_record(known: dict[str, Outcome], outcomes: list[Outcome], files: list[str]) -> None:
    """Write a new record: the known results, with those of files that have passed in this run replaced."""
    known = known | {outcome.file: outcome for outcome in outcomes if not outcome.failed}
    lines = ",\n".join(json.dumps(asdict(known[file])) for file in files if file in known)
    (FOLDER / RECORD.name).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def summary(outcomes: list[Outcome], missing: int) -> str:
    """Return the summary page of the regression as Markdown."""
    passed, failed = sum(o.passed for o in outcomes), [name for o in outcomes for name in o.failed]
    skipped = {name: reason for o in outcomes for name, reason in o.skipped.items()}
    seconds = sum(o.seconds for o in outcomes)
    longest = sorted(outcomes, key=lambda o: o.seconds, reverse=True)[:25]
    total = f"{passed} tests passed, {len(failed)} failed, {len(skipped)} skipped in {len(outcomes)} files"
    work = f"{seconds / 60:.1f} minutes in all processes" + (f"; {missing} files not run" if missing else "")
    seeds = f"Seeds {', '.join(map(str, sorted({o.seed for o in outcomes})))}."
    lines = [
        *("# Regression", "", f"{total}; {work}", "", seeds, ""),
        *(["## Failed", "", *(f"* {name}" for name in failed), ""] if failed else []),
        *(["## Skipped", "", *(f"* {name}: {reason}" for name, reason in skipped.items()), ""] if skipped else []),
        *("## Longest", "", "| file | tests | seconds |", "|---|---|---|"),
        *(f"| {o.file} | {o.passed} | {o.seconds:.0f} |" for o in longest),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run test files without a valid result. Return 1 after a failure, 2 if another run is active, 130 after Ctrl+C."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", type=int, default=cores, help="number of processes (default: all cores)")
    parser.add_argument("--seed", type=int, help="seed of the random tests (default: a random seed)")
    parser.add_argument("--again", action="store_true", help="repeat tests that have passed, and recorded proofs")
    parser.add_argument(
        "--recorded", action="store_true", help=f"also skip files that passed according to {RECORD.relative_to(ROOT)}"
    )
    parser.add_argument("options", nargs="*", help="options for pytest, after --")
    chosen = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    lock = FileLock(FOLDER / "lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        print("another regression is running in this checkout", file=sys.stderr)
        return 2
    files = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
    if chosen.again and not AGAIN.exists():
        for path in (*RESULTS.glob("*.json"), PROVED):
            path.unlink(missing_ok=True)
        AGAIN.touch()
    known = recorded()
    if chosen.recorded:
        for outcome in known.values():
            if not (path := kept_in(outcome.file, "json")).exists():
                path.write_text(json.dumps(asdict(outcome)), encoding="utf-8")
    outcomes = [outcome for outcome in kept(chosen.options) if outcome.file in files]
    left = [file for file in files if file not in {outcome.file for outcome in outcomes}]
    left.sort(key=lambda file: known[file].seconds if file in known else float("inf"), reverse=True)
    seed = secrets.randbelow(2**31) if chosen.seed is None else chosen.seed
    print(f"{len(files)} test files, {len(outcomes)} passed earlier; random tests use --seed {seed}", flush=True)
    interrupted = False
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell lets background processes ignore SIGINT.
    try:
        proofs = [prove(chosen.jobs, again=chosen.again)]
    except KeyboardInterrupt:
        print("interrupted while proving: the next run continues with the remaining proofs", file=sys.stderr)
        return 130
    with ThreadPoolExecutor(chosen.jobs) as pool, tqdm(total=len(files), initial=len(outcomes), unit="file") as bar:
        options = {"seed": seed, "options": chosen.options, "again": chosen.again}
        waiting: set[Future[Outcome]] = {pool.submit(run, file, **options) for file in left}
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
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the processes of pytest also receive SIGINT
            for future in waiting:
                future.cancel()
    if not interrupted:
        AGAIN.unlink(missing_ok=True)
    page = summary([*proofs, *outcomes], len(files) - len(outcomes))
    (FOLDER / "summary.md").write_text(page, encoding="utf-8")
    write_record(known, outcomes, files)
    print(page.splitlines()[2])
    print(f"see {(FOLDER / 'summary.md').relative_to(ROOT)}")
    if record.read_record(record.RECORD).sources != record.source_digest() == record.read_record(PROVED).sources:
        print(f"the record of proofs has changed: copy {PROVED.relative_to(ROOT)} to {record.RECORD.relative_to(ROOT)}")
    return 130 if interrupted else int(any(outcome.failed for outcome in [*proofs, *outcomes]))


if __name__ == "__main__":
    sys.exit(main())

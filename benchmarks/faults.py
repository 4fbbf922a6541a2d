"""Fault injection: of single faults in every component, the unit, the core and the warp, how many the regression kills.

Each fault is met with the vectors of the benches. A fault that survives them is handed to a prover; one that provably
changes nothing does not count. What is done is kept in a folder, and the same command goes on from there.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from measure import Row, options, show
from sptc.errors import Error
from sptc.rtl.config import PRESETS
from sptc.sim.benches.settings import Settings
from sptc.sim.faults.equivalence import proved_equivalent
from sptc.sim.faults.mutants import Fault
from sptc.sim.faults.regressions import TOP, regression
from tqdm import tqdm

#: The share of the faults that each top gets.
SHARES = {"components": 0.6, "row": 0.2, "core": 0.1, "warp": 0.1}


@dataclass(frozen=True)
class Size:
    """How much is done: on each top so many vectors of a component, steps, tiles or instructions; seconds a proof."""

    faults: int
    presets: tuple[str, ...]
    items: Mapping[str, int]
    timeout: float


FULL = Size(1000, ("tiny", "hopper"), {"components": 100_000, "row": 800_000, "core": 20_000, "warp": 1_500}, 60.0)
#: The tops that are built soonest, and so few vectors that some faults survive for the prover.
SMALL = Size(20, ("tiny",), {"components": 10, "core": 50}, 5.0)


@dataclass(frozen=True)
class Outcome:
    """A fault and what became of it: killed, survived until a proof is tried, then equivalent or unproved."""

    preset: str
    top: str
    number: int
    component: str
    command: str
    verdict: str


def inject(settings: Settings, faults: int, seed: int, folder: Path) -> tuple[list[Outcome], float]:
    """Run the regression of a top on faulty versions of it; return outcomes and seconds after the build."""
    of_top = regression(settings, faults, seed, folder)
    assert of_top.first_failure(None) is None, "the regression fails without a fault"
    start = time.perf_counter()
    outcomes = []
    for fault in of_top.netlist.faults:
        verdict = "survived" if of_top.first_failure(fault) is None else "killed"
        outcomes.append(Outcome(settings.preset, settings.top, fault.number, fault.component, fault.command, verdict))
    return outcomes, time.perf_counter() - start


def prove(outcome: Outcome, folder: Path, timeout: float) -> Outcome:
    """Try to prove that a fault that survived changes nothing."""
    fault = Fault(outcome.number, outcome.component, outcome.command)
    proved = proved_equivalent(TOP, fault, folder, timeout, pipeline=outcome.top == "row")
    return replace(outcome, verdict="equivalent" if proved else "unproved")


def stored(path: Path, parameters: dict[str, object]) -> Iterator[Outcome]:
    """Yield what an earlier run has stored, and write the parameters if there was none."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if lines and json.loads(lines[0]) != parameters:
        raise SystemExit(f"{path} is of a run with other options: {lines[0]}")
    if not lines:
        path.write_text(json.dumps(parameters) + "\n", encoding="utf-8")
    for line in lines[1:]:
        if line.endswith("}"):  # the last line may be cut short
            yield Outcome(**json.loads(line))


def rows_of(outcomes: list[Outcome]) -> Iterator[Row]:
    """Yield a row for each component of each datapath, and the total."""
    groups: dict[str, list[str]] = {}
    for outcome in outcomes:
        groups.setdefault(f"{outcome.preset} {outcome.component}", []).append(outcome.verdict)
    groups["all"] = [outcome.verdict for outcome in outcomes]
    for name, verdicts in groups.items():
        counts = {verdict: verdicts.count(verdict) for verdict in ("killed", "equivalent", "unproved")}
        effective = counts["killed"] + counts["unproved"]
        killed = 100 * counts["killed"] / effective if effective else 100.0
        described = f"{counts['killed']} killed, {counts['unproved']} survived, {counts['equivalent']} equivalent"
        yield Row(f"{name}: {described}", "% killed", killed, "at least 99" if name == "all" else "")


def work(size: Size, folder: Path) -> Iterator[tuple[Settings, int, Path]]:
    """Yield every top of every datapath, how many faults it gets, and where it is built."""
    for preset in size.presets:
        for top, items in size.items.items():
            faults = round(size.faults * SHARES[top] / len(size.presets))
            yield Settings(preset, top, items), faults, (folder / f"{preset}-{top}").resolve()


def run(size: Size, seed: int, jobs: int, folder: Path) -> tuple[list[Outcome], float | None]:
    """Inject and prove what an earlier run has not; return all outcomes, and seconds of vectors if there were any."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "outcomes.jsonl"
    parameters = {"faults": size.faults, "presets": [*size.presets], "seed": seed}
    found = {(o.preset, o.top, o.number): o for o in stored(path, parameters)}
    finished = {(o.preset, o.top) for o in found.values()}
    folders = {(settings.preset, settings.top): place for settings, _, place in work(size, folder)}
    seconds = 0.0
    with ProcessPoolExecutor(jobs) as pool, path.open("a", encoding="utf-8") as store:

        def keep(outcomes: list[Outcome]) -> None:
            for outcome in outcomes:
                found[outcome.preset, outcome.top, outcome.number] = outcome
                store.write(json.dumps(asdict(outcome)) + "\n")
            store.flush()

        injections = [
            pool.submit(inject, settings, faults, seed, place)
            for settings, faults, place in work(size, folder)
            if (settings.preset, settings.top) not in finished
        ]
        for injection in tqdm(as_completed(injections), total=len(injections), unit="top", disable=None):
            outcomes, taken = injection.result()
            seconds += taken
            keep(outcomes)
        pending = [o for o in found.values() if o.verdict == "survived"]
        pending.sort(key=lambda outcome: [*SHARES].index(outcome.top))  # the easier proofs first
        proofs = [pool.submit(prove, o, folders[o.preset, o.top], size.timeout) for o in pending]
        for proof in tqdm(as_completed(proofs), total=len(proofs), unit="proof", disable=None):
            keep([proof.result()])
    return [*found.values()], seconds if injections else None


def main() -> int:
    """Inject, prove, print, and return 1 if fewer than 99 of a hundred non-equivalent faults are killed."""
    parser = options(__doc__)
    parser.add_argument("--faults", type=int, help=f"faults to draw (default {FULL.faults})")
    parser.add_argument("--presets", nargs="+", choices=PRESETS, help=f"datapaths (default {' '.join(FULL.presets)})")
    parser.add_argument("--seed", type=int, default=0, help="decides faults and vectors (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("build/faults"), help="what is done (default %(default)s)")
    chosen = parser.parse_args()
    size = SMALL if chosen.small else FULL
    size = replace(size, faults=chosen.faults or size.faults, presets=tuple(chosen.presets or size.presets))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) if chosen.small else chosen.folder
        outcomes, seconds = run(size, chosen.seed, chosen.jobs, folder)
    rows = [*rows_of(outcomes)]
    killed = rows[-1].value
    if seconds is not None:
        rows.append(Row("vectors on all faults, one after the other", "s", seconds, "under 600 on two cores"))
    show(rows, chosen.json)
    for outcome in outcomes:
        if outcome.verdict == "unproved":
            print(f"survived: {outcome.preset} {outcome.top}: {outcome.command}", file=sys.stderr)
    return int(killed < 99 and not chosen.small)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Error as error:
        sys.exit(str(error))

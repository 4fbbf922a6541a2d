"""Fault injection: of single faults in every component, the unit, the core and the warp, how many the regression kills.

Each fault is met with the vectors of the benches. A fault that survives them is handed to a prover; one that provably
changes nothing does not count. What is done is kept in a folder, and the same command goes on from there.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
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

#: Vectors of each component, steps, tiles and instructions, and the share of the faults that each top gets.
ITEMS = {"components": 100_000, "row": 800_000, "core": 20_000, "warp": 1_500}
SHARES = {"components": 0.6, "row": 0.2, "core": 0.1, "warp": 0.1}
#: Seconds that a proof may take.
TIMEOUT = 60.0


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


def prove(outcome: Outcome, folder: Path) -> Outcome:
    """Try to prove that a fault that survived changes nothing."""
    fault = Fault(outcome.number, outcome.component, outcome.command)
    proved = proved_equivalent(TOP, fault, folder, TIMEOUT, pipeline=outcome.top == "row")
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


def main() -> int:
    """Inject, prove, print, and return 1 if fewer than 99 of a hundred non-equivalent faults are killed."""
    parser = options(__doc__)
    parser.add_argument("--faults", type=int, default=1000, help="faults to draw (default %(default)s)")
    parser.add_argument("--presets", nargs="+", choices=PRESETS, default=["tiny", "hopper"], help="datapaths")
    parser.add_argument("--seed", type=int, default=0, help="decides faults and vectors (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("build/faults"), help="what is done (default %(default)s)")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    path = chosen.folder / "outcomes.jsonl"
    parameters = {"faults": chosen.faults, "presets": chosen.presets, "seed": chosen.seed}
    found = {(o.preset, o.top, o.number): o for o in stored(path, parameters)}
    finished = {(o.preset, o.top) for o in found.values()}

    def work() -> Iterator[tuple[Settings, int, Path]]:
        for preset in chosen.presets:
            for top in SHARES:
                settings = Settings(preset, top, ITEMS[top])
                faults = round(chosen.faults * SHARES[top] / len(chosen.presets))
                yield settings, faults, (chosen.folder / f"{preset}-{top}").resolve()

    folders = {(settings.preset, settings.top): folder for settings, _, folder in work()}
    seconds = 0.0
    with ProcessPoolExecutor(chosen.jobs) as pool, path.open("a", encoding="utf-8") as store:

        def keep(outcomes: list[Outcome]) -> None:
            for outcome in outcomes:
                found[outcome.preset, outcome.top, outcome.number] = outcome
                store.write(json.dumps(asdict(outcome)) + "\n")
            store.flush()

        injections = [
            pool.submit(inject, settings, faults, chosen.seed, folder)
            for settings, faults, folder in work()
            if (settings.preset, settings.top) not in finished
        ]
        for injection in tqdm(as_completed(injections), total=len(injections), unit="top", disable=None):
            outcomes, taken = injection.result()
            seconds += taken
            keep(outcomes)
        pending = [o for o in found.values() if o.verdict == "survived"]
        pending.sort(key=lambda outcome: [*SHARES].index(outcome.top))  # the easier proofs first
        proofs: list[Future[Outcome]] = [pool.submit(prove, o, folders[o.preset, o.top]) for o in pending]
        for proof in tqdm(as_completed(proofs), total=len(proofs), unit="proof", disable=None):
            keep([proof.result()])
    rows = [*rows_of(list(found.values()))]
    if injections:
        rows.append(Row("vectors on all faults, one after the other", "s", seconds, "under 600 on two cores"))
    show(rows, chosen.json)
    for outcome in found.values():
        if outcome.verdict == "unproved":
            print(f"survived: {outcome.preset} {outcome.top}: {outcome.command}", file=sys.stderr)
    return int(rows[-1 - bool(injections)].value < 99)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Error as error:
        sys.exit(str(error))

"""Fault injection: share of single faults, injected into all parts of the hardware, that the test vectors detect.

The top modules are the single components of a unit, a row, the array, the warp, the warpgroup, and the control of the
tensor cores of a CTA. The number of faults per component is proportional to its area. The test vectors of the benches
run on the hardware with each fault. For a fault that the vectors do not detect, a prover tries to prove that the fault
changes no output (an equivalent fault); equivalent faults are not counted. The outcomes of faults are stored in a
folder, and the same command resumes an interrupted run.
"""

import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from itertools import groupby, islice
from math import sqrt
from pathlib import Path
from typing import TextIO

import numpy as np
from measure import Row, options, show
from sptc.errors import Error
from sptc.rtl.config import PRESETS
from sptc.rtl.step import row_step_layout
from sptc.rtl.tcgen05 import TCGEN05_ARRAY
from sptc.sim.benches.settings import Settings
from sptc.sim.engine.array_units import ARRAY
from sptc.sim.faults.assumptions import step_pipeline
from sptc.sim.faults.equivalence import settled
from sptc.sim.faults.mutants import TOP, Fault
from sptc.sim.faults.regressions import regression
from sptc.verify.bench_jobs import echoing_programs, random_warpgroup_jobs
from tqdm import tqdm

#: Share of the injected faults of a datapath that each top module gets.
SHARES = {"components": 0.34, "row": 0.3, "core": 0.1, "warp": 0.26}
#: Top modules that get injected faults on only one datapath, each with its share (about a sixth) of all faults.
SINGLE = {("hopper", "warpgroup"): 0.17, ("blackwell", "tcgen05"): 0.17}
#: Datapaths that get injected faults only in the top modules of `SINGLE`, not in all top modules.
ALONE = ("blackwell",)
#: Submodule, by top module, that proofs about faults replace by a black box. No fault is injected into the submodule.
BOXES = dict.fromkeys(("warpgroup", "tcgen05"), ARRAY)
#: Maximum number of proofs in a batch. The outcomes of a batch are stored when the batch ends.
BATCH = 25
#: Number of test vectors in the quick testbenches (tests/benches/test_benches.py), by datapath and top module.
QUICK = {
    **dict.fromkeys([(name, "components") for name in ("tiny", "ampere", "rtx-blackwell")], 200),
    ("tiny", "core"): 400,
}


def random_program(settings: Settings, rng: np.random.Generator) -> object:
    """Return a random test program for a top module that needs one, otherwise None."""
    if settings.top == "warpgroup":
        return [*islice(random_warpgroup_jobs(settings.config, rng), settings.items)]
    return echoing_programs(TCGEN05_ARRAY, settings.items, rng) if settings.top == "tcgen05" else None


#: Quantile of the normal distribution for a confidence interval of 95 %.
QUANTILE = 1.96
#: Bounds in per cent of all faults that are not proved equivalent: minimum share of killed faults, minimum for the
#: lower end of the confidence interval of this share, and maximum share of undecided faults.
KILLED, LOWER_BOUND, UNDECIDED = 99.7, 99.5, 0.2


@dataclass(frozen=True)
class Size:
    """Size of a run: numbers of faults and of inputs per top module, datapaths, and seconds allowed for a proof."""

    faults: int
    presets: tuple[str, ...]
    items: Mapping[str, int]
    timeout: float


FULL = Size(
    6000,
    ("tiny", "hopper", "ampere", "rtx-blackwell", "blackwell"),
    {"components": 50_000, "row": 200_000, "core": 10_000, "warp": 1_200, "warpgroup": 150, "tcgen05": 200},
    60.0,
)
#: Size for `--small`: top modules that build fast, and so few test vectors that some faults survive and need a proof.
SMALL = Size(40, ("tiny",), {"components": 10, "core": 20}, 5.0)


@dataclass(frozen=True)
class Outcome:
    """An injected fault and its outcome: killed (a test detects it), survived (not yet proved), or a proof's verdict.

    For a killed fault, `after` is the number of vectors, steps or items that were applied before the first failure.
    """

    preset: str
    top: str
    number: int
    component: str
    command: str
    verdict: str
    after: int | None = None

    @property
    def quickly(self) -> bool:
        """Whether the test vectors of the quick tests also kill (detect) the injected fault."""
        return self.after is not None and self.after < QUICK.get((self.preset, self.top), 0)


def inject(settings: Settings, faults: int, seed: int, folder: Path) -> tuple[list[Outcome], float]:
    """Run the test vectors of a top module with each fault. Return the outcomes, and the seconds of simulation.

    The outcome of each fault is stored in `folder` at once, and a later call skips the faults with a stored outcome.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "injected.jsonl"
    outcomes = {o.number: o for o in stored(path, {"items": settings.items, "faults": faults, "seed": seed})}
    of_top = regression(settings, faults, seed, folder, random_program(settings, np.random.default_rng(seed)))
    assert of_top.first_failure(None) is None, "the vectors fail on the hardware without a fault"
    start = time.perf_counter()
    with path.open("a", encoding="utf-8") as store:
        for fault in of_top.netlist.faults:
            if fault.number in outcomes:
                continue
            after = of_top.first_failure(fault)
            verdict = "survived" if after is None else "killed"
            outcome = Outcome(
                settings.preset, settings.top, fault.number, fault.component, fault.command, verdict, after
            )
            outcomes[fault.number] = outcome
            append(store, [outcome])
    return [*outcomes.values()], time.perf_counter() - start


def prove(survivors: Sequence[Outcome], folder: Path, timeout: float) -> list[Outcome]:
    """Try to prove that undetected faults of a top module change no output. Return the outcomes with the verdicts."""
    faults = {Fault(one.number, one.component, one.command): one for one in survivors}
    settings = Settings(survivors[0].preset, survivors[0].top, 1)
    layout = row_step_layout(settings.config)
    pipeline = step_pipeline(settings.config, settings.arch, layout) if settings.top == "row" else None
    verdicts = settled(TOP, [*faults], folder, timeout, pipeline, BOXES.get(settings.top, ""))
    return [replace(outcome, verdict=verdicts[fault].value) for fault, outcome in faults.items()]


def stored(path: Path, parameters: dict[str, object]) -> Iterator[Outcome]:
    """Yield the fault outcomes that an earlier run stored in a file. Write `parameters` to a new or empty file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if lines and json.loads(lines[0]) != parameters:
        raise SystemExit(f"{path} contains the outcomes of a run with other options: {lines[0]}")
    if not lines:
        path.write_text(json.dumps(parameters) + "\n", encoding="utf-8")
    for line in lines[1:]:
        if line.endswith("]"):  # an interrupted run may leave an incomplete or empty line in the file
            yield from (Outcome(**fields) for fields in json.loads(line))


def append(store: TextIO, outcomes: list[Outcome]) -> None:
    """Append outcomes of faults to a file that :func:`stored` reads."""
    # The first line break ends a line that an interruption left incomplete.
    store.write(f"\n{json.dumps([asdict(outcome) for outcome in outcomes])}\n")
    store.flush()


def interval(killed: int, count: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval of the share of detected faults, in per cent; 0 to 100 if there are no faults."""
    if not count:
        return 0.0, 100.0
    share, squared = killed / count, QUANTILE**2
    middle = share + squared / (2 * count)
    spread = sqrt(share * (1 - share) * squared / count + (squared / (2 * count)) ** 2)
    low, high = (100 * end / (1 + squared / count) for end in (middle - spread, middle + spread))
    return low, high


def row_of(name: str, outcomes: list[Outcome]) -> Row:
    """Return a table row with the share of detected faults among all faults that change a result."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    effective = len(outcomes) - counts["equivalent"]
    survived = effective - counts["killed"]
    described = f"{counts['killed']} killed, {survived} survived, {counts['equivalent']} equivalent"
    if not effective:
        return Row(f"{name}: {described}", "% killed", 100.0)
    low, high = interval(counts["killed"], effective)
    return Row(
        f"{name}: {described}; 95% interval {low:.2f} to {high:.2f}", "% killed", 100 * counts["killed"] / effective
    )


def rows_of(outcomes: list[Outcome]) -> Iterator[Row]:
    """Yield table rows with the share of detected faults by component, top-level module and datapath, and overall."""
    groups: dict[str, list[Outcome]] = {}
    for name in ("{0.preset} {0.top} {0.component}", "every {0.top}", "every {0.preset}"):
        for outcome in outcomes:
            groups.setdefault(name.format(outcome), []).append(outcome)
    for name, of_group in groups.items():
        yield row_of(name, of_group)
    met = [o for o in outcomes if (o.preset, o.top) in QUICK and o.verdict != "equivalent"]
    if met:
        quickly = sum(o.quickly for o in met)
        low, high = interval(quickly, len(met))
        yield Row(
            f"killed by the vectors of the quick tests, in the top modules of these tests: {quickly} of {len(met)}; "
            f"95% interval {low:.2f} to {high:.2f}",
            "% killed",
            100 * quickly / len(met),
        )
    yield replace(
        row_of("all", outcomes), promise=f"at least {KILLED}, and the lower end of the interval above {LOWER_BOUND}"
    )
    undecided = sum(outcome.verdict == "undecided" for outcome in outcomes)
    yield Row("faults undecided by the prover", "%", 100 * undecided / max(1, len(outcomes)), f"at most {UNDECIDED}")


def work(size: Size, folder: Path) -> Iterator[tuple[Settings, int, Path]]:
    """For each top module of each datapath, yield the test settings, the number of faults and the build folder."""
    alone = {key: share for key, share in SINGLE.items() if key[0] in size.presets}
    whole = [preset for preset in size.presets if preset not in ALONE]
    of_datapath = (1 - sum(alone.values())) / max(1, len(whole))
    shares = {(preset, top): share * of_datapath for preset in whole for top, share in SHARES.items()} | alone
    for (preset, top), share in shares.items():
        if top in size.items:
            place = (folder / f"{preset}-{top}").resolve()
            yield Settings(preset, top, size.items[top]), round(size.faults * share), place


def run(size: Size, seed: int, jobs: int, folder: Path) -> tuple[list[Outcome], float | None]:
    """Test faults without a stored outcome, by simulation and proof. Return all outcomes and seconds of simulation."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "outcomes.jsonl"
    parameters = {**asdict(size), "presets": [*size.presets], "seed": seed}
    found = {(o.preset, o.top, o.number): o for o in stored(path, parameters)}
    finished = {(o.preset, o.top) for o in found.values()}
    folders = {(settings.preset, settings.top): place for settings, _, place in work(size, folder)}
    seconds = 0.0
    with ProcessPoolExecutor(jobs) as pool, path.open("a", encoding="utf-8") as store:

        def keep(outcomes: list[Outcome]) -> None:
            found.update({(o.preset, o.top, o.number): o for o in outcomes})
            append(store, outcomes)

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
        pending.sort(key=lambda outcome: (outcome.top != "components", outcome.preset, outcome.top))
        batches = [
            of_top[start : start + BATCH]
            for of_top in ([*group] for _, group in groupby(pending, lambda outcome: (outcome.preset, outcome.top)))
            for start in range(0, len(of_top), BATCH)
        ]
        proofs = [pool.submit(prove, batch, folders[batch[0].preset, batch[0].top], size.timeout) for batch in batches]
        for proof in tqdm(as_completed(proofs), total=len(proofs), unit="batch", disable=None):
            keep(proof.result())
    return [*found.values()], seconds if injections else None


def main() -> int:
    """Inject faults; try to prove that undetected faults change no result. Return 1 if tests detect too few faults."""
    parser = options(__doc__)
    parser.add_argument("--faults", type=int, help=f"number of faults to inject (default {FULL.faults})")
    parser.add_argument(
        "--presets", nargs="+", choices=PRESETS, help=f"datapaths to test (default {' '.join(FULL.presets)})"
    )
    parser.add_argument(
        "--tops",
        nargs="+",
        choices=FULL.items,
        help="inject faults only into these top modules, each with as many faults as in a run of all top modules",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of faults and test vectors (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes (default %(default)s)")
    parser.add_argument(
        "--folder", type=Path, default=Path("build/faults"), help="folder with outcomes of faults (default %(default)s)"
    )
    chosen = parser.parse_args()
    size = SMALL if chosen.small else FULL
    tops = chosen.tops or size.items
    size = replace(
        size,
        faults=chosen.faults or size.faults,
        presets=tuple(chosen.presets or size.presets),
        items={top: items for top, items in size.items.items() if top in tops},
    )
    if not any(work(size, chosen.folder)):
        parser.error("none of the given top modules belongs to one of the given datapaths")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) if chosen.small else chosen.folder
        outcomes, seconds = run(size, chosen.seed, chosen.jobs, folder)
    rows = [*rows_of(outcomes)]
    counted = [outcome.verdict for outcome in outcomes if outcome.verdict != "equivalent"]
    killed = counted.count("killed")
    if seconds is not None:
        rows.append(
            Row("time to simulate the vectors, summed over all faults", "s", seconds, "under 600 s on two cores")
        )
    show(rows, chosen.json)
    for outcome in outcomes:
        if outcome.verdict not in ("killed", "equivalent"):
            print(f"{outcome.verdict}: {outcome.preset} {outcome.top}: {outcome.command}", file=sys.stderr)
    enough = (
        100 * killed >= KILLED * len(counted)
        and interval(killed, len(counted))[0] >= LOWER_BOUND
        and 100 * counted.count("undecided") <= UNDECIDED * len(counted)
    )
    return int(not enough and not chosen.small)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Error as error:
        sys.exit(str(error))

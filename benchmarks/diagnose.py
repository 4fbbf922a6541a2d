"""Share of planted kernel faults that ``sptc.diagnose`` names, and verdicts on correct products and flipped bits.

The options ``--faults``, ``--correct`` and ``--flipped`` give numbers of products; ``--large`` gives the number of
faults in products of up to 256 x 256 x 1024. The script reports each product on standard error. The script prints the
rows of a group of products when the group is finished or the script is interrupted.
"""

import signal
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from types import FrameType

import numpy as np
import sptc
from measure import Row, options, show
from planted_products import PLANTED, planted
from random_products import Case, Random, drawn

#: Largest M, N and K of a matrix product: in most products, in product group ``large``, and with `--small`.
LARGEST, LARGE, SMALL = (256, 128, 512), (256, 256, 1024), (64, 32, 128)
GROUPS = ("faults", "correct", "flipped", "large")


@dataclass(frozen=True)
class Task:
    """One matrix product for ``sptc.diagnose``, determined by its group, its number in the group, and a seed."""

    group: str  #: Group of the matrix product, one of `GROUPS`: with a fault, correct, with a flipped bit, or large
    number: int
    seed: int
    largest: tuple[int, int, int]
    names: tuple[str, ...]  #: Names of kernel faults; each product gets the next fault in turn

    @property
    def name(self) -> str:
        """Name of the kernel fault to plant; without a fault, ``correct`` or ``flipped`` (one result bit flipped)."""
        return self.names[self.number % len(self.names)] if self.group in ("faults", "large") else self.group


@dataclass(frozen=True)
class Outcome:
    """Outcome of the diagnosis of one matrix product."""

    task: Task
    seconds: float
    failure: str  #: Operands and text of the diagnosis if it is wrong; empty if the diagnosis is correct


def flipped(rng: Random, case: Case) -> Case:
    """Flip one random bit of the result matrix of a test case."""
    y = np.ascontiguousarray(case.y)
    codes = y.view(f"u{y.dtype.itemsize}").copy()
    place = tuple(int(rng.integers(0, size)) for size in codes.shape)
    codes[place] ^= codes.dtype.type(1 << int(rng.integers(0, 8 * y.dtype.itemsize)))
    case.y = codes.view(y.dtype)
    return case


def drawn_case(task: Task, rng: Random) -> Case:
    """Return a random matrix product to diagnose: correct, with a kernel fault, with a flipped result bit, or both."""
    if task.group in ("faults", "large"):
        return planted(rng, task.name, task.largest)
    if task.group == "flipped" and task.number % 2 == 0:
        return flipped(rng, planted(rng, str(rng.choice([*PLANTED])), task.largest))
    product = drawn(rng, task.largest)
    case = product.case(product.y, "correct")
    return flipped(rng, case) if task.group == "flipped" else case


def outcome(task: Task) -> Outcome:
    """Diagnose a random matrix product, and compare the diagnosis with the planted kernel fault."""
    rng = np.random.default_rng([task.seed, GROUPS.index(task.group), task.number])
    case = drawn_case(task, rng)
    start = time.perf_counter()
    found = sptc.diagnose(case.a, case.b, case.y, **case.words)
    seconds = time.perf_counter() - start
    is_right = not found.explained if task.group == "flipped" else found.explained and found.kind in case.kinds
    words = {word: value for word, value in case.words.items() if isinstance(value, str | bool)}
    return Outcome(task, seconds, "" if is_right else f"({words}, {case.a.shape} x {case.b.shape}): {found}")


def outcomes(tasks: Sequence[Task], jobs: int) -> Iterator[Outcome]:
    """Yield the outcomes of the diagnosis tasks in order of completion."""
    if jobs == 1:
        yield from map(outcome, tasks)
        return
    ignored = signal.SIGINT, signal.SIG_IGN  # A worker ignores Ctrl-C: the parent process ends workers.
    with get_context("spawn").Pool(jobs, signal.signal, ignored) as pool:
        yield from pool.imap_unordered(outcome, tasks)


def rows_of(group: str, done: list[Outcome]) -> list[Row]:
    """Return the figures of one product group (such as ``correct``: without a fault) as rows of the printed table."""
    seconds, wrong = [one.seconds for one in done], sum(bool(one.failure) for one in done)
    if group == "correct":
        return [
            Row("diagnose.correct", "products", len(done), "correct products with random methods of summation"),
            Row("diagnose.called_faulty", "products", wrong, "no correct product is diagnosed as wrong"),
        ]
    if group == "flipped":
        return [
            Row("diagnose.flipped", "products", len(done), "products with one flipped bit in the result"),
            Row("diagnose.flipped_explained", "products", wrong, "0"),
        ]
    prefix, size = ("diagnose", LARGEST) if group == "faults" else ("diagnose.large", LARGE)
    return [
        Row(f"{prefix}.faults", "faults", len(done), f"planted in products of matrices, {' x '.join(map(str, size))}"),
        Row(f"{prefix}.named", "%", 100 * (1 - wrong / len(done)), "at least 95 % of the planted kernel faults"),
        Row(f"{prefix}.median", "s", statistics.median(seconds), "under 10"),
        Row(f"{prefix}.worst", "s", max(seconds), "under 60"),
    ]


def interrupted(number: int, frame: FrameType | None) -> None:
    """Handle a termination signal as an interrupt from the keyboard."""
    raise KeyboardInterrupt


def main() -> int:
    """Diagnose matrix products of each group (faulty, correct, with a flipped bit, large), and print the figures."""
    parser = options(__doc__)
    for group, count in zip(GROUPS, (300, 200, 60, 30), strict=True):
        parser.add_argument(f"--{group}", type=int, default=count)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="number of processes (default %(default)s)")
    parser.add_argument("--only", nargs="*", default=[*PLANTED], metavar="NAME", help="inject only these kernel faults")
    words = parser.parse_args()
    if words.small:
        words.faults, words.correct, words.flipped, words.large = 4, 2, 1, 0
    signal.signal(signal.SIGTERM, interrupted)
    rows: list[Row] = []
    done: list[Outcome] = []
    is_over = False
    for group in GROUPS:
        count, done = getattr(words, group), []
        largest = SMALL if words.small else LARGE if group == "large" else LARGEST
        tasks = [Task(group, number, words.seed, largest, tuple(words.only)) for number in range(count)]
        try:
            for one in outcomes(tasks, words.jobs):
                done.append(one)
                verdict = f"wrong: {one.failure}" if one.failure else "right"
                place = f"{group} {len(done)}/{count} (number {one.task.number})"
                print(f"{place}: {one.task.name}, {one.seconds:.2f} s, {verdict}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            is_over = True
        more = rows_of(group, done) if done else []
        rows += more
        if more and not words.json:
            show(more, as_json=False)
            sys.stdout.flush()
        if is_over:
            break
    if words.json:
        show(rows, as_json=True)
    return 130 if is_over else 0


if __name__ == "__main__":
    sys.exit(main())

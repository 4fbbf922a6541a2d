"""How many planted faults ``sptc.diagnose`` names, and whether it explains correct products or flipped bits by faults.

``--faults``, ``--correct`` and ``--flipped`` are numbers of products; ``--large`` is the number of faults in
products of up to 256 x 256 x 1024, which are timed alone.
"""

import statistics
import sys
import time

import numpy as np
import sptc
from measure import Row, options, show
from planted_products import PLANTED, planted
from random_products import Case, Random, drawn
from sptc.gemm.diagnosis import Diagnosis


def diagnosed(case: Case) -> tuple[Diagnosis, float]:
    """Return the diagnosis of a product and its seconds."""
    start = time.perf_counter()
    found = sptc.diagnose(case.a, case.b, case.y, **case.words)
    return found, time.perf_counter() - start


def faults(rng: Random, count: int, largest: tuple[int, int, int], names: list[str]) -> tuple[list[float], list[str]]:
    """Diagnose planted faults, of each name in turn; return seconds and what was not named."""
    seconds, missed = [], []
    for number in range(count):
        name = names[number % len(names)]
        case = planted(rng, name, largest)
        found, took = diagnosed(case)
        seconds.append(took)
        if not (found.explained and found.kind in case.kinds):
            words = {word: value for word, value in case.words.items() if isinstance(value, str | bool)}
            missed.append(f"{name} ({words}, {case.a.shape} x {case.b.shape}): {found}")
            print(missed[-1], file=sys.stderr)
    return seconds, missed


def correct(rng: Random, count: int, largest: tuple[int, int, int]) -> int:
    """Return how many correct products of random ways are diagnosed as faulty."""
    wrong = 0
    for _ in range(count):
        product = drawn(rng, largest)
        found, _ = diagnosed(product.case(product.y))
        wrong += found.kind != "correct"
    return wrong


def flipped(rng: Random, count: int, largest: tuple[int, int, int]) -> int:
    """Return how many products with one flipped bit are explained; half of them have a fault besides."""
    explained = 0
    for number in range(count):
        product = drawn(rng, largest)
        case = product.case(product.y) if number % 2 else planted(rng, str(rng.choice([*PLANTED])), largest)
        y = np.ascontiguousarray(case.y)
        codes = y.view(f"u{y.dtype.itemsize}").copy()
        place = tuple(int(rng.integers(0, size)) for size in codes.shape)
        codes[place] ^= codes.dtype.type(1 << int(rng.integers(0, 8 * y.dtype.itemsize)))
        case.y = codes.view(y.dtype)
        found, _ = diagnosed(case)
        if found.explained:
            explained += 1
            print(f"flipped bit explained: {case.words} {found}", file=sys.stderr)
    return explained


def main() -> int:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--correct", type=int, default=200)
    parser.add_argument("--flipped", type=int, default=60)
    parser.add_argument("--large", type=int, default=30, help="faults at 256 x 256 x 1024, whose times are rows")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[*PLANTED], metavar="NAME", help="names of faults to plant")
    words = parser.parse_args()
    rng, largest = np.random.default_rng(words.seed), (256, 128, 512)
    if words.small:
        words.faults, words.correct, words.flipped, words.large, largest = 4, 2, 1, 1, (64, 32, 128)
    seconds, missed = faults(rng, words.faults, largest, words.only)
    rows = [
        Row("diagnose.faults", "faults", len(seconds), "planted"),
        Row("diagnose.named", "%", 100 * (1 - len(missed) / max(1, len(seconds))), "of planted faults; at least 95"),
        Row("diagnose.median", "s", statistics.median(seconds or [0.0]), "for products up to 256 x 128 x 512"),
        Row("diagnose.correct", "products", words.correct, "of random ways"),
        Row("diagnose.called_faulty", "products", correct(rng, words.correct, largest), "of the correct; 0"),
        Row("diagnose.flipped", "products", words.flipped, "with one flipped bit"),
        Row("diagnose.flipped_explained", "products", flipped(rng, words.flipped, largest), "0"),
    ]
    if words.large and not words.small:
        seconds, more = faults(rng, words.large, (256, 256, 1024), words.only)
        rows += [
            Row("diagnose.large.missed", "faults", len(more), f"of {words.large}"),
            Row("diagnose.large.median", "s", statistics.median(seconds), "256 x 256 x 1024 at most; under 10"),
            Row("diagnose.large.worst", "s", max(seconds), "under 60"),
        ]
    show(rows, words.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

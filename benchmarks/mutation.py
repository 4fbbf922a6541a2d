"""Mutation testing of Python code: share of mutants (changed operators, constants, conditions) that quick tests detect.

cosmic-ray (extra ``mutation``) makes the mutants, and a random sample of the mutants is tested. Each mutant is written
into a copy of the checkout. In this copy, pytest runs the quick tests of the mutated subpackage until a test fails,
first the test files named after the mutated file. The script prints undetected mutants as unified diffs. An undetected
mutant either computes the same results, or shows that a test is missing.
"""

import difflib
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from measure import Row, options, show
from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[1]
#: Subpackages whose Python code can be mutated. For the hardware, `faults.py` injects faults instead.
ROOMS = ("isa", "golden", "api", "gemm", "tensors", "verify")
#: Patterns of files that are not copied to the tested checkout.
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "build", "__pycache__", ".*_cache", ".hypothesis", "docs")
#: Time limit in seconds for the tests of a mutant. A mutant whose tests exceed this limit counts as detected.
PATIENCE = 900
#: Exit statuses of pytest that report no failed test.
_PASSED, _NOTHING_COLLECTED = 0, 5


@dataclass(frozen=True)
class Mutant:
    """Mutant: a source file with one mutation."""

    path: Path  #: Path of the file, relative to the root of the repository
    operator: str  #: Name of the mutation operator in cosmic-ray
    #: Contents of the mutated file before and after the mutation.
    source: str
    mutated: str

    @property
    def difference(self) -> str:
        """Change of the mutated file as a unified diff."""
        lines = (text.splitlines() for text in (self.source, self.mutated))
        return "\n".join(difflib.unified_diff(*lines, str(self.path), self.operator, lineterm="", n=0))


def mutants(paths: list[Path], count: int, rng: random.Random) -> Iterator[Mutant]:
    """Yield `count` random mutants of Python files. All possible mutations of a file are equally likely."""
    plugins, mutating, ast = (import_module(f"cosmic_ray.{name}") for name in ("plugins", "mutating", "ast"))
    classes = {name: plugins.get_operator(name) for name in plugins.operator_names()}
    operators: dict[str, Any] = {name: made() for name, made in classes.items() if not made.arguments()}
    for _ in range(count):
        path = rng.choice(paths)
        source = (ROOT / path).read_text(encoding="utf-8")
        nodes = [*ast.ast_nodes(ast.get_ast(source))]
        places = [
            (name, place)
            for name, operator in operators.items()
            for place in range(sum(len([*operator.mutation_positions(node)]) for node in nodes))
        ]
        name, place = rng.choice(places)
        yield Mutant(path, name, source, mutating.mutate_code(source, operators[name], place))


def is_found(mutant: Mutant, checkout: Path) -> bool:
    """Return whether a quick test of the mutated subpackage fails for this mutant in a copy of the checkout.

    Parameters
    ----------
    mutant : Mutant
        Mutant that replaces the original file in the copy during the tests.
    checkout : Path
        Copy of the checkout, a folder named ``sptc``.
    """
    file, tests = checkout / mutant.path, checkout / "tests" / mutant.path.parts[0]
    file.write_text(mutant.mutated, encoding="utf-8")
    try:
        named = sorted(tests.glob(f"test_{mutant.path.stem}*.py"))
        return any(_fails(paths, checkout) for paths in (named, [tests]) if paths)
    finally:
        file.write_text(mutant.source, encoding="utf-8")


def _fails(tests: list[Path], checkout: Path) -> bool:
    words = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", "--seed=0"]
    environment = {**os.environ, "PYTHONPATH": str(checkout.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [*words, *map(str, tests)],
            cwd=checkout,
            env=environment,
            capture_output=True,
            check=False,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode not in (_PASSED, _NOTHING_COLLECTED)


def main() -> None:
    """Draw random mutants, test each mutant, and print undetected mutants and the share of detected mutants."""
    parser = options((__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--rooms", nargs="+", choices=ROOMS, default=ROOMS, metavar="ROOM", help="subpackages to mutate"
    )
    parser.add_argument(
        "--mutants",
        type=int,
        default=100,
        metavar="N",
        help="number of mutants (default %(default)s, which take about an hour)",
    )
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(2**31), help="seed of the random numbers (default: random)"
    )
    chosen = parser.parse_args()
    if find_spec("cosmic_ray") is None:
        print("this benchmark needs cosmic-ray: install it with `pip install -e '.[mutation]'`", file=sys.stderr)
        sys.exit(2)
    print(f"--seed {chosen.seed}", file=sys.stderr)
    files = sorted(path.relative_to(ROOT) for room in chosen.rooms for path in (ROOT / room).rglob("*.py"))
    sample = [*mutants(files, 2 if chosen.small else chosen.mutants, random.Random(chosen.seed))]
    jobs = len(os.sched_getaffinity(0))
    free: SimpleQueue[Path] = SimpleQueue()

    def ask(mutant: Mutant) -> bool:
        checkout = free.get()
        try:
            return is_found(mutant, checkout)
        finally:
            free.put(checkout)

    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(jobs) as pool:
        for job in range(jobs):
            free.put(Path(shutil.copytree(ROOT, Path(scratch) / str(job) / "sptc", ignore=_LEFT_OUT)))
        results = list(tqdm(pool.map(ask, sample), total=len(sample), unit="mutant", disable=None))
    for mutant, detected in zip(sample, results, strict=True):
        if not detected:
            print(mutant.difference, file=sys.stderr)
    show([Row("mutants detected by quick tests", "%", 100 * sum(results) / len(results))], chosen.json)


if __name__ == "__main__":
    main()

"""What the tests cost in processor time: ``python tests/cost.py`` says so of the last runs, and what is over budget.

A run with ``--cost FILE`` (``make test`` and ``make regression`` pass it) measures each test, each fixture that several
tests share, and each process as a whole; processes that a test starts and waits for are included: compilers, Yosys,
ABC, simulators. Nothing fails because of it.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Generator, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Cost", "CostPlugin", "report"]

ROOT = Path(__file__).resolve().parents[1]
#: Where the tiers leave their costs.
QUICK, REGRESSION = ROOT / "build" / "cost" / "quick.json", ROOT / "build" / "regression" / "latest"
#: Processor seconds beyond which a quick test, what tests share, and the quick tier are over budget.
MOST_OF_TEST, MOST_OF_SHARED, MOST_OF_TIER = 5.0, 30.0, 600.0
#: Tests that the summary lists.
LISTED = 15


@dataclass
class Cost:
    """Processor seconds of a run."""

    #: Of each test by its name, without the fixtures that it shares with other tests.
    tests: dict[str, float] = field(default_factory=dict)
    #: Of each fixture that serves several tests, by its folder or file and its name.
    shared: dict[str, float] = field(default_factory=dict)
    #: Of all processes of the run, imports and collection included.
    processes: float = 0.0

    def add(self, other: "Cost") -> None:
        """Add the cost of another process."""
        self.tests |= other.tests
        self.shared = dict(Counter(self.shared) + Counter(other.shared))
        self.processes += other.processes


def _processor_seconds() -> float:
    """Return the processor time of this process and of those that it has waited for."""
    return sum(os.times()[:4])


class CostPlugin:
    """Measures a run of pytest, workers included, and writes its cost to a file as JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cost = Cost()
        self._in_fixtures = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Measure a test, its set-up and its end."""
        start, self._in_fixtures = _processor_seconds(), 0.0
        try:
            return (yield)
        finally:
            self._cost.tests[item.nodeid] = _processor_seconds() - start - self._in_fixtures

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Measure what several tests share; a fixture that asks for another is charged without it."""
        start, before = _processor_seconds(), self._in_fixtures
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                seconds = _processor_seconds() - start - (self._in_fixtures - before)
                name = f"{fixturedef.baseid or 'tests'}::{fixturedef.argname}"
                self._cost.shared[name] = self._cost.shared.get(name, 0.0) + seconds
                self._in_fixtures += seconds

    def pytest_testnodedown(self, node: Any) -> None:
        """Add what a worker measured."""
        if cost := getattr(node, "workeroutput", {}).get("cost"):
            self._cost.add(Cost(**cost))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the cost to the process that the workers belong to, or write it."""
        if hasattr(session.config, "workeroutput"):
            self._cost.processes = _processor_seconds()
            session.config.workeroutput["cost"] = asdict(self._cost)
        else:
            # Workers are children and have reported their cost; without workers all children belong to tests.
            is_alone = not self._cost.processes
            self._cost.processes += _processor_seconds() if is_alone else sum(os.times()[:2])
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(asdict(self._cost)), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the cost."""
        terminalreporter.section("processor seconds")
        for line in report(self._cost, is_quick=True):
            terminalreporter.write_line(line)


def report(cost: Cost, *, is_quick: bool) -> Iterable[str]:
    """Yield lines with the cost of folders, the dearest tests, and what is over budget."""
    names = cost.tests | cost.shared
    folders: Counter[str] = Counter()
    for name, seconds in names.items():
        folders["/".join(name.partition("::")[0].split("/")[:2])] += seconds
    yield f"{cost.processes:8.1f} in all, of which {sum(cost.tests.values()):.1f} in {len(cost.tests)} tests"
    yield from (f"{seconds:8.1f} {name}" for name, seconds in folders.most_common() if seconds >= 0.05)
    yield f"the {LISTED} dearest tests"
    yield from (f"{seconds:8.1f} {name}" for name, seconds in Counter(cost.tests).most_common(LISTED))
    over = {name: seconds for name, seconds in cost.shared.items() if seconds > MOST_OF_SHARED}
    if is_quick:
        over |= {name: seconds for name, seconds in cost.tests.items() if seconds > MOST_OF_TEST}
        over |= {"the quick tier": cost.processes} if cost.processes > MOST_OF_TIER else {}
    if over:
        yield f"over budget: a quick test {MOST_OF_TEST:g}, shared {MOST_OF_SHARED:g}, the quick tier {MOST_OF_TIER:g}"
        yield from (f"{seconds:8.1f} {name}" for name, seconds in Counter(over).most_common())


def main() -> int:
    """Print what the last runs of both tiers cost; return 2 if there is none."""
    tiers = {"quick": [QUICK] * QUICK.exists(), "regression": sorted(REGRESSION.glob("*.cost"))}
    for tier, paths in tiers.items():
        total = Cost()
        for path in paths:
            total.add(Cost(**json.loads(path.read_text(encoding="utf-8"))))
        if paths:
            print(f"{tier} tier")
            print("\n".join(report(total, is_quick=tier == "quick")))
    if not any(tiers.values()):
        print("the folder build/ has no costs of a test run: run `make test`", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

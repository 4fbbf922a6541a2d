"""Processor time of tests: ``python tests/cost.py`` prints the costs of the last runs, and tests that are over budget.

``make test`` and ``make regression`` measure each test, each fixture that several tests share, and each process. Child
processes that have ended are included. Tests over budget are listed, but do not fail.
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
#: File with the cost of the last quick run, and folder with the costs of the last regression, one file per test file.
QUICK, REGRESSION = ROOT / "build" / "cost" / "quick.json", ROOT / "build" / "regression" / "latest"
#: Budgets in processor seconds: for a quick test, for a shared fixture, and for the whole quick tier.
MOST_OF_TEST, MOST_OF_SHARED, MOST_OF_TIER = 5.0, 30.0, 600.0
#: Number of tests that the report lists.
LISTED = 15


@dataclass
class Cost:
    """Processor time of a test run in seconds."""

    #: Processor seconds by test name, without shared fixtures.
    tests: dict[str, float] = field(default_factory=dict)
    #: Processor seconds by shared fixture: its folder or file, and its name.
    shared: dict[str, float] = field(default_factory=dict)
    #: Processor seconds of all processes of the run, including imports and collection.
    processes: float = 0.0

    def add(self, other: "Cost") -> None:
        self.tests |= other.tests
        self.shared = dict(Counter(self.shared) + Counter(other.shared))
        self.processes += other.processes


def _processor_seconds() -> float:
    """Return the processor time in seconds of this process and of its finished child processes."""
    return sum(os.times()[:4])


class CostPlugin:
    """Pytest plugin that measures a run, workers included, and writes its cost to a file as JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cost = Cost()
        self._in_fixtures = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        start, self._in_fixtures = _processor_seconds(), 0.0
        try:
            return (yield)
        finally:
            self._cost.tests[item.nodeid] = _processor_seconds() - start - self._in_fixtures

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Measure a fixture that several tests share, without the fixtures that it requests itself."""
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
        """Add the cost that a worker process has measured."""
        if cost := getattr(node, "workeroutput", {}).get("cost"):
            self._cost.add(Cost(**cost))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """In a worker, send the cost to the main process. In the main process, write the cost to the file."""
        if hasattr(session.config, "workeroutput"):
            self._cost.processes = _processor_seconds()
            session.config.workeroutput["cost"] = asdict(self._cost)
        else:
            # Child processes are workers, which have reported their own cost, or else tools that tests have started.
            is_alone = not self._cost.processes
            self._cost.processes += _processor_seconds() if is_alone else sum(os.times()[:2])
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(asdict(self._cost)), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("processor seconds")
        for line in report(self._cost, is_quick=True):
            terminalreporter.write_line(line)


def report(cost: Cost, *, is_quick: bool) -> Iterable[str]:
    """Yield report lines: costs of folders, the tests with the highest cost, and tests that are over budget."""
    names = cost.tests | cost.shared
    folders: Counter[str] = Counter()
    for name, seconds in names.items():
        folders["/".join(name.partition("::")[0].split("/")[:2])] += seconds
    tests = sum(cost.tests.values())
    yield f"{cost.processes:8.1f} CPU seconds in all processes, of which {tests:.1f} in {len(cost.tests)} tests"
    yield from (f"{seconds:8.1f} {name}" for name, seconds in folders.most_common() if seconds >= 0.05)
    yield f"the {LISTED} most expensive tests"
    yield from (f"{seconds:8.1f} {name}" for name, seconds in Counter(cost.tests).most_common(LISTED))
    over = {name: seconds for name, seconds in cost.shared.items() if seconds > MOST_OF_SHARED}
    if is_quick:
        over |= {name: seconds for name, seconds in cost.tests.items() if seconds > MOST_OF_TEST}
        over |= {"the quick tier": cost.processes} if cost.processes > MOST_OF_TIER else {}
    if over:
        limits = f"quick test {MOST_OF_TEST:g}, shared fixture {MOST_OF_SHARED:g}, whole quick tier {MOST_OF_TIER:g}"
        yield f"over budget (the limits are: {limits})"
        yield from (f"{seconds:8.1f} {name}" for name, seconds in Counter(over).most_common())


def main() -> int:
    """Print the costs of the last runs of both tiers. Return 2 if there was no run."""
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

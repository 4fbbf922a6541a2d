"""Functions that benchmarks share: shortest time of several calls on one core, output as a table or as JSON."""

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Row", "best_seconds", "one_core", "options", "show"]


@dataclass(frozen=True)
class Row:
    """One measured figure: name, unit, value, and the bound that the value must meet, as text."""

    name: str
    unit: str
    value: float
    promise: str = ""


def one_core() -> None:
    """Restrict this process, and libraries loaded later, to one core. Call this function before importing numpy."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def best_seconds(work: Callable[[], object], repeats: int = 5, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the shortest time of several calls in seconds, after one untimed call."""
    work()
    seconds = []
    for _ in range(repeats):
        start = clock()
        work()
        seconds.append(clock() - start)
    return min(seconds)


def options(description: str | None) -> argparse.ArgumentParser:
    """Return an argument parser with the options that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print a JSON list of objects with name, unit and value")
    parser.add_argument(
        "--small",
        action="store_true",
        help="run once with small sizes, as a test of the script; the figures are meaningless",
    )
    return parser


def show(rows: list[Row], as_json: bool) -> None:
    """Print measured figures as a table or as JSON."""
    if as_json:
        print(json.dumps([{"name": row.name, "unit": row.unit, "value": row.value} for row in rows], indent=1))
        return
    width = max(len(row.name) for row in rows)
    for row in rows:
        promise = f"  ({row.promise})" if row.promise else ""
        print(f"{row.name:{width}}  {row.value:10.2f} {row.unit}{promise}")

"""Synthesise netlists and cache the measurements by content. The cache is safe for concurrent processes."""

import hashlib
import importlib.metadata
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from .. import __version__
from ..errors import BackendError, FileError
from ..infra.cache import recall, store
from ..infra.nextpnr import PLACING, nextpnr_version
from ..infra.pools import Pool, cluster_pool, local_pool
from ..infra.reading import parse_json
from ..infra.yosys import run_yosys, yosys_folder, yosys_version
from .netlist import Netlist
from .recipe import Recipe, Route

__all__ = ["Measurement", "Request", "measure", "measure_all", "versions", "workers"]

#: Request for a measurement: a netlist and its synthesis recipe.
Request = tuple[Netlist, Recipe]
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True)
class Measurement:
    """Result of the synthesis of a netlist: its size, its longest path, and its number of cells of each type."""

    #: Measured amounts, with the names of :attr:`~sptc.synth.recipe.Recipe.amounts`: ``area`` in the library's unit,
    #: ``gates`` in gate equivalents, or cells of an FPGA.
    amounts: dict[str, float]
    #: Length of the longest path: in picoseconds with a library or after placement in an FPGA, otherwise in gates.
    longest: float | None
    #: Number of cells of each type, including black boxes. With several port orders: the cells of the first order.
    cells: dict[str, int]
    seconds: float  #: Duration of the synthesis in seconds. A cached result has the original duration.
    cached: bool = False  #: Whether the result comes from the cache
    route: Route | None = None  #: Timing and resource report of nextpnr, if the netlist was placed and routed
    #: Measurements of the same netlist with its ports in several orders; empty for a single order. The amounts in this
    #: measurement are medians over these orders.
    orders: tuple["Measurement", ...] = ()

    @property
    def figures(self) -> dict[str, float]:
        """Measured amounts (area, gates or cells) by name, and the longest path, if measured, as ``longest``."""
        return self.amounts | ({} if self.longest is None else {"longest": self.longest})

    @property
    def scatter(self) -> dict[str, tuple[float, float]]:
        """Deviation, in per cent, of each figure's least and largest value from its median over all orders of ports."""
        values = {name: [one.figures[name] for one in self.orders] for name in self.figures if self.orders}
        return {
            name: (100 * (min(of_name) / self.figures[name] - 1), 100 * (max(of_name) / self.figures[name] - 1))
            for name, of_name in values.items()
            if self.figures[name]
        }


def versions(*, place: bool = False) -> dict[str, str]:
    """Return the versions of all tools that affect a measurement: ``sptc``, ``amaranth``, ``pyosys`` and ``abc``.

    ``pyosys`` is the Yosys that commands run, which includes ABC. Tools that are not installed are left out. With
    `place` the result includes ``nextpnr``, see :func:`~sptc.infra.nextpnr.nextpnr_version`.
    """
    tools = {"sptc": __version__}
    for name, version in (("amaranth", partial(importlib.metadata.version, "amaranth")), ("pyosys", yosys_version)):
        with suppress(importlib.metadata.PackageNotFoundError, BackendError):
            tools[name] = version()
    folder = yosys_folder()
    if folder and (abc := _version_of_abc(folder / "yosys-abc")):
        tools["abc"] = abc
    return tools | ({"nextpnr": nextpnr_version()} if place else {})


@cache
def _version_of_abc(program: Path) -> str:
    if not shutil.which(program):
        return ""
    printed = subprocess.run([program, "-q", "version"], capture_output=True, text=True, check=False).stdout
    banner = next((line for line in printed.splitlines() if "ABC " in line), "")
    return banner.partition("ABC ")[2].strip()


def measure(netlist: Netlist, recipe: Recipe, scratch: Path | None = None) -> Measurement:
    """Synthesise a netlist, or return the cached result for the same netlist, recipe, library and tools.

    `scratch` is an existing folder for the files of Yosys, by default a temporary one. Raise a `BackendError` if Yosys
    or nextpnr is not installed or fails, or the technology lacks a cell.
    """
    return _medians([*_measure_runs(netlist, recipe.runs(), scratch).values()])


def _measure_runs(netlist: Netlist, runs: Sequence[Recipe], scratch: Path | None) -> dict[str, Measurement]:
    """Measure a netlist in runs that differ only in the seed; use cached results. Return results by hash of the run."""
    keys = {_fingerprint(netlist, run): run for run in runs}
    earlier = {key: _recall(_entry(key)) for key in keys}
    missing = {key: run for key, run in keys.items() if earlier[key] is None}
    if missing:
        for key, measurement in zip(missing, _synthesised(netlist, [*missing.values()], scratch), strict=True):
            store(_entry(key), json.dumps(asdict(measurement)).encode())
            earlier[key] = measurement
    return {key: measurement for key, measurement in earlier.items() if measurement}


def _synthesised(netlist: Netlist, runs: Sequence[Recipe], scratch: Path | None) -> list[Measurement]:
    """Synthesise a netlist in one or more orders of its ports, and return a measurement for each order."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder, first = Path(name), runs[0]
        for file, data in first.files(netlist).items():
            (folder / file).write_bytes(data)
        printed = run_yosys(folder, first.script_of(netlist, runs))
        route = first.route(folder)
        parts = zip(runs, first.printed_of(runs, printed), strict=True)
        results = [run.read(part, folder, route) for run, part in parts]
    seconds = (time.perf_counter() - start) / len(runs)
    return [Measurement(*result, seconds, route=route) for result in results]


@contextmanager
def workers(jobs: int, scheduler: str | None = None) -> Iterator[tuple[Pool, Path | None]]:
    """Start processes on this machine, or connect to the Dask scheduler of a cluster at the given address.

    Yield the pool, and on this machine a folder for the files of Yosys.
    """
    if scheduler is not None:
        with cluster_pool(scheduler) as pool:
            yield pool, None
        return
    # The scratch folder must exist longer than the worker pool, because files of killed workers are removed only after
    # the workers have ended.
    with tempfile.TemporaryDirectory() as scratch, local_pool(jobs) as pool:
        yield pool, Path(scratch)


def measure_all(
    requests: Mapping[_Key, Request], jobs: int, progress: Callable[[int, int], None] = lambda done, total: None
) -> dict[_Key, Measurement]:
    """Measure many netlists on this machine. Equal netlists are measured once.

    The measurements have the keys of their requests. `progress` is called with the numbers of finished and of all
    single measurements. There is one single measurement for each order of the ports. Errors are those of
    :func:`measure` and of :meth:`~sptc.infra.pools.Pool.collect`.
    """
    runs = {
        name: {_fingerprint(netlist, run): run for run in recipe.runs()} for name, (netlist, recipe) in requests.items()
    }
    distinct = {tuple(keys): (requests[name][0], [*keys.values()]) for name, keys in runs.items()}
    # Synthesis starts with the largest netlists, so that no long run is left at the end. If there are more processes
    # than netlists, several processes share the runs of a netlist, each with its ports in another order.
    largest = sorted(distinct.values(), key=lambda one: -len(one[0].text))
    shares = -(-jobs // max(1, len(largest)))
    tasks = [(netlist, part[k::shares]) for netlist, part in largest for k in range(min(shares, len(part)))]
    total = sum(len(keys) for keys in distinct)
    measurements: dict[str, Measurement] = {}
    progress(0, total)
    with workers(jobs) as (pool, scratch):
        for found in chain.from_iterable(pool.run(_measure_runs, ((*task, scratch) for task in tasks))):
            measurements |= found
            progress(len(measurements), total)
    return {name: _medians([measurements[key] for key in keys]) for name, keys in runs.items()}


def _medians(runs: Sequence[Measurement]) -> Measurement:
    """Return the medians of measurements of one netlist with its ports in several orders, or the only measurement."""
    if len(runs) == 1:
        return runs[0]
    figures = {name: median(one.figures[name] for one in runs) for name in runs[0].figures}
    longest = figures.pop("longest", None)
    seconds, cached = sum(one.seconds for one in runs), all(one.cached for one in runs)
    return Measurement(figures, longest, runs[0].cells, seconds, cached, orders=tuple(runs))


def _entry(key: str) -> str:
    """Return the name under which the cache stores a measurement with a given fingerprint."""
    return f"synth/{key}.json"


def _fingerprint(netlist: Netlist, recipe: Recipe) -> str:
    """Return a hash of everything that affects a measurement. Names of netlist and library do not affect the hash."""
    tools = {name: version for name, version in versions(place=recipe.place).items() if name != "sptc"}
    if recipe.place:
        tools["nextpnr"] += f" {PLACING}"
    digest = hashlib.sha256(repr(sorted(tools.items())).encode())
    for part in (recipe.script(netlist).encode(), *(data for _, data in sorted(recipe.files(netlist).items()))):
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:40]


def _recall(name: str) -> Measurement | None:
    """Return a cached measurement, or None if the cache has none that this version of sptc can read."""
    data = recall(name)
    if data is None:
        return None
    try:
        fields: dict[str, Any] = parse_json(data, name)
        fields["amounts"] = {str(name): float(value) for name, value in fields["amounts"].items()}
        fields["longest"] = None if fields["longest"] is None else float(fields["longest"])
        fields["cells"] = {str(name): int(count) for name, count in fields["cells"].items()}
        return Measurement(**fields | {"seconds": float(fields["seconds"]), "cached": True, "orders": ()})
    except (FileError, KeyError, ValueError, TypeError, AttributeError):
        return None

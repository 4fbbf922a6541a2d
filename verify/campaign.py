"""Campaigns: continuous regression of hardware against the golden model, until a limit or the first mismatch.

The totals of a campaign are in memory and, on request, in a folder from which a later process can resume the campaign.
The folder holds a journal, ``campaign.db``, with the parameters and an entry for each finished shard; and
``coverage.json`` if coverage is sampled. With coverage, the files are written once a second: first the coverage, then
the entries of the shards whose hits the coverage includes. A campaign that was killed therefore repeats the shards of
its last second, and loses no shard.
"""

import gzip
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..api.backends import backend
from ..errors import FileError
from ..infra.journal import Journal
from ..infra.pools import Pool
from ..isa.evidence import Form, form_of
from ..rtl.config import PRESET_OF_ARCHITECTURE
from ..sim.coverage.groups import Coverage
from .shards import Plan, Shard, ShardResult, empty_coverage, run_shard

__all__ = ["Record", "StateFolder", "Totals", "campaign_record", "parameters", "prepare", "run", "unfinished"]

_COVERAGE = "coverage.json"
#: Minimum interval in seconds between two writes of the coverage file.
_INTERVAL = 1.0
#: Exclusive upper bound of seeds, counts and shard numbers (indices of groups of tiles) in a campaign's journal.
_MOST = 1 << 63


@dataclass
class Totals:
    """Numbers of finished shards (groups of tiles), compared outputs and mismatches, of a campaign or a part of it."""

    shards: int = 0
    outputs: int = 0
    mismatches: int = 0

    def add(self, shard: Shard, mismatches: int) -> None:
        """Count a finished shard (group of tiles that are compared together), its outputs and its mismatches."""
        self.shards += 1
        self.outputs += shard.outputs
        self.mismatches += mismatches


def parameters(plan: Plan, sample: bool, version: str) -> dict[str, Any]:
    """Return the parameters that determine the results of a campaign, by option name."""
    return {
        "version": version,
        "seed": plan.seed,
        "arch": list(plan.architectures),
        "instruction": list(plan.instructions),
        "tiles": plan.tiles,
        "backends": list(plan.backends),
        "every_n": plan.every_n,
        "coverage": sample,
    }


class StateFolder:
    """Folder with the state of a campaign. It is created if missing, and only one process at a time can lock it.

    `parameters` are the parameters of the campaign in the folder, or None if the folder holds no campaign. Raise a
    `FileError` if the folder cannot be created or read, holds other data, or is in use.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = Journal(path, "campaign")
        self._waiting: dict[int, Mapping[str, Any]] = {}
        self._written = time.monotonic()
        task = self.journal.task
        try:
            if (path / _COVERAGE).is_symlink():  # if the path is a link, writing would change another file
                self.journal.require_plain([_COVERAGE])
            if task is not None and not (isinstance(task, dict) and _is_count(task.get("seed"))):
                raise self.journal.damaged()
        except FileError:
            self.close()
            raise
        self.parameters: dict[str, Any] | None = task

    def begin(self, requested: Mapping[str, Any]) -> None:
        """Store the parameters of a new campaign; raise a `FileError` if the folder holds another campaign."""
        if self.parameters is None:
            self.journal.begin(requested)
            self.parameters = dict(requested)
        differing = [
            f"{name} {_spell(self.parameters.get(name))}, not {_spell(value)}"
            for name, value in requested.items()
            if self.parameters.get(name) != value
        ]
        if differing:
            raise FileError(f"{self.path} holds results of a campaign with other parameters: {'; '.join(differing)}")

    def records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield index and record of each finished shard (group of tiles); raise a `FileError` for a damaged entry."""
        for index, record in self.journal.entries():
            if not isinstance(record, dict) or not _is_shard(index, record):
                raise self.journal.damaged(index)
            yield index, {name: record[name] for name in ("instruction", "a_from", "mismatches")}

    def coverage(self) -> Coverage | None:
        """Return the coverage stored in the folder of a campaign; None if the folder has no coverage file."""
        path = self.path / _COVERAGE
        return Coverage.read(path) if path.exists() else None

    def add(self, index: int, record: Mapping[str, Any], coverage: Coverage | None) -> None:
        """Store the result of shard (group of tiles) `index`; with coverage, write to disk at most once per second."""
        self._waiting[index] = record
        if coverage is None or time.monotonic() > self._written + _INTERVAL:
            self.write(coverage)

    def write(self, coverage: Coverage | None) -> None:
        """Write coverage, and results of shards (groups of tiles) not yet written; raise a `FileError` on failure."""
        if coverage:
            coverage.write(self.path / _COVERAGE)
        self.journal.write(self._waiting)
        self._waiting.clear()
        self._written = time.monotonic()

    def close(self) -> None:
        """Release the lock of the campaign's folder, so that other processes can use it."""
        self.journal.close()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C to the end of the ``with`` block, so that counts and coverage are of the same finished shards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if waiting:
            signal.raise_signal(signal.SIGINT)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _is_shard(index: int, record: Mapping[str, Any]) -> bool:
    """Return whether all values in the stored record of a shard (group of tiles) have the right types."""
    is_named = isinstance(record.get("instruction"), str) and record.get("a_from", 0) in (None, "registers", "shared")
    return is_named and _is_count(index) and _is_count(record.get("mismatches"))


def _spell(value: object) -> str:
    return " ".join(map(str, value)) or "any" if isinstance(value, list) else str(value)


class Record:
    """Results of a campaign's finished shards (groups of tiles). Shards that the folder stores are loaded first.

    `pairs` are counts by datapath and pair of formats, `forms` counts by instruction and location of A, and `total` the
    counts of the campaign. `coverage` is the merged coverage of all shards. `failed` is the shard with the lowest index
    among all shards with a mismatch, or None.
    """

    def __init__(self, plan: Plan, folder: StateFolder | None, sample: bool) -> None:
        self.plan = plan
        self.folder = folder
        self.pairs: dict[tuple[str, str], Totals] = {}
        self.forms: dict[Form, Totals] = {}
        self.total = Totals()
        self.coverage = Coverage() if sample else None
        self.failed: Shard | None = None
        self._first = 0  # index of the first unfinished shard (group of tiles)
        self._beyond: set[int] = set()
        if folder:
            for index, record in folder.records():
                shard = plan.shard(index)
                if shard.subject.name != record["instruction"] or record["mismatches"] > shard.outputs:
                    raise folder.journal.damaged(index)
                self._count(ShardResult(shard, record["mismatches"], record["a_from"]))
            if sample:
                self.coverage = folder.coverage() or Coverage()

    def __contains__(self, index: int) -> bool:
        return index < self._first or index in self._beyond

    @property
    def reached(self) -> tuple[int, int]:
        """Return the number of coverage bins that were hit, and the number of reachable bins."""
        groups = list(self.coverage or ())
        return sum(group.reached for group in groups), sum(group.reachable for group in groups)

    def add(self, result: ShardResult) -> None:
        """Add the result of a finished shard (group of tiles), which must not be in the record yet."""
        shard = result.shard
        assert shard.index not in self
        with _uninterrupted():
            self._count(result)
            record = {
                "arch": shard.arch,
                "instruction": shard.subject.name,
                "distribution": shard.distribution,
                "any_nibble": shard.any_nibble,
                "a_from": result.a_from,
                "outputs": shard.outputs,
                "mismatches": result.mismatches,
            }
            if self.coverage is not None:
                record["new_bins"] = self._merge(result)
            if self.folder:
                self.folder.add(shard.index, record, self.coverage)

    def flush(self) -> None:
        """Write coverage, and results of shards (groups of tiles) that the campaign's folder does not have yet."""
        if self.folder:
            with _uninterrupted():
                self.folder.write(self.coverage)

    def _count(self, result: ShardResult) -> None:
        shard, mismatches = result.shard, result.mismatches
        form = form_of(shard.instruction, shard.arch, result.a_from, shard.opcode)
        self.pairs.setdefault((shard.preset, shard.pair), Totals()).add(shard, mismatches)
        self.forms.setdefault(form, Totals()).add(shard, mismatches)
        self.total.add(shard, mismatches)
        if mismatches and (self.failed is None or shard.index < self.failed.index):
            self.failed = shard
        self._beyond.add(shard.index)
        while self._first in self._beyond:
            self._beyond.remove(self._first)
            self._first += 1

    def _merge(self, result: ShardResult) -> int:
        """Add the coverage of a shard (group of tiles); return the number of bins hit for the first time."""
        assert self.coverage is not None
        new = 0
        for key, (places, hits) in (result.hits or {}).items():
            group = self.coverage[key]
            flat = group.hits.reshape(-1)
            new += int(np.count_nonzero((flat[places] == 0) & (group.reason.reshape(-1)[places] == 0)))
            flat[places] += hits
        return new

    def expect(self, coverage: Coverage) -> None:
        """Add the coverage groups of a datapath, from :func:`~sptc.verify.shards.empty_coverage`, with no hits yet."""
        assert self.coverage is not None
        self.coverage = self.coverage.merge(coverage)


def campaign_record(record: Record, about: Mapping[str, str]) -> bytes:
    """Return results of a campaign by instruction and location of A, as gzipped JSON for :mod:`sptc.isa.evidence`.

    The JSON has `about` (version, GPU and date of the comparison), architecture, seed, and tiles per shard. It also has
    the numbers of shards, tiles, outputs and mismatches by instruction and location of A. The plan of the campaign must
    have a single architecture.
    """
    plan = record.plan
    instructions: dict[str, dict[str, dict[str, int]]] = {}
    for form, counts in sorted(record.forms.items(), key=lambda entry: (entry[0].instruction, entry[0].a_from)):
        entry = {**vars(counts), "tiles": counts.shards * plan.tiles}
        instructions.setdefault(form.instruction, {})[form.a_from] = entry
    (arch,) = plan.architectures
    contents = {**about, "arch": arch, "seed": plan.seed, "tiles": plan.tiles}
    text = json.dumps({**contents, "total": vars(record.total), "instructions": instructions}, indent=0)
    return gzip.compress(text.encode(), mtime=0)


def prepare(record: Record, pool: Pool, here: bool) -> None:
    """Prepare back ends for all datapaths before workers start, and add coverage groups without hits to the campaign.

    `here` states whether the workers run on this machine. Other workers compile a datapath when they first need it.
    """
    sample = record.coverage is not None
    for arch in record.plan.datapaths:
        if here:
            pool.submit(make_ready, record.plan.backends, arch)
        if sample:
            pool.submit(empty_coverage, PRESET_OF_ARCHITECTURE[arch])
    while pool.busy:
        for coverage in pool.collect():
            if coverage is not None:
                record.expect(coverage)


def make_ready(backends: Sequence[str], arch: str) -> None:
    """Prepare several back ends for an architecture, so that later calls need not compile anything."""
    for name in backends:
        backend(name).make_ready(arch)


def unfinished(record: Record, *, shards: int | None = None, outputs: int | None = None) -> Iterator[Shard]:
    """Yield the unfinished shards (groups of tiles) of a campaign in order, with indices below `shards` if given.

    With `outputs`, stop when all shards up to this point, including finished shards, compare at least `outputs`
    outputs.
    """
    counted = 0
    for shard in record.plan.shards():
        if shard.index == shards or (outputs is not None and counted >= outputs):
            return
        counted += shard.outputs
        if shard.index not in record:
            yield shard


def run(
    record: Record,
    pool: Pool,
    shards: Iterator[Shard],
    seconds: float | None = None,
    finished: Callable[[], None] = lambda: None,
) -> None:
    """Run shards (groups of tiles) until none is left, time is up or one has a mismatch; wait for running shards.

    No shard starts later than `seconds` after the call. `finished` is called when shards have finished, and at short
    intervals while no shard finishes. Raise a `WorkError` if a shard cannot be run, and a `PoolError` if the connection
    to the cluster is lost.
    """
    end = None if seconds is None else time.monotonic() + seconds

    def due() -> Iterator[tuple[Shard, bool]]:
        while record.failed is None and (end is None or time.monotonic() < end) and (shard := next(shards, None)):
            yield shard, record.coverage is not None

    try:
        for results in pool.run(run_shard, due()):
            for result in results:
                record.add(result)
            finished()
    finally:
        record.flush()

"""What a campaign has done: totals in memory and, on request, a folder from which it resumes.

The folder holds a journal, ``campaign.db``, of the parameters and an entry a finished shard, and ``coverage.json`` if
coverage is sampled. Coverage is written first, then the entries of the shards in it, once a second: a campaign that is
killed runs the shards of its last second again, and loses none.
"""

import gzip
import json
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FileError
from ..infra.journal import Journal
from ..isa.evidence import Form, form_of
from ..sim.coverage.groups import Coverage
from .shards import Plan, Shard, ShardResult

__all__ = ["Record", "StateFolder", "Totals", "campaign_record", "parameters"]

_COVERAGE = "coverage.json"
#: Seconds between two writings of coverage.
_INTERVAL = 1.0


@dataclass
class Totals:
    """Counts of one pair of formats of one datapath, or of all.

    Attributes
    ----------
    shards, outputs, mismatches : int
        Shards finished, outputs compared, outputs that differ.
    """

    shards: int = 0
    outputs: int = 0
    mismatches: int = 0

    def add(self, shard: Shard, mismatches: int) -> None:
        """Count a shard."""
        self.shards += 1
        self.outputs += shard.outputs
        self.mismatches += mismatches


def parameters(plan: Plan, sample: bool, version: str) -> dict[str, Any]:
    """Return what decides the results of a campaign, under the names of its options."""
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
    """A campaign's folder, held by one process at a time.

    Parameters
    ----------
    path : Path
        The folder; made if it does not exist.

    Attributes
    ----------
    parameters : dict or None
        Of the campaign that the folder holds, if it holds one.

    Raises
    ------
    FileError
        It cannot be made or read, holds something else, or is in use.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._journal = Journal(path, "campaign")
        self._waiting: dict[int, Mapping[str, Any]] = {}
        self._written = time.monotonic()
        found = self._journal.task
        if found is not None and not (isinstance(found, dict) and isinstance(found.get("seed"), int)):
            self.close()
            raise self.damaged()
        self.parameters: dict[str, Any] | None = found

    def begin(self, wanted: Mapping[str, Any]) -> None:
        """Enter the parameters of a new campaign, or compare them with those of the one to resume.

        Raises
        ------
        FileError
            They differ; the message says which.
        """
        if self.parameters is None:
            self._journal.begin(wanted)
            self.parameters = dict(wanted)
        differing = [
            f"{name} {_spell(self.parameters.get(name))}, not {_spell(value)}"
            for name, value in wanted.items()
            if self.parameters.get(name) != value
        ]
        if differing:
            raise FileError(f"{self.path} holds a campaign of other parameters: {'; '.join(differing)}")

    def records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the index and the record of each finished shard.

        Raises
        ------
        FileError
            An entry is none of ours.
        """
        for index, record in self._journal.entries():
            try:
                yield index, {name: record[name] for name in ("instruction", "a_from", "mismatches")}
            except (TypeError, KeyError):
                raise self.damaged(index) from None

    def damaged(self, index: int | None = None) -> FileError:
        """Return the error for the journal, or the entry of a shard."""
        return self._journal.damaged(index)

    def coverage(self) -> Coverage | None:
        """Return the coverage so far, or None."""
        path = self.path / _COVERAGE
        return Coverage.read(path) if path.exists() else None

    def add(self, index: int, record: Mapping[str, Any], coverage: Coverage | None) -> None:
        """Enter the record of a finished shard; with coverage, once a second."""
        self._waiting[index] = record
        if coverage is None or time.monotonic() > self._written + _INTERVAL:
            self.write(coverage)

    def write(self, coverage: Coverage | None) -> None:
        """Write what waits.

        Raises
        ------
        FileError
            The disk is full, say.
        """
        if coverage:
            coverage.write(self.path / _COVERAGE)
        self._journal.write(self._waiting)
        self._waiting.clear()
        self._written = time.monotonic()

    def close(self) -> None:
        """Let others have the folder."""
        self._journal.close()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait: the journal stays whole without, but not the counts in memory and the coverage beside it."""
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


def _spell(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "any"
    return str(value)


class Record:
    """The finished shards of a campaign.

    Parameters
    ----------
    plan : Plan
        The campaign.
    folder : StateFolder or None
        Where it is kept; what is there already counts.
    sample : bool
        Whether coverage is sampled.

    Attributes
    ----------
    pairs : dict of (preset, pair) to Totals
        Counts by pair of formats.
    forms : dict of Form to Totals
        Counts by form of instruction.
    total : Totals
        All of them.
    coverage : Coverage or None
        Merged.
    failed : Shard or None
        The first one, by index, that has a mismatch.
    """

    def __init__(self, plan: Plan, folder: StateFolder | None, sample: bool) -> None:
        self.plan = plan
        self.folder = folder
        self.pairs: dict[tuple[str, str], Totals] = {}
        self.forms: dict[Form, Totals] = {}
        self.total = Totals()
        self.coverage = Coverage() if sample else None
        self.failed: Shard | None = None
        self._first = 0  # every shard below is finished
        self._beyond: set[int] = set()
        if folder:
            for index, record in folder.records():
                mismatches = record["mismatches"]
                shard = plan.shard(index) if index >= 0 and type(mismatches) is int else None
                if shard is None or str(shard.instruction) != record["instruction"]:
                    raise folder.damaged(index)
                self._count(ShardResult(shard, mismatches, record["a_from"]))
            if sample:
                self.coverage = folder.coverage() or Coverage()

    def __contains__(self, index: int) -> bool:
        return index < self._first or index in self._beyond

    @property
    def reached(self) -> tuple[int, int]:
        """Bins reached and bins that can be."""
        groups = list(self.coverage or ())
        return sum(group.reached for group in groups), sum(group.reachable for group in groups)

    def add(self, result: ShardResult) -> None:
        """Enter a finished shard, once."""
        with _uninterrupted():
            self._add(result)

    def _add(self, result: ShardResult) -> None:
        shard = result.shard
        assert shard.index not in self
        self._count(result)
        record = {
            "arch": shard.arch,
            "instruction": str(shard.instruction),
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
        """Write what the folder does not have yet."""
        if self.folder:
            with _uninterrupted():
                self.folder.write(self.coverage)

    def _count(self, result: ShardResult) -> None:
        shard, mismatches = result.shard, result.mismatches
        form = form_of(shard.instruction, shard.arch, result.a_from)
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
        """Add the hits of a shard; return how many bins were reached for the first time."""
        assert self.coverage is not None
        new = 0
        for key, (places, hits) in (result.hits or {}).items():
            group = self.coverage[key]
            flat = group.hits.reshape(-1)
            new += int(np.count_nonzero((flat[places] == 0) & (group.reason.reshape(-1)[places] == 0)))
            flat[places] += hits
        return new

    def expect(self, coverage: Coverage) -> None:
        """Take in the groups of a datapath, without hits; see :func:`~sptc.verify.shards.empty_coverage`."""
        assert self.coverage is not None
        self.coverage = self.coverage.merge(coverage)


def campaign_record(record: Record, about: Mapping[str, str]) -> bytes:
    """Return what a campaign compared, form by form, as :mod:`sptc.isa.evidence` reads it.

    Parameters
    ----------
    record : Record
        Of a plan for one architecture.
    about : mapping of str to str
        With which version and what GPU it was compared, and when.

    Returns
    -------
    bytes
        JSON, compressed with gzip: `about`, architecture, seed and tiles of a shard, and by instruction and by
        where A was the shards, tiles, outputs and mismatches.
    """
    plan = record.plan
    instructions: dict[str, dict[str, dict[str, int]]] = {}
    for form, counts in sorted(record.forms.items(), key=lambda entry: (entry[0].instruction, entry[0].a_from)):
        found = {**vars(counts), "tiles": counts.shards * plan.tiles}
        instructions.setdefault(form.instruction, {})[form.a_from] = found
    (arch,) = plan.architectures
    contents = {**about, "arch": arch, "seed": plan.seed, "tiles": plan.tiles}
    text = json.dumps({**contents, "total": vars(record.total), "instructions": instructions}, indent=0)
    return gzip.compress(text.encode(), mtime=0)

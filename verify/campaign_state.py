"""What a campaign has done: totals in memory and, on request, a folder from which it resumes.

The folder holds ``campaign.json`` (the parameters), ``shards.jsonl`` (one line a finished shard, appended), and
``coverage.json`` if coverage is sampled. Coverage is written first, then the lines of the shards in it, once a second:
a campaign that is killed runs the shards of its last second again, and loses none.
"""

import fcntl
import json
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import FileError
from ..sim.coverage.groups import Coverage
from .shards import Plan, Shard, ShardResult

__all__ = ["Record", "StateFolder", "Totals", "parameters"]

_PARAMETERS, _SHARDS, _COVERAGE = "campaign.json", "shards.jsonl", "coverage.json"
_SCRATCH = "campaign.json.part"
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
        "every_sparse": plan.every_sparse,
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
        self._log: BinaryIO | None = None
        self._waiting: list[bytes] = []
        self._written = time.monotonic()
        try:
            path.mkdir(parents=True, exist_ok=True)
            held = {entry.name for entry in path.iterdir()}
            strange = held - {_SHARDS, _SCRATCH}  # what a campaign that hardly began leaves behind
            if _PARAMETERS not in held and (strange or (_SHARDS in held and (path / _SHARDS).stat().st_size)):
                raise FileError(f"{path} holds something else than a campaign")
            self._log = (path / _SHARDS).open("a+b")
            self._lock()
            text = (path / _PARAMETERS).read_text(encoding="utf-8") if _PARAMETERS in held else None
        except FileError:
            raise
        except (OSError, ValueError) as error:
            self.close()
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise FileError(f"{path} cannot hold the state of a campaign ({reason})") from None
        self.parameters = None if text is None else self._read_parameters(text)

    def _lock(self) -> None:
        assert self._log
        try:  # a record lock: not inherited by workers, gone with the process
            fcntl.lockf(self._log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise FileError(f"{self.path} is in use by another campaign") from None

    def _read_parameters(self, text: str) -> dict[str, Any]:
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("seed"), int):
            self.close()
            raise FileError(f"{self.path / _PARAMETERS} is damaged")
        return found

    def begin(self, wanted: Mapping[str, Any]) -> None:
        """Enter the parameters of a new campaign, or compare them with those of the one to resume.

        Raises
        ------
        FileError
            They differ; the message says which.
        """
        if self.parameters is None:
            scratch = self.path / _SCRATCH
            try:
                scratch.write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")
                scratch.replace(self.path / _PARAMETERS)
            except OSError as error:
                raise FileError(f"{scratch} cannot be written ({error.strerror})") from None
            self.parameters = dict(wanted)
        differing = [
            f"{name} {_spell(self.parameters.get(name))}, not {_spell(value)}"
            for name, value in wanted.items()
            if self.parameters.get(name) != value
        ]
        if differing:
            raise FileError(f"{self.path} holds a campaign of other parameters: {'; '.join(differing)}")

    def lines(self) -> Iterable[dict[str, Any]]:
        """Yield the records of finished shards, and cut off a last line that was not written to its end.

        Raises
        ------
        FileError
            A whole line is none of ours.
        """
        assert self._log
        self._log.seek(0)
        whole = 0
        for number, line in enumerate(self._log, 1):
            if not line.endswith(b"\n"):
                break
            try:
                record = json.loads(line)
                yield {name: record[name] for name in ("shard", "instruction", "mismatches")}
            except (ValueError, TypeError, KeyError):
                raise self.damaged(number) from None
            whole += len(line)
        self._log.truncate(whole)

    def damaged(self, number: int) -> FileError:
        """Return the error for a line of ``shards.jsonl``."""
        return FileError(f"line {number} of {self.path / _SHARDS} is damaged")

    def coverage(self) -> Coverage | None:
        """Return the coverage so far, or None."""
        path = self.path / _COVERAGE
        return Coverage.read(path) if path.exists() else None

    def add(self, record: Mapping[str, Any], coverage: Coverage | None) -> None:
        """Append the record of a finished shard; with coverage, once a second."""
        self._waiting.append(json.dumps(record).encode() + b"\n")
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
        try:
            assert self._log
            self._log.write(b"".join(self._waiting))
            self._log.flush()
        except OSError as error:
            raise FileError(f"{self.path / _SHARDS} cannot be written ({error.strerror})") from None
        self._waiting.clear()
        self._written = time.monotonic()

    def close(self) -> None:
        """Let others have the folder."""
        if self._log:
            with suppress(OSError):
                self._log.close()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait: a line written by half, or twice, would damage the folder."""
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
        self.total = Totals()
        self.coverage = Coverage() if sample else None
        self.failed: Shard | None = None
        self._first = 0  # every shard below is finished
        self._beyond: set[int] = set()
        if folder:
            for number, line in enumerate(folder.lines(), 1):
                index, mismatches = line["shard"], line["mismatches"]
                valid = type(index) is int and index >= 0 and type(mismatches) is int and index not in self
                shard = plan.shard(index) if valid else None
                if shard is None or str(shard.instruction) != line["instruction"]:
                    raise folder.damaged(number)
                self._count(shard, mismatches)
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
        self._count(shard, result.mismatches)
        record = {
            "shard": shard.index,
            "arch": shard.arch,
            "instruction": str(shard.instruction),
            "distribution": shard.distribution,
            "any_nibble": shard.any_nibble,
            "outputs": shard.outputs,
            "mismatches": result.mismatches,
        }
        if self.coverage is not None:
            record["new_bins"] = self._merge(result)
        if self.folder:
            self.folder.add(record, self.coverage)

    def flush(self) -> None:
        """Write what the folder does not have yet."""
        if self.folder:
            with _uninterrupted():
                self.folder.write(self.coverage)

    def _count(self, shard: Shard, mismatches: int) -> None:
        self.pairs.setdefault((shard.preset, shard.pair), Totals()).add(shard, mismatches)
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
        """Take in the groups of a datapath, without hits; see :func:`~sptc.verify.shards.make_ready`."""
        assert self.coverage is not None
        self.coverage = self.coverage.merge(coverage)

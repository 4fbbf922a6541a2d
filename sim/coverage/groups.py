"""Count hits of covergroup bins, merge counts, read and write coverage files, and list missed or contradicted bins."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import FileError
from ...infra.escapes import one_line
from ...infra.files import write_whole
from ...infra.reading import parse_json, read_text

__all__ = ["VERSION", "Axis", "Coverage", "Group"]

#: Version of the coverage file format; a file of another version is rejected.
VERSION = 1
_KIND = "sptc coverage"


@dataclass(frozen=True)
class Axis:
    """Axis of a covergroup: a named property with one bin for each of its values."""

    name: str
    labels: tuple[str, ...]


@dataclass(eq=False)
class Group:
    """Hit counts of the bins of one covergroup; a bin is a combination of one value on each axis."""

    configuration: str  #: Name of the datapath configuration to which the covergroup belongs
    name: str  #: Name of the covergroup, unique within a datapath configuration
    meaning: str  #: Condition under which a bin of the covergroup is hit, in one or two sentences
    axes: tuple[Axis, ...]
    #: Hit count of each bin, as an array with one dimension per axis of the covergroup.
    hits: NDArray[np.int64] = field(init=False)
    #: Reasons why bins are declared unreachable, one sentence each
    reasons: list[str] = field(init=False, default_factory=list)
    #: For each bin, 0 if the bin is reachable, otherwise 1 + the index of its reason in `reasons`.
    reason: NDArray[np.int16] = field(init=False)

    def __post_init__(self) -> None:
        self.hits = np.zeros(self.shape, np.int64)
        self.reason = np.zeros(self.shape, np.int16)

    @property
    def key(self) -> tuple[str, str]:
        """Key of the covergroup: configuration and name. Merging adds the hits of covergroups with equal keys."""
        return self.configuration, self.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of bins along each axis of the covergroup."""
        return tuple(len(axis.labels) for axis in self.axes)

    @property
    def unreachable(self) -> NDArray[np.bool_]:
        """Mask of the covergroup's bins that are declared unreachable."""
        return self.reason > 0

    @property
    def bins(self) -> int:
        """Number of bins of the covergroup, including bins that are declared unreachable."""
        return self.hits.size

    @property
    def reachable(self) -> int:
        """Number of bins of the covergroup that are not declared unreachable."""
        return int(np.count_nonzero(~self.unreachable))

    @property
    def reached(self) -> int:
        """Number of reachable bins that have at least one hit."""
        return int(np.count_nonzero(~self.unreachable & (self.hits > 0)))

    @property
    def percentage(self) -> float:
        """Percentage of reachable bins that have a hit; the value is 100 only if all reachable bins have hits."""
        return 100.0 * self.reached / self.reachable if self.reachable else 100.0

    @property
    def contradictions(self) -> int:
        """Number of bins that have a hit although they are declared unreachable."""
        return int(np.count_nonzero(self.unreachable & (self.hits > 0)))

    def declare_unreachable(self, where: ArrayLike, reason: str) -> None:
        """Declare the covergroup's bins in a mask unreachable; a bin that is already unreachable keeps its reason."""
        mask = np.broadcast_to(np.asarray(where, np.bool_), self.shape) & ~self.unreachable
        if mask.any():
            if reason not in self.reasons:
                self.reasons.append(reason)
            self.reason[mask] = self.reasons.index(reason) + 1

    def count(self, *indices: ArrayLike, where: NDArray[np.bool_] | None = None) -> None:
        """Add one hit for each element of the broadcast bin indices, or only for the elements in the mask `where`."""
        arrays = [np.asarray(index, np.intp) for index in indices]
        if where is not None:
            shape = np.broadcast_shapes(where.shape, *(array.shape for array in arrays))
            mask = np.broadcast_to(where, shape)
            arrays = [np.broadcast_to(array, shape)[mask] for array in arrays]
        flat: NDArray[np.intp] = np.zeros((), np.intp)
        for size, array in zip(self.shape, arrays, strict=True):
            assert not array.size or (array.min() >= 0 and array.max() < size), f"{self.name}: a bin index is too large"
            flat = flat * size + array
        self.hits += np.bincount(flat.ravel(), minlength=self.bins).reshape(self.shape)

    def names(self, where: NDArray[np.bool_], limit: int | None = None) -> list[str]:
        """Return the names of the bins in a mask, or of the first `limit` of them."""
        bins = (np.unravel_index(number, self.shape) for number in np.flatnonzero(where)[:limit])
        return [", ".join(axis.labels[i] for axis, i in zip(self.axes, index, strict=True)) for index in bins]

    def missing(self, limit: int | None = None) -> list[str]:
        """Return up to `limit` names of reachable bins without a hit."""
        return self.names(~self.unreachable & (self.hits == 0), limit)

    def contradicted(self, limit: int | None = None) -> list[str]:
        """Return up to `limit` names of bins that have a hit although they are declared unreachable."""
        return self.names(self.unreachable & (self.hits > 0), limit)

    def same_bins(self, other: "Group") -> bool:
        """Return whether another covergroup has the same bins, unreachable bins, and reasons for unreachability."""
        return self.axes == other.axes and self.reasons == other.reasons and np.array_equal(self.reason, other.reason)


class Coverage:
    """Functional coverage of one or more datapath configurations. Key of a covergroup: configuration and name."""

    def __init__(self, groups: Iterable[Group] = ()) -> None:
        self._groups: dict[tuple[str, str], Group] = {}
        for group in groups:
            assert group.key not in self._groups, f"two covergroups have the same key {group.key}"
            self._groups[group.key] = group

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def __getitem__(self, key: tuple[str, str]) -> Group:
        return self._groups[key]

    @property
    def complete(self) -> bool:
        """Whether every reachable bin has a hit, and no bin that is declared unreachable has a hit."""
        return all(group.reached == group.reachable and not group.contradictions for group in self)

    def merge(self, other: "Coverage") -> "Coverage":
        """Return coverage in which each hit count is the sum of the hit counts in two coverage objects.

        Raise a `FileError` if two groups with the same key have different bins.
        """
        merged = {group.key: deepcopy(group) for group in self}
        for group in other:
            if group.key not in merged:
                merged[group.key] = deepcopy(group)
            elif merged[group.key].same_bins(group):
                merged[group.key].hits += group.hits
            else:
                raise FileError(
                    f"group {group.name!r} of configuration {group.configuration!r} has different bins in two files; "
                    "coverage of different versions or configurations cannot be merged"
                )
        return Coverage(merged[key] for key in sorted(merged))

    def report(self, limit: int = 10) -> dict[str, Any]:
        """Return JSON data: counts, and up to `limit` missed bins and unreachable bins with hits per covergroup."""
        return {
            "groups": [_summary(group, limit) for group in self],
            "bins": sum(group.bins for group in self),
            "reachable": sum(group.reachable for group in self),
            "reached": sum(group.reached for group in self),
            "contradicted": sum(group.contradictions for group in self),
            "complete": self.complete,
        }

    def table(self, limit: int = 10) -> str:
        """Return the coverage report as text: counts per covergroup, unreachable bins with reasons, missed bins."""
        report = self.report(limit)
        groups = [(f"{group['configuration']}: {group['name']}", group) for group in report["groups"]]
        width = max([len(name) for name, _ in groups] + [len("group")])
        lines = [f"{'group':{width}}  {'bins':>7} {'reachable':>9} {'reached':>7}  {'%':>6}"]
        for name, row in [*groups, ("total", report)]:
            # The percentage is rounded down to one decimal, so that 100.0 means that every reachable bin has a hit.
            thousandths = 1000 * row["reached"] // row["reachable"] if row["reachable"] else 1000
            share = f"{thousandths // 10}.{thousandths % 10}"
            lines.append(f"{name:{width}}  {row['bins']:>7} {row['reachable']:>9} {row['reached']:>7}  {share:>6}")
        for name, group in groups:
            lines += [f"unreachable: {name}: {part['bins']} bins: {part['reason']}" for part in group["unreachable"]]
        for name, group in groups:
            bins = _first_of(group["contradicted"], group["contradictions"])
            lines += [f"CONTRADICTED, declared unreachable but reached: {name}: {line}" for line in bins]
        for name, group in groups:
            bins = _first_of(group["missing"], group["reachable"] - group["reached"])
            lines += [f"missing: {name}: {line}" for line in bins]
        return "\n".join(map(one_line, lines))

    def to_json(self) -> str:
        """Return the text of a coverage file, in which each line of `hits` contains the bins along the last axis."""
        records = []
        for group in self:
            lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in _head(group).items()]
            rows = group.hits.reshape(-1, group.shape[-1]).tolist()
            hits = ",\n".join(f"   {json.dumps(row, separators=(',', ':'))}" for row in rows)
            records.append(" {\n" + ",\n".join([*lines, f'  "hits": [\n{hits}\n  ]']) + "\n }")
        groups = "[\n" + ",\n".join(records) + "\n]" if records else "[]"
        return f'{{"kind": {json.dumps(_KIND)}, "version": {VERSION}, "groups": {groups}}}\n'

    @classmethod
    def from_json(cls, text: str, source: str = "the text") -> "Coverage":
        """Parse the text of a coverage file; raise a FileError that names `source` if the text has another format."""
        content = parse_json(text, source, "is no coverage file (not JSON)")
        if not isinstance(content, dict) or content.get("kind") != _KIND:
            raise FileError(f"{source} is no coverage file (no JSON object whose field 'kind' is {_KIND!r})")
        if content.get("version") != VERSION:
            raise FileError(
                f"{source} is a coverage file of version {content.get('version')}, but sptc reads version {VERSION}"
            )
        try:
            groups = [_read_group(record) for record in content["groups"]]
        except (KeyError, TypeError, ValueError, OverflowError, IndexError):
            raise FileError(f"{source} is a damaged coverage file (an invalid or missing field)") from None
        if len({group.key for group in groups}) != len(groups):
            raise FileError(f"{source} is a damaged coverage file (it contains a covergroup twice)")
        return cls(groups)

    def write(self, path: Path) -> None:
        """Write a coverage file atomically: a concurrent reader gets either the old or the new content."""
        write_whole(path, self.to_json().encode())

    @classmethod
    def read(cls, path: Path) -> "Coverage":
        """Read a coverage file; raise a FileError if it cannot be read or has another format."""
        return cls.from_json(read_text(path, "is no coverage file (not text)"), str(path))


def _summary(group: Group, limit: int) -> dict[str, Any]:
    unreachable = [
        {"bins": int(np.count_nonzero(group.reason == number)), "reason": reason}
        for number, reason in enumerate(group.reasons, 1)
    ]
    counts = ("configuration", "name", "bins", "reachable", "reached", "percentage")
    return {
        **{name: getattr(group, name) for name in counts},
        "unreachable": unreachable,
        "missing": group.missing(limit),
        "contradicted": group.contradicted(limit),
        "contradictions": group.contradictions,
    }


def _first_of(names: list[str], total: int) -> list[str]:
    """Return a list of bin names, followed by a line with the number of bins that the list omits."""
    more = total - len(names)
    return [*names, f"and {more} more" if names else f"{more} bins"] if more else names


def _head(group: Group) -> dict[str, Any]:
    """Return all fields of a covergroup except its hits; readers of the file ignore the field `missing`."""
    return {
        "configuration": group.configuration,
        "name": group.name,
        "meaning": group.meaning,
        "missing": {"bins": group.reachable - group.reached, "first": group.missing(10)},
        "axes": [{"name": axis.name, "labels": list(axis.labels)} for axis in group.axes],
        "unreachable": [
            {"reason": reason, "bins": _ranges(np.flatnonzero(group.reason == number))}
            for number, reason in enumerate(group.reasons, 1)
        ],
    }


def _ranges(numbers: NDArray[np.intp]) -> list[list[int]]:
    """Return ascending numbers as ranges of consecutive numbers, each as a list of its first and last number."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return [[int(run[0]), int(run[-1])] for run in runs if run.size]


def _read_group(record: Mapping[str, Any]) -> Group:
    axes = tuple(Axis(_text(axis["name"]), tuple(map(_text, axis["labels"]))) for axis in record["axes"])
    rows: Sequence[Sequence[int]] = record["hits"]
    # Check the number of hit counts before an array with this number of bins is allocated.
    if prod(len(axis.labels) for axis in axes) != sum(map(len, rows)):
        raise ValueError("the number of hit counts differs from the number of bins")
    group = Group(_text(record["configuration"]), _text(record["name"]), _text(record["meaning"]), axes)
    flat, left = group.reason.reshape(-1), group.bins
    for number, declared in enumerate(record["unreachable"], 1):
        group.reasons.append(_text(declared["reason"]))
        for first, last in declared["bins"]:
            # Reject overlapping ranges before they are written: many ranges that each cover most bins would take time
            # proportional to the number of ranges times the number of bins.
            left -= last + 1 - first
            if not 0 <= first <= last < group.bins or left < 0:
                raise ValueError("a range of unreachable bins exceeds its covergroup or overlaps another range")
            flat[first : last + 1] = number
    if any(type(hit) is not int or not 0 <= hit < 1 << 53 for row in rows for hit in row):
        raise ValueError("a hit count must be an integer from 0 to 2**53 - 1")
    group.hits = np.array([hit for row in rows for hit in row], np.int64).reshape(group.shape)
    return group


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a name, label, meaning or reason must be a string")
    return value

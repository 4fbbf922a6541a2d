"""Functional coverage: groups of bins with their hits, coverage files, and reports of missing bins."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import FileError
from ...infra.files import write_whole
from ...infra.reading import parse_json, read_text
from .layout import of_file, ranges, text_of

__all__ = ["VERSION", "Axis", "Coverage", "Group"]

#: Version of coverage files; other versions are refused.
VERSION = 1
_KIND = "sptc coverage"


@dataclass(frozen=True)
class Axis:
    """One property that distinguishes the bins of a group.

    Attributes
    ----------
    name : str
        Name of the property.
    labels : tuple of str
        Labels of its values.
    """

    name: str
    labels: tuple[str, ...]


@dataclass(eq=False)
class Group:
    """Bins over the product of several axes.

    Attributes
    ----------
    configuration : str
        Name of the datapath.
    name : str
        Name of the group; unique within a configuration.
    meaning : str
        Condition to hit a bin, in a sentence or two.
    axes : tuple of Axis
        Properties; a bin is one value of each.
    hits : ndarray of int64
        Hit count of each bin, with one dimension for each axis.
    reasons : list of str
        Reasons why bins are unreachable, one sentence each.
    reason : ndarray of int16
        0 for a reachable bin, else one more than the index in `reasons`.
    """

    configuration: str
    name: str
    meaning: str
    axes: tuple[Axis, ...]
    hits: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    reasons: list[str] = field(default_factory=list)
    reason: NDArray[np.int16] = field(default_factory=lambda: np.zeros(0, np.int16))

    def __post_init__(self) -> None:
        if not self.hits.size:
            self.hits = np.zeros(self.shape, np.int64)
        if not self.reason.size:
            self.reason = np.zeros(self.shape, np.int16)

    @property
    def key(self) -> tuple[str, str]:
        """Configuration and name; groups with the same key are merged."""
        return self.configuration, self.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of bins along each axis."""
        return tuple(len(axis.labels) for axis in self.axes)

    @property
    def unreachable(self) -> NDArray[np.bool_]:
        """Mask of the bins that are declared unreachable."""
        return self.reason > 0

    @property
    def bins(self) -> int:
        """Number of bins, unreachable ones included."""
        return self.hits.size

    @property
    def reachable(self) -> int:
        """Number of bins that are not declared unreachable."""
        return int(np.count_nonzero(self.reason == 0))

    @property
    def reached(self) -> int:
        """Number of reachable bins with at least one hit."""
        return int(np.count_nonzero((self.reason == 0) & (self.hits > 0)))

    @property
    def percentage(self) -> float:
        """Reached share of the reachable bins in per cent; exactly 100 only if none is missing."""
        return 100.0 * self.reached / self.reachable if self.reachable else 100.0

    def declare_unreachable(self, where: ArrayLike, reason: str) -> None:
        """Declare bins unreachable; bins that already have a reason keep it.

        Parameters
        ----------
        where : array_like of bool
            Mask of the bins; broadcasts over the axes.
        reason : str
            Reason in one sentence.
        """
        wanted = np.broadcast_to(np.asarray(where, np.bool_), self.shape) & (self.reason == 0)
        if wanted.any():
            if reason not in self.reasons:
                self.reasons.append(reason)
            self.reason[wanted] = self.reasons.index(reason) + 1

    def count(self, *places: ArrayLike, where: NDArray[np.bool_] | None = None) -> None:
        """Count hits.

        Parameters
        ----------
        *places : array_like of int
            Indices along each axis; they broadcast, and every element is one hit.
        where : ndarray of bool, optional
            Mask of the elements that count; broadcasts with the indices.
        """
        indices = [np.asarray(place, np.intp) for place in places]
        if where is not None:
            shape = np.broadcast_shapes(where.shape, *(index.shape for index in indices))
            chosen = np.broadcast_to(where, shape)
            indices = [np.broadcast_to(index, shape)[chosen] for index in indices]
        flat: NDArray[np.intp] = np.zeros((), np.intp)
        for size, index in zip(self.shape, indices, strict=True):
            assert not index.size or (index.min() >= 0 and index.max() < size), f"{self.name}: no such bin"
            flat = flat * size + index
        self.hits += np.bincount(flat.ravel(), minlength=self.bins).reshape(self.shape)

    def names(self, where: NDArray[np.bool_], limit: int | None = None) -> list[str]:
        """Return the names of chosen bins, at most `limit` of them."""
        found = np.flatnonzero(where)[:limit]
        return [self._name_of(int(place)) for place in found]

    def _name_of(self, place: int) -> str:
        index = np.unravel_index(place, self.shape)
        return ", ".join(axis.labels[int(i)] for axis, i in zip(self.axes, index, strict=True))

    def missing(self, limit: int | None = None) -> list[str]:
        """Return the names of reachable bins without a hit, at most `limit` of them."""
        return self.names((self.reason == 0) & (self.hits == 0), limit)

    @property
    def contradictions(self) -> int:
        """Number of bins that are declared unreachable but were hit."""
        return int(np.count_nonzero((self.reason > 0) & (self.hits > 0)))

    def contradicted(self, limit: int | None = None) -> list[str]:
        """Return the names of bins that are declared unreachable but were hit, at most `limit` of them."""
        return self.names((self.reason > 0) & (self.hits > 0), limit)

    def same_bins(self, other: "Group") -> bool:
        """Whether another group has the same bins, with the same ones unreachable for the same reasons."""
        return (
            self.axes == other.axes
            and self.reasons == other.reasons
            and bool(np.array_equal(self.reason, other.reason))
        )

    def copy(self) -> "Group":
        """Return an independent copy."""
        return Group(
            self.configuration,
            self.name,
            self.meaning,
            self.axes,
            self.hits.copy(),
            list(self.reasons),
            self.reason.copy(),
        )


class Coverage:
    """Groups of any number of configurations, sorted by configuration and name.

    Parameters
    ----------
    groups : iterable of Group
        Groups with different keys.
    """

    def __init__(self, groups: Iterable[Group] = ()) -> None:
        self._groups: dict[tuple[str, str], Group] = {}
        for group in groups:
            assert group.key not in self._groups, f"two groups {group.key}"
            self._groups[group.key] = group

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def __getitem__(self, key: tuple[str, str]) -> Group:
        return self._groups[key]

    @property
    def complete(self) -> bool:
        """Whether every reachable bin was hit and no unreachable one."""
        return all(group.reached == group.reachable and not group.contradictions for group in self)

    def merge(self, other: "Coverage") -> "Coverage":
        """Return the sum of the hits of both; neither is modified. Commutative and associative, as keys are sorted.

        Raises
        ------
        FileError
            Two groups with the same key have different bins.
        """
        merged = {key: group.copy() for key, group in self._groups.items()}
        for key, group in other._groups.items():
            if key not in merged:
                merged[key] = group.copy()
                continue
            if not merged[key].same_bins(group):
                raise FileError(
                    f"group {group.name!r} of configuration {group.configuration!r} has other bins; "
                    "coverage of different versions or configurations does not merge"
                )
            merged[key].hits += group.hits
        return Coverage(merged[key] for key in sorted(merged))

    def report(self, limit: int = 10) -> dict[str, Any]:
        """Return counts, missing bins and contradicted bins, as JSON data.

        Parameters
        ----------
        limit : int
            Most missing and contradicted bins named for each group; the counts are always complete.
        """
        return {
            "groups": [_summary(group, limit) for group in self],
            "bins": sum(group.bins for group in self),
            "reachable": sum(group.reachable for group in self),
            "reached": sum(group.reached for group in self),
            "contradicted": sum(group.contradictions for group in self),
            "complete": self.complete,
        }

    def table(self, limit: int = 10) -> str:
        """Return the report as text: one line for each group, then unreachable bins with reasons, then missing bins."""
        return text_of(self.report(limit))

    def to_json(self, limit: int = 10) -> str:
        """Return the text of a coverage file, with one line for the hits along the last axis."""
        return of_file(_KIND, VERSION, [(_head(group, limit), group.hits) for group in self])

    @classmethod
    def from_json(cls, text: str, source: str = "the text") -> "Coverage":
        """Read the text of a coverage file.

        Parameters
        ----------
        text : str
            Result of :meth:`to_json`.
        source : str
            Name of the source for messages.

        Raises
        ------
        FileError
            The text has another format.
        """
        content = parse_json(text, source, "is no coverage file (not JSON)")
        if not isinstance(content, dict) or content.get("kind") != _KIND:
            raise FileError(f"{source} is no coverage file (JSON, but of something else)")
        if content.get("version") != VERSION:
            raise FileError(
                f"{source} is a coverage file of version {content.get('version')}, not {VERSION}, the one read here"
            )
        try:
            groups = [_group_of(record) for record in content["groups"]]
        except (KeyError, TypeError, ValueError, OverflowError, IndexError):
            raise FileError(f"{source} is a damaged coverage file") from None
        if len({group.key for group in groups}) != len(groups):
            raise FileError(f"{source} is a damaged coverage file (a group stands in it twice)")
        return cls(groups)

    def write(self, path: Path) -> None:
        """Write a coverage file atomically: a reader of `path` sees the old content or the new.

        Raises
        ------
        FileError
            The file cannot be written.
        """
        write_whole(path, self.to_json().encode())

    @classmethod
    def read(cls, path: Path) -> "Coverage":
        """Read a coverage file.

        Raises
        ------
        FileError
            The file cannot be read or has another format.
        """
        return cls.from_json(read_text(path, "is no coverage file (not text)"), str(path))


def _summary(group: Group, limit: int) -> dict[str, Any]:
    unreachable = [
        {"bins": int(np.count_nonzero(group.reason == number)), "reason": reason}
        for number, reason in enumerate(group.reasons, 1)
    ]
    return {
        "configuration": group.configuration,
        "name": group.name,
        "bins": group.bins,
        "reachable": group.reachable,
        "reached": group.reached,
        "percentage": group.percentage,
        "unreachable": unreachable,
        "missing": group.missing(limit),
        "contradicted": group.contradicted(limit),
        "contradictions": group.contradictions,
    }


def _head(group: Group, limit: int) -> dict[str, Any]:
    """Return all fields of a group except its hits; `missing` is only for human readers."""
    return {
        "configuration": group.configuration,
        "name": group.name,
        "meaning": group.meaning,
        "missing": {"bins": group.reachable - group.reached, "first": group.missing(limit)},
        "axes": [{"name": axis.name, "labels": list(axis.labels)} for axis in group.axes],
        "unreachable": [
            {"reason": reason, "bins": ranges(np.flatnonzero(group.reason == number))}
            for number, reason in enumerate(group.reasons, 1)
        ],
    }


def _group_of(record: Mapping[str, Any]) -> Group:
    axes = tuple(Axis(_text(axis["name"]), tuple(map(_text, axis["labels"]))) for axis in record["axes"])
    group = Group(_text(record["configuration"]), _text(record["name"]), _text(record["meaning"]), axes)
    flat = group.reason.reshape(-1)
    for number, declared in enumerate(record["unreachable"], 1):
        group.reasons.append(_text(declared["reason"]))
        for first, last in declared["bins"]:
            if not 0 <= first <= last < group.bins:
                raise ValueError("no such bin")
            flat[first : last + 1] = number
    rows: Sequence[Sequence[int]] = record["hits"]
    if any(type(hit) is not int or hit < 0 for row in rows for hit in row):
        raise ValueError("hits are counts")
    group.hits = np.array([hit for row in rows for hit in row], np.int64).reshape(group.shape)
    return group


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("expected text")
    return value

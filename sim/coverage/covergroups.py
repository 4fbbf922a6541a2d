"""Definitions of covergroups, and the sampler that counts values in their bins."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .groups import Axis, Coverage, Group

__all__ = ["Bin", "Covergroup", "Need", "Sampler", "bins_axis", "illegal_bins"]


@dataclass(frozen=True, eq=False)
class Need:
    """Condition on the operations of a datapath; bins that depend on it are illegal if no operation satisfies it."""

    reason: str  #: Reason why the bins are illegal, in one sentence
    possible: Callable[[Any], bool]  #: Function that returns whether an operation satisfies the condition


@dataclass(frozen=True, eq=False)
class Bin:
    """A bin with its own condition, on an axis whose bins may overlap."""

    label: str
    hit: Callable[[Any], NDArray[np.bool_]]  #: Function that returns the mask of values that hit the bin
    needs: tuple[Need, ...] = ()  #: Conditions that the operation must satisfy, or else the bin is illegal


def bins_axis(name: str, bins: Sequence[Bin]) -> Axis:
    """Return the coverage axis with a list of bins, one label for each bin."""
    return Axis(name, tuple(each.label for each in bins))


def illegal_bins(
    rows: Sequence[Sequence[Any]], bins: Sequence[Bin], needs: Sequence[Need] = ()
) -> list[tuple[str, ArrayLike]]:
    """Return reasons and masks of the illegal bins in a cross product of operations and bins.

    A need is met in a row if one of its operations meets it. Reasons have the order of `needs`, by default that of the
    bins.
    """
    return [
        (need.reason, (np.arange(len(rows)) == row)[:, None] & np.array([need in each.needs for each in bins]))
        for row, operations in enumerate(rows)
        for need in needs or dict.fromkeys(need for each in bins for need in each.needs)
        if not any(map(need.possible, operations))
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Covergroup:
    """Definition of a covergroup: axes, bins, and the function that samples values."""

    name: str  #: Name of the covergroup, unique within a configuration
    meaning: str  #: Condition under which a bin is hit, in one or two sentences
    axes: tuple[Axis, ...]  #: Axes of the covergroup; the bins are their cross product
    #: Function that returns the index along each axis for sampled values. Indices broadcast; every element is one hit.
    sample: Callable[[Any], tuple[ArrayLike, ...]]
    iff: Callable[[Any], bool] = lambda values: True  #: Guard: whether values count in the covergroup at all
    #: Function that returns the mask of sampled elements that count; the mask broadcasts with the indices.
    where: Callable[[Any], ArrayLike] | None = None
    #: Bins of the last axis if its bins may overlap; `sample` then returns the indices along the other axes.
    bins: Sequence[Bin] = ()
    #: Reasons and masks of the bins that cannot be hit. Masks broadcast over the axes; the first reason of a bin
    #: applies. A hit of an illegal bin is reported as a contradiction.
    illegal: Sequence[tuple[str, ArrayLike]] = ()

    def empty(self, configuration: str) -> "Group":
        """Return a new group with the bins of this covergroup and no hits."""
        group = Group(configuration, self.name, self.meaning, self.axes)
        for reason, mask in self.illegal:
            group.declare_unreachable(mask, reason)
        return group

    def count(self, group: "Group", values: Any) -> None:
        """Count sampled values in the bins of `group` if the covergroup's guard holds."""
        if not self.iff(values):
            return
        indices = self.sample(values)
        where = None if self.where is None else np.asarray(self.where(values))
        if self.bins:
            masks = np.stack([each.hit(values) for each in self.bins])
            where = masks if where is None else masks & where
            indices = (*indices, np.arange(len(self.bins)).reshape(-1, *[1] * (where.ndim - 1)))
        group.count(*indices, where=where)


class Sampler:
    """Counts sampled values in the covergroups of one configuration; `coverage` contains the hits so far."""

    def __init__(self, configuration: str, covergroups: Iterable[Covergroup]) -> None:
        self._groups = [(covergroup, covergroup.empty(configuration)) for covergroup in covergroups]
        self.coverage = Coverage(group for _, group in self._groups)

    def sample(self, values: Any) -> None:
        """Count values in every covergroup whose guard holds."""
        for covergroup, group in self._groups:
            covergroup.count(group, values)

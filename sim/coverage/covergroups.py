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
    """Condition on the operations of a datapath; bins that need it are illegal if no operation meets it."""

    reason: str  #: Reason why the bins are illegal, in one sentence
    possible: Callable[[Any], bool]  #: Whether one operation can hit the bins, as far as this condition goes


@dataclass(frozen=True, eq=False)
class Bin:
    """A bin with its own condition, on an axis whose bins may overlap."""

    label: str
    hit: Callable[[Any], NDArray[np.bool_]]  #: Conditions that must all hold; otherwise the bin is illegal
    needs: tuple[Need, ...] = ()  #: Conditions that must all hold, or else the bin is illegal


def bins_axis(name: str, bins: Sequence[Bin]) -> Axis:
    """Return the axis with these bins."""
    return Axis(name, tuple(each.label for each in bins))


def illegal_bins(
    rows: Sequence[Sequence[Any]], bins: Sequence[Bin], needs: Sequence[Need] = ()
) -> list[tuple[str, ArrayLike]]:
    """Return reasons and masks of the illegal bins in a cross of rows of operations with bins that have needs.

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
    """Definition of a group of bins."""

    name: str  #: Name of the covergroup, unique within a configuration
    meaning: str  #: Condition to hit a bin, in a sentence or two
    axes: tuple[Axis, ...]  #: Axes; the bins are their cross product
    #: Index along each axis for sampled values. Indices broadcast; every element is one hit.
    sample: Callable[[Any], tuple[ArrayLike, ...]]
    iff: Callable[[Any], bool] = lambda values: True  #: Guard: whether sampled values count in this group at all
    #: Mask of the elements that count; broadcasts with the indices.
    where: Callable[[Any], ArrayLike] | None = None
    #: Bins of the last axis if they may overlap; `sample` then returns the indices along the other axes.
    bins: Sequence[Bin] = ()
    #: Reason and mask of bins that cannot be hit. Masks broadcast over the axes; the first reason of a bin counts. An
    #: illegal bin is not reachable, and a hit of it is a contradiction. No bin is merely ignored.
    illegal: Sequence[tuple[str, ArrayLike]] = ()

    def empty(self, configuration: str) -> "Group":
        """Return the bins without hits."""
        group = Group(configuration, self.name, self.meaning, self.axes)
        for reason, mask in self.illegal:
            group.declare_unreachable(mask, reason)
        return group

    def count(self, group: "Group", values: Any) -> None:
        """Count sampled values in `group` if the guard holds."""
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
        """Count values in every group whose guard holds."""
        for covergroup, group in self._groups:
            covergroup.count(group, values)

"""Definitions of covergroups, and a sampler that assigns sampled values to bins."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .groups import Axis, Coverage, Group

__all__ = ["Bin", "Covergroup", "Illegal", "Need", "Sampler", "bins_axis"]

#: Illegal bins of a covergroup. For each reason (key), a function that gets the bin indices along each axis and returns
#: the mask of the bins that are illegal for this reason.
Illegal = Mapping[str, Callable[..., ArrayLike]]


@dataclass(frozen=True, eq=False)
class Need:
    """Requirement on a datapath's operations: a bin with this requirement is illegal if no operation meets it."""

    reason: str  #: Sentence that states why a bin is illegal if no operation meets its requirement
    possible: Callable[[Any], bool]  #: Function that returns whether an operation meets the requirement


@dataclass(frozen=True, eq=False)
class Bin:
    """Coverage bin with a separate hit condition, for axes on which one sampled value can hit several bins."""

    label: str
    hit: Callable[[Any], NDArray[np.bool_]]  #: Function from sampled values to the mask of values that hit the bin
    needs: tuple[Need, ...] = ()  #: Requirements, each of which an operation must meet; else the bin is illegal


def bins_axis(name: str, bins: Sequence[Bin]) -> Axis:
    """Return a covergroup axis with one label for each bin of a list."""
    return Axis(name, tuple(each.label for each in bins))


@dataclass(frozen=True, kw_only=True, eq=False)
class Covergroup:
    """Definition of a covergroup: its axes and bins, and the function that maps sampled values to bins."""

    name: str  #: Name of the covergroup, unique within a datapath configuration
    meaning: str  #: Condition under which a bin of the covergroup is hit, in one or two sentences
    axes: tuple[Axis, ...]  #: Axes of the covergroup, whose cross product forms the bins
    #: Function from sampled values to one array of bin indices for each axis. These arrays are broadcast against each
    #: other. Each element of the broadcast arrays is one hit of one bin.
    sample: Callable[[Any], tuple[ArrayLike, ...]]
    iff: Callable[[Any], bool] = lambda values: True  #: Guard: returns whether sampled values are counted
    #: Function from sampled values to a mask of the elements to count; the mask broadcasts with the bin indices.
    where: Callable[[Any], ArrayLike] | None = None
    #: Bins of the last axis, if a sampled value can hit several of them. `sample` then returns no index for this axis.
    bins: Sequence[Bin] = ()
    #: Format combinations for each row of the array of bins, or one list for all rows. The bins of a row differ only
    #: along the last axis. A bin is illegal if one of its requirements is met by no format combination of its row.
    rows: Sequence[Sequence[Any]] = ()
    #: Illegal bins in addition to those from `rows`. If several reasons apply to a bin, the first reason counts. A hit
    #: of an illegal bin is reported as a contradiction.
    illegal: Illegal = field(default_factory=dict)

    def empty(self, configuration: str) -> Group:
        """Return a new :class:`Group`: all hit counts are zero, and illegal bins are declared unreachable."""
        group = Group(configuration, self.name, self.meaning, self.axes)
        for reason, mask in self.illegal.items():
            group.declare_unreachable(mask(*np.ix_(*map(range, group.shape))), reason)
        needs = dict.fromkeys(need for each in self.bins for need in each.needs)
        for row, operations in enumerate(self.rows):
            in_row = np.arange(len(self.rows))[:, None] == row
            for need in needs:
                if not any(map(need.possible, operations)):
                    group.declare_unreachable(in_row & [need in each.needs for each in self.bins], need.reason)
        return group

    def count(self, group: Group, values: Any) -> None:
        """Count sampled values in the bins of `group`, if the guard of the covergroup holds."""
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
    """Sampler of the covergroups of one configuration; `coverage` contains the hits so far."""

    def __init__(self, configuration: str, covergroups: Iterable[Covergroup]) -> None:
        self._groups = [(covergroup, covergroup.empty(configuration)) for covergroup in covergroups]
        self.coverage = Coverage(group for _, group in self._groups)

    def sample(self, values: Any) -> None:
        """Count sampled values in every covergroup whose guard holds."""
        for covergroup, group in self._groups:
            covergroup.count(group, values)

"""Check whether atomic additions can give a result: slices of K, added in any order for each output."""

from functools import partial, reduce
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from .epilogue import Epilogue
from .sums import Chains, added, slices, stored
from .ways import Way

__all__ = ["possible"]

#: Number of outputs per batch.
_OUTPUTS = 2048


def possible(way: Way, chains: Chains, epilogue: Epilogue, wanted: NDArray) -> bool:
    """Return whether some order of adding the slices gives each output.

    Parameters
    ----------
    way : Way
        Way with the slices to add.
    chains : Chains
        Chains of the outputs.
    epilogue : Epilogue
        Epilogue of the sums.
    wanted : ndarray of uint8, uint16 or uint32
        Codes of the result.
    """
    parts = slices(way, chains)
    in_order = stored(way, epilogue, reduce(partial(added, way), parts))
    places = np.argwhere(in_order != wanted)  # outputs that differ if slices are added in order
    for start in range(0, len(places), _OUTPUTS):
        where = tuple(places[start : start + _OUTPUTS].T)
        sums = _every_sum(way, [part[where] for part in parts])
        codes = stored(way, epilogue.mapped(partial(_of, wanted.shape, where)), sums)
        if not ((codes == wanted[where][:, None]) & ~np.isnan(sums)).any(1).all():
            return False
    return True


def _of(shape: tuple[int, ...], where: tuple[NDArray, ...], array: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.broadcast_to(array, shape)[where][:, None]


def _every_sum(way: Way, parts: list[NDArray]) -> NDArray:
    """Return the distinct sums of all orders, shape (outputs, sums), padded with NaN.

    A set of slices has few distinct sums because of rounding. The sums of each set are therefore listed once, for all
    orders that lead to them.
    """
    every = range(len(parts))
    sums: dict[tuple[int, ...], NDArray] = {(number,): parts[number][:, None] for number in every}
    for size in range(2, len(parts) + 1):
        sums = {
            chosen: _distinct(
                np.concatenate([added(way, sums[_without(chosen, last)], parts[last][:, None]) for last in chosen], 1)
            )
            for chosen in combinations(every, size)
        }
    return sums[tuple(every)]


def _without(chosen: tuple[int, ...], last: int) -> tuple[int, ...]:
    return tuple(number for number in chosen if number != last)


def _distinct(values: NDArray) -> NDArray:
    """Return the distinct values of each row, padded with NaN."""
    ordered = np.sort(values, axis=1)
    ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = np.nan
    ordered = np.sort(ordered, axis=1)
    return ordered[:, : max(1, int((~np.isnan(ordered)).sum(1).max()))]

"""Stream-K: output tiles share a fixed number of workers, so that each has a cut of K of its own.

The K tiles of all streamed output tiles stand in one line, those of an output tile beside each other. The line is cut
into as many pieces as there are workers; where a cut falls into an output tile, that tile has another slice of K:

    output tiles |    tile 0     |    tile 1     |    tile 2     |    4 K tiles each
    K tiles      | 0 | 1 | 2 | 3 | 0 | 1 | 2 | 3 | 0 | 1 | 2 | 3 |
    workers      |     0     |     1     |   2   |   3   |   4   |    5 of them: 12 = 3 + 3 + 2 + 2 + 2
    slices       |     3     | 1 |   2   |   2   |   2   |   2   |    K tiles of each

A hybrid gives whole waves, as many output tiles as workers, one tile each, and streams only what is left over; or that
and one whole wave.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError, shown
from ..isa.text import is_word_of

__all__ = ["RASTERS", "STREAMED", "StreamK"]

#: Which output tiles are streamed: all; what is left over by whole waves; or that and one whole wave, if there is one.
STREAMED = ("all", "one wave", "two waves")
#: How output tiles are numbered: along their rows, or along their columns.
RASTERS = ("row-major", "column-major")


@dataclass(frozen=True, kw_only=True)
class StreamK:
    """How work is dealt to workers.

    Attributes
    ----------
    workers : int
        Thread blocks, or clusters of them, that share the streamed tiles.
    rows, columns : int
        Of an output tile, of the product as it is computed.
    streamed : str
        Which tiles are streamed, one of :data:`STREAMED`.
    first : bool
        Whether these are the first tiles, or the last ones.
    raster : str
        How tiles are numbered, one of :data:`RASTERS`.
    least : int
        K tiles of a slice at least: a cut that is nearer to the border of an output tile is moved there.

    Notes
    -----
    Source: Osama, Merrill et al., Stream-K (PPoPP 2023), for the line, its cuts and both hybrids; CUTLASS for which
    tiles are streamed (the first), who has one K tile more (the first workers), and the least length of a slice (8
    K tiles in its schedulers for sm_90).
    """

    workers: int
    rows: int
    columns: int
    streamed: str = "all"
    first: bool = True
    raster: str = "row-major"
    least: int = 1

    def __post_init__(self) -> None:
        for name, accepted in (("streamed", STREAMED), ("raster", RASTERS)):
            value = getattr(self, name)
            if not is_word_of(value, accepted):
                raise OperandError(f"{name} must be {' or '.join(map(repr, accepted))}, not {shown(value)}")
        for name in ("workers", "rows", "columns", "least"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise OperandError(f"{name} of stream-K must be an integer of 1 or more, not {shown(value)}")
        if not isinstance(self.first, bool):
            raise OperandError(f"first of stream-K must be True or False, not {shown(self.first)}")

    def dealt(self, shape: tuple[int, int], k_tiles: int, cut: str) -> tuple[NDArray[np.intp], list[tuple[int, ...]]]:
        """Return how K is cut for every output tile.

        Parameters
        ----------
        shape : (int, int)
            Of the product.
        k_tiles : int
            K tiles of an output tile.
        cut : str
            How the line is cut: ``balanced``, into numbers that differ by one at most, the larger first; or ``rounded
            up``, as many to each, rounded up, and what is left to the last.

        Returns
        -------
        ndarray of intp, shape (tile rows, tile columns)
            Which of the cuts each has.
        list of tuple of int
            The different cuts: K tiles of each slice.
        """
        return _dealt(self, shape, k_tiles, cut)

    def streams(self, tiles: int) -> int:
        """Return how many of so many output tiles are streamed."""
        waves, rest = divmod(tiles, self.workers)
        if self.streamed == "all":
            return tiles
        return rest + self.workers if rest and waves and self.streamed == "two waves" else rest

    def __str__(self) -> str:
        which = {"all": "", "one wave": " for what whole waves leave", "two waves": " for the last two waves"}
        place = "" if self.streamed == "all" or self.first else ", the last tiles"
        least = "" if self.least == 1 else f", {self.least} K tiles at least"
        raster = "" if self.raster == "row-major" else f", {self.raster}"
        tiles = f"output tiles of {self.rows} x {self.columns}{raster}"
        return f"stream-K of {self.workers} workers{which[self.streamed]}{place}, {tiles}{least}"


@lru_cache(maxsize=512)
def _dealt(
    dealing: StreamK, shape: tuple[int, int], k_tiles: int, cut: str
) -> tuple[NDArray[np.intp], list[tuple[int, ...]]]:
    grid = -(-shape[0] // dealing.rows), -(-shape[1] // dealing.columns)
    tiles = grid[0] * grid[1]
    streamed, workers = dealing.streams(tiles), dealing.workers
    length = streamed * k_tiles
    if cut == "balanced":
        least, larger = divmod(length, workers)
        edges = np.arange(workers + 1) * least + np.minimum(np.arange(workers + 1), larger)
    else:
        edges = np.minimum(np.arange(workers + 1) * -(-length // workers), length)
    within = edges % k_tiles
    edges = np.where(within < dealing.least, edges - within, edges)
    edges = np.unique(np.where(within > k_tiles - dealing.least, edges + k_tiles - within, edges))
    numbers, cuts = np.zeros(tiles, np.intp), {(k_tiles,): 0}
    start = 0 if dealing.first else tiles - streamed
    for tile in range(streamed):
        ends = edges[np.searchsorted(edges, tile * k_tiles, "right") : np.searchsorted(edges, (tile + 1) * k_tiles)]
        inner = [0, *(ends - tile * k_tiles).tolist(), k_tiles]
        of_tile = tuple(after - before for before, after in pairwise(inner))
        numbers[start + tile] = cuts.setdefault(of_tile, len(cuts))
    found = numbers.reshape(grid) if dealing.raster == "row-major" else numbers.reshape(grid[::-1]).T
    return found, [*cuts]

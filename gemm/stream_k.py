"""Stream-K schedules: a fixed number of workers shares the output tiles, and K is divided separately for each tile.

The K tiles of all streamed output tiles form one line, output tile after output tile. The line is cut into one piece
per worker. A cut within an output tile adds a slice of K to that tile:

    output tiles |    tile 0     |    tile 1     |    tile 2     |    4 K tiles each
    K tiles      | 0 | 1 | 2 | 3 | 0 | 1 | 2 | 3 | 0 | 1 | 2 | 3 |
    workers      |     0     |     1     |   2   |   3   |   4   |    5 of them: 12 = 3 + 3 + 2 + 2 + 2
    slices       |     3     | 1 |   2   |   2   |   2   |   2   |    K tiles of each

A wave is as many output tiles as there are workers, one tile per worker. Hybrids compute whole waves without splitting
K, and stream only the remaining tiles, or the remaining tiles and one whole wave.
"""

from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.operands import check_choice
from ..errors import OperandError, shown

__all__ = ["RASTERS", "STREAMED", "StreamK", "convert_numpy_scalars"]

#: Output tiles that are cut along K (streamed): all tiles; the tiles that remain after whole waves; or the remaining
#: tiles and one whole wave.
STREAMED = ("all", "one wave", "two waves")
#: Order in which output tiles are numbered: row by row, or column by column of the grid of tiles.
RASTERS = ("row-major", "column-major")


def convert_numpy_scalars(record: Any) -> None:
    """Convert numpy integers, Booleans and texts in the fields of a frozen data class to Python's types."""
    for field in fields(record):
        value = getattr(record, field.name)
        parts = tuple(part.item() if isinstance(part, np.integer | np.bool_ | np.str_) else part
                      for part in (value if isinstance(value, tuple) else (value,)))  # fmt: skip
        object.__setattr__(record, field.name, parts if isinstance(value, tuple) else parts[0])


@dataclass(frozen=True, kw_only=True)
class StreamK:
    """Stream-K schedule: assignment of K tiles to workers.

    Notes
    -----
    Source of the division of K tiles among workers and of both hybrids: Osama, Merrill et al., Stream-K (PPoPP 2023).
    Source of all other rules: CUTLASS. The first tiles are streamed, the first workers have one K tile more, and a
    slice has at least 8 K tiles in the schedulers for sm_90.
    """

    workers: int  #: Number of thread blocks, or clusters of thread blocks, that share the output tiles cut along K
    #: Numbers of rows and columns of an output tile, a part of the transposed product if the kernel computes that.
    rows: int
    columns: int
    streamed: str = "all"  #: Which output tiles are cut along K: an item of :data:`STREAMED`
    first: bool = True  #: Whether stream-K cuts the first output tiles along K, instead of the last output tiles
    raster: str = "row-major"  #: Order in which output tiles are numbered, one of :data:`RASTERS`
    #: Minimum number of K tiles in a slice of an output tile. A cut that is closer to an end of K is moved to that end.
    least: int = 1

    def __post_init__(self) -> None:
        convert_numpy_scalars(self)
        for name, accepted in (("streamed", STREAMED), ("raster", RASTERS)):
            check_choice(name, getattr(self, name), accepted, OperandError)
        for name in ("workers", "rows", "columns", "least"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise OperandError(f"{name} of stream-K must be an integer of 1 or more, not {shown(value)}")
        if not isinstance(self.first, bool):
            raise OperandError(f"stream-K attribute 'first' must be True or False, not {shown(self.first)}")

    def dealt(self, shape: tuple[int, int], k_tiles: int, cut: str) -> tuple[NDArray[np.intp], list[tuple[int, ...]]]:
        """Return the index of each output tile's division of K, and the divisions as tuples of numbers of K tiles.

        `shape` is the shape of the product, and each output tile has `k_tiles` K tiles. `cut` is the division of all
        streamed K tiles among workers, ``rounded up`` or ``balanced`` as in :data:`sptc.gemm.ways.CUTS`.
        """
        return _dealt(self, shape, k_tiles, cut)

    def __str__(self) -> str:
        which = {"all": "", "one wave": " for the tiles after whole waves", "two waves": " for the last two waves"}
        place = "" if self.streamed == "all" or self.first else ", the last tiles"
        least = "" if self.least == 1 else f", at least {self.least} K tiles per slice"
        raster = "" if self.raster == "row-major" else f", {self.raster}"
        tiles = f"output tiles of {self.rows} x {self.columns}{raster}"
        return f"stream-K of {self.workers} workers{which[self.streamed]}{place}, {tiles}{least}"


@lru_cache(maxsize=512)
def _dealt(
    dealing: StreamK, shape: tuple[int, int], k_tiles: int, cut: str
) -> tuple[NDArray[np.intp], list[tuple[int, ...]]]:
    grid = -(-shape[0] // dealing.rows), -(-shape[1] // dealing.columns)
    tiles, workers = grid[0] * grid[1], dealing.workers
    waves, rest = divmod(tiles, workers)
    whole_wave = workers if rest and waves and dealing.streamed == "two waves" else 0
    streamed = tiles if dealing.streamed == "all" else rest + whole_wave
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
        tile_slices = tuple(after - before for before, after in pairwise(inner))
        numbers[start + tile] = cuts.setdefault(tile_slices, len(cuts))
    tile_numbers = numbers.reshape(grid) if dealing.raster == "row-major" else numbers.reshape(grid[::-1]).T
    return tile_numbers, [*cuts]

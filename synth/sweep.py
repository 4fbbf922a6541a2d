"""Sweeps over configurations: area and throughput of a dot-product unit for each configuration."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from ..errors import Error
from ..rtl.config import BLOCK_SCALES, ConfigError, CoreConfig, with_alignment
from .netlist import unit
from .price import Measurement, measure, workers
from .recipe import Recipe

__all__ = ["Place", "Point", "point_at", "sweep"]


@dataclass(frozen=True)
class Place:
    """Coordinates of a point in a grid of configurations: one value on each axis."""

    #: Element formats of the configuration. Packed e2m1 (``e2m1/4``) implies both formats of block scales, since all of
    #: its instructions have block scales.
    formats: tuple[str, ...]
    alignment_bits: int  #: F: number of bits that alignment keeps below the largest exponent, for all floats
    step_bytes: int  #: Bytes of stored A that a unit takes per cycle; they determine the products per cycle
    mux: str  #: Type of operand multiplexers, ``mux4`` or ``mux3``
    cuts: tuple[str, ...]  #: Cuts (positions in the dot-product unit) that have a pipeline register
    sparse: bool = True  #: Whether the unit selects operands for a sparse A

    def __str__(self) -> str:
        return " ".join(self.words.values())

    @property
    def words(self) -> dict[str, str]:
        """The configuration's values on the axes of a sweep, as text by axis name, such as ``formats`` or ``mux``."""
        return {
            "formats": ",".join(self.formats),
            "alignment": f"F={self.alignment_bits}",
            "step": f"{self.step_bytes} B",
            "mux": self.mux,
            "cuts": ",".join(self.cuts) or "none",
            "a": "sparse" if self.sparse else "dense",
        }


@dataclass(frozen=True)
class Point:
    """A point in a grid of configurations, with its configuration and the measurement of its dot-product unit."""

    place: Place
    config: CoreConfig | None = None  #: Datapath configuration of this grid point; None if it is invalid
    refusal: str = ""  #: Reason why the parameters of this grid point give no valid configuration
    measurement: Measurement | None = None  #: Measurement of the dot-product unit, or None if it is not yet measured

    def __str__(self) -> str:
        return str(self.place)

    @property
    def products(self) -> dict[str, int]:
        """Number of products of stored elements of A per cycle in one dot-product unit, by element format."""
        return {str(e): self.config.slots_of(e) for e in self.config.elements} if self.config else {}

    @property
    def products_per_ns(self) -> dict[str, float]:
        """Products per ns, by element format, if a cycle has the length of the longest path; empty if not measured."""
        if not self.measurement or not self.measurement.longest:
            return {}
        return {name: 1000 * count / self.measurement.longest for name, count in self.products.items()}


def point_at(place: Place) -> Point:
    """Return an unmeasured point of a sweep: the configuration at the given coordinates."""
    try:
        config = CoreConfig(
            name=str(place),
            formats=place.formats,
            scales=BLOCK_SCALES if "e2m1/4" in place.formats else (),
            step_bytes=place.step_bytes,
            **with_alignment(CoreConfig, place.alignment_bits),
            mux=place.mux,
            rows=1,
            columns=1,
            cuts=place.cuts,
            sparse=place.sparse,
        )
    except ConfigError as error:
        return Point(place, refusal=str(error))
    return Point(place, config)


def sweep(
    places: Sequence[Place],
    recipe: Recipe,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Point]:
    """Measure the dot-product unit of each configuration; `places` are configurations' values on the axes of a sweep.

    Parameters
    ----------
    places, recipe : sequence of Place, Recipe
        The points, and the synthesis recipe, which includes the library, so that remote workers need no file.
    jobs, scheduler : int, str
        Number of processes on this machine, or address of a Dask scheduler whose workers are used instead.
    progress : callable
        Called with the number of finished points and the number of all points.

    Raises
    ------
    BackendError, PoolError
        As for :func:`~sptc.synth.price.measure_all`; the cluster cannot be reached, or the connection is lost.
    Error
        No point has a valid configuration.
    """
    swept = [*map(point_at, places)]
    valid = [place for place, point in enumerate(swept) if point.config]
    if not valid:
        raise Error(f"no point of the grid is a valid configuration; first point, {swept[0]}: {swept[0].refusal}")
    progress(0, len(valid))
    with workers(jobs, scheduler) as (pool, scratch):
        work = [(swept[index], index, recipe, scratch) for index in valid]
        for done, (index, measurement) in enumerate(chain.from_iterable(pool.run(_measure_point, work)), 1):
            swept[index] = replace(swept[index], measurement=measurement)
            progress(done, len(valid))
    return swept


def _measure_point(point: Point, index: int, recipe: Recipe, scratch: Path | None) -> tuple[int, Measurement]:
    assert point.config
    return index, measure(unit(point.config, combinational=recipe.combinational), recipe, scratch)

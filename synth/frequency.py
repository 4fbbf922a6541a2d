"""Which pipeline registers bring a unit to a frequency on an FPGA."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..rtl.config import CUTS, CoreConfig
from .netlist import registered_unit
from .price import Measurement, measure_all
from .recipe import Recipe

__all__ = ["Choice", "choices_for"]

#: Behind the rounding there is a register in any case.
_CANDIDATES = CUTS[:-1]


@dataclass(frozen=True)
class Choice:
    """A unit with some of the registers.

    Attributes
    ----------
    cuts : tuple of str
        Which.
    measurement : Measurement
        Of the unit between registers of its step and of its result.
    """

    cuts: tuple[str, ...]
    measurement: Measurement

    @property
    def megahertz(self) -> float:
        """After routing."""
        assert self.measurement.longest
        return 1e6 / self.measurement.longest


def choices_for(
    config: CoreConfig,
    recipe: Recipe,
    megahertz: float,
    jobs: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Choice]:
    """Yield units with more and more registers, each of which is the best to add, until one is as fast as wanted.

    Parameters
    ----------
    config : CoreConfig
        The datapath; its own cuts do not matter.
    recipe : Recipe
        With ``place``.
    megahertz : float
        What is wanted.
    jobs : int
        Processes.
    progress : callable
        Told how many are measured of how many, at most.

    Raises
    ------
    BackendError
        As :func:`~sptc.synth.price.measure`.
    """
    total = 1 + sum(range(1, len(_CANDIDATES) + 1))
    done = 0

    def advance(now: int, _of: int) -> None:
        progress(done + now, total)

    tried: list[tuple[str, ...]] = [()]
    while tried:
        wanted = {",".join(cuts): (registered_unit(replace(config, cuts=cuts)), recipe) for cuts in tried}
        found = measure_all(wanted, jobs, advance)
        done += len(tried)
        best = max((Choice(cuts, found[",".join(cuts)]) for cuts in tried), key=lambda choice: choice.megahertz)
        yield best
        if best.megahertz >= megahertz:
            return
        tried = [
            tuple(cut for cut in CUTS if cut in (*best.cuts, other)) for other in _CANDIDATES if other not in best.cuts
        ]

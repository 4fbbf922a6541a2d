"""Search for pipeline cuts with which a unit reaches a frequency on an FPGA."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..rtl.config import CUTS, CoreConfig
from .netlist import registered_unit
from .price import Measurement, measure_all
from .recipe import Recipe

__all__ = ["Choice", "choices_for"]

#: Cuts to try. The result after rounding is registered in any case.
_CANDIDATES = CUTS[:-1]


@dataclass(frozen=True)
class Choice:
    """A unit with some of the cuts."""

    cuts: tuple[str, ...]  #: Cuts with a pipeline register
    #: Measurement of the unit between registers of its step and of its result.
    measurement: Measurement

    @property
    def megahertz(self) -> float:
        """Maximum frequency after routing, in MHz."""
        assert self.measurement.longest
        return 1e6 / self.measurement.longest


def choices_for(
    config: CoreConfig,
    recipe: Recipe,
    megahertz: float,
    jobs: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Choice]:
    """Yield units with one cut more each, always the most effective one, until a unit reaches the frequency.

    Parameters
    ----------
    config : CoreConfig
        The datapath; its own cuts are ignored.
    recipe : Recipe
        Synthesis recipe with ``place``.
    megahertz : float
        Target frequency in MHz.
    jobs : int
        Number of processes.
    progress : callable
        Called with the number of finished netlists and the maximum number.

    Raises
    ------
    BackendError
        See :func:`~sptc.synth.price.measure`.
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

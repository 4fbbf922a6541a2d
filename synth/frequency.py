"""Search for pipeline registers (cuts) with which a dot-product unit reaches a clock frequency on an FPGA."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..rtl.config import CUTS, CoreConfig
from .netlist import registered_unit
from .price import Measurement, measure_all
from .recipe import Recipe
from .report import about, columns, heading

__all__ = ["Choice", "choices_as_dict", "choices_for", "choices_table", "fastest"]

#: Cuts (positions of pipeline registers) that the search tries. The cut after rounding is left out, because the
#: measured unit always has a register at its result.
_CANDIDATES = CUTS[:-1]


@dataclass(frozen=True)
class Choice:
    """A dot-product unit with some of the possible pipeline registers (cuts), and the measurement of this unit."""

    cuts: tuple[str, ...]  #: Cuts (positions in the dot-product unit) that have a pipeline register
    #: Measurement of the dot-product unit with registers before its inputs and after its result.
    measurement: Measurement

    @property
    def megahertz(self) -> float:
        """Maximum clock frequency after routing, in MHz."""
        assert self.measurement.longest
        return 1e6 / self.measurement.longest


def choices_for(
    config: CoreConfig,
    recipe: Recipe,
    megahertz: float,
    jobs: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Choice]:
    """Yield dot-product units, each with one more pipeline register, until one unit reaches a frequency in MHz.

    The new register is at the best of the possible cuts. The cuts of `config` are ignored, and `recipe` has ``place``
    set. `progress` is called with the number of finished netlists and the maximum number of netlists. Errors are those
    of :func:`~sptc.synth.price.measure`.
    """
    total = 1 + sum(range(1, len(_CANDIDATES) + 1))
    done = 0

    def advance(now: int, _of: int) -> None:
        progress(done + now, total)

    tried: list[tuple[str, ...]] = [()]
    while tried:
        requests = {",".join(cuts): (registered_unit(replace(config, cuts=cuts)), recipe) for cuts in tried}
        measurements = measure_all(requests, jobs, advance)
        done += len(tried)
        best = max((Choice(cuts, measurements[",".join(cuts)]) for cuts in tried), key=lambda choice: choice.megahertz)
        yield best
        if best.megahertz >= megahertz:
            return
        tried = [
            tuple(cut for cut in CUTS if cut in (*best.cuts, other)) for other in _CANDIDATES if other not in best.cuts
        ]


def fastest(choices: Sequence[Choice]) -> Choice:
    """Return the dot-product unit with the highest maximum frequency."""
    return max(choices, key=lambda choice: choice.megahertz)


def choices_as_dict(choices: Sequence[Choice], recipe: Recipe, megahertz: float) -> dict[str, Any]:
    """Return the synthesis recipe, the target frequency and all measured dot-product units as values for JSON."""
    rows = [{"cuts": list(c.cuts), "mhz": c.megahertz, "cells": c.measurement.amounts} for c in choices]
    return {**about(recipe), "mhz_wanted": megahertz, "choices": rows}


def choices_table(choices: Sequence[Choice], recipe: Recipe, megahertz: float) -> str:
    """Return a table of all measured dot-product units, followed by the fastest unit."""
    rows = [["cuts", "MHz", *recipe.amounts]]
    for choice in choices:
        amounts = (f"{amount:.0f}" for amount in choice.measurement.amounts.values())
        rows.append([",".join(choice.cuts) or "none", f"{choice.megahertz:.1f}", *amounts])
    best = fastest(choices)
    shortfall = "" if best.megahertz >= megahertz else f"; no measured unit reaches {megahertz:g} MHz"
    summary = f"--cuts {','.join(best.cuts) or 'none'}: {best.megahertz:.1f} MHz{shortfall}"
    return "\n".join([*heading(recipe), "", *columns(rows), summary])

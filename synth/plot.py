"""Plots of area: bars for the parts of a datapath, and a scatter plot of area against throughput."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..infra.escapes import plot_text
from ..infra.figures import picture
from .area import Survey
from .recipe import Recipe

__all__ = ["Spot", "axis_of", "plot_spots", "plot_survey"]

_UNITS = {"area": "area [library's unit]", "gates": "gates [NAND2]", "delay": "delay [ps]", "depth": "depth [gates]"}
#: Maximum number of points in a scatter plot that get a label.
_NAMED = 24
_MARKERS = "osD^vPX*"


def axis_of(name: str) -> str:
    """Return the axis label of an amount (area, gates or cells), with its unit."""
    return _UNITS.get(name, name)


def plot_survey(survey: Survey, path: Path) -> None:
    """Draw an area survey as SVG bars: of the stages if measured, else of units and other logic, else of units.

    Bars show the first amount of the survey. Raise the same errors as :func:`~sptc.infra.figures.picture`.
    """
    first, config = survey.recipe.amounts[0], survey.config
    what = "the stages of a unit, synthesised separately"
    if survey.between:
        bars = [
            (f"{stage.count} {stage.name}" if stage.count > 1 else stage.name, stage.amounts) for stage in survey.stages
        ]
        bars.append(("between the stages", survey.between.amounts))
    elif survey.core:
        what = f"an array of {config.rows}x{config.columns} units"
        bars = [(f"{config.rows * config.columns} units", survey.units), ("around the units", survey.core.amounts)]
        if survey.warp_alone:
            what, bars = f"a warp with {what}", [*bars, ("around the array", survey.warp_alone)]
    else:
        what = "a unit"
        bars = [("unit" if config.sparse else "dense unit", survey.unit.amounts)]
        bars += [("dense unit", survey.twin.amounts)] if survey.twin else []
    with picture(path, 7.0, 1.4 + 0.3 * len(bars)) as axes:
        drawn = axes.barh([name for name, _ in bars], [amounts[first] for _, amounts in bars], color="tab:blue")
        axes.bar_label(drawn, fmt="{:,.0f}", padding=3)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set_xlabel(axis_of(first))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.locator_params(axis="x", nbins=6)
        axes.set_title(plot_text(f"{config.name}: {what}{_with(survey.recipe)}"), loc="left")


@dataclass(frozen=True)
class Spot:
    """A point of a scatter plot."""

    group: str  #: Name of the group of points in the legend of the plot
    name: str  #: Label of the point in the plot
    x: float
    y: float
    #: Ends of the error bars: deviation of the least and of the largest value from `x` and from `y`, in per cent.
    x_ends: tuple[float, float]
    y_ends: tuple[float, float]


def plot_spots(spots: Sequence[Spot], x: str, y: str, title: str, path: Path) -> None:
    """Draw a scatter plot with error bars as SVG; raise the same errors as :func:`~sptc.infra.figures.picture`."""
    groups: dict[str, list[Spot]] = {}
    names: dict[tuple[float, float], list[str]] = {}
    for spot in spots:
        groups.setdefault(spot.group, []).append(spot)
        names.setdefault((spot.x, spot.y), []).append(spot.name)
    middle = max(place[0] for place in names) / 2
    with picture(path, 8.0, 5.5) as axes:
        for index, (group, of_group) in enumerate(groups.items()):
            across, up = [spot.x for spot in of_group], [spot.y for spot in of_group]
            axes.errorbar(
                across,
                up,
                yerr=_bars(up, [spot.y_ends for spot in of_group]),
                xerr=_bars(across, [spot.x_ends for spot in of_group]),
                label=group,
                marker=_MARKERS[index % len(_MARKERS)],
                linestyle="none",
                capsize=2,
                zorder=3,
            )
        for place, of_place in names.items() if len(names) <= _NAMED else []:
            side, shift = ("left", 6) if place[0] < middle else ("right", -6)
            text = "; ".join(dict.fromkeys(of_place))
            axes.annotate(text, place, (shift, 5), textcoords="offset points", fontsize=7, ha=side)
        axes.grid(alpha=0.3)
        axes.margins(0.12)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.set_title(plot_text(title), loc="left")
        widest = max(map(len, groups))
        axes.figure.legend(
            title="formats", loc="outside lower center", ncols=max(1, min(len(groups), 90 // (widest + 8)))
        )


def _bars(values: Sequence[float], ends: Sequence[tuple[float, float]]) -> list[list[float]]:
    """Return the lengths of error bars below and above each value; `ends` are deviations from a value, in per cent."""
    return [[abs(value * end[side]) / 100 for value, end in zip(values, ends, strict=True)] for side in (0, 1)]


def _with(recipe: Recipe) -> str:
    return f", {recipe.library.name}" if recipe.library else f", {recipe.fpga}" if recipe.fpga else ""

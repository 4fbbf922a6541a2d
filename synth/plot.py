"""Plots of area: bars for the parts of a datapath, and a scatter plot of area against throughput."""

from collections.abc import Sequence
from pathlib import Path

from ..infra.escapes import plot_text
from ..infra.figures import picture
from .area import Survey
from .recipe import Recipe

__all__ = ["axis_of", "plot_survey", "scatter"]

_UNITS = {"area": "area [library's unit]", "gates": "gates [NAND2]", "delay": "delay [ps]", "depth": "depth [gates]"}
#: Maximum number of points in a scatter plot that get a label.
_NAMED = 24
_MARKERS = "osD^vPX*"


def axis_of(name: str) -> str:
    """Return the axis label of an amount (area, gates or cells), with its unit."""
    return _UNITS.get(name, name)


def plot_survey(survey: Survey, path: Path) -> None:
    """Draw bars as SVG: of the stages if measured, otherwise of the array's parts, or of the sparse and dense unit.

    Bars show the first amount of the survey. Errors are those of :func:`~sptc.infra.figures.picture`.
    """
    first, config = survey.recipe.amounts[0], survey.config
    what = "the stages of a unit, each by itself"
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


def scatter(points: Sequence[tuple[str, str, float, float]], x: str, y: str, title: str, path: Path) -> None:
    """Draw a scatter plot as SVG. A point is a tuple of its group, its name, and its x and y.

    Errors are those of :func:`~sptc.infra.figures.picture`.
    """
    groups: dict[str, list[tuple[float, float]]] = {}
    names: dict[tuple[float, float], list[str]] = {}
    for group, name, across, up in points:
        groups.setdefault(group, []).append((across, up))
        names.setdefault((across, up), []).append(name)
    middle = max(spot[0] for spot in names) / 2
    with picture(path, 8.0, 5.5) as axes:
        for index, (group, places) in enumerate(groups.items()):
            axes.scatter(*zip(*places, strict=True), label=group, marker=_MARKERS[index % len(_MARKERS)], zorder=3)
        for spot, of_spot in names.items() if len(names) <= _NAMED else []:
            side, shift = ("left", 6) if spot[0] < middle else ("right", -6)
            text = "; ".join(dict.fromkeys(of_spot))
            axes.annotate(text, spot, (shift, 5), textcoords="offset points", fontsize=7, ha=side)
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


def _with(recipe: Recipe) -> str:
    return f", {recipe.library.name}" if recipe.library else f", {recipe.fpga}" if recipe.fpga else ""

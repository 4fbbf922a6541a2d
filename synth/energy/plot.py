"""Plot of energy measurements: energy by stage, and energy against the share of zeros."""

import importlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...infra.figures import check_plotting, drawn, figure
from ...infra.files import write_whole
from ...isa.instructions import Instruction
from .electrical import CellLibrary
from .measure import Measured
from .operands import share_of_zeros
from .stages import STAGES

__all__ = ["plot"]


def plot(results: Sequence[Measured], cells: CellLibrary, path: Path) -> None:
    """Draw the energy by stage as bars in SVG and, if operands differ in their share of zeros, energy by this share.

    Errors are those of :func:`~sptc.infra.figures.picture`.
    """
    scale, amount = 1e-3, "energy per kept product [pJ]"
    if not cells.library.text:
        scale, amount = 1.0, "switched gate equivalents per kept product"
    lines: dict[Instruction, list[tuple[float, float]]] = defaultdict(list)
    for result in results:
        if (share := share_of_zeros(result.operands)) is not None:
            lines[result.instruction].append((100 * share, scale * result.total))
    lines = {instruction: sorted(points) for instruction, points in lines.items() if len(points) > 1}
    height = 2.2 + 0.32 * len(results)
    check_plotting()
    colormaps: Any = importlib.import_module("matplotlib").colormaps
    with figure(11.5 if lines else 7.5, max(height, 4.0) if lines else height, **{"font.size": 10}) as whole:
        whole.set_layout_engine("constrained")
        places = whole.subplots(1, 2 if lines else 1, squeeze=False)[0]
        for axes in places:
            axes.spines[["top", "right"]].set_visible(False)
        colours = colormaps["tab20"]
        bars, left = [f"{_name(result.instruction)}, {result.operands}" for result in results], [0.0] * len(results)
        for number, stage in enumerate(STAGES):
            widths = [scale * result.stages.get(stage, 0.0) for result in results]
            if any(widths):
                places[0].barh(range(len(bars)), widths, left=left, label=stage, color=colours(number))
                left = [sum(both) for both in zip(left, widths, strict=True)]
        places[0].set_yticks(range(len(bars)), bars)
        places[0].invert_yaxis()
        places[0].set_xlabel(amount)
        whole.legend(loc="outside lower center", ncols=5)
        for instruction, points in lines.items():
            # With only two points, draw no line: a line would suggest that energies between the points are known.
            line = "-" if len(points) > 2 else ""
            places[1].plot(*zip(*points, strict=True), line, marker="o", label=_name(instruction))
        if lines:
            places[1].set_xlabel("zeros among A and B [%]")
            places[1].set_ylabel(amount)
            places[1].set_ylim(bottom=0)
            places[1].grid(alpha=0.3)
            places[1].legend()
        data = drawn(whole)
    write_whole(path, data)


def _name(i: Instruction) -> str:
    formats = i.a.name if i.a is i.b else f"{i.a.name} {i.b.name}"
    return f"{i.family} {formats} to {i.d.name}, {'sparse' if i.sparse else 'dense'}"

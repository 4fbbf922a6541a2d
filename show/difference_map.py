"""Map of the outputs of a matrix product that differ from the correct product, as text and as a picture."""

import importlib
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..infra.counts import counted
from ..infra.figures import drawn, sheet

__all__ = ["DifferenceMap"]

#: Maximum number of rows of cells and of columns of cells, first for a map as text, then for a map as a picture.
_TEXT, _PICTURE = (32, 64), (64, 64)
#: Letters for the levels of a cell: no output of the cell differs, some differ, at least half differ, or all differ.
_LETTERS = ".-+#"
_COLOURS = ("#eef3f7", "#f6c48f", "#e8833a", "#b3261e")
_MEANINGS = ("none differs", "some differ", "at least half differ", "all differ")
#: Sizes in inches: side of a cell in the picture, and the four margins of the picture.
_CELL, _LEFT, _TOP, _RIGHT, _BOTTOM = 0.13, 0.85, 0.95, 0.4, 0.55
_LEAST_WIDTH = 7.5
#: Distance, in cells, between two labels on an axis of the map.
_LABELLED = 8


@dataclass(frozen=True, eq=False)
class DifferenceMap:
    """Map of the differing outputs of a matrix product, divided into cells of 2**i rows x 2**j columns."""

    differing: NDArray[np.bool_]  #: Whether each output differs from the correct product, shape (M, N)

    def _cells(self, most: tuple[int, int]) -> tuple[NDArray[np.intp], tuple[int, int]]:
        """Return a level for each map cell (a block of outputs; 0: none differs, 3: all), and the size of a cell."""
        shape = self.differing.shape
        height, width = (
            next(1 << power for power in range(40) if -(-length // (1 << power)) <= count)
            for length, count in zip(shape, most, strict=True)
        )
        down, across = -(-shape[0] // height), -(-shape[1] // width)
        padded = np.zeros((2, down * height, across * width))
        padded[0, : shape[0], : shape[1]] = self.differing
        padded[1, : shape[0], : shape[1]] = 1
        differing, outputs = padded.reshape(2, down, height, across, width).sum((2, 4))
        share = differing / outputs
        return (share > 0).astype(np.intp) + (share >= 0.5) + (share == 1), (height, width)

    def __str__(self) -> str:
        levels, (height, width) = self._cells(_TEXT)
        margin = len(str(self.differing.shape[0]))
        legend = ", ".join(f"{letter} {meaning}" for letter, meaning in zip(_LETTERS, _MEANINGS, strict=True))
        lines = [f"each letter is {counted(height, 'row')} x {counted(width, 'column')}: {legend}"]
        labels = "".join(f"{column * width:<{_LABELLED}}" for column in range(0, levels.shape[1], _LABELLED))
        lines.append(f"{'':{margin}}  {labels}".rstrip())
        for row, of_row in enumerate(levels):
            lines.append(f"{row * height:>{margin}}  {''.join(_LETTERS[level] for level in of_row)}")
        return "\n".join(lines)

    def svg(self, title: str) -> bytes:
        """Draw the map of differing outputs as a picture; raise a `BackendError` if matplotlib is not installed."""
        patches: Any = importlib.import_module("matplotlib.patches")
        levels, (height, width) = self._cells(_PICTURE)
        down, across = levels.shape
        wide = max(_LEAST_WIDTH, _LEFT + _RIGHT + across * _CELL)
        with sheet(wide, _TOP + _BOTTOM + down * _CELL) as axes:
            words = " ".join(title.split())
            rows = wrap(words, int(wide * 13), break_long_words=False, break_on_hyphens=False)
            for number, line in enumerate(rows[:3]):
                axes.text(_LEFT / 4, 0.18 + 0.17 * number, line, fontsize=8.5, va="center")
            for row, column in np.ndindex(levels.shape):
                corner = _LEFT + column * _CELL, _TOP + row * _CELL
                colour = _COLOURS[levels[row, column]]
                axes.add_patch(patches.Rectangle(corner, _CELL, _CELL, facecolor=colour, edgecolor="white", lw=0.4))
            for row in range(0, down, _LABELLED):
                axes.text(_LEFT - 0.08, _TOP + (row + 0.5) * _CELL, f"row {row * height}", fontsize=6.5, ha="right",
                          va="center")  # fmt: skip
            for column in range(0, across, _LABELLED):
                axes.text(_LEFT + column * _CELL, _TOP - 0.09, f"column {column * width}", fontsize=6.5, va="center")
            bottom = _TOP + down * _CELL + 0.2
            cell = f"a cell is {counted(height, 'row')} x {counted(width, 'column')}"
            axes.text(_LEFT, bottom + 0.22, cell, fontsize=6.5, va="center")
            for level, meaning in enumerate(_MEANINGS):
                x = _LEFT + 1.45 * level
                axes.add_patch(patches.Rectangle((x, bottom - 0.06), 0.12, 0.12, facecolor=_COLOURS[level],
                                                 edgecolor="#444", lw=0.5))  # fmt: skip
                axes.text(x + 0.18, bottom, meaning, fontsize=6.5, va="center")
            return drawn(axes.figure)

"""Picture of a tile in shared memory: lines of 128 bytes, and the elements in each unit of 16 bytes."""

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..infra.figures import drawn, sheet
from ..isa.memory import UNIT_BYTES
from ..isa.placement import OperandPlacement
from .layout_text import name_of, span

__all__ = ["tiles_as_svg"]

#: Bytes of a line of the picture, which covers all banks of shared memory once.
_LINE = 128
#: Maximum number of lines drawn per tile; the pattern repeats after them.
_MOST_LINES = 32
#: Sizes of the parts of the picture in inches.
_UNIT_WIDTH, _LINE_HEIGHT, _LEFT, _TOP, _GAP = 1.12, 0.24, 0.8, 0.55, 0.75
_COLOURS = ("#cfe2f3", "#fce5cd", "#d9ead3", "#ead1dc", "#fff2cc", "#d0e0e3", "#e6b8af", "#d9d2e9")
_EMPTY = "#f3f3f3"


def tiles_as_svg(title: str, places: tuple[OperandPlacement, ...]) -> bytes:
    """Draw tiles of shared memory as SVG, one panel per tile; raise a `BackendError` if matplotlib is not installed.

    A cell is a unit of 16 bytes, with the elements it holds; its colour is the row of the swizzle pattern, so that a
    row of the matrix (of k if MN-major) keeps its colour.
    """
    patches: Any = importlib.import_module("matplotlib.patches")
    panels = [(place, _units(place)) for place in places]
    counts = [len(_lines(units)) for _, units in panels]
    width = _LEFT + _LINE // UNIT_BYTES * _UNIT_WIDTH + 0.3
    height = _TOP + sum(_GAP + count * _LINE_HEIGHT for count in counts)
    with sheet(width, height) as axes:
        axes.text(0.1, 0.22, title, fontsize=min(10, 105 * width / len(title)), weight="bold", va="center")
        top = _TOP
        for (place, units), count in zip(panels, counts, strict=True):
            axes.text(0.1, top + 0.08, f"{name_of(place)}: {place.notes[0]}", fontsize=7.5, va="center")
            heading = f"{','.join(place.indices)} of each unit of {UNIT_BYTES} bytes"
            heading += f"; the first {count} lines of {_LINE} bytes" if count == _MOST_LINES else ""
            axes.text(_LEFT, top + 0.26, heading, fontsize=6.5, va="center")
            for number in range(_LINE // UNIT_BYTES):
                x = _LEFT + (number + 0.5) * _UNIT_WIDTH
                axes.text(x, top + 0.4, f"+{number * UNIT_BYTES}", fontsize=6.5, ha="center", va="center")
            for number, line in enumerate(_lines(units)):
                y = top + 0.5 + number * _LINE_HEIGHT
                axes.text(_LEFT - 0.08, y + _LINE_HEIGHT / 2, f"{line * _LINE}", fontsize=6.5, ha="right", va="center")
                for unit in range(_LINE // UNIT_BYTES):
                    label, colour = units.get(line * _LINE // UNIT_BYTES + unit, ("", -1))
                    x = _LEFT + unit * _UNIT_WIDTH
                    face = _COLOURS[colour % len(_COLOURS)] if label else _EMPTY
                    cell = patches.Rectangle(
                        (x, y), _UNIT_WIDTH, _LINE_HEIGHT, facecolor=face, edgecolor="#444", lw=0.6
                    )
                    axes.add_patch(cell)
                    axes.text(x + _UNIT_WIDTH / 2, y + _LINE_HEIGHT / 2, label, fontsize=6.5, ha="center", va="center")
            top += _GAP + count * _LINE_HEIGHT
        return drawn(axes.figure)


def _lines(units: dict[int, tuple[str, int]]) -> list[int]:
    """Return the first lines of shared memory that contain a part of the tile."""
    return sorted({unit * UNIT_BYTES // _LINE for unit in units})[:_MOST_LINES]


def _units(place: OperandPlacement) -> dict[int, tuple[str, int]]:
    """Return label and colour of each unit of 16 bytes that holds an element."""
    assert place.tile
    last = place.words + (place.low_bits + place.bits - 1) // 8
    rows, columns = np.indices(place.shape)
    # Element index that is constant within 16 bytes of shared memory and determines their colour.
    across = place.indices.index("k") if place.operand == "b" else 1 - place.indices.index("row")
    outer = (rows, columns)[1 - across if place.tile.major == "k" else across]
    entries: dict[int, list[tuple[int, int, int]]] = {}
    for byte in (place.words, last):
        numbers: list[NDArray[np.intp]] = [byte.ravel() // UNIT_BYTES, rows.ravel(), columns.ravel(), outer.ravel()]
        for unit, row, column, colour in zip(*(number.tolist() for number in numbers), strict=True):
            entries.setdefault(unit, []).append((row, column, colour))
    cells = {}
    for unit, elements in entries.items():
        ends = [span(min(part), max(part)) for part in list(zip(*elements, strict=True))[:2]]
        cells[unit] = ",".join(ends), elements[0][2]
    return cells

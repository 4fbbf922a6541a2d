"""Pictures of a layout: a grid for each operand above one common k axis, or tiles in shared memory."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..infra.figures import drawn, sheet
from ..isa.instructions import Instruction
from ..isa.memory import UNIT_BYTES
from ..isa.placement import Memory, OperandPlacement, Placements
from .layout_text import name_of, span

__all__ = ["layout_as_svg", "tiles_as_svg"]

#: Maximum numbers of rows and columns of a matrix that are drawn; after these rows and columns, the pattern repeats.
_MOST_ROWS, _MOST_COLUMNS = 16, 16
_INDICES_ALONG_K = ("k", "stored", "chunk")
#: Sizes in inches: cell, header line, title, gap between grids; left and right margin, word, minimum picture width.
_CELL_HEIGHT, _HEADER_HEIGHT, _TITLE_HEIGHT, _GAP = 0.26, 0.19, 0.72, 0.55
_LEFT, _RIGHT, _WORD_WIDTH, _LEAST_WIDTH = 0.75, 0.35, 0.86, 9.5
#: Minimum width in inches of a column that is labelled with one bit number, or with a range of bits.
_ROOM_FOR_A_NUMBER, _ROOM_FOR_A_RANGE = 0.14, 0.3
_KEYS = {
    Memory.REGISTERS: "T: lane of the warp, R: its register",
    Memory.SHARED: "byte: offset in shared memory",
    Memory.TENSOR: "L: lane of tensor memory, C: column",
}
_COLOURS = ("#cfe2f3", "#fce5cd", "#d9ead3", "#ead1dc", "#fff2cc", "#d0e0e3", "#e6b8af", "#d9d2e9")


@dataclass(frozen=True)
class _Cell:
    """A rectangle in the drawing of a matrix: adjacent elements of one row in the same register or word."""

    #: First and last matrix column of the rectangle.
    first: int
    last: int
    label: str  #: Name of the register or word that holds the elements
    colour: int  #: Index of the colour in the list of colours
    meaning: str  #: Meaning of the colour in the legend; empty if the colour has no entry


@dataclass(frozen=True)
class _Panel:
    """Drawing of one operand as a grid, with k increasing from left to right."""

    heading: str  #: Title above the grid
    down: str  #: Name of the matrix index that increases downwards
    rows: list[list[_Cell]]  #: Rectangles of each row of the grid, from the top row down
    #: Header lines above the grid, each a list of (first column, column after the last, text).
    headers: list[list[tuple[float, float, str]]]
    dividers: list[float]  #: Grid columns whose left edge has a short mark (tick) between elements of one word
    scale: float  #: Width of a column in inches
    legend: list[tuple[int, str]]  #: Entries of the legend: index of a colour, and meaning of the colour

    @property
    def height(self) -> float:
        """Height of the drawn grid in inches, including title, header lines and legend."""
        return 2 * _HEADER_HEIGHT + len(self.headers) * _HEADER_HEIGHT + len(self.rows) * _CELL_HEIGHT + _GAP


def layout_as_svg(i: Instruction, title: str, found: Placements, selector: int) -> bytes:
    """Draw the placement of the operands as SVG, except block scales; the sparsity selector is in a heading.

    Raise an `OperandError` if no operand can be drawn, and a `BackendError` if matplotlib is not installed.
    """
    shown = [place for place in found.operands if not place.operand.startswith("scale")]
    if not shown:
        raise OperandError(f"no operand can be drawn: {'; '.join(found.unknown.values()) or 'scales have no picture'}")
    panels = [_panel(place, i, selector) for place in shown]
    width = max(_LEAST_WIDTH, *(_LEFT + _RIGHT + panel.scale * (panel.rows[0][-1].last + 1) for panel in panels))
    height = _TITLE_HEIGHT + sum(panel.height for panel in panels)
    with sheet(width, height) as axes:
        axes.text(_LEFT / 3, 0.25, title, fontsize=_font(title, width, 12), weight="bold", va="center")
        memories = {place.memory for place in shown}
        keys = "; ".join(_KEYS[memory] for memory in Memory if memory in memories)
        axes.text(_LEFT / 3, 0.47, keys, fontsize=9, va="center")
        top = _TITLE_HEIGHT
        for panel in panels:
            _draw_panel(axes, panel, top)
            top += panel.height
        return drawn(axes.figure)


def _panel(place: OperandPlacement, i: Instruction, selector: int) -> _Panel:
    """Return the grid of one operand. B is transposed, so that its k axis is aligned with the k axis of A."""
    turned = place.indices[0] in _INDICES_ALONG_K
    down, across = place.indices[::-1] if turned else place.indices
    lanes, words, low_bits = (part.T if turned else part for part in (place.lanes, place.words, place.low_bits))
    along_k = across in _INDICES_ALONG_K
    rows = min(lanes.shape[0], _MOST_ROWS)
    columns = lanes.shape[1] if along_k else min(lanes.shape[1], _MOST_COLUMNS)
    nibbles = place.operand == "metadata"
    per_word = 1
    if not nibbles:
        unit = words if place.memory is not Memory.SHARED else words // UNIT_BYTES
        same = (unit[0, 1:] == unit[0, 0]) & (lanes[0, 1:] == lanes[0, 0])
        per_word += int((~same).argmax()) if not same.all() else same.size
    grid = [
        [
            _cell(place, int(lanes[row, first]), int(words[row, first]), int(low_bits[row, first]), first, per_word)
            for first in range(0, columns, per_word)
        ]
        for row in range(rows)
    ]
    # A register of a sparse A covers twice the k range of a register of B. Equal k ranges are drawn with equal widths.
    logical = {"k": 1, "stored": 2, "chunk": i.granularity.logical if i.granularity else 1}.get(across, 0)
    scale = logical * _WORD_WIDTH * i.container_bits / 32 if logical else _WORD_WIDTH / per_word
    headers: list[list[tuple[float, float, str]]] = []
    if nibbles or across == "stored":
        headers.append(_windows(columns, i, nibbles))
    if not nibbles:
        words_of_row = range(0, columns, per_word)
        headers.append([(x, x + per_word, f"{across} {span(x, x + per_word - 1)}") for x in words_of_row])
        if per_word > 1 and place.memory is not Memory.SHARED:
            bits = [int(low) for low in low_bits[0, :columns]]
            if scale > _ROOM_FOR_A_NUMBER:
                short = scale < _ROOM_FOR_A_RANGE
                spans = [str(low) if short else span(low, low + place.bits - 1, high_first=True) for low in bits]
                headers.append([(x, x + 1, text) for x, text in enumerate(spans)])
            else:
                text = f"bits {bits[0]}, {bits[1]} \u2026 {bits[per_word - 1]}"
                headers.append([(x, x + per_word, text) for x in words_of_row])
    named = [cell for row in grid for cell in row if cell.meaning]  # cells whose colour the legend explains
    return _Panel(
        heading=_heading(place, i, selector, (rows, columns), lanes.shape, per_word),
        down=down,
        rows=grid,
        headers=headers,
        dividers=[float(x) for x in range(columns) if x % per_word],
        scale=scale,
        legend=sorted({cell.colour: cell.meaning for cell in reversed(named)}.items()),
    )


def _cell(place: OperandPlacement, lane: int, word: int, low_bit: int, first: int, per_word: int) -> _Cell:
    last, in_registers = first + per_word - 1, place.memory is Memory.REGISTERS
    if place.memory is Memory.SHARED:
        return _Cell(first, last, f"byte {word}", first // per_word % len(_COLOURS), "")
    colour, meaning = word % len(_COLOURS), f"{'register' if in_registers else 'column'} {word}"
    if place.operand != "metadata":
        label = f"T{lane % 32}:R{word}" if in_registers else f"L{lane % 32}:C{word}"
        return _Cell(first, last, label, colour, meaning)
    bits = span(low_bit, low_bit + place.bits - 1, high_first=True)
    if in_registers:
        return _Cell(first, last, f"T{lane % 32} {bits}", lane % 4, f"lane {lane % 4} of a quad")
    return _Cell(first, last, f"L{lane}:C{word} {bits}", colour, meaning)


def _windows(columns: int, i: Instruction, nibbles: bool) -> list[tuple[float, float, str]]:
    """Return a header line with the range of k that each metadata nibble describes."""
    assert i.granularity
    logical, width = i.granularity.logical, 1 if nibbles else i.granularity.stored
    return [
        (x, x + width, f"k {span(x // width * logical, x // width * logical + logical - 1)}")
        for x in range(0, columns, width)
    ]


def _heading(
    place: OperandPlacement, i: Instruction, selector: int, shown: Sequence[int], shape: Sequence[int], per_word: int
) -> str:
    name = "B, turned" if place.operand == "b" else name_of(place)
    words = [name, f"{place.bits} bits each, in {place.memory.value}"]
    if place.operand == "metadata":
        words.append(
            f"selector {selector} of {span(0, i.sparsity_selectors - 1).replace(':', ' to ')}; bits of the nibble"
        )
    elif place.memory is Memory.SHARED:
        words.append("packed, K-major, no swizzle; first byte of each 16-byte unit")
    elif per_word > 1:
        words.append("bits of each element above its column")
    if tuple(shown) != tuple(shape):
        words.append(f"{shown[0]} x {shown[1]} shown of {shape[0]} x {shape[1]}")
        if place.memory is Memory.REGISTERS and i.family == "wgmma":
            words.append("warp 0")
    return "; ".join([", ".join(words[:2]), *words[2:]])


def _draw_panel(axes: Any, panel: _Panel, top: float) -> None:
    patches: Any = importlib.import_module("matplotlib.patches")
    axes.text(_LEFT / 3, top + _HEADER_HEIGHT / 2, panel.heading, fontsize=10, weight="bold", va="center")
    y = top + _HEADER_HEIGHT * 1.4
    for header in panel.headers:
        for first, end, text in header:
            middle = _LEFT + (first + end) / 2 * panel.scale
            room = (end - first) * panel.scale
            axes.text(middle, y + _HEADER_HEIGHT / 2, text, fontsize=_font(text, room), ha="center", va="center")
        y += _HEADER_HEIGHT
    axes.text(_LEFT - 0.42, y - _HEADER_HEIGHT / 2, panel.down, fontsize=8, ha="center", va="center")
    bottom = y + len(panel.rows) * _CELL_HEIGHT
    for number, row in enumerate(panel.rows):
        middle = y + (number + 0.5) * _CELL_HEIGHT
        axes.text(_LEFT - 0.12, middle, str(number), fontsize=8, ha="right", va="center")
        for cell in row:
            left, width = _LEFT + cell.first * panel.scale, (cell.last - cell.first + 1) * panel.scale
            corner = left, y + number * _CELL_HEIGHT
            colour = _COLOURS[cell.colour]
            axes.add_patch(patches.Rectangle(corner, width, _CELL_HEIGHT, facecolor=colour, edgecolor="#444", lw=0.6))
            size = _font(cell.label, width)
            axes.text(left + width / 2, middle, cell.label, fontsize=size, ha="center", va="center", zorder=3)
    for divider in panel.dividers:
        # Separate elements by short marks (ticks) instead of full lines, because a label may span several elements.
        x = _LEFT + divider * panel.scale
        axes.plot([x, x], [y - _HEADER_HEIGHT * 0.15, y], color="#444", lw=0.5)
    x = _LEFT
    for index, text in panel.legend:
        corner = x, bottom + 0.08
        axes.add_patch(patches.Rectangle(corner, 0.16, 0.12, facecolor=_COLOURS[index], edgecolor="#444", lw=0.6))
        axes.text(x + 0.22, bottom + 0.14, text, fontsize=8, va="center")
        x += 0.45 + 0.076 * len(text)


def _font(text: str, inches: float, most: float = 9) -> float:
    """Return the largest font size in points at which a text fits; a character is about 0.62 font sizes wide."""
    return min(most, 72 * inches * 0.92 / (0.62 * max(1, len(text))))


# Pictures of tiles in shared memory.

#: Number of bytes in a line of the picture: one word of each bank of shared memory.
_LINE = 128
#: Maximum number of lines drawn per tile; after these lines, the pattern repeats.
_MOST_LINES = 32
#: Sizes in inches of a picture of tiles: 16-byte unit, line, left and top margin, gap between tiles.
_UNIT_WIDTH, _LINE_HEIGHT, _TILE_LEFT, _TILE_TOP, _TILE_GAP = 1.12, 0.24, 0.8, 0.55, 0.75
_EMPTY = "#f3f3f3"


def tiles_as_svg(title: str, places: tuple[OperandPlacement, ...]) -> bytes:
    """Draw tiles of shared memory as SVG, one panel per tile; raise a `BackendError` if matplotlib is not installed.

    A cell is a unit of 16 bytes, labelled with its elements. Units of the same row of the matrix (of the same k if
    MN-major) have the same colour, which shows how the swizzle moves units.
    """
    patches: Any = importlib.import_module("matplotlib.patches")
    panels = [(place, _units(place)) for place in places]
    counts = [len(_lines(units)) for _, units in panels]
    width = _TILE_LEFT + _LINE // UNIT_BYTES * _UNIT_WIDTH + 0.3
    height = _TILE_TOP + sum(_TILE_GAP + count * _LINE_HEIGHT for count in counts)
    with sheet(width, height) as axes:
        axes.text(0.1, 0.22, title, fontsize=min(10, 105 * width / len(title)), weight="bold", va="center")
        top = _TILE_TOP
        for (place, units), count in zip(panels, counts, strict=True):
            axes.text(0.1, top + 0.08, f"{name_of(place)}: {place.notes[0]}", fontsize=9, va="center")
            heading = f"{','.join(place.indices)} of each unit of {UNIT_BYTES} bytes"
            heading += f"; the first {count} lines of {_LINE} bytes" if count == _MOST_LINES else ""
            axes.text(_TILE_LEFT, top + 0.26, heading, fontsize=8, va="center")
            for number in range(_LINE // UNIT_BYTES):
                x = _TILE_LEFT + (number + 0.5) * _UNIT_WIDTH
                axes.text(x, top + 0.4, f"+{number * UNIT_BYTES}", fontsize=8, ha="center", va="center")
            for number, line in enumerate(_lines(units)):
                y = top + 0.5 + number * _LINE_HEIGHT
                axes.text(
                    _TILE_LEFT - 0.08, y + _LINE_HEIGHT / 2, f"{line * _LINE}", fontsize=8, ha="right", va="center"
                )
                for unit in range(_LINE // UNIT_BYTES):
                    label, colour = units.get(line * _LINE // UNIT_BYTES + unit, ("", -1))
                    x = _TILE_LEFT + unit * _UNIT_WIDTH
                    face = _COLOURS[colour % len(_COLOURS)] if label else _EMPTY
                    cell = patches.Rectangle(
                        (x, y), _UNIT_WIDTH, _LINE_HEIGHT, facecolor=face, edgecolor="#444", lw=0.6
                    )
                    axes.add_patch(cell)
                    axes.text(x + _UNIT_WIDTH / 2, y + _LINE_HEIGHT / 2, label, fontsize=8, ha="center", va="center")
            top += _TILE_GAP + count * _LINE_HEIGHT
        return drawn(axes.figure)


def _lines(units: dict[int, tuple[str, int]]) -> list[int]:
    """Return indices of 128-byte lines of shared memory: the first lines that contain a part of the tile."""
    return sorted({unit * UNIT_BYTES // _LINE for unit in units})[:_MOST_LINES]


def _units(place: OperandPlacement) -> dict[int, tuple[str, int]]:
    """Return label and colour for each 16-byte unit that holds an element. Key: index of the unit in shared memory."""
    assert place.tile
    last = place.words + (place.low_bits + place.bits - 1) // 8
    rows, columns = np.indices(place.shape)
    # All elements of a 16-byte unit are in one row or column. The index of this row or column sets the unit's colour.
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

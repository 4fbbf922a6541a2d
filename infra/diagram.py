"""Block diagrams as SVG, in light or dark colours."""

from collections.abc import Iterable, Sequence
from enum import Enum
from xml.etree import ElementTree

from .escapes import xml_text

__all__ = ["FILLS", "Diagram", "Theme"]


class Theme(Enum):
    """Colour theme of a diagram: light, dark, or the reader's setting."""

    AUTO = "auto"  #: light or dark colours, according to the settings of the reader's browser or system
    LIGHT = "light"
    DARK = "dark"


#: Colours of paper, text, minor text, lines and marks. Each is a pair: colour in the light and in the dark theme.
_PAPER, _TEXT, _QUIET, _LINE, _MARK = (
    ("#ffffff", "#0d1117"),
    ("#1f2328", "#f0f6fc"),
    ("#59636e", "#9198a1"),
    ("#59636e", "#9198a1"),
    ("#b00020", "#ff7b72"),
)
#: For each role of a shape: fill colours of the shape in the light and in the dark theme.
FILLS: dict[str, tuple[str, str]] = {
    "operand": ("#cfe2f3", "#0c2d6b"),
    "choice": ("#fce5cd", "#5a1e02"),
    "logic": ("#eaeef2", "#2d333b"),
    "exact": ("#d9ead3", "#0f3d1c"),
    "result": ("#fff2cc", "#4d3800"),
}
_LINE_HEIGHT = 1.25
#: Left edge of the title and of the description, in pixels.
_LEFT = 14
#: Offset between stacked copies of a shape, in pixels.
_STACK = 4


class Diagram:
    """SVG drawing in which a shape covers shapes that were drawn earlier.

    The size is in pixels; the picture can be scaled. `title` and `description` are drawn at the top, a long title in
    smaller letters, and are also the text for screen readers.
    """

    def __init__(self, width: float, height: float, title: str, description: str, theme: Theme = Theme.AUTO) -> None:
        size = {"width": _number(width), "height": _number(height), "viewBox": f"0 0 {width:g} {height:g}"}
        self._root = ElementTree.Element("svg", size | {"xmlns": "http://www.w3.org/2000/svg", "role": "img"})
        for name, words in (("title", title), ("desc", description), ("style", _style(theme))):
            ElementTree.SubElement(self._root, name).text = xml_text(words)
        self._add("rect", {"width": "100%", "height": "100%", "class": "paper"})
        self.text(_LEFT, 24, title, size=min(16, 1.6 * width / max(1, len(title))), anchor="start", kind="strong")
        self.text(_LEFT, 46, description, size=12, anchor="start", kind="quiet")

    def text(
        self, x: float, y: float, words: str, *, size: float = 11, anchor: str = "middle", kind: str = "text"
    ) -> None:
        """Draw one line of text, vertically centred at `y`, in style ``text``, ``quiet``, ``mark`` or ``strong``."""
        place = {"x": _number(x), "y": _number(y + 0.35 * size), "font-size": _number(size), "text-anchor": anchor}
        self._add("text", place | {"class": kind}).text = xml_text(words)

    def lines(self, x: float, y: float, lines: Sequence[str], *, size: float = 11) -> None:
        """Draw lines of text centred at a point. If there are several lines, the first line is bold."""
        for number, words in enumerate(lines):
            place = y + (number - (len(lines) - 1) / 2) * size * _LINE_HEIGHT
            self.text(x, place, words, size=size, kind="strong" if number == 0 and len(lines) > 1 else "text")

    def box(
        self,
        at: tuple[float, float, float, float],
        lines: Sequence[str],
        fill: str,
        *,
        copies: int = 1,
        size: float = 11,
    ) -> None:
        """Draw a box at (left, top, width, height) with centred text, or a stack of boxes if `copies` is above 1."""
        x, y, width, height = at
        for shift in range(_STACK * min(copies - 1, 2), -1, -_STACK):
            place = {"x": x + shift, "y": y - shift, "width": width, "height": height, "rx": 3}
            self._add("rect", {name: _number(value) for name, value in place.items()} | {"class": f"shape {fill}"})
        self.lines(x + width / 2, y + height / 2, lines, size=size)

    def multiplexer(self, at: tuple[float, float, float, float], lines: Sequence[str], *, size: float = 11) -> None:
        """Draw a multiplexer at (left, top, width, height): a trapezoid that narrows to the right."""
        x, y, width, height = at
        slope = min(height / 5, 14)
        corners = [(x, y), (x + width, y + slope), (x + width, y + height - slope), (x, y + height)]
        self._add("polygon", {"points": _points(corners), "class": "shape choice"})
        self.lines(x + width / 2, y + height / 2, lines, size=size)

    def arrow(self, *points: tuple[float, float], head: bool = True, kind: str = "line") -> None:
        """Draw a line through points, with an arrowhead at the last point."""
        self._add("polyline", {"points": _points(points), "class": kind})
        if head:
            (x, y), (before_x, before_y) = points[-1], points[-2]
            along = (x > before_x) - (x < before_x), (y > before_y) - (y < before_y)
            sides = [(x - 6 * along[0] + 3 * s * along[1], y - 6 * along[1] + 3 * s * along[0]) for s in (-1, 1)]
            self._add("polygon", {"points": _points([(x, y), *sides]), "class": "head"})

    def register(self, x: float, top: float, bottom: float, label: str) -> None:
        """Draw a pipeline register: a vertical line across the signals, with a label below."""
        self.arrow((x, top), (x, bottom), head=False, kind="register")
        self.text(x, bottom + 10, label, size=10, kind="mark")

    def svg(self) -> bytes:
        """Return the diagram as the content of an SVG file."""
        ElementTree.indent(self._root, " ")
        return ElementTree.tostring(self._root) + b"\n"

    def _repr_svg_(self) -> str:
        return self.svg().decode()

    def _add(self, tag: str, attributes: dict[str, str]) -> ElementTree.Element:
        return ElementTree.SubElement(self._root, tag, attributes)


def _number(value: float) -> str:
    return f"{value:.6g}"


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in points)


def _style(theme: Theme) -> str:
    light, dark = (_colours(place) for place in (0, 1))
    colours = {Theme.LIGHT: light, Theme.DARK: dark}.get(theme)
    if colours is None:
        colours = f"{light} @media (prefers-color-scheme: dark) {{ {dark} }}"
    return (
        "text { font-family: system-ui, 'DejaVu Sans', sans-serif } .strong { font-weight: bold } "
        ".line, .register { fill: none } .register { stroke-width: 3; stroke-dasharray: 6 3 } " + colours
    )


def _colours(place: int) -> str:
    fills = " ".join(f".{name} {{ fill: {colours[place]} }}" for name, colours in FILLS.items())
    return (
        f".paper {{ fill: {_PAPER[place]} }} .text, .strong {{ fill: {_TEXT[place]} }} "
        f".quiet {{ fill: {_QUIET[place]} }} .mark {{ fill: {_MARK[place]} }} "
        f".shape, .line {{ stroke: {_LINE[place]} }} .head {{ fill: {_LINE[place]} }} "
        f".register {{ stroke: {_MARK[place]} }} {fills}"
    )

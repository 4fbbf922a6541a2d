"""Matplotlib figures as reproducible SVG. matplotlib is imported only when a figure is drawn."""

import importlib
import importlib.util
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import BackendError
from .files import write_whole
from .installation import install_line

__all__ = ["check_plotting", "drawn", "figure", "picture", "sheet"]

#: Settings for reproducible SVG: a fixed salt for the hashes in ids, and labels as text instead of outlines.
_STYLE = {"svg.hashsalt": "sptc", "svg.fonttype": "none"}
#: Style that inverts the lightness of a figure for readers with a dark theme, and keeps the hues. The style has no
#: effect on SVG that is part of an HTML page.
_DARK = (
    b"<style>@media (prefers-color-scheme: dark) "
    b"{ svg:root { filter: invert(0.92) hue-rotate(180deg) saturate(2) } }</style>"
)


def check_plotting() -> None:
    """Raise a `BackendError` if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise BackendError(f"pictures need matplotlib: install it with `{install_line('area')}`")


@contextmanager
def figure(width: float, height: float, **style: object) -> Iterator[Any]:
    """Yield a matplotlib figure in the style of this package; `width` and `height` are in inches.

    `style` holds further rcParams of matplotlib.

    Raise a `BackendError` if matplotlib is not installed.
    """
    check_plotting()
    matplotlib: Any = importlib.import_module("matplotlib")
    figures: Any = importlib.import_module("matplotlib.figure")
    with matplotlib.rc_context({**_STYLE, **style}):
        yield figures.Figure(figsize=(width, height))


def drawn(figure: Any) -> bytes:
    """Return a figure as SVG with reproducible bytes. Call this function inside the context of :func:`figure`."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue().replace(b" <defs>", b" " + _DARK + b"\n <defs>", 1)


@contextmanager
def picture(path: Path, width: float, height: float) -> Iterator[Any]:
    """Yield axes of a given size in inches. On exit from the context, write the figure as an SVG file.

    Raise a `BackendError` if matplotlib is not installed, and a `FileError` if the file cannot be written.
    """
    with figure(width, height, **{"font.size": 10}) as whole:
        whole.set_layout_engine("constrained")
        axes = whole.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        yield axes
        data = drawn(whole)
    write_whole(path, data)


@contextmanager
def sheet(width: float, height: float) -> Iterator[Any]:
    """Yield frameless axes over a whole figure, with coordinates in inches from the upper left corner of the figure."""
    with figure(width, height, **{"font.family": "DejaVu Sans"}) as whole:
        axes = whole.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)
        axes.set_axis_off()
        yield axes

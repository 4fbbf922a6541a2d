"""Block diagrams of datapaths: the unit, the array of units with its streams, and the three top modules."""

from collections.abc import Callable

from ..infra.diagram import Diagram, Theme
from ..rtl.config import PRESETS, ConfigError, CoreConfig
from .tops import draw_tcgen05, draw_warp, draw_warpgroup
from .unit import draw_unit

__all__ = ["TOPS", "datapath"]

_LEFT = 14
#: Maximum number of rows or columns that are drawn. In a larger array, dots are drawn before the last one.
_MOST = 4
_UNIT, _PITCH_X, _PITCH_Y = (112, 44), 140, 66


def _draw_core(config: CoreConfig, theme: Theme) -> Diagram:
    """Draw an array of units: the logic of each row, the logic of each column, and the units."""
    rows, columns = _shown(config.rows), _shown(config.columns)
    grid, top = 250.0, 170.0
    width, height = grid + len(columns) * _PITCH_X + 20, top + len(rows) * _PITCH_Y + 60
    units = config.rows * config.columns
    words = f"{config.rows} x {config.columns} units, a tile a cycle, latency {config.latency} cycles; "
    words += "a result that is not taken stops the whole pipeline"
    picture = Diagram(max(width, 640), height, f"core of {config.name}", words, theme)
    picture.heading(_LEFT, f"core of {config.name}", words)
    bits = 8 * config.step_bytes
    for place, column in enumerate(columns):
        x = grid + place * _PITCH_X
        _column_of_b(picture, column, (x, bits), top, len(rows))
    for place, row in enumerate(rows):
        y = top + place * _PITCH_Y
        _row_of_a(picture, config, row, y, grid + (len(columns) - 1) * _PITCH_X)
        for across, column in enumerate(columns):
            if row is not None and column is not None:
                at = (grid + across * _PITCH_X, y, *_UNIT)
                picture.box(at, [f"unit {row}, {column}", f"{config.slots} slots"], "exact")
    words = f"in: C of {units} outputs, {32 * units} bits; out: D of these"
    words += f", and flags of {config.chunks} chunks of each row" if config.sparse else ""
    picture.text(_LEFT, height - 24, words, size=12, anchor="start", kind="quiet")
    return picture


def _shown(count: int) -> list[int | None]:
    """Return the indices of the rows or columns to draw; None stands for a gap of rows or columns not drawn."""
    return [*range(count)] if count <= _MOST else [*range(_MOST - 2), None, count - 1]


def _column_of_b(picture: Diagram, column: int | None, at: tuple[float, int], top: float, rows: int) -> None:
    (x, bits), middle = at, at[0] + _UNIT[0] / 2
    if column is None:
        picture.text(middle, 110, "...", size=16)
        return
    picture.arrow((middle, 90), (middle, top + (rows - 1) * _PITCH_Y))
    picture.box((x, 66, _UNIT[0], 34), [f"B, column {column}", f"{2 * bits} bits"], "operand", size=10)
    picture.box((x, 118, _UNIT[0], 28), ["order"], "logic", size=10)


def _row_of_a(picture: Diagram, config: CoreConfig, row: int | None, y: float, end: float) -> None:
    middle = y + _UNIT[1] / 2
    if row is None:
        picture.text(_LEFT + 45, middle, "...", size=16)
        return
    bits = 8 * config.step_bytes
    picture.arrow((_LEFT + 92, middle), (end, middle))
    if not config.sparse:
        picture.box((_LEFT, y, 92, _UNIT[1]), [f"A, row {row}", f"{bits} bits"], "operand", size=10)
        return
    words = [f"A, row {row}", f"{bits} bits,", f"{4 * config.chunks} of metadata"]
    picture.box((_LEFT, y, 92, _UNIT[1]), words, "operand", size=10)
    picture.box((_LEFT + 112, y, 100, _UNIT[1]), ["decode", "order, flags"], "choice", size=10)


_DRAWINGS: dict[str, Callable[[CoreConfig, Theme], Diagram]] = {
    "unit": draw_unit,
    "core": _draw_core,
    "warp": draw_warp,
    "warpgroup": draw_warpgroup,
    "tcgen05": draw_tcgen05,
}
#: Names of the datapath modules that can be drawn.
TOPS = tuple(_DRAWINGS)


def datapath(config: CoreConfig | str, top: str = "unit", theme: Theme = Theme.AUTO) -> Diagram:
    """Draw a datapath as a block diagram, which a notebook displays.

    Parameters
    ----------
    config : CoreConfig or str
        Configuration, or the name of a preset.
    top : str
        One of :data:`TOPS`: ``unit``, with its stages, widths and registers; ``core``, the array of units; or the
        hardware that executes ``mma`` (``warp``), ``wgmma`` (``warpgroup``) or ``tcgen05.mma`` (``tcgen05``).
    theme : Theme
        Colours.

    Raises
    ------
    ConfigError
        The preset or the top does not exist, or the configuration does not support the top.
    """
    if isinstance(config, str):
        if config not in PRESETS:
            raise ConfigError(f"preset must be one of {', '.join(PRESETS)}, not {config!r}")
        config = PRESETS[config]
    if top not in _DRAWINGS:
        raise ConfigError(f"top must be one of {', '.join(TOPS)}, not {top!r}")
    return _DRAWINGS[top](config, theme)

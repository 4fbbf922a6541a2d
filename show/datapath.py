"""The pictures of datapaths: a unit, an array of them behind streams, and the four tensor cores of a warpgroup."""

from collections.abc import Callable

from ..infra.diagram import Diagram, Theme
from ..isa.timing import SHARED_BYTES
from ..rtl.config import PRESETS, WARP_COLUMNS, WARP_ROWS, ConfigError, CoreConfig
from ..rtl.tensor_cores import WARPS
from ..rtl.warp import LANES, REGISTERS
from .unit import draw_unit

__all__ = ["TOPS", "datapath"]

_LEFT = 14
#: What is drawn of more rows or columns than these: the first ones, dots, and the last.
_MOST = 4
_UNIT, _PITCH_X, _PITCH_Y = (112, 44), 140, 66


def _draw_core(config: CoreConfig, theme: Theme) -> Diagram:
    """Return the picture of an array: what stands once for a row or a column, and the units."""
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
    """Return which of so many are drawn; None stands for those left out."""
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


def _draw_warpgroup(config: CoreConfig, theme: Theme) -> Diagram:
    """Return the picture of the four tensor cores of a warpgroup."""
    config.require_warp()
    top, pitch, height = 96.0, 84.0, 64.0
    bottom = top + WARPS * pitch
    words = f"{WARPS} arrays of {config.rows} x {config.columns} units; a panel of eight columns of B takes each "
    words += f"{config.warp_blocks} cycles"
    picture = Diagram(900, bottom + 80, f"warpgroup of {config.name}", words, theme)
    picture.heading(_LEFT, f"warpgroup of {config.name}", words)
    _boxes_of_fetch(picture, top, bottom)
    broadcast = 452.0
    picture.arrow((420, top + 70), (broadcast, top + 70), head=False)
    picture.arrow((broadcast, top + height / 2 + 12), (broadcast, bottom - pitch + height / 2 + 12), head=False)
    for warp in range(WARPS):
        y = top + warp * pitch
        middle = y + height / 2
        rows = f"rows {WARP_ROWS * warp} to {WARP_ROWS * warp + WARP_ROWS - 1}"
        picture.box((520, y, 170, height), [f"tensor core {warp}", rows, f"{config.rows} x {config.columns}"], "exact")
        picture.arrow((broadcast, middle + 12), (520, middle + 12))
        picture.arrow((470, middle - 12), (520, middle - 12))
        picture.text(494, middle - 22, f"A {warp}", size=10, kind="quiet")
        picture.box((740, y + 8, 140, height - 16), ["C in, D out", f"{WARP_ROWS} x {WARP_COLUMNS}"], "operand")
        picture.arrow((740, middle - 8), (690, middle - 8))
        picture.arrow((690, middle + 8), (740, middle + 8))
    picture.arrow((420, bottom - 60), (470, bottom - 60), head=False)
    picture.arrow((470, top + height / 2 - 12), (470, bottom - 60), head=False)
    picture.box((520, bottom + 20, 170, 44), ["mma of other warps", "between panels"], "operand")
    picture.arrow((605, bottom + 20), (605, bottom - pitch + height))
    return picture


def _boxes_of_fetch(picture: Diagram, top: float, bottom: float) -> None:
    """Draw what brings operands: shared memory, its one port, and the instructions with A."""
    picture.box((_LEFT, top, 130, 140), ["shared memory", "one port,", f"{SHARED_BYTES} bytes a cycle"], "operand")
    picture.arrow((_LEFT + 130, top + 70), (210, top + 70))
    picture.box((210, top, 210, 140), ["operand fetch", "a core matrix a cycle, B first", "two panels of B"], "logic")
    picture.text(440, top + 58, "B", size=10, kind="quiet")
    words = ["instructions", f"A of {WARPS} x {LANES} lanes x {REGISTERS}", "metadata, descriptors", "commit, wait"]
    picture.box((_LEFT, bottom - 120, 156, 120), words, "operand", size=10)
    picture.arrow((_LEFT + 156, bottom - 60), (210, bottom - 60))
    picture.box(
        (210, bottom - 120, 210, 120),
        ["two instructions held", "while one multiplies,", "A of the next arrives"],
        "logic",
    )
    picture.arrow((315, top + 140), (315, bottom - 120))
    picture.text(323, (top + bottom + 20) / 2, "A, if it is in memory", size=10, anchor="start", kind="quiet")


_DRAWINGS: dict[str, Callable[[CoreConfig, Theme], Diagram]] = {
    "unit": draw_unit,
    "core": _draw_core,
    "warpgroup": _draw_warpgroup,
}
#: What can be drawn.
TOPS = tuple(_DRAWINGS)


def datapath(config: CoreConfig | str, top: str = "unit", theme: Theme = Theme.AUTO) -> Diagram:
    """Draw a datapath; the picture shows itself in a notebook.

    Parameters
    ----------
    config : CoreConfig or str
        Which one; a preset by its name.
    top : str
        One of :data:`TOPS`: ``unit``, its stages, widths and registers; ``core``, the array of units; ``warpgroup``,
        the four tensor cores that ``wgmma`` runs on.
    theme : Theme
        Colours.

    Raises
    ------
    ConfigError
        There is no such preset or top, or a warpgroup cannot be made of it.
    """
    if isinstance(config, str):
        if config not in PRESETS:
            raise ConfigError(f"preset must be one of {', '.join(PRESETS)}, not {config!r}")
        config = PRESETS[config]
    if top not in _DRAWINGS:
        raise ConfigError(f"top must be one of {', '.join(TOPS)}, not {top!r}")
    return _DRAWINGS[top](config, theme)

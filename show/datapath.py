"""Block diagrams of datapaths: the unit, the array of units with its streams, and the three top modules."""

from collections.abc import Callable

from ..infra.diagram import Diagram, Theme
from ..isa.timing import SHARED_BYTES
from ..rtl.accumulators import ARRAYS
from ..rtl.config import PRESETS, WARP_COLUMNS, WARP_ROWS, ConfigError, CoreConfig
from ..rtl.tensor_cores import WARPS
from ..rtl.tensor_memory import TENSOR_LANES
from ..rtl.warp import LANES, REGISTERS
from .unit import UnitDrawing, name_of

__all__ = ["TOPS", "datapath"]

_LEFT = 14
#: Maximum number of rows or columns that are drawn. In a larger array, dots precede the last row or column.
_MOST = 4
_UNIT, _PITCH_X, _PITCH_Y = (112, 44), 140, 66
#: Number of tensor memory columns.
_TENSOR_COLUMNS = 512


def _draw_core(config: CoreConfig, theme: Theme) -> Diagram:
    """Draw an array of dot-product units: the logic of each row, the logic of each column, and the units."""
    rows, columns = _shown(config.rows), _shown(config.columns)
    grid, top = 250.0, 170.0
    width, height = grid + len(columns) * _PITCH_X + 20, top + len(rows) * _PITCH_Y + 60
    units = config.rows * config.columns
    words = f"{config.rows} x {config.columns} units, one tile per cycle, latency {config.latency} cycles; "
    words += "a result not accepted stalls the whole pipeline"
    picture = Diagram(max(width, 640), height, f"core of {name_of(config)}", words, theme)
    bits = 8 * config.step_bytes
    places = [grid + across * _PITCH_X for across in range(len(columns))]
    for x, column in zip(places, columns, strict=True):
        middle = x + _UNIT[0] / 2
        if column is None:
            picture.text(middle, 110, "...", size=16)
            continue
        picture.arrow((middle, 90), (middle, top + (len(rows) - 1) * _PITCH_Y))
        picture.box((x, 66, _UNIT[0], 34), [f"B, column {column}", f"{2 * bits} bits"], "operand", size=10)
        picture.box((x, 118, _UNIT[0], 28), ["order"], "logic", size=10)
    for down, row in enumerate(rows):
        y = top + down * _PITCH_Y
        middle = y + _UNIT[1] / 2
        if row is None:
            picture.text(_LEFT + 45, middle, "...", size=16)
            continue
        picture.arrow((_LEFT + 92, middle), (places[-1], middle))
        widths = [f"{bits} bits,", f"{4 * config.chunks} of metadata"] if config.sparse else [f"{bits} bits"]
        picture.box((_LEFT, y, 92, _UNIT[1]), [f"A, row {row}", *widths], "operand", size=10)
        if config.sparse:
            picture.box((_LEFT + 112, y, 100, _UNIT[1]), ["decode", "order, flags"], "choice", size=10)
        for x, column in zip(places, columns, strict=True):
            if column is not None:
                picture.box((x, y, *_UNIT), [f"unit {row}, {column}", f"{config.slots} slots"], "exact")
    words = f"input: C of {units} outputs, {32 * units} bits; output: D of these {units} outputs"
    words += f", and flags of {config.chunks} chunks per row" if config.sparse else ""
    picture.text(_LEFT, height - 24, words, size=12, anchor="start", kind="quiet")
    return picture


def _shown(count: int) -> list[int | None]:
    """Return the indices of the rows or columns to draw; None stands for the rows or columns that are left out."""
    return [*range(count)] if count <= _MOST else [*range(_MOST - 2), None, count - 1]


def _draw_warp(config: CoreConfig, theme: Theme) -> Diagram:
    """Draw a warp: registers, the operand buffer, the array of dot-product units, and the results."""
    config.require_warp()
    words = f"{config.rows} x {config.columns} units; {WARP_ROWS} x {WARP_COLUMNS} outputs take {config.warp_blocks} "
    words += "cycles per step of K"
    picture = Diagram(900, 300, f"warp of {name_of(config)}", words, theme)
    for place, (name, count) in enumerate((("A", 4), ("B", 4), ("C", 4), ("metadata", 1))):
        y = 84.0 + 46 * place
        picture.box((_LEFT, y, 170, 38), [name, f"{LANES} lanes x {count} x 32 bits"], "operand", size=10)
        picture.arrow((_LEFT + 170, y + 19), (240, y + 19))
    picture.box((240, 84, 150, 176), ["operand buffer", "gathering:", "rows and columns", "of one block"], "logic")
    picture.arrow((390, 172), (440, 172))
    array = ["core", f"{config.rows} x {config.columns} units", f"latency {config.latency}"]
    picture.box((440, 122, 150, 100), array, "exact")
    picture.arrow((590, 172), (640, 172))
    picture.box((640, 122, 110, 100), ["results", "by block,", "flags of", "every row"], "logic")
    picture.arrow((750, 172), (780, 172))
    picture.box((780, 132, 106, 80), ["D", f"{LANES} lanes", f"x {REGISTERS} x 32 bits"], "operand", size=10)
    if config.step_bytes == 16:
        picture.arrow((695, 222), (695, 276), head=False)
        picture.arrow((695, 276), (315, 276), head=False)
        picture.arrow((315, 276), (315, 260))
        picture.text(505, 288, "the second step of K starts from the results of the first", size=10, kind="quiet")
    return picture


def _draw_warpgroup(config: CoreConfig, theme: Theme) -> Diagram:
    """Draw a warpgroup: its four tensor cores, the fetch of operands, and the buffers of two instructions."""
    config.require_warp()
    top, pitch, height = 96.0, 84.0, 64.0
    bottom = top + WARPS * pitch
    words = f"{WARPS} arrays of {config.rows} x {config.columns} units; each array multiplies a panel of eight "
    words += f"columns of B in {config.warp_blocks} cycles"
    picture = Diagram(900, bottom + 80, f"warpgroup of {name_of(config)}", words, theme)
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
    """Draw how a warpgroup gets its operands: shared memory, operand fetch, and buffers of two instructions."""
    picture.box((_LEFT, top, 130, 140), ["shared memory", "one port,", f"{SHARED_BYTES} bytes per cycle"], "operand")
    picture.arrow((_LEFT + 130, top + 70), (210, top + 70))
    picture.box((210, top, 210, 140), ["operand fetch", "a core matrix per cycle, B first", "two panels of B"], "logic")
    picture.text(440, top + 58, "B", size=10, kind="quiet")
    words = ["instructions", f"A of {WARPS} x {LANES} lanes x {REGISTERS}", "metadata, descriptors", "commit, wait"]
    picture.box((_LEFT, bottom - 120, 156, 120), words, "operand", size=10)
    picture.arrow((_LEFT + 156, bottom - 60), (210, bottom - 60))
    picture.box(
        (210, bottom - 120, 210, 120),
        ["two instruction slots", "while one multiplies,", "A of the next is fetched"],
        "logic",
    )
    picture.arrow((315, top + 140), (315, bottom - 120))
    picture.text(323, (top + bottom + 20) / 2, "A, if in shared memory", size=10, anchor="start", kind="quiet")


def _draw_tcgen05(config: CoreConfig, theme: Theme) -> Diagram:
    """Draw the tensor cores of a CTA: tensor memory and shared memory, the logic that reads them, and eight arrays."""
    config.require_warp()
    words = f"{ARRAYS} arrays of {config.rows} x {config.columns} units; each array multiplies a panel of eight "
    words += f"columns of B in {config.warp_blocks} cycles"
    picture = Diagram(980, 500, f"tcgen05 of {name_of(config)}", words, theme)
    box, arrow, text = picture.box, picture.arrow, picture.text
    box((_LEFT, 96, 140, 90), ["shared memory", "one port,", f"{SHARED_BYTES} bytes per cycle"], "operand")
    box((_LEFT, 226, 140, 110), ["tensor memory", f"{TENSOR_LANES} lanes", f"x {_TENSOR_COLUMNS} columns"], "operand")
    box((_LEFT, 376, 140, 80), ["commands", "multiply, commit", "two instructions"], "operand")
    arrow((_LEFT + 140, 141), (210, 141))
    box((210, 96, 190, 90), ["operand fetch", "a core matrix per cycle,", "B first"], "logic")
    arrow((_LEFT + 140, 266), (210, 266))
    box((210, 226, 190, 80), ["tensor operands", "one column per cycle:", "metadata, block scales, A"], "logic")
    arrow((_LEFT + 140, 416), (210, 416))
    box((210, 376, 190, 80), ["instruction slots", "while one multiplies, the", "next fetches its operands"], "logic")
    arrow((400, 120), (680, 120))
    text(540, 110, "one panel of B for all arrays", size=10, kind="quiet")
    arrow((400, 160), (450, 200))
    arrow((400, 250), (450, 230))
    box((450, 186, 160, 60), ["stored A", f"{ARRAYS} x {WARP_ROWS} rows, twice"], "logic", size=10)
    arrow((610, 216), (680, 216))
    arrow((400, 290), (450, 296))
    box((450, 266, 160, 60), ["stored words", "metadata, block scales"], "logic", size=10)
    arrow((610, 296), (680, 296))
    box((450, 356, 160, 60), ["accumulators", "eight columns of D"], "logic", size=10)
    arrow((400, 430), (450, 405))
    arrow((610, 376), (680, 376))
    arrow((680, 400), (610, 400))
    arrow((450, 386), (430, 386), head=False)
    arrow((430, 386), (430, 346), head=False)
    arrow((430, 346), (84, 346), head=False)
    arrow((84, 346), (84, 336))
    text(300, 358, "D is read and written", size=10, kind="quiet")
    for place, array in ((0, 0), (1, 1), (3, ARRAYS - 1)):
        lanes = f"lanes {WARP_ROWS * array} to {WARP_ROWS * array + WARP_ROWS - 1}"
        words_of_array = [f"array {array}", lanes, f"{config.rows} x {config.columns} units"]
        box((690, 96.0 + 92 * place, 170, 72), words_of_array, "exact")
    text(775, 316, "...", size=16)
    pair = "in a pair of CTAs, the two CTAs provide panels of B alternately"
    text(640, 486, pair, size=10, anchor="start", kind="quiet")
    return picture


_DRAWINGS: dict[str, Callable[[CoreConfig, Theme], Diagram]] = {
    "unit": UnitDrawing,
    "core": _draw_core,
    "warp": _draw_warp,
    "warpgroup": _draw_warpgroup,
    "tcgen05": _draw_tcgen05,
}
#: Names of the datapath modules that can be drawn.
TOPS = tuple(_DRAWINGS)


def datapath(config: CoreConfig | str, top: str = "unit", theme: Theme = Theme.AUTO) -> Diagram:
    """Draw a datapath as a block diagram, which a notebook displays.

    `config` is a configuration or the name of a preset. `top` is one of :data:`TOPS`: ``unit``, with its stages, widths
    and registers; ``core``, the array of units; or the hardware that executes ``mma`` (``warp``), ``wgmma``
    (``warpgroup``) or ``tcgen05.mma`` (``tcgen05``). Raise a `ConfigError` if the preset or the top does not exist, or
    the configuration does not support the top.
    """
    if isinstance(config, str):
        if config not in PRESETS:
            raise ConfigError(f"preset must be one of {', '.join(PRESETS)}, not {config!r}")
        config = PRESETS[config]
    if top not in _DRAWINGS:
        raise ConfigError(f"top must be one of {', '.join(TOPS)}, not {top!r}")
    return _DRAWINGS[top](config, theme)

"""A unit or a row for instructions of one control word: a constant, and what only others need folded away.

It is the same hardware with some inputs tied, so that results are the same; a simulator has less than half to do.
"""

import importlib.metadata
import importlib.util
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from amaranth.lib import data

from ...infra.yosys import run_yosys
from ...rtl.cells.platforms import OPERATORS
from ...rtl.config import CoreConfig
from ...rtl.emit import emit
from ...rtl.step import row_result_layout, row_step_layout, unit_result_layout, unit_step_layout

__all__ = ["can_be_specialised", "control_place", "recipe", "specialised"]

_INSIDE = "general"
_LAYOUTS: dict[str, tuple[Callable[[CoreConfig], data.StructLayout], Callable[[CoreConfig], data.StructLayout]]] = {
    "unit": (unit_step_layout, lambda config: unit_result_layout()),
    "row": (row_step_layout, row_result_layout),
}
_TIED = """
module {name}({clock}input [{last}:0] step, output [{result}:0] result);
  wire [{last}:0] tied;
  assign tied = (step & {size}'h{others:x}) | {size}'h{control:x};
  {inside} inside({connected}.step(tied), .result(result));
endmodule
"""
#: Registers of what is constant begin with any value, so that they are constant from the first cycle on.
_FOLDED = """
read_verilog -sv tied.v
hierarchy -top {name}
proc
flatten
setattr -unset init w:*
opt -full
opt_dff
opt -full
wreduce
opt -full
opt_clean -purge
write_verilog -noattr folded.v
"""


def can_be_specialised() -> bool:
    """Return whether Yosys is there, which folds what is constant."""
    return importlib.util.find_spec("pyosys") is not None


@cache
def recipe() -> str:
    """Return what :func:`specialised` depends on beside the hardware: how it folds, and the version of Yosys."""
    return repr((_TIED, _FOLDED, importlib.metadata.version("pyosys")))


def control_place(config: CoreConfig, top: str) -> tuple[int, int]:
    """Return the lowest bit of the control word in a step, and its width."""
    step, _ = _LAYOUTS[top]
    field = step(config)["control"]
    return field.offset, field.width


def specialised(config: CoreConfig, top: str, name: str, control: int) -> str:
    """Return Verilog of a unit or a row that takes every step for one of a given control word.

    Parameters
    ----------
    config : CoreConfig
        The datapath.
    top : str
        ``unit`` or ``row``.
    name : str
        Of the module.
    control : int
        The control word.

    Raises
    ------
    BackendError
        Yosys is missing or fails.
    """
    step, result = (layout(config).size for layout in _LAYOUTS[top])
    low, width = control_place(config, top)
    tied = _TIED.format(
        name=name,
        inside=_INSIDE,
        clock="input clk, input rst, input enable, " if config.cuts else "",
        connected=".clk(clk), .rst(rst), .enable(enable), " if config.cuts else "",
        size=step,
        last=step - 1,
        result=result - 1,
        others=(1 << step) - 1 & ~((1 << width) - 1 << low),
        control=control << low,
    )
    with tempfile.TemporaryDirectory(prefix="sptc-") as scratch:
        folder = Path(scratch)
        (folder / "tied.v").write_text(emit(config, top, _INSIDE, platform=OPERATORS) + tied, encoding="utf-8")
        run_yosys(folder, _FOLDED.format(name=name))
        return (folder / "folded.v").read_text(encoding="utf-8")

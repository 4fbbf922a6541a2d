"""Dot-product unit or row with a constant control word, without the logic that only other instructions need.

The results are those of the general hardware, with less than half of the work for a simulator. The registers, which
only add latency, are replaced by wires, so that the result is a combinational function of one step.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from amaranth.lib import data

from ...infra.yosys import run_yosys
from ...rtl.cells.platforms import OPERATORS
from ...rtl.config import CoreConfig
from ...rtl.emit import emit
from ...rtl.step import row_result_layout, row_step_layout, unit_result_layout, unit_step_layout
from .pipelines import ENABLED, WITHOUT_REGISTERS, is_balanced, write_wires
from .simd import PREPARED

__all__ = ["control_place", "specialised"]

_INSIDE, _NAME = "general", "tied"
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
#: Yosys commands that fold the constant control word. They remove initial values of registers, so that a register with
#: a constant input counts as constant.
_FOLDED = f"""
read_verilog -sv {_NAME}.v
hierarchy -top {_NAME}
proc -norom
flatten
setattr -unset init w:*
opt -full
opt_dff
opt -full
{ENABLED}opt_clean
write_json registered.json
{WITHOUT_REGISTERS}{PREPARED}write_json folded.json
"""


def control_place(config: CoreConfig, top: str) -> tuple[int, int]:
    """Return the lowest bit and the width of the control word within a step."""
    step, _ = _LAYOUTS[top]
    field = step(config)["control"]
    return field.offset, field.width


def specialised(config: CoreConfig, top: str, control: int) -> Mapping[str, Any]:
    """Return the netlist of a ``unit`` or ``row`` with a constant control word, as ports and cells of Yosys' JSON.

    Raise a `BackendError` if Yosys is missing or fails.
    """
    step, result = (layout(config).size for layout in _LAYOUTS[top])
    low, width = control_place(config, top)
    tied = _TIED.format(
        name=_NAME,
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
        text = emit(config, top, _INSIDE, platform=OPERATORS) + tied
        (folder / f"{_NAME}.v").write_text(text, encoding="utf-8")
        write_wires(folder)
        run_yosys(folder, _FOLDED)
        registered, folded = (
            json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["modules"][_NAME]
            for name in ("registered", "folded")
        )
    assert not config.cuts or is_balanced(registered, "enable"), "registers must only add latency"
    return folded

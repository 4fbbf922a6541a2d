"""Dot-product unit with a constant control word, without the logic that only other instructions need.

The results are those of the general hardware, with less than half of the work for a simulator. The registers, which
only add latency, are replaced by wires, so that the result is a combinational function of one step.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...infra.yosys import run_yosys
from ...rtl.cells.platforms import OPERATORS
from ...rtl.config import CoreConfig
from ...rtl.emit import emit
from ...rtl.step import row_result_layout, row_step_layout, unit_result_layout, unit_step_layout
from .pipelines import ENABLED, WITHOUT_REGISTERS, is_balanced, write_wires
from .simd import PREPARED

__all__ = ["specialised"]

_INSIDE, _NAME = "general", "tied"
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


def specialised(config: CoreConfig, top: str, control: int) -> Mapping[str, Any]:
    """Return the netlist of module ``unit`` or ``row`` with a constant control word, as ports and cells of Yosys' JSON.

    Raise a `BackendError` if Yosys is missing or fails.
    """
    if top == "row":
        step, result = row_step_layout(config), row_result_layout(config)
    else:
        step, result = unit_step_layout(config), unit_result_layout()
    low, width = step["control"].offset, step["control"].width
    tied = _TIED.format(
        name=_NAME,
        inside=_INSIDE,
        clock="input clk, input rst, input enable, " if config.cuts else "",
        connected=".clk(clk), .rst(rst), .enable(enable), " if config.cuts else "",
        size=step.size,
        last=step.size - 1,
        result=result.size - 1,
        others=(1 << step.size) - 1 & ~((1 << width) - 1 << low),
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

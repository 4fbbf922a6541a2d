"""Units of a compiled top as models in a library of their own, which the model of the top clocks.

One Verilator model of a whole top would contain a copy of the code for each unit and take gigabytes. A library of its
own can also be replaced by one for a single kind of instruction.
"""

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...rtl.config import CoreConfig
from ...rtl.emit import unit_of
from ...rtl.step import unit_result_layout, unit_step_layout
from ...rtl.warp import Warp
from .driver import driver

__all__ = ["FUNCTIONS", "UNIT", "StandIn", "unit_drivers", "unit_functions", "unit_module"]

#: Module name of a unit.
UNIT = "dot"
#: Functions of a library of units, in the order of ``Library`` in ``drivers/units.h``.
FUNCTIONS = ("create", "destroy", "add", "clock")
#: Verilog of a unit in a top. Its results come out of registers, so no combinational path crosses it.
_UNIT_MODULE = """
module {name}(input [{step}:0] step, input clk, input rst, input enable, output reg [{result}:0] result);
    import "DPI-C" function chandle unit_create();
    import "DPI-C" function void unit_clock(
        input chandle unit, input bit [{step}:0] step, output bit [{result}:0] result
    );
    chandle unit;
    bit [{result}:0] following;
    initial unit = unit_create();
    always @(posedge clk) if (enable) begin
        unit_clock(unit, step, following);
        result <= following;
    end
endmodule
"""


@dataclass(frozen=True)
class StandIn:
    """Stand-ins for the arrays of a compiled top, whose control and fetch are then built without a datapath."""

    warp_class: type[Warp]  #: Component that replaces an array: an instance of `module`
    #: Verilog of that module. It calls `unit_create` and `unit_clock`, as the module of a unit does.
    module: str
    library: Path  #: Shared library with :data:`FUNCTIONS`
    optimisation: tuple[str, ...]  #: Options of the C++ compiler for the top


def unit_drivers(config: CoreConfig, arrays: int) -> tuple[dict[str, str], dict[str, str]]:
    """Return the C++ of two libraries of units: around Verilator's model, and around a function of one step.

    Parameters
    ----------
    config : CoreConfig
        The datapath of an array.
    arrays : int
        Arrays that are clocked together.
    """
    step, result = (-(-layout.size // 32) for layout in (unit_step_layout(config), unit_result_layout()))
    units = arrays * config.rows * config.columns
    constants = {"step_words": step, "result_words": result, "latency": config.latency, "batch": units}
    return driver("clocked_units.cpp", {}, top=UNIT), driver("computed_units.cpp", constants)


def unit_functions(library: Path | None) -> list[Any]:
    """Return pointers to :data:`FUNCTIONS` of a library of units; null pointers without a library."""
    if library is None:
        return [None] * len(FUNCTIONS)
    units = ctypes.CDLL(str(library))
    return [ctypes.cast(getattr(units, f"units_{name}"), ctypes.c_void_p) for name in FUNCTIONS]


def unit_module(config: CoreConfig, top: str) -> str:
    """Return the Verilog module that replaces the unit of a top and clocks a model of :data:`UNIT`."""
    assert config.cuts[-1:] == ("round",), "results must come out of registers"
    step, result = unit_step_layout(config).size - 1, unit_result_layout().size - 1
    return _UNIT_MODULE.format(name=unit_of(top), step=step, result=result)

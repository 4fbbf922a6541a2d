"""Assignment of the cells of a netlist to stages of the datapath, by the module names in each cell name."""

import re

from .electrical import CellLibrary
from .netlist import MappedNetlist

__all__ = ["INPUTS", "LOGIC", "REGISTERS", "STAGES", "WARP_REGISTERS", "stage_of", "stages_of"]

#: Energy contributions that belong to no stage: charging of input pins; pipeline registers, including their clock
#: energy; and cells between the stages or in a flat netlist.
INPUTS, REGISTERS, LOGIC = "inputs", "registers", "logic"
#: Two stages of a warp. First: logic that moves operands and results between registers and dot-product units. Second:
#: registers of this logic, with their clock.
_WARP, WARP_REGISTERS = "warp", "warp registers"
_UNIT_STAGES = ("decode", "select", "unpack", "multiply", "align", "reduce", "round", LOGIC, REGISTERS)
#: Stages of a dot-product unit in the order of the data flow.
STAGES = (INPUTS, _WARP, WARP_REGISTERS, "order", *_UNIT_STAGES)
_PLACES = re.compile(r"\$flatten((?:\\\w+\.)*)")
#: Submodules of the multiply stage that are counted in another stage: unpacking of elements in stage ``unpack``, and
#: search for the largest exponent in stage ``align``.
_INSIDE_MULTIPLY = {
    "unpack_a": "unpack",
    "unpack_b": "unpack",
    "format_a": "unpack",
    "format_b": "unpack",
    "accumulator": "unpack",
    "largest_of_products": "align",
    "floor": "align",
}


def stage_of(cell: str, *, of_warp: bool = False) -> str:
    """Return the stage, one of :data:`STAGES`, to which a combinational cell belongs.

    If the netlist was mapped module by module, Yosys ``flatten`` has put the module names in front of the cell name.
    With `of_warp`, the cell is in the logic around the units of a warp. Cells between the stages, and all cells of a
    flat netlist, are :data:`LOGIC`.
    """
    match = _PLACES.match(cell)
    places = re.sub(r"[\\]", "", match[1]).rstrip(".").split(".") if match else []
    inside = [place for place in places if place not in ("row", "unit", "core")]
    if not inside:
        return _WARP if of_warp and not places else LOGIC
    if inside[0] == "multiply" and len(inside) > 1:
        return _INSIDE_MULTIPLY.get(re.sub(r"\d+$", "", inside[1]), "multiply")
    first = inside[0].partition("_")[0]
    return first if first in STAGES else LOGIC


def stages_of(netlist: MappedNetlist, cells: CellLibrary, *, of_warp: bool = False) -> dict[str, str]:
    """Return the stage of each cell of a dot-product unit, or of the warp logic around its dot-product units."""
    registers = WARP_REGISTERS if of_warp else REGISTERS
    return {
        name: registers if cells.is_register(kind) else stage_of(name, of_warp=of_warp)
        for name, (kind, _) in netlist.cells.items()
    }

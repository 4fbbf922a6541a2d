"""Which stage of a datapath a cell of its mapped netlist belongs to, by the modules that its name begins with."""

import re

from .netlist import CellLibrary, MappedNetlist

__all__ = ["INPUTS", "LOGIC", "REGISTERS", "STAGES", "WARP_REGISTERS", "stage_of", "stages_of"]

#: Pins that the inputs charge; what is stored at the cuts, with its clock; and all else of a flat netlist.
INPUTS, REGISTERS, LOGIC = "inputs", "registers", "logic"
#: Of a warp: what gathers operands and collects results, and the registers that hold both, with their clock.
_WARP, WARP_REGISTERS = "warp", "warp registers"
_UNIT_STAGES = ("decode", "select", "unpack", "multiply", "align", "reduce", "round", LOGIC, REGISTERS)
#: Stages in the order of the data.
STAGES = (INPUTS, _WARP, WARP_REGISTERS, "order", *_UNIT_STAGES)
_PLACES = re.compile(r"\$flatten((?:\\\w+\.)*)")
#: Parts of the multiply stage that do something else: bring codes to fields, and find what terms are aligned to.
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
    """Return the stage of a combinational cell.

    Parameters
    ----------
    cell : str
        Its name: of a netlist that was mapped module by module, ``flatten`` of Yosys puts the modules before it.
    of_warp : bool
        It is around the units of a warp.

    Returns
    -------
    str
        Of :data:`STAGES`; :data:`LOGIC` for what stands between the stages, and for all of a flat netlist.
    """
    found = _PLACES.match(cell)
    places = re.sub(r"[\\]", "", found[1]).rstrip(".").split(".") if found else []
    inside = [place for place in places if place not in ("row", "unit", "core")]
    if not inside:
        return _WARP if of_warp and not places else LOGIC
    if inside[0] == "multiply" and len(inside) > 1:
        return _INSIDE_MULTIPLY.get(re.sub(r"\d+$", "", inside[1]), "multiply")
    first = inside[0].partition("_")[0]
    return first if first in STAGES else LOGIC


def stages_of(netlist: MappedNetlist, cells: CellLibrary, *, of_warp: bool = False) -> dict[str, str]:
    """Return the stage of each cell, of a row or unit, or of what is around the units of a warp."""
    registers = WARP_REGISTERS if of_warp else REGISTERS
    return {
        name: registers if cells.is_register(kind) else stage_of(name, of_warp=of_warp)
        for name, (kind, _) in netlist.cells.items()
    }

"""Which stage of a row a cell of its mapped netlist belongs to, by the modules that its name begins with."""

import re

from .netlist import CellLibrary, MappedNetlist

__all__ = ["INPUTS", "LOGIC", "REGISTERS", "STAGES", "stage_of", "stages_of"]

#: Pins that the inputs charge; what is stored at the cuts, with its clock; and all else of a flat netlist.
INPUTS, REGISTERS, LOGIC = "inputs", "registers", "logic"
#: Stages in the order of the data.
STAGES = (INPUTS, "decode", "select", "unpack", "multiply", "align", "reduce", "round", LOGIC, REGISTERS)
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


def stage_of(cell: str) -> str:
    """Return the stage of a combinational cell.

    Parameters
    ----------
    cell : str
        Its name: of a netlist that was mapped module by module, ``flatten`` of Yosys puts the modules before it.

    Returns
    -------
    str
        Of :data:`STAGES`; :data:`LOGIC` for what stands between the stages, and for all of a flat netlist.
    """
    found = _PLACES.match(cell)
    places = re.sub(r"[\\]", "", found[1]).rstrip(".").split(".") if found else []
    inside = [place for place in places if place not in ("row", "unit")]
    if not inside:
        return LOGIC
    if inside[0] == "multiply" and len(inside) > 1:
        return _INSIDE_MULTIPLY.get(re.sub(r"\d+$", "", inside[1]), "multiply")
    return inside[0] if inside[0] in STAGES else LOGIC


def stages_of(netlist: MappedNetlist, cells: CellLibrary) -> dict[str, str]:
    """Return the stage of each cell."""
    return {name: REGISTERS if cells.is_register(kind) else stage_of(name) for name, (kind, _) in netlist.cells.items()}

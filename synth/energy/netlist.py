"""Netlists of library cells from Yosys, and the logic levels of their gates."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from ...errors import Error
from ..liberty import Library
from .electrical import CellLibrary

__all__ = ["Bit", "Box", "MappedNetlist", "levels_of"]

#: A net number, or a constant: ``"0"``, ``"1"`` or ``"x"``.
Bit = int | str


@dataclass(frozen=True)
class Box:
    """A box: an instance of a module that has a netlist of its own."""

    module: str
    ports: Mapping[str, list[Bit]]  #: Nets that are connected to each port of the instance, bit by bit


@dataclass(frozen=True)
class MappedNetlist:
    """A netlist of library cells."""

    #: Type of each cell, and the net or the constant that is connected to each of its pins.
    cells: Mapping[str, tuple[str, Mapping[str, Bit]]]
    #: Nets that are connected to each input port and to each output port of the module, bit by bit.
    inputs: Mapping[str, list[Bit]]
    outputs: Mapping[str, list[Bit]]
    #: Boxes (instances of modules with netlists of their own), by name.
    boxes: Mapping[str, Box] = field(default_factory=dict)

    @classmethod
    def of(cls, module: Mapping[str, Any], library: Library, boxes: Collection[str] = ()) -> "MappedNetlist":
        """Read one module of a Yosys JSON netlist. Instances of the modules `boxes` are kept as black boxes.

        Raise an `Error` if a cell is neither in the library nor a box.
        """
        known = {cell.name for cell in library.cells}
        instances = {name: cell for name, cell in module["cells"].items() if cell["type"] != "$scopeinfo"}
        if others := sorted({cell["type"] for cell in instances.values()} - known - {*boxes}):
            raise Error(f"{library.name} has no cell for {', '.join(others)}")
        ports: dict[str, dict[str, list[Bit]]] = {"input": {}, "output": {}}
        for name, port in module["ports"].items():
            ports[port["direction"]][name] = port["bits"]
        cells, inside = {}, {}
        for name, cell in instances.items():
            if cell["type"] in boxes:
                inside[name] = Box(cell["type"], cell["connections"])
            else:
                cells[name] = cell["type"], {pin: bits[0] for pin, bits in cell["connections"].items() if bits}
        return cls(cells, ports["input"], ports["output"], dict(sorted(inside.items())))


def levels_of(netlist: MappedNetlist, cells: CellLibrary) -> dict[str, int]:
    """Return the logic level of each gate, in topological order: the number of gates on the longest path to it.

    Paths begin at registers, ports and boxes. Raise an `Error` if there is a combinational loop, or the library has no
    function for a cell.
    """
    drivers: dict[Bit, str] = {}
    for name, (kind, pins) in netlist.cells.items():
        for pin, net in pins.items():
            if (kind, pin) in cells.functions:
                if not cells.functions[kind, pin]:
                    raise Error(f"{cells.library.name} does not state the function of cell {kind}")
                if not cells.is_register(kind):
                    drivers[net] = name
    reads = {
        name: [drivers.get(net, "") for pin, net in pins.items() if (kind, pin) not in cells.functions]
        for name, (kind, pins) in netlist.cells.items()
        if not cells.is_register(kind)
    }
    levels = {"": 0}
    try:
        for name in TopologicalSorter(reads).static_order():
            if name:
                levels[name] = 1 + max((levels[other] for other in reads[name]), default=0)
    except CycleError:
        raise Error("the netlist has a loop without a register") from None
    del levels[""]
    return levels

"""Netlists of library cells, as Yosys leaves them, and the order in which their gates settle."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

from ..errors import Error
from ..synth.liberty import Library
from .electrical import ElectricalLibrary

__all__ = ["Bit", "Box", "CellLibrary", "MappedNetlist", "levels_of"]

#: A net by its number, or a constant: ``"0"``, ``"1"`` or ``"x"``.
Bit = int | str


@dataclass(frozen=True)
class CellLibrary:
    """A library as it is needed here: what its cells compute, and what they take.

    Attributes
    ----------
    library : Library
        Functions.
    electrical : ElectricalLibrary
        Registers, capacitances and energies.
    """

    library: Library
    electrical: ElectricalLibrary

    @classmethod
    def of(cls, library: Library) -> "CellLibrary":
        """Read a library; raise as :meth:`ElectricalLibrary.of`."""
        return cls(library, ElectricalLibrary.of(library))

    @cached_property
    def functions(self) -> Mapping[tuple[str, str], str]:
        """What is at each output of each cell, by the names of both, as the library writes it."""
        return {(cell.name, pin): function for cell in self.library.cells for pin, function in cell.outputs}

    def is_register(self, kind: str) -> bool:
        """Whether cells of a type take what they hold at an edge of the clock."""
        return bool(self.electrical.cells[kind].clock)


@dataclass(frozen=True)
class Box:
    """A part of a netlist that is a netlist of its own.

    Attributes
    ----------
    module : str
        What it is one of.
    ports : dict of str to list
        Nets at each of its ports, bit by bit.
    """

    module: str
    ports: Mapping[str, list[Bit]]


@dataclass(frozen=True)
class MappedNetlist:
    """A netlist of library cells.

    Attributes
    ----------
    cells : dict of str to (str, dict of str to int or str)
        Of each cell its type and the net, or the constant, at every pin.
    inputs, outputs : dict of str to list
        Nets of each port, bit by bit.
    boxes : dict of str to Box
        Parts that are netlists of their own.
    """

    cells: Mapping[str, tuple[str, Mapping[str, Bit]]]
    inputs: Mapping[str, list[Bit]]
    outputs: Mapping[str, list[Bit]]
    boxes: Mapping[str, Box] = field(default_factory=dict)

    @classmethod
    def of(cls, module: Mapping[str, Any], library: Library, boxes: Collection[str] = ()) -> "MappedNetlist":
        """Read a module of Yosys' JSON.

        Parameters
        ----------
        module : dict
            Of Yosys' JSON.
        library : Library
            Its cells.
        boxes : collection of str
            Modules that are netlists of their own.

        Raises
        ------
        Error
            Some cell is neither of the library nor such a part.
        """
        known = {cell.name for cell in library.cells}
        found = {name: cell for name, cell in module["cells"].items() if cell["type"] != "$scopeinfo"}
        if others := sorted({cell["type"] for cell in found.values()} - known - {*boxes}):
            raise Error(f"{library.name} has no cell for {', '.join(others)}")
        ports: dict[str, dict[str, list[Bit]]] = {"input": {}, "output": {}}
        for name, port in module["ports"].items():
            ports[port["direction"]][name] = port["bits"]
        inside = {name for name, cell in found.items() if cell["type"] in boxes}
        return cls(
            {name: (cell["type"], _pins(cell["connections"])) for name, cell in found.items() if name not in inside},
            ports["input"],
            ports["output"],
            {name: Box(found[name]["type"], found[name]["connections"]) for name in sorted(inside)},
        )


def _pins(connections: Mapping[str, list[Bit]]) -> dict[str, Bit]:
    return {pin: bits[0] for pin, bits in connections.items() if bits}


def levels_of(netlist: MappedNetlist, cells: CellLibrary) -> dict[str, int]:
    """Return the most gates on any way up to each gate, itself among them, each behind all that it reads.

    Ways begin at registers, ports and boxes.

    Raises
    ------
    Error
        There is a loop without a register, or the library does not say what some cell computes.
    """
    drivers: dict[Bit, str] = {}
    for name, (kind, pins) in netlist.cells.items():
        for pin, net in pins.items():
            if (kind, pin) in cells.functions:
                if not cells.functions[kind, pin]:
                    raise Error(f"{cells.library.name} does not say what {kind} computes")
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

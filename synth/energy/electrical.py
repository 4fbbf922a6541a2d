"""Electrical data of a liberty file: pin capacitances, energies and transition times of cells."""

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import Error
from ..liberty import Library, finite
from ..liberty_text import Group

__all__ = ["ElectricalCell", "ElectricalLibrary", "ElectricalPin", "Table"]

_LOADS = ("total_output_net_capacitance",)
_SLEWS = ("input_net_transition", "input_transition_time")
_PICO = {"pf": 1.0, "ff": 1e-3}
_EDGES = ("rise", "fall")


@dataclass(frozen=True)
class Table:
    """Lookup table of an energy or transition time of a cell, by output load and input transition time."""

    #: Axes of the table: output load in pF, and input transition time in the library's unit of time. An axis that does
    #: not affect the values has a single zero.
    loads: tuple[float, ...]
    slews: tuple[float, ...]
    values: tuple[tuple[float, ...], ...]  #: Values of the table, indexed by load, then by transition time

    def at(self, load: float, slew: float) -> float:
        """Return the value of the table by bilinear interpolation. Outside the table, extrapolate."""
        row, load_share = _place(self.loads, load)
        column, slew_share = _place(self.slews, slew)
        low = _between(self.values[row], column, slew_share)
        if not load_share:
            return low
        return (1 - load_share) * low + load_share * _between(self.values[row + 1], column, slew_share)


def _place(index: tuple[float, ...], value: float) -> tuple[int, float]:
    if len(index) == 1:
        return 0, 0.0
    place = min(max(bisect_left(index, value) - 1, 0), len(index) - 2)
    return place, (value - index[place]) / (index[place + 1] - index[place])


def _between(values: tuple[float, ...], place: int, share: float) -> float:
    return (1 - share) * values[place] + share * values[place + 1] if share else values[place]


@dataclass(frozen=True)
class ElectricalPin:
    """Electrical data of one pin of a library cell: energies and transition times."""

    capacitance: float  #: Capacitance in pF
    #: Energy in pJ of a rise and of a fall of the pin, by related input pin. The empty name means no related pin.
    energies: tuple[tuple[str, Mapping[str, Table]], ...]
    #: Transition times of a rise and of a fall of an output pin, by related input pin.
    transitions: tuple[tuple[str, Mapping[str, Table]], ...]


@dataclass(frozen=True)
class ElectricalCell:
    """Electrical data of one library cell: pins, leakage and, for a register, its data and clock pin."""

    pins: Mapping[str, ElectricalPin]  #: Pins of the cell, by name
    leakage: float  #: Leakage power of the cell, in the library's unit of leakage power
    #: Names of a register's data pin and clock pin. Both are empty for other cells.
    data: str = ""
    clock: str = ""
    #: Names of a register's stored bit and of the inverted bit, as used in the functions of its outputs. Both are empty
    #: for other cells.
    states: tuple[str, ...] = ()


@dataclass(frozen=True)
class ElectricalLibrary:
    """Electrical data of a cell library."""

    name: str  #: Name of the liberty file
    voltage: float  #: Supply voltage in V
    leakage_nanowatts: float  #: Size of the library's unit of leakage power, in nW
    cells: Mapping[str, ElectricalCell]  #: Cells of the library, by name
    unit: str = "fJ"  #: Unit of the energies in reports
    scale: float = 1000.0  #: Factor that converts energies in the library's tables to energies in reports
    digits: int = 0  #: Number of decimal places of energies in reports

    @classmethod
    def of(cls, library: Library) -> "ElectricalLibrary":
        """Read the electrical data of a liberty file.

        Raises
        ------
        Error
            The file has no energies, has unknown units, or cannot be parsed.
        """
        try:
            return cls._of(library)
        except Error:
            raise
        except (ValueError, IndexError):
            raise Error(f"{library.name} has tables or numbers that cannot be read") from None

    @classmethod
    def _of(cls, library: Library) -> "ElectricalLibrary":
        root = library.root
        capacitance = "".join(root.lists.get("capacitive_load_unit", ["1", "pf"])[1:]).lower()
        if capacitance not in _PICO:
            raise Error(f"{library.name} has capacitances in {capacitance}, not in pf or ff")
        scale = finite(root.lists.get("capacitive_load_unit", ["1"])[0]) * _PICO[capacitance]
        templates = {
            group.name: group for kind in ("lu_table_template", "power_lut_template") for group in root.all(kind)
        }
        cells = {group.name: _cell(group, templates, scale) for group in root.all("cell")}
        if not any(pin.energies for cell in cells.values() for pin in cell.pins.values()):
            raise Error(f"{library.name} has no energies: no cell has a group internal_power")
        unit = re.fullmatch(r"([\d.]+)([munp]?)W", root.values.get("leakage_power_unit", "1nW"))
        if not unit:
            raise Error(f"{library.name} has the leakage unit {root.values['leakage_power_unit']}, not a unit of power")
        if "nom_voltage" not in root.values:
            raise Error(f"{library.name} does not state its nominal voltage")
        nanowatts = finite(unit[1]) * {"": 1e9, "m": 1e6, "u": 1e3, "n": 1.0, "p": 1e-3}[unit[2]]
        return cls(library.name, finite(root.values["nom_voltage"]), nanowatts, cells)


def _cell(group: Group, templates: Mapping[str, Group], scale: float) -> ElectricalCell:
    pins = {pin.name: _pin(pin, templates, scale) for pin in group.all("pin")}
    register = next(group.all("ff"), None)
    data, clock = (register.values.get(name, "") for name in ("next_state", "clocked_on")) if register else ("", "")
    states = tuple(register.words) if register else ()
    return ElectricalCell(pins, finite(group.values.get("cell_leakage_power", "0")), data, clock, states)


def _pin(group: Group, templates: Mapping[str, Group], scale: float) -> ElectricalPin:
    def tables(inside: Group, name: str) -> dict[str, Table]:
        tables = {edge: next(inside.all(name.format(edge)), None) for edge in _EDGES}
        return {edge: _table(table, templates, scale) for edge, table in tables.items() if table}

    energies = [(arc.values.get("related_pin", ""), tables(arc, "{}_power")) for arc in group.all("internal_power")]
    transitions = [(arc.values.get("related_pin", ""), tables(arc, "{}_transition")) for arc in group.all("timing")]
    return ElectricalPin(
        scale * finite(group.values.get("capacitance", "0")),
        tuple((pin, found) for pin, found in energies if found),
        tuple((pin, found) for pin, found in transitions if found),
    )


def _table(group: Group, templates: Mapping[str, Group], scale: float) -> Table:
    template = templates.get(group.name)
    variables = [template.values.get(f"variable_{place}", "") for place in (1, 2)] if template else ["", ""]

    def numbers(name: str) -> NDArray[np.float64]:
        words = group.lists.get(name) or (template.lists.get(name) if template else None) or ["0"]
        return np.array([finite(word) for part in words for word in part.split(",")])

    values = numbers("values")
    if not variables[0]:
        return Table((0.0,), (0.0,), ((float(values[0]),),))
    index = {variable: numbers(f"index_{place}") for place, variable in enumerate(variables, 1) if variable}
    values = values.reshape([len(numbers) for numbers in index.values()])
    loads = next((scale * numbers for variable, numbers in index.items() if variable in _LOADS), np.zeros(1))
    slews = next((numbers for variable, numbers in index.items() if variable in _SLEWS), np.zeros(1))
    if len(index) == 2 and variables[0] in _SLEWS:
        values = values.T
    rows = values.reshape(len(loads), len(slews)).tolist()
    return Table(tuple(loads.tolist()), tuple(slews.tolist()), tuple(map(tuple, rows)))

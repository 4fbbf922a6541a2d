"""Electrical data of a liberty file: pin capacitances, energies and transition times of cells."""

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...errors import Error
from ..functions import computing
from ..liberty import Library, finite
from ..liberty_text import Group

__all__ = ["CellLibrary", "ElectricalCell", "ElectricalPin", "EnergyArc", "Table"]

_LOADS = ("total_output_net_capacitance",)
_SLEWS = ("input_net_transition", "input_transition_time")
_PICO = {"pf": 1.0, "ff": 1e-3}
_EDGES = ("rise", "fall")
_PIN = re.compile(r"[A-Za-z_]\w*")
#: Pattern of the next-state function of a register that stores its data inverted: ``!D`` or ``D'``.
_INVERTED = re.compile(r"\(?\s*(?:!\s*(\w+)|(\w+)\s*')\s*\)?")
#: Maximum number of pins in the condition of an energy arc. Conditions in real libraries have fewer pins.
_MOST_PINS = 12


@dataclass(frozen=True)
class Table:
    """Lookup table of an energy or transition time of a cell, by output load and input transition time."""

    #: Axes of the table: output load in pF, and input transition time in the library's unit of time. An axis that does
    #: not affect the values has the single entry 0.
    loads: tuple[float, ...]
    slews: tuple[float, ...]
    values: tuple[tuple[float, ...], ...]  #: Values of the table, indexed by load, then by transition time

    def at(self, load: float, slew: float) -> float:
        """Interpolate the table bilinearly at a load and a transition time; extrapolate outside the table."""
        row, load_share = _place(self.loads, load)
        column, slew_share = _place(self.slews, slew)
        low = _between(self.values[row], column, slew_share)
        if not load_share:
            return low
        return (1 - load_share) * low + load_share * _between(self.values[row + 1], column, slew_share)


def _place(index: tuple[float, ...], value: float) -> tuple[int, float]:
    """Return the index of the table interval that contains `value`, and the position in it (start 0, end 1)."""
    if len(index) == 1:
        return 0, 0.0
    place = min(max(bisect_left(index, value) - 1, 0), len(index) - 2)
    return place, (value - index[place]) / (index[place + 1] - index[place])


def _between(values: tuple[float, ...], place: int, share: float) -> float:
    return (1 - share) * values[place] + share * values[place + 1] if share else values[place]


@dataclass(frozen=True)
class EnergyArc:
    """Internal energy of a cell per toggle of one of its pins, from one group ``internal_power`` of the library."""

    related: str  #: Input pin to which the library relates the energy (``related_pin``), or an empty string
    tables: Mapping[str, Table]  #: Energy in pJ of a rise and of a fall of the pin
    #: Weight of the arc in the mean energy of a toggle, with all combinations of the cell's inputs equally likely. The
    #: weights of all arcs of an output pin add up to 1. The weights of all arcs of an input pin add up to less if some
    #: toggles of the input also toggle an output.
    share: float = 1.0
    condition: str = ""  #: Liberty expression ``when``: the energy applies if the expression is true
    #: Whether the library states this energy for a ground pin. Its weight is then 0: the charge that leaves through the
    #: ground pin has been counted where it enters, at the supply pin.
    ground: bool = False


@dataclass(frozen=True)
class ElectricalPin:
    """Electrical data of one pin of a library cell: energies and transition times."""

    capacitance: float  #: Capacitance of the pin in pF
    energies: tuple[EnergyArc, ...]  #: Internal energies of a toggle of the pin
    #: Transition times of a rise and of a fall of an output pin, by related input pin.
    transitions: tuple[tuple[str, Mapping[str, Table]], ...]


@dataclass(frozen=True)
class ElectricalCell:
    """Electrical data of one library cell: pins and, for a register, its data and clock pin."""

    pins: Mapping[str, ElectricalPin]  #: Pins of the cell, by name
    #: Names of a register's data pin and clock pin. Both are empty for other cells.
    data: str = ""
    clock: str = ""
    #: For a register: names that stand for the stored bit and for the inverted bit in the functions of the outputs.
    #: Empty for other cells.
    states: tuple[str, ...] = ()


@dataclass(frozen=True)
class CellLibrary:
    """A cell library: logic functions and electrical data of its cells."""

    library: Library  #: Logic functions of the library's cells
    voltage: float  #: Supply voltage in V
    electrical: Mapping[str, ElectricalCell]  #: Electrical data of the library's cells, by name
    unit: str = "fJ"  #: Unit of the energies in reports
    scale: float = 1000.0  #: Factor that converts energies in the library's tables to energies in reports
    digits: int = 0  #: Number of decimal places of energies in reports

    @classmethod
    def of(cls, library: Library) -> "CellLibrary":
        """Return a library with the electrical data of its liberty text.

        Raise an `Error` if the file has no energies, has unknown units, or cannot be parsed.
        """
        try:
            return cls._of(library)
        except Error:
            raise
        except (ValueError, IndexError, KeyError):
            raise Error(f"{library.name} has tables or numbers that cannot be read") from None

    @classmethod
    def _of(cls, library: Library) -> "CellLibrary":
        root = library.root
        capacitance = "".join(root.lists.get("capacitive_load_unit", ["1", "pf"])[1:]).lower()
        if capacitance not in _PICO:
            raise Error(f"{library.name} has capacitances in {capacitance}, not in pf or ff")
        picofarads = finite(root.lists.get("capacitive_load_unit", ["1"])[0]) * _PICO[capacitance]
        volts = _volts(library)
        templates = {
            group.name: group for kind in ("lu_table_template", "power_lut_template") for group in root.all(kind)
        }
        functions = {cell.name: dict(cell.outputs) for cell in library.cells}
        reader = _Reader(templates, picofarads, picofarads * volts**2)
        cells = {group.name: reader.cell(group, functions.get(group.name, {})) for group in root.all("cell")}
        if not any(pin.energies for cell in cells.values() for pin in cell.pins.values()):
            raise Error(f"{library.name} has no energies: no cell has a group internal_power")
        if finite(root.values.get("nom_voltage", "0")) <= 0:
            raise Error(f"{library.name} does not state a nominal voltage above 0")
        return cls(library, volts * finite(root.values["nom_voltage"]), cells)

    @cached_property
    def functions(self) -> Mapping[tuple[str, str], str]:
        """Logic function of each cell output in liberty syntax; the keys are pairs (cell name, output pin)."""
        return {(cell.name, pin): function for cell in self.library.cells for pin, function in cell.outputs}

    def is_register(self, kind: str) -> bool:
        """Return whether a cell type is an edge-triggered register."""
        return bool(self.electrical[kind].clock)


def _volts(library: Library) -> float:
    """Return a library's unit of voltage, in volts."""
    text = library.root.values.get("voltage_unit", "1V")
    match = re.fullmatch(r"([\d.]+)([munp]?)V", text)
    if not match:
        raise Error(f"{library.name} has the voltage_unit {text}, not a number of V, mV, uV, ...")
    return finite(match[1]) * {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9, "p": 1e-12}[match[2]]


def _likelihood(condition: str, functions: Mapping[str, str]) -> float:
    """Return the fraction of a cell's input combinations for which a condition on the cell's pins is true.

    `functions` are those of the cell's outputs. An output that depends on a stored bit counts as an input.
    """
    pins = {*_PIN.findall(condition)}
    computed = {pin: functions[pin] for pin in pins if functions.get(pin)}
    inputs = sorted(pins - computed.keys() | {pin for text in computed.values() for pin in _PIN.findall(text)})
    if len(inputs) > _MOST_PINS:
        raise ValueError(condition)
    # Bit i of a word is the value of a pin in combination i of the inputs.
    count = 1 << len(inputs)
    every = (1 << count) - 1
    words = {pin: sum(1 << i for i in range(count) if i >> place & 1) for place, pin in enumerate(inputs)}
    words |= {pin: computing(text)(words, every) for pin, text in computed.items()}
    return int(computing(condition)(words, every)).bit_count() / count


@dataclass(frozen=True)
class _Reader:
    templates: Mapping[str, Group]  #: Templates of the library's lookup tables, by name
    picofarads: float  #: The library's unit of capacitance, in pF
    picojoules: float  #: The library's unit of energy, in pJ: its unit of capacitance times its squared unit of voltage

    def cell(self, group: Group, functions: Mapping[str, str]) -> ElectricalCell:
        grounds = {pin.name for pin in group.all("pg_pin") if "ground" in pin.values.get("pg_type", "")}
        register = next(group.all("ff"), Group("", [], 0))
        data, clock = (register.values.get(name, "").strip("() ") for name in ("next_state", "clocked_on"))
        states = tuple(register.words)
        if inverted := _INVERTED.fullmatch(data):
            data, states = inverted[1] or inverted[2], (*states, "")[1::-1]
        pins = {pin.name: self._pin(pin, functions, grounds) for pin in group.all("pin")}
        return ElectricalCell(pins, data, clock, states)

    def _pin(self, group: Group, functions: Mapping[str, str], grounds: set[str]) -> ElectricalPin:
        energies = [
            EnergyArc(
                related,
                self._tables(arc, "{}_power", self.picojoules),
                condition=arc.values.get("when", ""),
                ground=arc.values.get("related_pg_pin") in grounds,
            )
            for arc in group.all("internal_power")
            for related in arc.values.get("related_pin", "").split() or [""]
        ]
        transitions = [
            (related, self._tables(arc, "{}_transition", 1.0))
            for arc in group.all("timing")
            for related in arc.values.get("related_pin", "").split() or [""]
        ]
        return ElectricalPin(
            self.picofarads * finite(group.values.get("capacitance", "0")),
            _weighted([arc for arc in energies if arc.tables], functions, output=group.name in functions),
            tuple((pin, tables) for pin, tables in transitions if tables),
        )

    def _tables(self, arc: Group, name: str, scale: float) -> dict[str, Table]:
        # A group `power` holds the energy of each edge that has no group of its own.
        tables = {edge: next(iter([*arc.all(name.format(edge)), *arc.all("power")]), None) for edge in _EDGES}
        return {edge: _table(table, self.templates, self.picofarads, scale) for edge, table in tables.items() if table}


def _weighted(arcs: list[EnergyArc], functions: Mapping[str, str], *, output: bool) -> tuple[EnergyArc, ...]:
    """Return the energy arcs of a pin, each with its weight in the mean energy of a toggle (`share`)."""
    supplied = [arc for arc in arcs if not arc.ground]
    always = sum(not arc.condition for arc in supplied)
    weights = [_likelihood(arc.condition, functions) if arc.condition else 1 / always for arc in supplied]
    total = sum(weights) if output else 1.0
    shares = iter(weights)
    return tuple(replace(arc, share=0.0 if arc.ground else next(shares) / (total or 1.0)) for arc in arcs)


def _table(group: Group, templates: Mapping[str, Group], picofarads: float, scale: float) -> Table:
    """Read a lookup table of energies or transition times; `scale` is a factor for the values of the table."""
    template = templates.get(group.name)
    variables = [template.values.get(f"variable_{place}", "") for place in (1, 2)] if template else ["", ""]

    def numbers(name: str) -> NDArray[np.float64]:
        words = group.lists.get(name) or (template.lists.get(name) if template else None) or ["0"]
        return np.array([finite(word) for part in words for word in part.split(",")])

    values = scale * numbers("values")
    index = {variable: numbers(f"index_{place}") for place, variable in enumerate(variables, 1) if variable}
    values = values.reshape([len(numbers) for numbers in index.values()])
    loads = next((picofarads * numbers for variable, numbers in index.items() if variable in _LOADS), np.zeros(1))
    slews = next((numbers for variable, numbers in index.items() if variable in _SLEWS), np.zeros(1))
    if any((np.diff(axis) <= 0).any() for axis in (loads, slews)):
        raise ValueError("the index values of a table do not ascend")
    if len(index) == 2 and variables[0] in _SLEWS:
        values = values.T
    rows = values.reshape(len(loads), len(slews)).tolist()
    return Table(tuple(loads.tolist()), tuple(slews.tolist()), tuple(map(tuple, rows)))

"""Simulation plan of a netlist: each net's row in the array of values, and gates that one numpy operation evaluates."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import Error
from ..functions import Computing, computing
from .electrical import CellLibrary
from .netlist import Bit, MappedNetlist, levels_of

__all__ = ["Gates", "Plan", "Registers"]

Places = NDArray[np.intp]


@dataclass(frozen=True)
class Registers:
    """Registers with the same output function; their outputs are consecutive rows of the array of net values."""

    compute: Computing  #: Register output as a function of the stored bit (see :func:`~sptc.synth.functions.computing`)
    states: tuple[str, ...]  #: Names of a register's bit and of its inverse in the output function
    data: Places  #: Rows, in the array of simulated values, that hold the registers' data inputs
    outputs: slice  #: Rows, in the array of simulated values, that hold the registers' outputs


@dataclass(frozen=True)
class Gates:
    """Gates with the same logic function, whose outputs are consecutive rows of the array of simulated values."""

    compute: Computing  #: Gate output as a function of the inputs (see :func:`~sptc.synth.functions.computing`)
    pins: Mapping[str, Places]  #: For each input pin: rows of the nets at this pin of each gate
    latest: Places  #: Logic levels of the gates, in ascending order.
    outputs: slice  #: Rows of the gates' outputs in the array of simulated values


@dataclass(frozen=True)
class Plan:
    """Plan to simulate a netlist for many streams of inputs. A row of simulated values has one net in all streams."""

    rows: Mapping[Bit, int]  #: Row of each net in the array of simulated values; rows 0 and 1 are the constants
    #: Number of rows for constants, register outputs and input ports. These rows precede the rows of gate outputs.
    sources: int
    registers: tuple[Registers, ...]
    #: Groups of gates. Without `glitches`, in topological order; with `glitches`, one group for each function of gates.
    gates: tuple[Gates, ...]
    depth: int  #: Number of gates in the longest path
    glitches: bool  #: Whether gates have a delay of one time unit, which causes glitches

    @classmethod
    def of(cls, netlist: MappedNetlist, cells: CellLibrary, *, glitches: bool = False) -> "Plan":
        """Plan the simulation of a netlist. Gates have a delay of one time unit with `glitches`, otherwise none.

        Errors are those of :func:`~sptc.synth.energy.netlist.levels_of`, and an `Error` if the library has a register
        whose next state is not an input pin.
        """
        levels = levels_of(netlist, cells)
        # `registers` groups registers by their output function and the names of the bit and its inverse. An item is the
        # data net and the output net of a register. `settled` groups gates by their logic level (0 with `glitches`) and
        # function. An item is the name and the output net of a gate.
        registers: dict[tuple[str, tuple[str, ...]], list[tuple[Bit, Bit]]] = defaultdict(list)
        settled: dict[tuple[int, str], list[tuple[str, Bit]]] = defaultdict(list)
        for name, (kind, pins) in netlist.cells.items():
            for pin, net in pins.items():
                if function := cells.functions.get((kind, pin)):
                    cell = cells.electrical[kind]
                    if cell.clock:
                        if cell.data not in pins:
                            raise Error(
                                f"{cells.library.name} has a register whose next state {cell.data!r} is no input pin"
                            )
                        registers[function, cell.states].append((pins[cell.data], net))
                    else:
                        settled[0 if glitches else levels[name], function].append((name, net))
        rows = _Rows()
        register_rows = {key: rows.number(net for _, net in members) for key, members in registers.items()}
        driven = {net for gates in settled.values() for _, net in gates}
        ports = [netlist.inputs, netlist.outputs, *(box.ports for box in netlist.boxes.values())]
        rows.number(net for _, pins in netlist.cells.values() for net in pins.values() if net not in driven)
        rows.number(net for port in ports for nets in port.values() for net in nets if net not in driven)
        sources = rows.count
        for gates in settled.values():
            gates.sort(key=lambda gate: levels[gate[0]])
        gate_rows = {key: rows.number(net for _, net in settled[key]) for key in sorted(settled)}

        def group(key: tuple[int, str], outputs: slice) -> Gates:
            names, function = [name for name, _ in settled[key]], key[1]
            read = [pin for pin in netlist.cells[names[0]][1] if re.search(rf"\b{pin}\b", function)]
            pins = {pin: rows.places(netlist.cells[name][1][pin] for name in names) for pin in read}
            return Gates(computing(function), pins, np.array([levels[name] for name in names], np.intp), outputs)

        return cls(
            rows.of,
            sources,
            tuple(
                Registers(computing(key[0]), key[1], rows.places(data for data, _ in registers[key]), outputs)
                for key, outputs in register_rows.items()
            ),
            tuple(group(key, outputs) for key, outputs in gate_rows.items()),
            max(levels.values(), default=0),
            glitches,
        )


class _Rows:
    """Assigns a row in the array of simulated values to each net. The first two rows are the constants 0 and 1."""

    def __init__(self) -> None:
        self.of: dict[Bit, int] = {"0": 0, "x": 0, "1": 1}

    @property
    def count(self) -> int:
        return len(self.of) - 1

    def number(self, nets: Iterable[Bit]) -> slice:
        """Assign the next rows of the array of simulated values to nets without a row, and return these rows."""
        first = self.count
        for net in nets:
            self.of.setdefault(net, self.count)
        return slice(first, self.count)

    def places(self, nets: Iterable[Bit]) -> Places:
        return np.array([self.of[net] for net in nets], np.intp)

"""Energy per toggle of every net in a netlist of library cells: internal energy of cells, and charging of pins."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from .electrical import CellLibrary, ElectricalCell
from .netlist import Bit, MappedNetlist, levels_of
from .stages import INPUTS

__all__ = ["Activity", "Costs", "costs_of", "net_loads", "transition_times"]

#: Number of toggles of a clock net per cycle: a rise and a fall.
_CLOCK_TOGGLES = 2
_EDGES = ("rise", "fall")
Slews = dict[Bit, dict[str, float]]


@dataclass(frozen=True)
class Activity:
    """Toggle counts of the nets of a netlist."""

    cycles: int  #: Number of simulated cycles
    toggles: Mapping[Bit, int]  #: Toggle count of each net


@dataclass(frozen=True)
class Costs:
    """Energy per toggle of every net in a netlist, and energy of the clock of each register."""

    of_net: Mapping[Bit, Mapping[str, float]]  #: For each net, energy per toggle in pJ, by datapath stage
    clock: frozenset[Bit]  #: Clock nets, which rise and fall in every cycle
    #: One entry for each register: nets that the register drives, and clock energy of the register in pJ per cycle.
    clocked: tuple[tuple[tuple[Bit, ...], float], ...]

    def of(self, activity: Activity) -> dict[str, float]:
        """Return the energy per cycle in pJ, for each stage of the datapath."""
        energies: dict[str, float] = defaultdict(float)
        for net, stages in self.of_net.items():
            rate = _CLOCK_TOGGLES if net in self.clock else activity.toggles.get(net, 0) / activity.cycles
            for stage, taken in stages.items():
                energies[stage] += rate * taken
        return dict(energies)

    def clock_of_idle(self, activity: Activity) -> float:
        """Return the clock energy per cycle in pJ of registers whose outputs never toggled."""
        return sum(taken for nets, taken in self.clocked if not any(activity.toggles.get(net, 0) for net in nets))


def costs_of(
    netlist: MappedNetlist,
    cells: CellLibrary,
    stages: Mapping[str, str],
    *,
    inside: Mapping[str, MappedNetlist] | None = None,
    outside: Mapping[Bit, float] | None = None,
) -> Costs:
    """Return the energy per toggle of every net of a netlist.

    * Charging: a toggle of a net takes C V^2 / 2, where C is the capacitance of the pins of the net. This energy is
      counted in the stage of the net's driver. Wires have no capacitance.
    * Internal energy: a toggle of a pin takes the mean over rise and fall, over all inputs to which the library relates
      an output, and over the conditions that the library states, with equally likely inputs. The tables are evaluated
      at the load of the output and at the longest transition times of the inputs over all paths. The transition times
      of ports are zero.

    `stages` has the stage of each cell, and `inside` the netlists of the boxes, by module. The input pins of a box load
    the nets of `netlist`. If `netlist` is itself the netlist of a box, `outside` is the capacitance in pF that each of
    its outputs charges outside the box, and the charging of its input nets is omitted, because it is counted in the
    netlist outside. The energy of the clock nets is counted in the stages of the cells that they reach.
    """
    loads = net_loads(netlist, cells, inside)
    for net, load in (outside or {}).items():
        loads[net] = loads.get(net, 0.0) + load
    slews = transition_times(netlist, cells, loads)
    clocks = frozenset(netlist.inputs.get("clk", []))
    half = cells.voltage**2 / 2
    of_net: dict[Bit, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    clocked = []
    for name, (kind, pins) in netlist.cells.items():
        cell, stage = cells.electrical[kind], stages[name]
        if cell.clock:
            driven = tuple(net for pin, net in pins.items() if cell.pins[pin].transitions)
            edge = _of_toggle(cell, cell.clock, pins, loads, slews) + half * cell.pins[cell.clock].capacitance
            clocked.append((driven, _CLOCK_TOGGLES * edge))
        for pin, net in pins.items():
            if isinstance(net, str):
                continue
            of_net[net][stage] += _of_toggle(cell, pin, pins, loads, slews)
            if cell.pins[pin].transitions:
                of_net[net][stage] += half * loads[net]
            elif net in clocks:
                of_net[net][stage] += half * cell.pins[pin].capacitance
    for nets in () if outside is not None else netlist.inputs.values():
        for net in {*nets} - clocks:
            of_net[net][INPUTS] += half * loads.get(net, 0.0)
    return Costs(of_net, clocks, tuple(clocked))


def _of_toggle(
    cell: ElectricalCell, pin: str, pins: Mapping[str, Bit], loads: Mapping[Bit, float], slews: Slews
) -> float:
    """Return the internal energy in pJ that a cell consumes per toggle of a pin."""
    total = 0.0
    for arc in cell.pins[pin].energies:
        if arc.share:
            times = slews.get(pins.get(arc.related or pin, "0"), {})
            edges = [table.at(loads.get(pins[pin], 0.0), times.get(edge, 0.0)) for edge, table in arc.tables.items()]
            total += arc.share * sum(edges) / len(edges)
    return total


def net_loads(
    netlist: MappedNetlist, cells: CellLibrary, inside: Mapping[str, MappedNetlist] | None = None
) -> dict[Bit, float]:
    """Return the total pin capacitance of each net in pF, including pins of cells in the submodules `inside`."""
    loads: dict[Bit, float] = defaultdict(float)
    for kind, pins in netlist.cells.values():
        for pin, net in pins.items():
            if not isinstance(net, str):
                loads[net] += cells.electrical[kind].pins[pin].capacitance
    inside = inside or {}
    within = {name: net_loads(part, cells) for name, part in inside.items()}
    for box in netlist.boxes.values() if inside else ():
        for port, nets in inside[box.module].inputs.items():
            for net, outside in zip(nets, box.ports[port], strict=True):
                loads[outside] += within[box.module].get(net, 0.0)
    return loads


def transition_times(netlist: MappedNetlist, cells: CellLibrary, loads: Mapping[Bit, float]) -> Slews:
    """Return the longest transition time of each net, in the library's unit of time; input ports have time zero."""
    registers = [name for name, (kind, _) in netlist.cells.items() if cells.is_register(kind)]
    slews: Slews = {}
    for name in [*registers, *levels_of(netlist, cells)]:
        kind, pins = netlist.cells[name]
        for pin, net in pins.items():
            arcs = cells.electrical[kind].pins[pin].transitions
            if not arcs or isinstance(net, str):
                continue
            longest = dict.fromkeys(_EDGES, 0.0)
            for related, tables in arcs:
                of_input = slews.get(pins.get(related, "0"), {})
                for edge, table in tables.items():
                    for slew in of_input.values() or (0.0,):
                        longest[edge] = max(longest[edge], table.at(loads[net], slew))
            slews[net] = longest
    return slews

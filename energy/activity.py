"""Toggles of the nets of a mapped netlist: library cells on a stream of steps, all of it at once.

A pipeline without loops needs no clock to be simulated: the waveform of a net is a function of those before it, of a
register the same waveform a cycle later. A waveform is an array of bits, a cycle each, so that a cell of a hundred
thousand cycles is a few operations. Delays are zero: there are no glitches.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Error
from ..synth.liberty import Library, computing
from .electrical import ElectricalLibrary

__all__ = ["Activity", "Bit", "MappedNetlist", "Pipeline"]

_WORD = 64
Bit = int | str
Waveform = NDArray[np.uint64]


@dataclass(frozen=True)
class MappedNetlist:
    """A netlist of library cells.

    Attributes
    ----------
    cells : dict of str to (str, dict of str to int or str)
        Of each cell its type and the net, or the constant, at every pin.
    inputs, outputs : dict of str to list
        Nets of each port, bit by bit.
    """

    cells: Mapping[str, tuple[str, Mapping[str, Bit]]]
    inputs: Mapping[str, list[Bit]]
    outputs: Mapping[str, list[Bit]]

    @classmethod
    def of(cls, module: Mapping[str, Any], library: Library) -> "MappedNetlist":
        """Read a module of Yosys' JSON.

        Raises
        ------
        Error
            Some cell is not of the library.
        """
        known = {cell.name for cell in library.cells}
        cells = {
            name: (cell["type"], _pins(cell["connections"]))
            for name, cell in module["cells"].items()
            if cell["type"] != "$scopeinfo"
        }
        if others := sorted({kind for kind, _ in cells.values()} - known):
            raise Error(f"{library.name} has no cell for {', '.join(others)}")
        ports: dict[str, dict[str, list[Bit]]] = {"input": {}, "output": {}}
        for name, port in module["ports"].items():
            ports[port["direction"]][name] = port["bits"]
        return cls(cells, ports["input"], ports["output"])


def _pins(connections: Mapping[str, list[Bit]]) -> dict[str, Bit]:
    return {pin: bits[0] for pin, bits in connections.items() if bits}


@dataclass(frozen=True)
class Activity:
    """What the nets of a netlist did.

    Attributes
    ----------
    cycles : int
        Cycles between whose beginnings toggles are counted.
    toggles : dict of int to int
        Of each net.
    outputs : dict of str to ndarray of uint8, shape (cycles, bits)
        What came out of each port, all cycles.
    """

    cycles: int
    toggles: Mapping[Bit, int]
    outputs: Mapping[str, NDArray[np.uint8]]


class Pipeline:
    """A netlist without loops, ready to be run on streams of steps, one a cycle.

    Parameters
    ----------
    netlist : MappedNetlist
        Which.
    library, electrical : Library, ElectricalLibrary
        Functions of its cells, and which are registers.
    clock : str
        The port that clocks all registers: it rises and falls in every cycle.

    Attributes
    ----------
    order : list of str
        The cells, each behind all that it reads.
    latency : int
        The most registers on any way.

    Raises
    ------
    Error
        The netlist has a loop, or a cell whose function is unknown.
    """

    def __init__(
        self, netlist: MappedNetlist, library: Library, electrical: ElectricalLibrary, clock: str = "clk"
    ) -> None:
        self._netlist, self._electrical, self._clock = netlist, electrical, clock
        self._functions = {(cell.name, pin): function for cell in library.cells for pin, function in cell.outputs}
        self.order, self.latency = _in_order(netlist, electrical, self._functions)
        self._fanout = Counter(net for _, pins in netlist.cells.values() for net in pins.values())
        self._fanout.update(net for nets in netlist.outputs.values() for net in nets)

    def run(self, steps: Mapping[str, NDArray[np.uint8]]) -> Activity:
        """Run a stream of steps.

        Parameters
        ----------
        steps : dict of str to ndarray of uint8, shape (cycles, bits)
            Of each input port, zeros and ones.

        Raises
        ------
        Error
            An input is given no steps, or there are too few of them.
        """
        (cycles,) = {len(bits) for bits in steps.values()}
        if self.latency + 1 >= cycles:
            raise Error(f"{cycles} cycles are too few for a pipeline of {self.latency} stages")
        words = -(-cycles // _WORD)
        one = np.full(words, ~np.uint64(0))
        waves: dict[Bit, Waveform] = {"0": one ^ one, "1": one, "x": one ^ one}
        waves |= self._given(steps, words)
        # Until results of the first step are everywhere, registers hold nothing.
        counted = _bits_from(self.latency + 1, cycles, words)
        toggles: dict[Bit, int] = {}

        def count(net: Bit) -> None:
            wave = waves[net]
            toggles[net] = int(np.bitwise_count((wave ^ _later(wave)) & counted).sum())

        for of_port in [net for net in waves if not isinstance(net, str)]:
            count(of_port)
        fanout = self._fanout.copy()
        for name in self.order:
            kind, pins = self._netlist.cells[name]
            cell = self._electrical.cells[kind]
            driven = [pin for pin in pins if (kind, pin) in self._functions]
            if cell.clock:
                held = _later(waves[pins[cell.data]])
                values = dict(zip(cell.states, (held, held ^ one), strict=False))
            else:
                values = {pin: waves[net] for pin, net in pins.items() if pin not in driven}
            for pin in driven:
                waves[pins[pin]] = computing(self._functions[kind, pin])(values, one)
                count(pins[pin])
            for pin, net in pins.items():
                fanout[net] -= 1
                if not fanout[net] and pin not in driven:
                    waves.pop(net, None)
        outputs = {
            name: _bits(np.stack([waves[net] for net in nets]), cycles) for name, nets in self._netlist.outputs.items()
        }
        return Activity(cycles - self.latency - 1, toggles, outputs)

    def _given(self, steps: Mapping[str, NDArray[np.uint8]], words: int) -> dict[Bit, Waveform]:
        waves: dict[Bit, Waveform] = {}
        for name, nets in self._netlist.inputs.items():
            if name in steps:
                padded = np.zeros((words * _WORD, len(nets)), np.uint8)
                padded[: len(steps[name])] = steps[name]
                packed = np.packbits(np.ascontiguousarray(padded.T), axis=1, bitorder="little").view(np.uint64)
                waves.update(zip(nets, packed, strict=True))
            elif name != self._clock and nets:
                raise Error(f"input {name} of the netlist is given no steps")
        return waves


def _bits(waves: NDArray[np.uint64], cycles: int) -> NDArray[np.uint8]:
    """Return waveforms as zeros and ones, shape (cycles, waveforms)."""
    return np.unpackbits(waves.view(np.uint8), axis=1, bitorder="little").T[:cycles]


def _later(wave: Waveform) -> Waveform:
    """Return a waveform a cycle later."""
    later = wave << np.uint64(1)
    later[1:] |= wave[:-1] >> np.uint64(_WORD - 1)
    return later


def _bits_from(first: int, end: int, words: int) -> Waveform:
    bits = np.zeros(words * _WORD, np.uint8)
    bits[first:end] = 1
    return np.packbits(bits, bitorder="little").view(np.uint64)


def _in_order(
    netlist: MappedNetlist, electrical: ElectricalLibrary, functions: Mapping[tuple[str, str], str]
) -> tuple[list[str], int]:
    """Return the cells, each behind all that it reads, and the most registers on any way.

    Raises
    ------
    Error
        There is a loop, or a function is unknown.
    """
    drivers = {}
    for name, (kind, pins) in netlist.cells.items():
        for pin, net in pins.items():
            if (kind, pin) in functions:
                drivers[net] = name
                if not functions[kind, pin]:
                    raise Error(f"{electrical.name} does not say what {kind} computes")
    reads = {}
    for name, (kind, pins) in netlist.cells.items():
        cell = electrical.cells[kind]
        wanted = [pins[cell.data]] if cell.clock else [net for pin, net in pins.items() if (kind, pin) not in functions]
        reads[name] = {drivers[net] for net in wanted if net in drivers}
    try:
        order = [*TopologicalSorter(reads).static_order()]
    except CycleError:
        raise Error("the netlist has a loop; only pipelines that are always enabled are simulated") from None
    depth: dict[str, int] = {}
    for name in order:
        is_register = bool(electrical.cells[netlist.cells[name][0]].clock)
        depth[name] = max((depth[other] for other in reads[name]), default=0) + is_register
    return order, max(depth.values(), default=0)

"""Miters of faults, made from a flat netlist in RTLIL, the text format of Yosys.

A miter contains two copies of the cone of a fault, that is the cells that the fault can affect, and the logic in front
of the cone. It claims that both copies have equal outputs::

    logic in front --+--> cone without the fault --+
                     |                             = ?
                     +--> cone with the fault -----+

All other cells have equal values with and without the fault as long as the outputs of the two cones are equal. Cone and
logic in front can be limited in depth. Free values replace the logic that is left out.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Depth", "FlatDesign", "control_of"]

_WIRE = re.compile(r"  wire (?:width (\d+) )?(?:upto )?(?:offset \S+ )?(?:(input|output) \d+ )?(?:signed )?(\S+)$")
#: A signal in RTLIL: a concatenation, or a constant, wire or part of a wire.
_SIGNAL = re.compile(r"\{.*?\}|\S+(?: \[[\d:]+\])*")
_NAME = re.compile(r"(?<!\S)[\\$]\S+")
#: Types of the cells that are expected in a flat netlist. Their outputs are the ports Y and Q.
_KINDS = {
    "$add", "$and", "$anyseq", "$assume", "$dff", "$eq", "$ge", "$gt", "$le", "$logic_and", "$logic_not", "$logic_or",
    "$lt", "$mul", "$mux", "$ne", "$neg", "$not", "$or", "$pmux", "$reduce_and", "$reduce_bool", "$reduce_or",
    "$reduce_xor", "$scopeinfo", "$shift", "$shiftx", "$shl", "$shr", "$sshl", "$sshr", "$sub", "$xnor", "$xor",
}  # fmt: skip
_OUTPUTS = ("Y", "Q")
_ASSUMPTION = "$assume"
#: Name of the module with the cone of the fault.
_CONE = "cone"


def control_of(fault: int) -> str:
    """Return the name of the input that activates a fault, by the number of the fault."""
    return f"\\fault_{fault}"


_CONTROL = re.compile(re.escape(control_of(0))[:-1] + r"\d+")


class Depth(NamedTuple):
    """Limits of the logic in a miter, as numbers of successive cells; None means no limit."""

    behind: int | None = None  #: Cells in the cone: behind the fault, and including the faulty cell
    before: int | None = None  #: Cells in front of the cone
    #: Whether the miter includes the assumptions about inputs, and as many cells in front of them.
    assumes: bool = True


@dataclass(frozen=True)
class _Cell:
    """Cell of a netlist, or a connection of two signals."""

    text: str  #: RTLIL of the cell
    reads: tuple[str, ...]  #: Names of the wires at its inputs
    drives: tuple[str, ...]  #: Names of the wires at its outputs
    is_assumption: bool = False  #: Whether it is an ``$assume`` cell


class FlatDesign:
    """Flat netlist with faults. Each fault is activated by an input with the name :func:`control_of` returns.

    Parameters
    ----------
    text : str
        RTLIL of the netlist.
    top : str
        Name of its only module, or of the module to use.
    """

    def __init__(self, text: str, top: str) -> None:
        self._top = top
        self._widths: dict[str, int] = {}
        self._inputs: set[str] = set()
        self._outputs: set[str] = set()
        begin = text.index(f"module \\{top}\n")
        self._cells = [*self._read(iter(text[begin : text.index("\nend\n", begin)].splitlines()))]
        kinds = {cell.text.split()[1] for cell in self._cells if cell.text.startswith("  cell ")}
        assert kinds <= _KINDS, f"cells with unknown outputs: {kinds - _KINDS}"
        self._readers: defaultdict[str, list[int]] = defaultdict(list)
        self._drivers: defaultdict[str, list[int]] = defaultdict(list)
        for number, cell in enumerate(self._cells):
            for name in cell.reads:
                self._readers[name].append(number)
            for name in cell.drives:
                self._drivers[name].append(number)

    def _read(self, lines: Iterator[str]) -> Iterator[_Cell]:
        """Yield the cells and connections of the module, and note its wires."""
        for line in lines:
            if wire := _WIRE.match(line):
                width, direction, name = wire.groups()
                self._widths[name] = int(width or 1)
                if direction:
                    (self._inputs if direction == "input" else self._outputs).add(name)
            elif line.startswith("  connect "):
                target, source = _SIGNAL.findall(line.removeprefix("  connect "))
                yield _Cell(line, _names([source]), _names([target]))
            elif line.startswith("  cell "):
                text, signals = [line], {}
                while (line := next(lines)) != "  end":
                    text.append(line)
                    if line.startswith("    connect "):
                        port, signal = line.removeprefix("    connect ").split(" ", 1)
                        signals[port.removeprefix("\\")] = signal
                yield _Cell(
                    "\n".join([*text, "  end"]),
                    _names(signal for port, signal in signals.items() if port not in _OUTPUTS),
                    _names(signal for port, signal in signals.items() if port in _OUTPUTS),
                    text[0].startswith(f"  cell {_ASSUMPTION} "),
                )

    def miter(self, fault: int, depth: Depth) -> str | None:
        """Return the miter of a fault in RTLIL, or None if nothing outside the cone depends on the fault.

        `fault` is the number of the fault; all other faults are inactive.
        """
        cone = self._cone(control_of(fault), depth.behind)
        driven = {name for number in cone for name in self._cells[number].drives}
        leaving = [
            name
            for name in sorted(driven)
            if name in self._outputs or any(reader not in cone for reader in self._readers[name])
        ]
        if not leaving:
            return None
        arriving = sorted(self._wires(cone) - driven)
        front = self._front(arriving, cone, depth)
        return "\n".join(
            [*self._cone_module(cone, arriving, leaving), *self._top_module(fault, front, arriving, leaving), ""]
        )

    def _cone(self, control: str, behind: int | None) -> set[int]:
        """Return the numbers of the cells that the fault can affect. Assumptions do not belong to them."""
        cone: set[int] = set()
        reached, level = {control}, 0
        while reached and level != behind:
            following = {number for name in reached for number in self._readers[name]} - cone
            following = {number for number in following if not self._cells[number].is_assumption}
            cone |= following
            reached, level = {name for number in following for name in self._cells[number].drives}, level + 1
        return cone

    def _front(self, arriving: Iterable[str], cone: set[int], depth: Depth) -> set[int]:
        """Return the numbers of the cells in front of the cone and of the assumptions, assumptions included."""
        front = {number for number, cell in enumerate(self._cells) if cell.is_assumption and depth.assumes}
        names, level = {*arriving, *(name for number in front for name in self._cells[number].reads)}, 0
        while names and level != depth.before:
            following = {number for name in names for number in self._drivers[name]} - front - cone
            front |= following
            names, level = {name for number in following for name in self._cells[number].reads}, level + 1
        return front

    def _cone_module(self, cone: set[int], arriving: Sequence[str], leaving: Sequence[str]) -> Iterator[str]:
        """Yield the lines of the module of the cone."""
        yield f"module \\{_CONE}"
        for name in sorted(self._wires(cone) | {*arriving}):
            yield self._wire(name)
        # Ports get names of their own, since Yosys takes a port `$1` for the first port of the module.
        for number, name in enumerate((*arriving, *leaving)):
            is_input = number < len(arriving)
            yield self._wire(name, f"{'input' if is_input else 'output'} {number + 1} ", _port(number))
            yield f"  connect {name} {_port(number)}" if is_input else f"  connect {_port(number)} {name}"
        yield from self._texts(cone)
        yield "end"

    def _top_module(
        self, fault: int, front: set[int], arriving: Sequence[str], leaving: Sequence[str]
    ) -> Iterator[str]:
        """Yield the lines of the top module: logic in front, the cone without and with the fault, and the claim."""
        yield f"module \\{self._top}"
        names = sorted(self._wires(front) | {*arriving, *leaving})
        for number, name in enumerate(names, 1):
            is_input = name in self._inputs and not _CONTROL.fullmatch(name)
            yield self._wire(name, f"input {number} " if is_input else "")
        yield from (f"  connect {name} 1'0" for name in names if _CONTROL.fullmatch(name))
        yield from self._texts(front)
        faulty = {name: f"$faulty{number}" for number, name in enumerate(leaving)}
        for name, other in faulty.items():
            yield self._wire(name, name=other)
        for cell, is_faulty in (("$right", 0), ("$wrong", 1)):
            yield f"  cell \\{_CONE} {cell}"
            values = (faulty if is_faulty else {}) | {control_of(fault): f"1'{is_faulty}"}
            for number, name in enumerate((*arriving, *leaving)):
                yield f"    connect {_port(number)} {values.get(name, name)}"
            yield "  end"
        yield "  wire $same"
        yield "  cell $eq $compare"
        for port, compared in (("A", leaving), ("B", faulty.values())):
            yield f"    parameter \\{port}_SIGNED 0"
            yield f"    parameter \\{port}_WIDTH {sum(self._widths[name] for name in leaving)}"
            yield f"    connect \\{port} {{ {' '.join(compared)} }}"
        yield "    parameter \\Y_WIDTH 1"
        yield "    connect \\Y $same"
        yield "  end"
        yield "  cell $assert $claim"
        yield "    connect \\A $same"
        yield "    connect \\EN 1'1"
        yield "  end"
        yield "end"

    def _wire(self, like: str, direction: str = "", name: str = "") -> str:
        return f"  wire width {self._widths[like]} {direction}{name or like}"

    def _wires(self, cells: Iterable[int]) -> set[str]:
        """Return the names of the wires at the ports of cells."""
        return {name for number in cells for name in (*self._cells[number].reads, *self._cells[number].drives)}

    def _texts(self, cells: Iterable[int]) -> Iterator[str]:
        return (self._cells[number].text for number in sorted(cells))


def _port(number: int) -> str:
    return f"\\port_{number}"


def _names(signals: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the wires in signals, each once."""
    return tuple(dict.fromkeys(name for signal in signals for name in _NAME.findall(signal)))

"""Cell libraries: liberty files with areas, functions, registers and full adders of their cells."""

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import product
from pathlib import Path

from ..errors import Error, FileError, shown
from ..infra.escapes import verilog_name
from .functions import computing
from .liberty_text import Group, decompressed, merged, parsed, plain, without

__all__ = ["DONT_USE", "Cell", "FullAdder", "Library", "finite"]

#: Pattern of ASAP7 cells with a drive strength below 1. Several such cells have the same area, so the smallest cell
#: would not be unique.
_BELOW_DRIVE_1 = "*xp*_ASAP7*"
#: Patterns of cells that synthesis does not use: scan cells, and sky130's cells for power domains and delays.
DONT_USE = (
    _BELOW_DRIVE_1,
    *("SDF*_ASAP7*", "*__sdf*", "*__sedf*"),
    *("*_lpflow_*", "*__dlymetal*", "*__dlygate*", "*__clkdlybuf*"),
)
#: Pattern of the zeros at the end of a decimal fraction. Group 1 is the part of the fraction to keep.
_ZEROS = re.compile(r"(?:\.|(\.\d*[1-9]))0+$")
#: Capacitances of a pin in a liberty file
_CAPACITANCES = ("capacitance", "rise_capacitance", "fall_capacitance")
#: Maximum number of input pins of a cell that synthesis uses. For larger cells, such as memories, ABC needs gigabytes
#: of memory.
_MOST_INPUTS = 16


@dataclass(frozen=True)
class Cell:
    """A library cell: name, area and logic functions of its outputs."""

    name: str
    area: float  #: Area of the cell in the library's unit, usually square micrometres
    inputs: tuple[str, ...]  #: Names of the cell's input pins
    #: Output pins, each with a logic function in liberty syntax, which is empty if the library states no function.
    outputs: tuple[tuple[str, str], ...]
    #: For a flip-flop with a rising clock and without set, clear and enable: whether all of its outputs are inverted.
    #: None for any other cell.
    inverts: bool | None = None

    def computes(self, output: str, ones: frozenset[int]) -> bool:
        """Return whether an output is 1 if and only if the number of inputs that are 1 is an element of `ones`."""
        function = dict(self.outputs)[output]
        try:
            return bool(function) and all(
                computing(function)(dict(zip(self.inputs, bits, strict=True)), True) == (sum(bits) in ones)
                for bits in product((False, True), repeat=len(self.inputs))
            )
        except (KeyError, ValueError):  # the output is no gate: its function depends on a register, or cannot be parsed
            return False


@dataclass(frozen=True)
class FullAdder:
    """A full-adder cell, which adds three bits."""

    cell: Cell
    total: str  #: Name of the full adder's output pin for the sum
    carry: str  #: Name of the full adder's output pin for the carry
    inverted: tuple[bool, bool]  #: Whether the sum pin is inverted, and whether the carry pin is inverted


def finite(word: str) -> float:
    """Parse a number in a liberty file; raise a ValueError if the word is not a finite number."""
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(word)
    return number


@dataclass(frozen=True)
class Library:
    """One or several liberty files, combined to one cell library."""

    name: str  #: Names of the liberty files, without their folders.
    text: str  #: Content of the liberty file, or of all files merged, without cells that synthesis does not use.
    sha256: str = ""  #: SHA-256 hash of each original liberty file, in hexadecimal

    @classmethod
    def read(cls, *paths: Path, dont_use: Sequence[str] = DONT_USE) -> "Library":
        """Read liberty files of one corner, plain or compressed by gzip, bzip2 or xz.

        Cells that match one of the shell patterns `dont_use`, have the attribute ``dont_use``, or have more than 16
        inputs are left out. Raise a `FileError` if a file cannot be read, is not a liberty file with cells, or has an
        invalid area; if the files differ in units or corner, or have cells of equal names; or if no cell is left.
        """
        files = [decompressed(path) for path in paths]
        texts = [plain(file.decode(errors="surrogateescape")) for file in files]
        text = texts[0] if len(paths) == 1 else merged(paths, texts)
        name = " + ".join(path.name for path in paths)
        root = parsed(text, str(paths[0]))
        unused = [
            cell
            for cell in root.all("cell")
            if cell.values.get("dont_use") == "true"
            or any(fnmatchcase(cell.name, pattern) for pattern in dont_use)
            or sum(pin.values.get("direction") == "input" for pin in cell.all("pin")) > _MOST_INPUTS
        ]
        sha256 = " ".join(hashlib.sha256(file).hexdigest() for file in files)
        library = cls(name, without(text, unused), sha256)
        if len(unused) == sum(1 for _ in root.all("cell")) or not library.cells:
            raise FileError(f"{name} has no cell that synthesis may use")
        return library

    @property
    def data(self) -> bytes:
        """Text of the combined library as bytes."""
        return self.text.encode("utf-8", errors="surrogateescape")

    @cached_property
    def root(self) -> Group:
        """The cell library's liberty text (without comments), parsed into a tree of groups."""
        return parsed(plain(self.text), self.name)

    @cached_property
    def corner(self) -> str:
        """Operating corner of the library from its header, as text: voltage, temperature, process and units."""
        values, load = self.root.values, self.root.lists.get("capacitive_load_unit", [])
        volt = values.get("voltage_unit", "1V")
        nominal = (("nom_voltage", "V" if volt == "1V" else f"x {volt}"), ("nom_temperature", "C"))
        words = [_ZEROS.sub(r"\1", values[name]) + f" {unit}" for name, unit in nominal if name in values]
        units = {"times": values.get("time_unit"), "leakage": values.get("leakage_power_unit"), "loads": " ".join(load)}
        words += [values["default_operating_conditions"]] if "default_operating_conditions" in values else []
        return ", ".join([*words, *(f"{quantity} in {unit}" for quantity, unit in units.items() if unit)])

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Library cells that have an area, in the order of the file.

        Raise a `FileError` if an area or a capacitance is not a finite number of 0 or more, or the name of a cell or
        pin is no Verilog identifier.
        """
        cells = []
        for group in self.root.all("cell"):
            pins = {pin.name: pin.values for pin in group.all("pin")}
            inputs = tuple(name for name, values in pins.items() if values.get("direction") == "input")
            outputs = tuple(
                (name, values.get("function", ""))
                for name, values in pins.items()
                if values.get("direction") == "output"
            )
            for name in (group.name, *pins):
                self._require_identifier(name)
            for pin, values in pins.items():
                for quantity in _CAPACITANCES:
                    self._size(quantity, values.get(quantity, "0"), f"pin {pin} of cell {group.name}")
            if "area" in group.values:
                area = self._size("area", group.values["area"], f"cell {group.name}")
                cells.append(Cell(group.name, area, inputs, outputs, _inverts(group, inputs, outputs)))
        return tuple(cells)

    def _require_identifier(self, name: str) -> None:
        """Raise a `FileError` if a cell or pin name is no Verilog identifier, because netlists contain such names."""
        try:
            verilog_name(name)
        except ValueError:
            raise FileError(f"{self.name} has a cell or pin {shown(name)}, which is no Verilog identifier") from None

    def _size(self, quantity: str, word: str, place: str) -> float:
        try:
            size = finite(word)
        except ValueError:
            size = -1.0
        if size < 0:
            raise FileError(f"{self.name} states the {quantity} {word} for {place}, not a number of 0 or more")
        return size

    def _smallest(self, inputs: int, ones: frozenset[int]) -> Cell | None:
        """Return the smallest gate whose output is 1 if and only if `ones` contains the number of inputs that are 1.

        Gates with a drive strength below 1 are left out.
        """
        gates = [
            cell
            for cell in self.cells
            if len(cell.inputs) == inputs
            and len(cell.outputs) == 1
            and cell.area > 0
            and not fnmatchcase(cell.name, _BELOW_DRIVE_1)
            and cell.computes(cell.outputs[0][0], ones)
        ]
        return min(gates, key=lambda cell: cell.area, default=None)

    @cached_property
    def nand2(self) -> Cell | None:
        """The smallest two-input NAND gate of drive 1 or more (one gate equivalent); None if the library has none."""
        return self._smallest(2, frozenset({0, 1}))

    @cached_property
    def flip_flop(self) -> Cell | None:
        """The smallest flip-flop (with an inverter if its outputs are inverted); None if the library has none."""
        inverter = self._smallest(1, frozenset({0}))
        costs = {
            cell: cell.area + (inverter.area if cell.inverts and inverter else 0)
            for cell in self.cells
            if cell.inverts is False or (cell.inverts and inverter)
        }
        return min(costs, key=costs.__getitem__, default=None)

    @cached_property
    def registers(self) -> bytes:
        """Library text in which :attr:`flip_flop` is the only flip-flop without set, clear and enable."""
        others = {cell.name for cell in self.cells if cell.inverts is not None and cell != self.flip_flop}
        groups = [group for group in self.root.all("cell") if group.name in others]
        return without(plain(self.text), groups).encode("utf-8", errors="surrogateescape")

    @cached_property
    def has_flip_flop(self) -> bool:
        """Whether a cell of the library is a flip-flop, of any kind."""
        return any(True for cell in self.root.all("cell") for _ in cell.all("ff"))

    @cached_property
    def has_clock_gate(self) -> bool:
        """Whether the library has an integrated clock gate for registers that are clocked by the rising edge."""
        kinds = (cell.values.get("clock_gating_integrated_cell", "") for cell in self.root.all("cell"))
        return any(kind.startswith("latch_posedge") for kind in kinds)

    @cached_property
    def full_adder(self) -> FullAdder:
        """The smallest full adder in the library; raise an `Error` if the library has no full adder."""

        def outputs(cell: Cell, ones: frozenset[int]) -> list[tuple[str, bool]]:
            """Return (pin, inverted) for cell outputs that tell whether the number of 1 inputs is in `ones`."""
            counts = ((ones, False), (frozenset(range(4)) - ones, True))
            return [(pin, inv) for pin, _ in cell.outputs for those, inv in counts if cell.computes(pin, those)]

        adders = [
            FullAdder(cell, total, carry, (total_inverted, carry_inverted))
            for cell in self.cells
            if len(cell.inputs) == 3 and len(cell.outputs) == 2
            for total, total_inverted in outputs(cell, frozenset({1, 3}))
            for carry, carry_inverted in outputs(cell, frozenset({2, 3}))
        ]
        if not adders:
            raise Error(f"{self.name} has no full adder (a cell with the outputs A ^ B ^ C and carry)")
        return min(adders, key=lambda adder: adder.cell.area)


def _inverts(cell: Group, inputs: Sequence[str], outputs: Sequence[tuple[str, str]]) -> bool | None:
    """Return whether all outputs of a simple flip-flop are inverted; None for any other cell (:attr:`Cell.inverts`)."""
    registers = [*cell.all("ff")]
    if len(registers) != 1 or len(registers[0].words) != 2 or any(cell.all("test_cell")):
        return None
    values, (state, inverse) = registers[0].values, registers[0].words
    clock, data = (values.get(name, "").strip("() ") for name in ("clocked_on", "next_state"))
    functions = {function.strip("() ") for _, function in outputs}
    if clock not in inputs or data.lstrip("!") not in inputs or not functions <= {state, inverse}:
        return None
    straight = inverse if data.startswith("!") else state
    return None if {"clear", "preset"} & values.keys() else straight not in functions

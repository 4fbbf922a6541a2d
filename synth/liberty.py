"""Liberty files: cells of a library; NAND2 and full adder are recognised by their functions."""

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from operator import and_, or_, xor
from pathlib import Path
from typing import Any

from ..errors import Error, FileError
from ..infra.reading import read_bytes

__all__ = ["COMMENT", "Cell", "Computing", "Library", "computing", "evaluate", "finite"]

#: Function of the values of pins, and of the value with all bits one.
Computing = Callable[[Mapping[str, Any], Any], Any]

# Not a parser from PyPI: liberty-parser is GPL-3.0 and seven times slower, libparse ends the process on bad input,
# and eda-liberty-parser takes twice as long and accepts an empty file; all there is to parse are these few words.
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_LIBRARY = re.compile(r"\s*library\s*\(")
_CELL = re.compile(r'\bcell\s*\(\s*"?(\w+)"?\s*\)\s*\{')
_PIN = re.compile(r'\bpin\s*\(\s*"?(\w+)"?\s*\)\s*\{')
_AREA = re.compile(r'\barea\s*:\s*"?([\d.eE+-]+)"?\s*;?')
_DIRECTION = re.compile(r'\bdirection\s*:\s*"?(\w+)"?')
_FUNCTION = re.compile(r'\bfunction\s*:\s*"([^"]*)"')
_TOKEN = re.compile(r"\s*(\w+|[()!'^&*|+])")
_BRACE = re.compile(r"[{}]")


@dataclass(frozen=True)
class Cell:
    """A cell: name, area and functions of its outputs."""

    name: str
    area: float  #: Area in the library's unit, usually square micrometres
    inputs: tuple[str, ...]  #: Names of the input pins
    #: Output pins, each with its function in liberty syntax; empty if the library has none.
    outputs: tuple[tuple[str, str], ...]

    def computes(self, output: str, ones: frozenset[int]) -> bool:
        """Whether an output is one exactly if the number of inputs that are one is in `ones`."""
        function = dict(self.outputs)[output]
        try:
            return bool(function) and all(
                evaluate(function, dict(zip(self.inputs, bits, strict=True))) == (sum(bits) in ones)
                for bits in product((False, True), repeat=len(self.inputs))
            )
        except (KeyError, ValueError):  # the function depends on a register or has unknown syntax
            return False


def finite(word: str) -> float:
    """Parse a finite number of a liberty file.

    Raises
    ------
    ValueError
        It is not a number, or not finite.
    """
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(word)
    return number


@dataclass(frozen=True)
class Library:
    """A liberty file."""

    name: str  #: Name of the file, without its folder
    text: str  #: Content of the file

    @classmethod
    def read(cls, path: Path) -> "Library":
        """Read a file.

        Raises
        ------
        FileError
            The file cannot be read, is not a liberty file with cells, or has an invalid area.
        """
        text = read_bytes(path).decode(errors="surrogateescape")
        library = cls(path.name, text)
        if not _LIBRARY.match(COMMENT.sub(" ", text)) or not library.cells:
            raise FileError(f"{path} is not a liberty file that holds cells")
        return library

    @property
    def data(self) -> bytes:
        """The file's bytes."""
        return self.text.encode("utf-8", errors="surrogateescape")

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the file, in hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Cells with an area, in the order of the file.

        Raises
        ------
        FileError
            An area is not a finite number of 0 or more.
        """
        cells = []
        for name, body in _groups(_CELL, COMMENT.sub(" ", self.text)):
            inputs, outputs = [], []
            for pin, attributes in _groups(_PIN, body):
                direction, function = _DIRECTION.search(attributes), _FUNCTION.search(attributes)
                if direction and direction[1] == "input":
                    inputs.append(pin)
                elif direction and direction[1] == "output":
                    outputs.append((pin, function[1] if function else ""))
            if area := _AREA.search(body):
                cells.append(Cell(name, self._area(name, area[1]), tuple(inputs), tuple(outputs)))
        return tuple(cells)

    def _area(self, cell: str, word: str) -> float:
        """Return the area of a cell."""
        try:
            area = finite(word)
        except ValueError:
            area = -1.0
        if area < 0:
            raise FileError(f"{self.name} gives cell {cell} an area of {word}")
        return area

    @cached_property
    def nand2(self) -> Cell | None:
        """The smallest two-input NAND with an area above 0, which is the gate equivalent; None if there is none."""
        found = [
            cell
            for cell in self.cells
            if len(cell.inputs) == 2
            and len(cell.outputs) == 1
            and cell.area > 0
            and cell.computes(cell.outputs[0][0], frozenset({0, 1}))
        ]
        return min(found, key=lambda cell: cell.area, default=None)

    @cached_property
    def full_adder(self) -> tuple[Cell, str, str]:
        """The smallest full adder, and the names of its sum and carry pins.

        Raises
        ------
        Error
            The library has no full adder.
        """
        found = []
        for cell in self.cells:
            if len(cell.inputs) == 3 and len(cell.outputs) == 2:
                pins = [pin for pin, _ in cell.outputs]
                sums = [pin for pin in pins if cell.computes(pin, frozenset({1, 3}))]
                carries = [pin for pin in pins if cell.computes(pin, frozenset({2, 3}))]
                if sums and carries:
                    found.append((cell, sums[0], carries[0]))
        if not found:
            raise Error(f"{self.name} has no full adder, that is no cell whose outputs are A ^ B ^ C and its carry")
        return min(found, key=lambda adder: adder[0].area)


def _groups(opening: re.Pattern[str], text: str) -> Iterator[tuple[str, str]]:
    """Yield name and content of each group that starts with `opening`."""
    end = 0
    for match in opening.finditer(text):
        if match.start() < end:
            continue
        depth, end = 1, match.end()
        for brace in _BRACE.finditer(text, match.end()):
            depth += 1 if brace[0] == "{" else -1
            if not depth:
                end = brace.end()
                yield match[1], text[match.end() : brace.start()]
                break


def evaluate(function: str, values: Mapping[str, bool]) -> bool:
    """Evaluate a liberty function, see :func:`computing`, for the values of pins."""
    return computing(function)(values, True)


@cache
def computing(function: str) -> Computing:
    """Compile a liberty function to a callable that computes it on single bits or on words of bits.

    Parameters
    ----------
    function : str
        Expression with ``!`` and ``'`` (not), ``^`` (xor), ``&``, ``*`` or a space (and), ``+`` or ``|`` (or), highest
        precedence first.

    Returns
    -------
    callable
        Function of a mapping from pins to values with ``&``, ``|`` and ``^``, and of a value with all bits one. It
        raises KeyError for a pin without a value.

    Raises
    ------
    ValueError
        The text is not such an expression.
    """
    tokens, place = [], 0
    function = function.strip()
    while place < len(function):
        match = _TOKEN.match(function, place)
        if not match:
            raise ValueError(function)
        tokens.append(match[1])
        place = match.end()
    result, rest = _disjunction(tokens)
    if rest:
        raise ValueError(function)
    return result


def _both(operation: Callable[[Any, Any], Any], a: Computing, b: Computing) -> Computing:
    return lambda values, one: operation(a(values, one), b(values, one))


def _inverse(a: Computing) -> Computing:
    return lambda values, one: a(values, one) ^ one


def _leaf(word: str) -> Computing:
    constants: dict[str, Computing] = {"0": lambda values, one: one ^ one, "1": lambda values, one: one}
    return constants.get(word, lambda values, one: values[word])


def _disjunction(tokens: list[str]) -> tuple[Computing, list[str]]:
    result, tokens = _conjunction(tokens)
    while tokens and tokens[0] in "+|":
        other, tokens = _conjunction(tokens[1:])
        result = _both(or_, result, other)
    return result, tokens


def _conjunction(tokens: list[str]) -> tuple[Computing, list[str]]:
    result, tokens = _difference(tokens)
    while tokens and tokens[0] not in "+|)":
        other, tokens = _difference(tokens[1:] if tokens[0] in "&*" else tokens)
        result = _both(and_, result, other)
    return result, tokens


def _difference(tokens: list[str]) -> tuple[Computing, list[str]]:
    result, tokens = _factor(tokens)
    while tokens and tokens[0] == "^":
        other, tokens = _factor(tokens[1:])
        result = _both(xor, result, other)
    return result, tokens


def _factor(tokens: list[str]) -> tuple[Computing, list[str]]:
    if not tokens:
        raise ValueError("an operand is missing")
    first, tokens = tokens[0], tokens[1:]
    if first == "!":
        result, tokens = _factor(tokens)
        return _inverse(result), tokens
    if first == "(":
        result, tokens = _disjunction(tokens)
        if not tokens or tokens[0] != ")":
            raise ValueError("a parenthesis is open")
        tokens = tokens[1:]
    else:
        result = _leaf(first)
    while tokens and tokens[0] == "'":
        result, tokens = _inverse(result), tokens[1:]
    return result, tokens

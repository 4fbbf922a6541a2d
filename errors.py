"""Exceptions of this package. All derive from :class:`Error`, which is a ``ValueError``."""

import re
import reprlib
from dataclasses import dataclass, replace

__all__ = [
    "BackendError",
    "Error",
    "FileError",
    "InstructionError",
    "KernelError",
    "MetadataError",
    "NibblePlace",
    "OperandError",
    "OrderError",
    "shown",
]

_LONGEST_VALUE = 100
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = _LONGEST_VALUE // 2


class Error(ValueError):
    """Base class of every error that this package raises for bad input."""


class InstructionError(Error):
    """Error in a PTX instruction: the instruction does not parse, or an architecture does not support it."""

    text: str = ""  #: Instruction text that cannot be parsed, or empty for all other errors
    choices: str = ""  #: Numbered list of the instructions that match the search words, or empty for other errors


class KernelError(Error):
    """Error of a PTX kernel that cannot be read or executed, or violates a PTX rule. Most messages name the line."""

    @property
    def line(self) -> int | None:
        """Number of the faulty line in the PTX text, counted from 1, or None if the error has no line."""
        match = re.match(r"(?:deadlock: .*? at )?line (\d+)", str(self))
        return int(match[1]) if match else None


class OperandError(Error):
    """Error of an operand that is missing, superfluous, or of the wrong shape, type or range."""


class OrderError(Error):
    """Error in the order of ``wgmma`` calls: PTX leaves the result undefined for this order."""


class BackendError(Error):
    """Error of a back end or tool that does not exist, is not installed on this machine, or fails."""


class FileError(Error):
    """Error of a file or folder that cannot be read or written, or has the wrong content."""


@dataclass(frozen=True, kw_only=True)
class NibblePlace:
    """Position of a metadata nibble in the matrix, and in the register or tensor memory that holds the nibble."""

    batch: tuple[int, ...]  #: Index of the nibble along the leading (batch) axes, or empty if there is no batch
    #: Row of A that the nibble describes, and index of the nibble's chunk (part of K) within the row.
    row: int
    chunk: int
    #: `lane`: thread whose metadata register holds the nibble, or lane of tensor memory. `low_bit`: lowest bit of the
    #: nibble in this register or word.
    lane: int
    low_bit: int
    column: int | None = None  #: Column of tensor memory, or None if registers hold the metadata
    axis: str = "batch"  #: Name of the leading axes in messages

    def __str__(self) -> str:
        batch = self.batch[0] if len(self.batch) == 1 else self.batch
        position = f"{self.axis} {batch}, " if self.batch else ""
        word = f"lane {self.lane}" if self.column is None else f"lane {self.lane}, column {self.column}"
        return f"{position}row {self.row}, chunk {self.chunk} ({word}, bits {self.low_bit + 3}:{self.low_bit})"


class MetadataError(Error):
    """Error for a metadata nibble that is undefined for the instruction.

    Attributes
    ----------
    batch, row, chunk, lane, low_bit, column
        Position of the nibble, as in :class:`NibblePlace`.
    nibble : int
        Value of the nibble, 0 to 15.
    rule, meaning : str
        Name of the violated rule, a key of :data:`sptc.isa.metadata.RULES`, and the rule in words.
    """

    def __init__(self, place: NibblePlace, nibble: int, rule: str, meaning: str) -> None:
        self._place = place
        self.batch = place.batch
        self.row = place.row
        self.chunk = place.chunk
        self.lane = place.lane
        self.low_bit = place.low_bit
        self.column = place.column
        self.nibble = nibble
        self.rule = rule
        self.meaning = meaning
        super().__init__(f"undefined metadata at {place}: nibble 0b{nibble:04b} breaks the {rule} rule, {meaning}")

    def __reduce__(self) -> tuple[type["MetadataError"], tuple[object, ...]]:
        """Return how `pickle` rebuilds the error, so that a worker process can send the error to its parent process."""
        return MetadataError, (self._place, self.nibble, self.rule, self.meaning)

    def at(self, batch: tuple[int, ...], axis: str = "batch") -> "MetadataError":
        """Return a copy of the error that names `batch` as the nibble's position along the batch axes.

        `axis` is the name of the batch axes in the message.
        """
        return MetadataError(replace(self._place, batch=batch, axis=axis), self.nibble, self.rule, self.meaning)


def shown(value: object) -> str:
    """Return any value as text for an error message: one line of at most about 100 characters."""
    try:
        text = _SHORT.repr(value)
    except Exception:  # Python cannot convert the value to text: `__repr__` fails, or an integer has too many digits.
        return f"a value of type {type(value).__name__}"
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_VALUE else f"{line[:_LONGEST_VALUE]}..."

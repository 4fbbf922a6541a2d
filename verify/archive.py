"""Base classes of recorded instructions, with their operands and results, and a reader of ``.npz`` archives."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..api.backends import Backend
from ..api.operands import METADATA_POLICIES
from ..errors import FileError
from ..infra.reading import opened, read_arrays
from ..isa.architectures import require_target
from ..isa.evidence import Evidence, evidence
from ..isa.instructions import Instruction
from ..isa.names import Subject
from ..isa.tcgen05 import Opcode
from ..operands.tile_arrays import KEYS

__all__ = ["Archive", "Recorded", "Replayable", "load"]

_ARRAY_MAGIC = b"\x93NUMPY"
_REFUSAL = "is not a readable .npz register file"
_COUNTS = {2: "two", 4: "four"}
#: Maximum number of array names in an error message.
_MOST_NAMES = 40
_File = TypeVar("_File", bound="Recorded")


class Recorded(ABC):
    """Base class of recordings for replay: one instruction, a batch of operands, and the recorded result if known."""

    instruction: Instruction  #: Recorded instruction, with its shape and its types
    arch: str  #: Architecture whose numerics are applied
    d: NDArray | None  #: Expected result, in the form that :meth:`run` returns; None if unknown
    #: Names of the array fields whose first axis is the case index; the first of these fields is never None.
    case_fields: ClassVar[tuple[str, ...]]

    opcode: Opcode | None = None  #: Opcode of a ``tcgen05`` instruction; None for ``mma`` and ``wgmma``
    target: str = ""  #: PTX target with the numerics of `arch`, such as ``sm_103``; empty if the target is `arch`

    @property
    def subject(self) -> Subject:
        """Recorded instruction and, for ``tcgen05``, its recorded opcode; both form the name of the instruction."""
        return Subject(self.instruction, self.opcode)

    @property
    def name(self) -> str:
        """Exact name of the recorded instruction, see :attr:`sptc.isa.names.Subject.name`."""
        return self.subject.name

    @property
    def a_from(self) -> str | None:
        """Location of A, ``"registers"`` or ``"shared"``; None if the result does not depend on the location."""
        return None

    @property
    def evidence(self) -> Evidence:
        """Level of evidence that the model of this instruction matches a GPU."""
        return evidence(self.instruction, self.target or self.arch, self.a_from, self.opcode)

    @property
    def cases(self) -> int:
        """Number of cases in the recording. A case is one execution of the instruction, or one dot product."""
        return len(getattr(self, self.case_fields[0]))

    @property
    @abstractmethod
    def before(self) -> NDArray:
        """Result registers or tensor memory before the instruction, of the same shape as the result of :meth:`run`."""

    def take(self: _File, cases: NDArray[np.intp] | slice) -> _File:
        """Return a copy of the recording with only the operands and results at the batch indices `cases`."""
        arrays = {name: getattr(self, name) for name in self.case_fields}
        return self.with_fields(**{name: array[cases] for name, array in arrays.items() if array is not None})

    def assuming(self: _File, target: str | None, metadata: str | None) -> _File:
        """Return a copy of the recording with another target or policy for undefined metadata. None changes nothing.

        Raise an `InstructionError` if the target is unknown or lacks the instruction.
        """
        arch = target and require_target(self.instruction, target, self.opcode)
        options = {"arch": arch, "target": target, "metadata": metadata}
        return self.with_fields(**{name: value for name, value in options.items() if value and hasattr(self, name)})

    def with_fields(self: _File, **fields: Any) -> _File:
        """Return a copy of the recording in which the named fields have the given values."""
        file: Any = self
        return replace(file, **fields)

    @abstractmethod
    def run(self, backend: str | Backend = "golden") -> NDArray:
        """Compute all cases (recorded executions) on a back end; the first axis of the results is the case index.

        Raise an `Error` if the operands are wrong, the architecture lacks the instruction, or the back end cannot
        compute the instruction.
        """

    @abstractmethod
    def matrix(self, result: NDArray) -> NDArray:
        """Return the codes of D from a result of :meth:`run`, shape (batch, m, n)."""

    def writes(self, row: int, column: int) -> bool:
        """Return whether the instruction writes an element of D."""
        return True

    def beside(self, result: NDArray) -> NDArray[np.uint32]:
        """Return the tensor memory in `result` with all bits of D set to zero, shape (batch, CTAs, lanes, columns)."""
        return np.zeros((len(result), 0, 0, 0), np.uint32)


class Replayable(Recorded):
    """Base class of register files that are stored in an ``.npz`` archive."""

    @abstractmethod
    def contents(self) -> dict[str, Any]:
        """Return all arrays, by key, to store this register file (operands and results) as an ``.npz`` archive."""


@dataclass(frozen=True, eq=False)
class Archive:
    """Arrays of an ``.npz`` archive by key, with methods that check an array and name the file in error messages."""

    path: str
    arrays: dict[str, NDArray[Any]]
    names: tuple[str, ...] = ()  #: All keys of the file, including keys whose arrays were not read

    def require(self, keys: list[str]) -> None:
        """Raise a `FileError` if the ``.npz`` archive lacks one of the keys. The message names the first of those."""
        for key in keys:
            if key not in self.arrays:
                keys = sorted({*self.names, *self.arrays})
                names = ", ".join(name if name.isprintable() else repr(name) for name in keys[:_MOST_NAMES])
                more = f" and {len(keys) - _MOST_NAMES} more" if len(keys) > _MOST_NAMES else ""
                raise FileError(f"{self.path} lacks the key {key!r}; present: {names or 'none'}{more}")

    def refuse(self, key: str, expected: str) -> FileError:
        """Return the error for an archive key with a wrong value; `expected` describes a correct value."""
        value = self.arrays[key]
        return FileError(f"{self.path}: {key} must be {expected}, not {value.dtype} of shape {value.shape}")

    def integer(self, key: str, default: int | None = None) -> int:
        """Return the integer stored under a key, or `default`; raise a `FileError` if key and default are missing."""
        return int(self._checked(key, default, (), "iu", "a 0-d integer"))

    def string(self, key: str, default: str) -> str:
        """Return the string that a key holds as a 0-d array, or `default` if the key is missing."""
        return str(self._checked(key, default, (), "U", "a 0-d string"))

    def integers(self, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Return the array of a key as a tuple of ``len(default)`` integers, or `default` if the key is missing."""
        value = self._checked(key, default, (len(default),), "iu", f"{_COUNTS[len(default)]} integers")
        return tuple(int(number) for number in value)

    def flag(self, key: str, default: bool) -> bool:
        """Return the scalar of a key, which must be 0 or 1, as a bool, or `default` if the key is missing."""
        value = self.arrays.get(key, np.array(default))
        if value.ndim or value.dtype.kind not in "biu" or value not in (0, 1):
            raise FileError(f"{self.refuse(key, '0 or 1')} with value {value!s:.20}")
        return bool(value)

    def _checked(self, key: str, default: object, shape: tuple[int, ...], kinds: str, expected: str) -> NDArray[Any]:
        """Return the array stored under a key, or `default` if the key is missing. Check its shape and type."""
        value = self.arrays.get(key, np.array(default))
        if value.shape != shape or value.dtype.kind not in kinds:
            raise self.refuse(key, expected)
        return value

    def policy(self) -> str:
        """Return the policy of the file for undefined metadata nibbles; ``strict`` if the file does not state one."""
        metadata = self.string("metadata", "strict")
        if metadata not in METADATA_POLICIES:
            policies = " or ".join(map(repr, METADATA_POLICIES))
            raise FileError(f"{self.path}: metadata must be {policies}, not {metadata!r}")
        return metadata

    def count_cases(self, counts: dict[str, int]) -> int:
        """Return the number of recorded cases. Raise a `FileError` unless all arrays have the same positive number."""
        if not min(counts.values()):
            raise FileError(f"{self.path} holds no test case: its arrays are empty")
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{key} {count}" for key, count in counts.items())
            raise FileError(f"{self.path}: the arrays have different numbers of test cases ({listed})")
        return next(iter(counts.values()))


def load(path: str | Path, keys: Collection[str] = KEYS) -> Archive:
    """Read the arrays with the given `keys`, by default those of a register file, from an ``.npz`` file.

    Raise a `FileError` if the file is missing, unreadable or truncated, or an array is larger than the budget
    (:func:`~sptc.infra.reading.read_arrays`).
    """
    path = Path(path)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise FileError(f"{path} does not exist") from None
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror})") from None
    with opened(path, _REFUSAL) as file:
        if file.read(6) == _ARRAY_MAGIC:
            raise FileError(f"{path} is a single array, not a register file (.npz)")
    with read_arrays(path, _REFUSAL, _REFUSAL) as arrays:
        names = arrays.names
        return Archive(str(path), {name: arrays.read(name) for name in names if name in keys}, names)

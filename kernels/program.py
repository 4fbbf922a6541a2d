"""Data classes of a parsed kernel: instructions with operands, registers, labels, parameters and shared variables."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from ..errors import Error, KernelError, MetadataError

__all__ = ["Address", "Immediate", "Instruction", "Kernel", "Negated", "Operand", "Pair", "Parameter", "Register",
           "Sink", "Special", "Symbol", "Vector", "at_line", "items_of", "pair_of", "register_names",
           "size_of"]  # fmt: skip


@lru_cache(maxsize=64)
def size_of(type_: str) -> int:
    """Return the number of bytes of a fundamental type such as ``f16x2``. A predicate counts as one byte."""
    if type_ == "pred":
        return 1
    bits = re.fullmatch(r"(?:[busf]|bf|tf)(8|16|32|64|128)(x2)?", type_)
    if not bits:
        raise KernelError(f"'.{type_}' is not a fundamental type")
    return int(bits[1]) // 8 * (2 if bits[2] else 1)


@dataclass(frozen=True)
class Register:
    """A register operand, with a name that is unique in its kernel."""

    name: str
    type: str


@dataclass(frozen=True)
class Immediate:
    """A constant operand: an integer, or the bits of a float. `kind` is ``"int"``, ``"f32"`` or ``"f64"``."""

    value: int
    kind: str = "int"


@dataclass(frozen=True)
class Special:
    """A special-register operand such as ``%tid.x``."""

    name: str


@dataclass(frozen=True)
class Symbol:
    """An operand that is the name of a variable, a parameter or a label."""

    name: str


@dataclass(frozen=True)
class Sink:
    """The operand ``_``, which discards a result."""


@dataclass(frozen=True)
class Negated:
    """A negated predicate operand, ``!p``."""

    operand: "Operand"


@dataclass(frozen=True)
class Pair:
    """A pair of destination operands, ``d|p``."""

    first: "Operand"
    second: "Operand"


@dataclass(frozen=True)
class Vector:
    """A vector operand: several operands in braces."""

    items: "tuple[Operand, ...]"


@dataclass(frozen=True)
class Address:
    """An address operand in brackets: base, offset in bytes, and further operands after a comma (coordinates)."""

    base: "Operand"
    offset: int = 0
    more: "tuple[Operand, ...]" = ()


Operand = Register | Immediate | Special | Symbol | Sink | Negated | Pair | Vector | Address


def pair_of(operand: Operand) -> Pair:
    """Return a pair of destination operands. The second is ``_`` if the operand is not a pair."""
    return operand if isinstance(operand, Pair) else Pair(operand, Sink())


def items_of(operand: Operand) -> tuple[Operand, ...]:
    """Return the items of a vector operand, or a tuple of only the operand if it is not a vector."""
    return operand.items if isinstance(operand, Vector) else (operand,)


def register_names(operands: Iterable[Operand]) -> set[str]:
    """Return the names of all registers in a list of operands."""
    names: set[str] = set()
    for operand in operands:
        match operand:
            case Register(name):
                names.add(name)
            case Vector(items):
                names |= register_names(items)
            case Address(base, _, more):
                names |= register_names((base, *more))
            case Pair(first, second):
                names |= register_names((first, second))
            case Negated(inner):
                names |= register_names((inner,))
    return names


@dataclass(frozen=True)
class Instruction:
    """One instruction of a kernel, with its guard predicate and its line number."""

    opcode: str  #: opcode with all its qualifiers
    operands: tuple[Operand, ...]
    guard: Operand | None  #: guard predicate, possibly negated
    line: int  #: line number in the PTX text, from 1

    @cached_property
    def words(self) -> list[str]:
        """The parts of the opcode between its dots."""
        return self.opcode.split(".")

    @cached_property
    def registers(self) -> frozenset[str]:
        """Names of all registers among the instruction's operands."""
        return frozenset(register_names(self.operands))


@contextmanager
def at_line(ins: Instruction) -> Iterator[None]:
    """Add the line of an instruction to errors, but not to errors about undefined metadata, which callers report."""
    try:
        yield
    except MetadataError:
        raise
    except Error as error:
        raise KernelError(f"line {ins.line}: {str(error).rstrip('.')}") from None


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: its name, type, size and offset in parameter space."""

    name: str
    type: str  #: PTX type of the parameter, or of its elements if it is an array.
    size: int  #: Size of the whole parameter in bytes.
    offset: int  #: Offset of the parameter in bytes from the start of parameter space.


@dataclass
class Kernel:
    """One entry function (kernel) of a module."""

    name: str
    target: str = ""
    parameters: list[Parameter] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    #: Index of the instruction that follows each label.
    labels: dict[str, int] = field(default_factory=dict)
    #: PTX type of each register, by the name of the register.
    registers: dict[str, str] = field(default_factory=dict)
    #: Offset and size in bytes of each shared variable. The size of the dynamic variable is 0.
    shared: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: Offset and size in bytes of each variable in local memory.
    local: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: Initial content of each variable of the module in global or constant memory.
    variables: dict[str, bytes] = field(default_factory=dict)
    #: CTA size that ``.reqntid`` requires, in threads along each axis. Empty without the directive.
    block: tuple[int, ...] = ()
    #: Cluster size that ``.reqnctapercluster`` requires, in CTAs along each axis. Empty without the directive.
    cluster: tuple[int, ...] = ()

    @cached_property
    def writers(self) -> dict[str, list[Instruction]]:
        """Instructions that write each register, by the name of the register."""
        writers: dict[str, list[Instruction]] = {}
        for ins in self.instructions:
            if ins.operands and not isinstance(ins.operands[0], Address) and ins.words[0] not in ("nanosleep", "brx"):
                for name in register_names(ins.operands[:1]):
                    writers.setdefault(name, []).append(ins)
        return writers

    @property
    def local_bytes(self) -> int:
        """Number of bytes of local memory per thread, a multiple of 16."""
        return -(-max((start + size for start, size in self.local.values()), default=0) // 16) * 16

    @property
    def static_shared(self) -> int:
        """Number of bytes of static shared memory, which precedes the dynamic shared memory."""
        return max((start + size for start, size in self.shared.values()), default=0)

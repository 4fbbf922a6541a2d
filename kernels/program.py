"""A kernel as records: instructions with their operands, registers, labels, parameters and shared variables."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from ..errors import KernelError

__all__ = [
    "Address",
    "Immediate",
    "Instruction",
    "Kernel",
    "Negated",
    "Operand",
    "Pair",
    "Parameter",
    "Register",
    "Sink",
    "Special",
    "Symbol",
    "Vector",
    "register_names",
    "size_of",
]


@lru_cache(maxsize=64)
def size_of(type_: str) -> int:
    """Return the bytes of a value of a fundamental type, ``u32`` or ``f16x2``; a predicate takes one byte here."""
    if type_ == "pred":
        return 1
    bits = re.fullmatch(r"(?:[busf]|bf|tf)(8|16|32|64|128)(x2)?", type_)
    if not bits:
        raise KernelError(f"'.{type_}' is no fundamental type")
    return int(bits[1]) // 8 * (2 if bits[2] else 1)


@dataclass(frozen=True)
class Register:
    """A register, by a name that is unique in its kernel."""

    name: str
    type: str


@dataclass(frozen=True)
class Immediate:
    """A constant: an integer, or the bits of a float, `kind` ``"int"``, ``"f32"`` or ``"f64"``."""

    value: int
    kind: str = "int"


@dataclass(frozen=True)
class Special:
    """A special register such as ``%tid.x``."""

    name: str


@dataclass(frozen=True)
class Symbol:
    """The name of a variable, a parameter or a label."""

    name: str


@dataclass(frozen=True)
class Sink:
    """The operand ``_``, which takes a result that nobody reads."""


@dataclass(frozen=True)
class Negated:
    """A predicate behind ``!``."""

    operand: "Operand"


@dataclass(frozen=True)
class Pair:
    """Two destinations, ``d|p``."""

    first: "Operand"
    second: "Operand"


@dataclass(frozen=True)
class Vector:
    """Operands in braces."""

    items: "tuple[Operand, ...]"


@dataclass(frozen=True)
class Address:
    """An address in brackets: base and offset in bytes, and further operands behind a comma (coordinates)."""

    base: "Operand"
    offset: int = 0
    more: "tuple[Operand, ...]" = ()


Operand = Register | Immediate | Special | Symbol | Sink | Negated | Pair | Vector | Address


def register_names(operands: Iterable[Operand]) -> set[str]:
    """Return the names of all registers that stand in operands."""
    names: set[str] = set()
    for operand in operands:
        if isinstance(operand, Register):
            names.add(operand.name)
        elif isinstance(operand, Vector):
            names |= register_names(operand.items)
        elif isinstance(operand, Address):
            names |= register_names((operand.base, *operand.more))
        elif isinstance(operand, Pair):
            names |= register_names((operand.first, operand.second))
        elif isinstance(operand, Negated):
            names |= register_names((operand.operand,))
    return names


@dataclass(frozen=True)
class Instruction:
    """One instruction of a kernel."""

    opcode: str  #: with all its qualifiers
    operands: tuple[Operand, ...]
    guard: Operand | None  #: predicate, possibly negated
    line: int  #: in the text, from 1

    @cached_property
    def words(self) -> list[str]:
        """The opcode at its dots."""
        return self.opcode.split(".")

    @cached_property
    def registers(self) -> frozenset[str]:
        """Names of the registers among its operands."""
        return frozenset(register_names(self.operands))


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel."""

    name: str
    type: str  #: of one element
    size: int  #: bytes
    offset: int  #: bytes from the start of parameter space


@dataclass
class Kernel:
    """One entry of a module."""

    name: str
    target: str = ""
    version: tuple[int, int] = (0, 0)
    parameters: list[Parameter] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    #: Index of the instruction behind each label.
    labels: dict[str, int] = field(default_factory=dict)
    #: Type of each register.
    registers: dict[str, str] = field(default_factory=dict)
    #: Offset and bytes of each shared variable; no bytes for the dynamic one.
    shared: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: Offset and bytes of each variable in local memory.
    local: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: Content of each variable of the module in global or constant memory.
    variables: dict[str, bytes] = field(default_factory=dict)
    #: Threads of a CTA that ``.reqntid`` demands, or nothing.
    block: tuple[int, ...] = ()
    #: CTAs of a cluster that ``.reqnctapercluster`` demands, or nothing.
    cluster: tuple[int, ...] = ()

    @property
    def static_shared(self) -> int:
        """Bytes of shared memory in front of the dynamic part."""
        return max((start + size for start, size in self.shared.values()), default=0)

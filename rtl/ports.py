"""The ports of an emitted module, field by field: for tables, for SystemVerilog, and for headers.

Names, widths and bit positions are read from the components, meanings from their docstrings.
"""

import gc
import inspect
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import EnumMeta
from typing import Any

from amaranth.hdl import Shape, UnusedElaboratable
from amaranth.lib import data, stream, wiring

from .accumulators import accumulator_memory_signature
from .codes import ELEMENT_CODE_BITS
from .config import CoreConfig
from .core import tile_layout, tile_result_layout
from .emit import COMPONENTS
from .fetch import descriptor_layout, panel_request_layout, shared_memory_signature
from .life_cycle import life_cycle_layout
from .panel_operands import panel_instruction_layout
from .placement import placement_layout
from .step import control_layout, row_result_layout, row_step_layout, unit_result_layout, unit_step_layout
from .tcgen05 import tcgen05_layout
from .tensor_cores import mma_layout, multiplication_layout
from .tensor_memory import tensor_memory_signature
from .warp import warp_operands_layout, warp_result_layout
from .warpgroup import warpgroup_layout

__all__ = ["Array", "Bits", "Enumeration", "Field", "Port", "Structure", "Type", "ports"]


@dataclass(frozen=True)
class Bits:
    """A number."""

    width: int
    signed: bool = False  #: In two's complement


@dataclass(frozen=True)
class Enumeration:
    """A code with named values."""

    name: str
    width: int
    values: tuple[tuple[str, int], ...]  #: Name and code of each value; other codes have no meaning


@dataclass(frozen=True)
class Array:
    """Elements side by side, the first in the lowest bits."""

    element: "Type"
    count: int

    @property
    def width(self) -> int:
        """Width in bits."""
        return self.count * self.element.width


@dataclass(frozen=True)
class Field:
    """A field of a structure."""

    name: str
    low: int  #: Lowest bit in the structure
    type: "Type"
    meaning: str  #: May be empty


@dataclass(frozen=True)
class Structure:
    """Fields, the first in the lowest bits."""

    width: int
    fields: tuple[Field, ...]  #: Fields with at least one bit


Type = Bits | Enumeration | Array | Structure


@dataclass(frozen=True)
class Port:
    """A port of the emitted module."""

    name: str  #: Name in the Verilog
    is_input: bool  #: Driven from outside
    type: Type
    meaning: str


#: Functions that return layouts and describe the fields; the names of a structure's fields decide which one is used.
_LAYOUTS: tuple[Callable[..., Any], ...] = (
    control_layout,
    unit_step_layout,
    row_step_layout,
    unit_result_layout,
    row_result_layout,
    tile_layout,
    tile_result_layout,
    warp_operands_layout,
    warp_result_layout,
    panel_instruction_layout,
    multiplication_layout,
    warpgroup_layout,
    mma_layout,
    descriptor_layout,
    panel_request_layout,
    tcgen05_layout,
    life_cycle_layout,
    placement_layout,
)
#: Signatures of the memory ports, by top and port.
_MEMORIES: dict[str, dict[str, Callable[[], wiring.Signature]]] = {
    "warpgroup": {"memory": shared_memory_signature},
    "warpgroups": {"memory": shared_memory_signature},
    "tcgen05": {
        "memory": shared_memory_signature,
        "tensor": tensor_memory_signature,
        "accumulators": accumulator_memory_signature,
    },
}
_MAY_BE_COMBINATIONAL = ("unit", "row", "core")
_STREAM = {"valid": "The payload is valid.", "ready": "The payload is accepted in this cycle if it is valid."}


def ports(config: CoreConfig, top: str) -> list[Port]:
    """Return the ports of an emitted module in order, clock and reset first.

    Parameters
    ----------
    config : CoreConfig
        The datapath.
    top : str
        One of :data:`~sptc.rtl.emit.TOPS`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnusedElaboratable)  # only its ports are read
        component = COMPONENTS[top](config)
        streams = {
            name
            for name, member in component.signature.members.items()
            if member.is_signature and isinstance(member.signature, stream.Signature)
        }
        members = [(path, member) for path, member, _ in component.signature.flatten(component)]
        documentation = type(component).__doc__ or ""
        del component
        gc.collect()  # frees it here, where its warning is ignored: it refers to itself
    codes = tuple((word.replace("/", "_").upper(), code) for code, word in enumerate(config.formats))
    elements = Enumeration("ElementCode", ELEMENT_CODE_BITS, codes)
    meanings = described(documentation, "Members")
    found = []
    if config.cuts or top not in _MAY_BE_COMBINATIONAL:
        found += [Port("clk", True, Bits(1), "Clock."), Port("rst", True, Bits(1), "Synchronous reset.")]
    for path, member in members:
        first, *rest = map(str, path)
        meaning = meanings.get(first, "")
        if first in streams and rest[-1] in _STREAM:
            meaning = _STREAM[rest[-1]]
        elif rest and (signature := _MEMORIES.get(top, {}).get(first)):
            meaning = described(signature.__doc__ or "", "Members").get(rest[0], meaning)
        kind = _type(member.shape, elements)
        found.append(Port("__".join((first, *rest)), member.flow is wiring.In, kind, meaning))
    return found


def _type(shape: Any, elements: Enumeration) -> Type:
    """Return the type of a shape; element codes of a control word are named by the configuration."""
    if isinstance(shape, data.StructLayout):
        meanings, codes = _meanings(shape), ("a", "b") if shape == control_layout() else ()
        fields = [
            Field(
                str(name),
                field.offset,
                elements if name in codes else _type(field.shape, elements),
                meanings.get(str(name), ""),
            )
            for name, field in shape
        ]
        return Structure(shape.size, tuple(field for field in fields if field.type.width))
    if isinstance(shape, data.ArrayLayout):
        return Array(_type(shape.elem_shape, elements), shape.length)
    cast = Shape.cast(shape)
    if isinstance(shape, EnumMeta):
        members: dict[str, Any] = dict(shape.__members__)
        values = tuple((name, int(member.value)) for name, member in members.items())
        return Enumeration(shape.__name__, cast.width, values)
    return Bits(cast.width, cast.signed)


def _meanings(shape: data.StructLayout) -> dict[str, str]:
    """Return the descriptions of a layout's fields, from the function that describes most of them and no others."""
    names = set(shape.members)
    best: dict[str, str] = {}
    for function in _LAYOUTS:
        found = _fields_of(function)
        if found.keys() <= names and len(found) > len(best):
            best = found
    return best


def _fields_of(function: Callable[..., Any]) -> dict[str, str]:
    found = described(function.__doc__ or "", "Fields")
    for name, text in found.items():
        if elsewhere := re.match(r"As in (\w+)", text):
            (other,) = (layout for layout in _LAYOUTS if layout.__name__ == elsewhere.group(1))
            found[name] = _fields_of(other)[name]
    return found


def described(documentation: str, section: str) -> dict[str, str]:
    """Return the description of each name in a section of a numpydoc docstring, as plain text."""
    lines = inspect.cleandoc(documentation).split("\n")
    if section not in lines:
        return {}
    found: dict[str, list[str]] = {}
    names: list[str] = []
    begin = lines.index(section) + 2
    for line, following in zip(lines[begin:], [*lines[begin + 1 :], ""], strict=True):
        if re.fullmatch(r"-+", following):  # the next section
            break
        if line and not line[0].isspace():
            names = line.partition(" : ")[0].split(", ")
        for name in names:
            found.setdefault(name, []).extend([line.strip()] if line[:1].isspace() else [])
    return {name: _plain(" ".join(text)) for name, text in found.items()}


def _plain(text: str) -> str:
    """Return text without markup; a reference is replaced by its last name."""
    return re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", text).replace("``", "").replace("`", "")

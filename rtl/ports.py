"""Ports of an emitted module, down to each field, for port tables, SystemVerilog and C++ headers.

Names, widths, bit positions and meanings of ports are read from the signatures and layouts of components.
"""

import gc
import warnings
from dataclasses import dataclass, field
from enum import EnumMeta
from typing import Any

from amaranth.hdl import Shape, UnusedElaboratable
from amaranth.lib import data, wiring

from .cells.described import DescribedLayout, DescribedSignature
from .codes import ELEMENT_CODE_BITS
from .config import CoreConfig
from .emit import COMPONENTS
from .step import control_layout

__all__ = ["Array", "Bits", "Enumeration", "Field", "Port", "Structure", "Type", "ports"]


@dataclass(frozen=True)
class Bits:
    """Port type: a signed or unsigned number."""

    width: int
    signed: bool = False  #: Whether the number is signed, in two's complement


@dataclass(frozen=True)
class Enumeration:
    """Port type: an enumeration, whose values have names."""

    name: str
    width: int
    values: tuple[tuple[str, int], ...]  #: Name and code of each value of the enumeration


@dataclass(frozen=True)
class Array:
    """Port type: an array of equal elements. The first element is in the lowest bits."""

    element: "Type"
    count: int
    width: int = field(init=False)  #: Width of the array in bits, all elements together

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", self.count * self.element.width)


@dataclass(frozen=True)
class Field:
    """Field of a structure type: name, position, type and meaning."""

    name: str
    low: int  #: Position of the field's lowest bit in the structure
    type: "Type"
    meaning: str


@dataclass(frozen=True)
class Structure:
    """Port type: a structure. The first field is in the lowest bits."""

    width: int
    fields: tuple[Field, ...]  #: Fields with at least one bit, in order from the lowest bits


Type = Bits | Enumeration | Array | Structure


@dataclass(frozen=True)
class Port:
    """Port of an emitted module: name, direction, type and meaning."""

    name: str  #: Name of the port in the emitted Verilog
    is_input: bool  #: Whether the port is an input of the module
    type: Type
    meaning: str


_MAY_BE_COMBINATIONAL = ("unit", "row", "core")
#: Modules in which a reset clears no register, because all registers belong to the pipeline.
_WITHOUT_RESET = ("unit", "row")
_RESET_OF_PIPELINE = "Synchronous reset, active high. The reset clears no register: pipeline registers have no reset."
_RESET = (
    "Synchronous reset, active high, for at least one rising edge of clk. The reset clears control registers, so items "
    "of streams that are in the module are lost. Data registers keep their contents."
)
_STREAM = {
    "valid": "The payload is valid. While valid is 1 and ready is 0, valid and the payload must not change.",
    "ready": "The payload can be accepted. A payload is transferred in each cycle in which valid and ready are both 1.",
}


def ports(config: CoreConfig, top: str) -> list[Port]:
    """Return the ports of an emitted module in order. Clock and reset come first, unless the module is combinational.

    Parameters
    ----------
    config : CoreConfig
        The datapath.
    top : str
        One of :data:`~sptc.rtl.emit.TOPS`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnusedElaboratable)  # the component is created only for its signature
        component = COMPONENTS[top](config)
        signature = component.signature
        members = [(path, member) for path, member, _ in signature.flatten(component)]
        del component
        gc.collect()  # delete the unused component while the warning of Amaranth about this is off
    codes = tuple((word.replace("/", "_").upper(), code) for code, word in enumerate(config.formats))
    elements = Enumeration("ElementCode", ELEMENT_CODE_BITS, codes)
    result = []
    if config.cuts or top not in _MAY_BE_COMBINATIONAL:
        result += [
            Port("clk", True, Bits(1), "Clock. Registers change at its rising edge."),
            Port("rst", True, Bits(1), _RESET_OF_PIPELINE if top in _WITHOUT_RESET else _RESET),
        ]
    for path, member in members:
        kind, names = _type(member.shape, elements), list(map(str, path))
        result.append(Port("__".join(names), member.flow is wiring.In, kind, _meaning(signature, names)))
    return result


def _meaning(signature: DescribedSignature, path: list[str]) -> str:
    """Return the documentation of a port. Ports within the signature of a member have their own documentation."""
    first, *rest = path
    member = signature.members[first]
    if member.is_signature and isinstance(member.signature, DescribedSignature):
        return _meaning(member.signature, rest)
    of_stream = member.is_signature and rest[-1] in _STREAM
    return _STREAM[rest[-1]] if of_stream else signature.meanings[first]


def _type(shape: Any, elements: Enumeration) -> Type:
    """Return the port type of an Amaranth shape. `elements` is the type of fields that select an element format."""
    if isinstance(shape, DescribedLayout):
        codes = ("a", "b") if shape == control_layout() else ()
        meanings = {name: meaning for name, (_, meaning) in shape.fields.items()}
        fields = [
            Field(name, field.offset, elements if name in codes else _type(field.shape, elements), meanings[name])
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

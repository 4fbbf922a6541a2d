"""Layouts and signatures with a meaning in words for each field and port, which tables and SystemVerilog show."""

from collections.abc import Mapping

from amaranth.hdl import ShapeLike
from amaranth.lib import data, wiring

__all__ = ["DescribedLayout", "DescribedSignature"]


class DescribedLayout(data.StructLayout):
    """A structure layout with the meaning of each field. It equals the layout without meanings.

    Parameters
    ----------
    fields : dict of str to (shape-like, str)
        Shape and meaning of each field, the lowest bits first. Meanings are plain text.
    """

    def __init__(self, fields: Mapping[str, tuple[ShapeLike, str]]) -> None:
        super().__init__({name: shape for name, (shape, _) in fields.items()})
        self.fields = dict(fields)


class DescribedSignature(wiring.Signature):
    """A signature with the meaning of each member, which documents the ports of a component.

    Parameters
    ----------
    ports : dict of str to (Member, str)
        Flow and shape, and meaning of each member. Meanings are plain text.
    """

    def __init__(self, ports: Mapping[str, tuple[wiring.Member, str]]) -> None:
        super().__init__({name: member for name, (member, _) in ports.items()})
        self.meanings = {name: meaning for name, (_, meaning) in ports.items()}

    def __eq__(self, other: object) -> bool:
        """Return whether the members are equal; meanings may differ."""
        return isinstance(other, wiring.Signature) and self.members == other.members

"""Layouts and signatures that document each field and port in words, for port tables and SystemVerilog comments."""

from collections.abc import Mapping

from amaranth.hdl import ShapeLike
from amaranth.lib import data, wiring

__all__ = ["DescribedLayout", "DescribedSignature"]


class DescribedLayout(data.StructLayout):
    """A structure layout that also documents each field in words. Comparisons of layouts ignore these texts.

    Parameters
    ----------
    fields : dict of str to (shape-like, str)
        Shape and meaning of each field, the lowest bits first. Meanings are plain text.
    """

    def __init__(self, fields: Mapping[str, tuple[ShapeLike, str]]) -> None:
        super().__init__({name: shape for name, (shape, _) in fields.items()})
        self.fields = dict(fields)


class DescribedSignature(wiring.Signature):
    """A signature that also documents each member in words. These texts describe the ports of a component.

    Parameters
    ----------
    ports : dict of str to (Member, str)
        Flow and shape, and meaning of each member. Meanings are plain text.
    """

    def __init__(self, ports: Mapping[str, tuple[wiring.Member, str]]) -> None:
        super().__init__({name: member for name, (member, _) in ports.items()})
        self.meanings = {name: meaning for name, (_, meaning) in ports.items()}

    def __eq__(self, other: object) -> bool:
        """Return whether two signatures have equal members. The documentation of the members is not compared."""
        return isinstance(other, wiring.Signature) and self.members == other.members

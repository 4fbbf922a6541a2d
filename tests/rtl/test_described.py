"""Layouts and signatures with meanings: they equal those without."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from sptc.rtl.cells.described import DescribedLayout, DescribedSignature


def test_layout() -> None:
    layout = DescribedLayout({"a": (3, "First."), "b": (1, "Second.")})
    assert layout == data.StructLayout({"a": 3, "b": 1})
    assert layout == DescribedLayout({"a": (3, ""), "b": (1, "")})
    assert layout != DescribedLayout({"a": (1, "First."), "b": (3, "Second.")})
    assert {name: meaning for name, (_, meaning) in layout.fields.items()} == {"a": "First.", "b": "Second."}


def test_signature() -> None:
    signature = DescribedSignature({"a": (In(3), "First."), "b": (Out(1), "Second.")})
    assert signature == wiring.Signature({"a": In(3), "b": Out(1)})
    assert signature.flip() == DescribedSignature({"a": (Out(3), ""), "b": (In(1), "")})
    assert signature != DescribedSignature({"a": (Out(3), "First."), "b": (Out(1), "Second.")})
    assert signature.flip().meanings == {"a": "First.", "b": "Second."}

"""Element codes in control words: a code is an index into the element formats of a configuration."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from amaranth.hdl import Cat, Const, Module, Value

from .config import CoreConfig, Element

__all__ = ["ELEMENT_CODE_BITS", "case", "is_one_of", "is_wide"]

#: Width in bits of an element format's code in a control word.
ELEMENT_CODE_BITS = 4


def is_one_of(config: CoreConfig, code: Value, elements: Sequence[Element]) -> Value:
    """Return whether a format code is the code of one of `elements`. The code must be a code of the configuration."""
    if len(elements) == len(config.elements):
        return Const(1)
    codes = [config.elements.index(element) for element in elements]
    return Cat(code == number for number in codes).any() if codes else Const(0)


def is_wide(config: CoreConfig, code: Value) -> Value:
    """Return whether a code stands for elements of 16 bits or more. Metadata then selects units of 16 bits."""
    return is_one_of(config, code, [element for element in config.elements if element.wide])


def case(m: Module, config: CoreConfig, element: Element) -> AbstractContextManager[None]:
    """Return the switch case for the code of a format. The last format is the default case and needs no decoder."""
    code = config.elements.index(element)
    return m.Default() if code == len(config.elements) - 1 else m.Case(code)

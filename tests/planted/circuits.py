"""Wrong circuits from right ones: what a component drives, or what it reads, replaced after the fact."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data

from . import Change

__all__ = ["amend", "exchanged", "named", "read_otherwise"]


def amend(change: Change, component: type, assignments: Callable[[Any, Module], Iterable[Any]]) -> None:
    """Assign signals once more behind what a component builds; the last assignment is the one that counts.

    Parameters
    ----------
    change : Change
        Sets attributes.
    component : type
        The class under test.
    assignments : callable
        Given a component and the module it has built, yields assignments, each where it is to stand: inside an
        ``m.If`` if it is a condition that makes it wrong.
    """
    right = component.elaborate

    def elaborate(self: Any, platform: object) -> Module:
        m = right(self, platform)
        for assignment in assignments(self, m):
            m.d.comb += assignment
        return m

    change(component, "elaborate", elaborate)


def read_otherwise(change: Change, component: type, values: Callable[[Any], dict[str, Any]]) -> None:
    """Let a component read other values than those of some of its ports.

    Parameters
    ----------
    change, component
        As for :func:`amend`.
    values : callable
        Given a component, returns what stands in place of which ports.
    """
    right = component.elaborate

    def elaborate(self: Any, platform: object) -> Module:
        view = copy.copy(self)
        for name, value in values(self).items():
            setattr(view, name, value)
        return right(view, platform)

    change(component, "elaborate", elaborate)


def named(m: Module, name: str) -> Signal:
    """Return the signal that a module drives under a name, as waves show it."""
    (found,) = (signal for signal in m._driving if signal.name == name)
    return found


def exchanged(view: Any, **values: Value) -> Any:
    """Return a view of a structure with other values in some of its fields."""
    layout = view.shape()
    parts = {name: values.get(name, Value.cast(view[name])) for name in layout.members}
    assert values.keys() <= parts.keys()
    return data.View(layout, Cat(part[: layout[name].width] for name, part in parts.items()))

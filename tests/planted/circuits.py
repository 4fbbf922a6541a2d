"""Wrong circuits from right ones: what a component drives, or what it reads, replaced after the fact."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data

from . import Change, instead

__all__ = ["amended", "exchanged", "named", "read_otherwise"]


def amended(
    name: str, module: str, component: str, preset: str = "tiny"
) -> Callable[[Callable[[Any, Any, Module], Iterable[Any]]], None]:
    """Enter assignments as a fault: they stand behind what a component builds, and the last one counts.

    They are given the module of the component, the component and what it has built, and yield assignments, each where
    it is to stand: inside an ``m.If`` if it is a condition that makes it wrong. Parameters as of :class:`Fault`.
    """

    def enter(assignments: Callable[[Any, Any, Module], Iterable[Any]]) -> None:
        def elaborate(changed: Any, right: Any, self: Any, platform: object) -> Module:
            m: Module = right(self, platform)
            for assignment in assignments(changed, self, m):
                m.d.comb += assignment
            return m

        elaborate.__doc__ = assignments.__doc__
        instead(name, module, f"{component}.elaborate", preset)(elaborate)

    return enter


def read_otherwise(change: Change, component: type, values: Callable[[Any], dict[str, Any]]) -> None:
    """Let a component read other values than those of some of its ports.

    Parameters
    ----------
    change : Change
        Sets attributes.
    component : type
        The class under test.
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

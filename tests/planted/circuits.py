"""Faulty variants of hardware components: assignments are added to a component, or its inputs are replaced."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data

from . import computes, instead

__all__ = ["amended", "drives", "exchanged", "named", "outlives_reset", "reads"]


def amended(
    name: str, module: str, component: str, preset: str = "tiny"
) -> Callable[[Callable[[Any, Any, Module], Iterable[Any]]], None]:
    """Register assignments as a fault, which override those of the component, because the last assignment wins.

    The registered function gets the Python module, the component, and the Amaranth module that the component has built.
    It yields each assignment where it belongs, such as inside an ``m.If``. Parameters: see :class:`Fault`.
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


def drives(
    name: str, module: str, component: str, mistake: str, assignments: Callable[[Any, Module], Iterable[Any]]
) -> None:
    """Register unconditional assignments as a fault, which override those of the component; see :func:`amended`."""

    def amend(changed: Any, self: Any, m: Module) -> Iterable[Any]:
        return assignments(self, m)

    amend.__doc__ = mistake
    amended(name, module, component)(amend)


def reads(name: str, module: str, component: str, mistake: str, values: Callable[[Any], dict[str, Any]]) -> None:
    """Register a fault in which a component reads other values at the ports that `values` names."""

    def elaborate(changed: Any, right: Any, self: Any, platform: object) -> Module:
        view = copy.copy(self)
        for port, value in values(self).items():
            setattr(view, port, value)
        m: Module = right(view, platform)
        return m

    computes(name, module, f"{component}.elaborate", mistake, elaborate)


def named(m: Module, name: str) -> Signal:
    """Return the signal with a given name that a module drives."""
    (found,) = (signal for signal in m._driving if signal.name == name)
    return found


def outlives_reset(m: Module, name: str) -> tuple[()]:
    """Exclude a register that a module drives from resets. This needs no assignments."""
    named(m, name)._reset_less = True
    return ()


def exchanged(view: Any, **values: Value) -> Any:
    """Return a view of a structure in which some fields have other values."""
    layout = view.shape()
    parts = {name: values.get(name, Value.cast(view[name])) for name in layout.members}
    assert values.keys() <= parts.keys()
    return data.View(layout, Cat(part[: layout[name].width] for name, part in parts.items()))

"""Faults that an engineer could make, each a small change of what a module defines, by name.

``SPTC_PLANT=NAME pytest ...`` runs tests with a fault, in every process (see ``start/planting.py``); inside a test
``faults(room)[name].plant(module, monkeypatch.setattr)`` plants one. ``python tests/planted/table.py`` asks which tests
see which faults.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["ROOMS", "Change", "Fault", "computes", "fault", "faults", "instead"]

sys.path.insert(0, str(Path(__file__).parent / "start"))
from planting import ROOMS, room_of

#: Sets an attribute of an object, as `setattr` does and the `setattr` of pytest's monkeypatch.
Change = Callable[[Any, str, Any], None]


@dataclass(frozen=True)
class Fault:
    """A planted fault."""

    #: ``room.what``; for a fault that a proof must find, the name of the property, with a suffix after a colon where
    #: the property must find several.
    name: str
    module: str  #: Full name of the module that it changes
    mistake: str  #: What is wrong, in words
    plant: Callable[[Any, Change], None]  #: Changes the module through the given function
    preset: str  #: Datapath on which a proof finds it

    @property
    def property(self) -> str:
        """The property that must detect it."""
        return self.name.partition(":")[0]


_FAULTS: dict[str, Fault] = {}


def fault(name: str, module: str, preset: str = "tiny") -> Callable[[Callable[[Any, Change], None]], None]:
    """Enter a function as a fault; its docstring says what is wrong. Parameters as of :class:`Fault`."""

    def enter(plant: Callable[[Any, Change], None]) -> None:
        assert name not in _FAULTS
        _FAULTS[name] = Fault(name, f"sptc.{module}", (plant.__doc__ or "").strip(), plant, preset)

    return enter


def instead(name: str, module: str, function: str, preset: str = "tiny") -> Callable[[Callable[..., Any]], None]:
    """Enter what runs in place of a function or method of a module, as a fault.

    It is given the module and the right function before the arguments. Parameters as of :class:`Fault`.
    """

    def enter(wrong: Callable[..., Any]) -> None:
        def plant(changed: Any, change: Change) -> None:
            *path, last = function.split(".")
            owner = reduce(getattr, path, changed)
            right = getattr(owner, last)
            change(owner, last, lambda *arguments, **named: wrong(changed, right, *arguments, **named))

        plant.__doc__ = wrong.__doc__
        fault(name, module, preset)(plant)

    return enter


def computes(
    name: str, module: str, function: str, mistake: str, wrong: Callable[..., Any], preset: str = "tiny"
) -> None:
    """Enter a function of one expression that runs in place of another, as :func:`instead` does."""
    wrong.__doc__ = mistake
    instead(name, module, function, preset)(wrong)


def faults(room: str) -> dict[str, Fault]:
    """Return the faults of a room by name."""
    for file in ROOMS[room]:
        import_module(f"{__name__}.{file}")
    return {name: found for name, found in _FAULTS.items() if room_of(name) == room}

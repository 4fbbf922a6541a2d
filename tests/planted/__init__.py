"""Planted faults: small, named changes of definitions, which are mistakes that an engineer could make.

``SPTC_PLANT=NAME pytest ...`` runs tests with a fault (see ``start/planting.py``), ``faults(room)[name].plant(module,
monkeypatch.setattr)`` plants a fault in a test, and ``python tests/planted/table.py`` finds the test of each fault.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["ROOMS", "Change", "Fault", "computes", "fault", "faults", "holds", "instead", "register_all"]

sys.path.insert(0, str(Path(__file__).parent / "start"))
from planting import ROOMS, room_of

#: Function that sets an attribute of an object, such as `setattr` or the `setattr` of pytest's monkeypatch.
Change = Callable[[Any, str, Any], None]


@dataclass(frozen=True)
class Fault:
    """A mistake in one module, which a test or a proof must detect."""

    #: Name ``subpackage.mistake``. For a fault that a proof must detect, the name of the proved property, with a suffix
    #: after a colon if the property has several faults.
    name: str
    module: str  #: Full name of the Python module that the fault changes
    mistake: str  #: Description of the mistake
    plant: Callable[[Any, Change], None]  #: Function that changes the module through a given :data:`Change`
    preset: str  #: Datapath on which a proof detects the fault

    @property
    def property(self) -> str:
        """Name of the property whose proof must detect the fault."""
        return self.name.partition(":")[0]


_FAULTS: dict[str, Fault] = {}


def fault(name: str, module: str, preset: str = "tiny") -> Callable[[Callable[[Any, Change], None]], None]:
    """Register a function as a fault. Its docstring describes the mistake. Parameters: see :class:`Fault`."""

    def enter(plant: Callable[[Any, Change], None]) -> None:
        assert name not in _FAULTS
        _FAULTS[name] = Fault(name, f"sptc.{module}", (plant.__doc__ or "").strip(), plant, preset)

    return enter


def instead(name: str, module: str, function: str, preset: str = "tiny") -> Callable[[Callable[..., Any]], None]:
    """Register a function as a fault, in place of a function of a module or a method of a class in this module.

    The registered function gets the module and the correct function before the arguments. Parameters: see
    :class:`Fault`.
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


def holds(name: str, module: str, attribute: str, mistake: str, wrong: Any) -> None:
    """Register a fault in which an attribute of a module, or of a class in this module, has another value."""

    def plant(changed: Any, change: Change) -> None:
        *path, last = attribute.split(".")
        change(reduce(getattr, path, changed), last, wrong)

    plant.__doc__ = mistake
    fault(name, module)(plant)


def computes(name: str, module: str, function: str, mistake: str, wrong: Callable[..., Any]) -> None:
    """Register a function as :func:`instead` does, with the description `mistake` in place of a docstring."""
    wrong.__doc__ = mistake
    instead(name, module, function)(wrong)


def register_all(register: Callable[..., None], rows: list[tuple[str, str, str, str, Callable[..., Any]]]) -> None:
    """Register the faults of a table. Each row has the arguments of a function such as :func:`computes`."""
    for row in rows:
        register(*row)


def faults(room: str) -> dict[str, Fault]:
    """Return the faults of a subpackage by name."""
    for file in ROOMS[room]:
        import_module(f"{__name__}.{file}")
    return {name: found for name, found in _FAULTS.items() if room_of(name) == room}

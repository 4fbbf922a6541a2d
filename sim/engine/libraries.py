"""Compiled units and rows: a library for every instruction, and libraries for those of one control word."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from ...infra.cache import built, is_built
from ...infra.compiler import progress
from ...infra.verilator import compile_library
from ...rtl.cells.platforms import OPERATORS
from ...rtl.config import CoreConfig
from ...rtl.emit import emit
from .fingerprint import fingerprint
from .specialised import can_be_specialised, recipe, specialised

__all__ = ["WORTH", "Libraries"]

#: Steps of one control word that are worth a library of their own, where none was built earlier.
WORTH = 1 << 24


class Libraries:
    """The libraries of a unit or a row, built when they are first asked for.

    Parameters
    ----------
    config : CoreConfig
        Which datapath.
    top : str
        ``unit`` or ``row``.
    name : str
        Of the module.
    driver : str
        What is compiled with it.
    """

    def __init__(self, config: CoreConfig, top: str, name: str, driver: str) -> None:
        self._config, self._top, self._name, self._driver = config, top, name, driver
        self._steps: Counter[int] = Counter()
        self._found: dict[int | None, Path] = {}

    def of_every_instruction(self) -> Path:
        """Return the library that takes any step.

        Raises
        ------
        BackendError
            The simulator or a compiler is missing or fails; one sentence that says what to install.
        """
        if None not in self._found:
            name = f"{self._top}-{fingerprint(self._config, self._driver)}.so"
            self._found[None] = built(name, lambda path: self._build(path, None))
        return self._found[None]

    def of(self, steps: Mapping[int, int]) -> Path:
        """Return the library that so many steps of each control word are best run on.

        One in which the only control word is tied, if there is one or enough steps have been asked for.
        """
        if len(steps) != 1:
            return self.of_every_instruction()
        ((control, count),) = steps.items()
        if control not in self._found:
            self._steps[control] += count
            if not can_be_specialised():
                return self.of_every_instruction()
            name = f"{self._top}-{fingerprint(self._config, self._driver + recipe())}-{control:x}.so"
            if self._steps[control] < WORTH and not is_built(name):
                return self.of_every_instruction()
            self._found[control] = built(name, lambda path: self._build(path, control))
        return self._found[control]

    def _build(self, library: Path, control: int | None) -> None:
        kind = "" if control is None else " for one kind of instruction"
        progress(f"building the {self._config.name} {self._top}{kind}: elaborating")
        if control is None:
            text = emit(self._config, self._top, self._name, platform=OPERATORS)
        else:
            text = specialised(self._config, self._top, self._name, control)
        compile_library(text, self._name, self._driver, library)

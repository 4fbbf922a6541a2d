"""Compiled units and rows: a library for every instruction, and libraries for those of one control word."""

import hashlib
import importlib.metadata
import importlib.util
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from ...infra.cache import built, is_built
from ...infra.compiler import compile_shared, progress
from ...infra.verilator import compile_library
from ...rtl.config import CoreConfig
from .fingerprint import Sources, fingerprint, require_hashed_hardware
from .simd import OPTIMISATION, vectorised

__all__ = ["WORTH", "Libraries", "can_be_specialised"]

#: Steps of one control word that are worth a library of their own, where none was built earlier.
WORTH = 1 << 23

#: Taken when the sources are imported, as in :mod:`~sptc.sim.engine.fingerprint`.
_WRITTEN = b"".join(
    Path(__file__).with_name(name).read_bytes() for name in ("pipelines.py", "simd.py", "specialised.py")
)


def recipe() -> str:
    """Return what a library of one control word depends on beside the hardware: how it is folded and written."""
    return hashlib.sha256(_WRITTEN).hexdigest() + importlib.metadata.version("pyosys")


def can_be_specialised() -> bool:
    """Return whether Yosys is there, which folds what is constant."""
    return importlib.util.find_spec("pyosys") is not None


class Libraries:
    """The libraries of a unit or a row, built when they are first asked for.

    Verilator compiles the hardware for every instruction; that of one control word becomes a function of sixteen steps
    at once, :func:`~sptc.sim.engine.simd.vectorised`. Both libraries have the same functions.

    Parameters
    ----------
    config : CoreConfig
        Which datapath.
    top : str
        ``unit`` or ``row``.
    name : str
        Of the module.
    clocked, computed : dict of str to str
        C++ that drives Verilator's model, and C++ that calls ``compute`` of ``drivers/computed.h``, as of
        :func:`~sptc.sim.engine.driver.driver`.
    """

    def __init__(self, config: CoreConfig, top: str, name: str, clocked: Sources, computed: Sources) -> None:
        self._config, self._top, self._name, self._clocked, self._computed = config, top, name, clocked, computed
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
            name = f"{self._top}-{fingerprint(self._config, self._clocked)}.so"
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
            name = f"{self._top}-{fingerprint(self._config, self._computed, recipe())}-{control:x}.so"
            if self._steps[control] < WORTH and not is_built(name):
                return self.of_every_instruction()
            self._found[control] = built(name, lambda path: self._build(path, control))
        return self._found[control]

    def _build(self, library: Path, control: int | None) -> None:
        # Here, because what is built already needs no Amaranth, whose import takes longer than to load it.
        require_hashed_hardware()
        from ...rtl.cells.platforms import OPERATORS
        from ...rtl.emit import emit
        from .specialised import specialised

        kind = "" if control is None else " for one kind of instruction"
        building = f"building the {self._config.name} {self._top}{kind}"
        progress(f"{building}: elaborating")
        if control is None:
            text = emit(self._config, self._top, self._name, platform=OPERATORS)
            compile_library(text, self._name, self._clocked, library)
            return
        function = vectorised(specialised(self._config, self._top, control), "step", "result")
        progress(f"{building}: compiling")
        sources = {**self._computed, "function.h": function}
        compile_shared(sources, library, OPTIMISATION, "the simulation model")
        progress("")

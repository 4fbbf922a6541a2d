"""Compiled libraries of a dot-product unit: one for all instructions, and one for each frequent control word."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from ...errors import BackendError
from ...infra.cache import built, is_built
from ...infra.compiler import compile_shared, progress
from ...infra.verilator import compile_library
from ...infra.yosys import yosys_version
from ...rtl.config import CoreConfig
from .fingerprint import Sources, fingerprint, require_hashed_hardware
from .simd import OPTIMISATION, vectorised

__all__ = ["WORTH", "Libraries", "can_be_specialised"]

#: A library that supports only one control word is faster. It is built if at least this number of unit cycles with the
#: control word are simulated. A library that is already cached is used for fewer cycles, too.
WORTH = 1 << 23

#: Source texts of the code generators at import time, as part of the cache key of :mod:`~sptc.sim.engine.fingerprint`.
_WRITTEN = b"".join(
    Path(__file__).with_name(name).read_bytes() for name in ("pipelines.py", "simd.py", "specialised.py")
)


def recipe() -> str:
    """Return part of the cache key of libraries for one instruction: hash of code generators and Yosys' version."""
    return hashlib.sha256(_WRITTEN).hexdigest() + yosys_version()


def can_be_specialised() -> bool:
    """Return whether Yosys is installed. Without Yosys, libraries for single instructions cannot be built."""
    try:
        yosys_version()
    except BackendError:
        return False
    return True


class Libraries:
    """Compiled libraries of a dot-product unit, with or without metadata decoder; each is built on first use.

    Verilator compiles the hardware for all instructions. For one control word, :func:`~sptc.sim.engine.simd.vectorised`
    writes a function of sixteen steps at once. Both kinds of libraries have the same functions. `top` is ``unit`` or
    ``row``. `clocked` is the C++ driver of Verilator's model, `computed` the C++ driver of the generated function; both
    are results of :func:`~sptc.sim.engine.driver.driver`.
    """

    def __init__(self, config: CoreConfig, top: str, clocked: Sources, computed: Sources) -> None:
        self._config, self._top, self._clocked, self._computed = config, top, clocked, computed
        self._steps: Counter[int] = Counter()
        self._paths: dict[int | None, Path] = {}

    def of_every_instruction(self) -> Path:
        """Return the path of the compiled library that models the dot-product unit for all instructions."""
        if None not in self._paths:
            name = f"{self._top}-{fingerprint(self._config, self._clocked)}.so"
            self._paths[None] = built(name, lambda path: self._build(path, None))
        return self._paths[None]

    def of(self, steps: Mapping[int, int]) -> Path:
        """Return the path of the fastest library for a run; `steps` has the number of cycles for each control word.

        The library is specialised if there is only one control word, and either the specialised library is cached or at
        least :data:`WORTH` steps with this control word have been requested so far.
        """
        if len(steps) != 1:
            return self.of_every_instruction()
        ((control, count),) = steps.items()
        if control not in self._paths:
            self._steps[control] += count
            if not can_be_specialised():
                return self.of_every_instruction()
            name = f"{self._top}-{fingerprint(self._config, self._computed, recipe())}-{control:x}.so"
            if self._steps[control] < WORTH and not is_built(name):
                return self.of_every_instruction()
            self._paths[control] = built(name, lambda path: self._build(path, control))
        return self._paths[control]

    def _build(self, library: Path, control: int | None) -> None:
        # Import the hardware only if a library must be built: loading a cached library is faster than importing
        # Amaranth.
        require_hashed_hardware()
        from ...rtl.cells.platforms import OPERATORS
        from ...rtl.emit import emit
        from .specialised import specialised

        kind = "" if control is None else " for one control word"
        building = f"building the {self._config.name} {self._top}{kind}"
        progress(f"{building}: elaborating")
        if control is None:
            text = emit(self._config, self._top, self._top, platform=OPERATORS)
            compile_library(text, self._top, self._clocked, library)
            return
        function = vectorised(specialised(self._config, self._top, control))
        progress(f"{building}: compiling")
        sources = {**self._computed, "function.h": function}
        compile_shared(sources, library, OPTIMISATION, "the simulation model")
        progress("")

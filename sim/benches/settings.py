"""Settings of a bench, passed from the runner to the coroutines inside the simulator."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from ...rtl.config import PRESETS, CoreConfig
from ..coverage.groups import Coverage
from .blocks import ARCHITECTURE_OF_PRESET

__all__ = ["TOPS", "Settings"]

#: Tops of a bench: all combinational components of a configuration together, or one clocked top module.
TOPS = ("components", "row", "core", "warp", "warpgroup", "tcgen05")
_VARIABLE = "SPTC_BENCH"


@dataclass(frozen=True)
class Settings:
    """Settings of one bench."""

    preset: str  #: Datapath
    top: str  #: Top of the bench, one of :data:`TOPS`
    items: int  #: Number of vectors, steps, tiles or instructions of each test
    coverage: str = ""  #: Coverage file into which functional coverage is merged; empty for none
    #: File with the work of the bench: for a warpgroup, written by :func:`~.warpgroup_items.write_jobs`; for the tensor
    #: cores of a CTA, written by :meth:`.tcgen05_items.CtaWork.write`.
    jobs: str = ""
    #: Rows and columns of units: by default a row of two, since larger arrays have no other kinds of units.
    array: tuple[int, int] = (1, 2)

    @cached_property
    def config(self) -> CoreConfig:
        """The configuration, with the array size of the bench."""
        rows, columns = self.array
        return replace(PRESETS[self.preset], rows=rows, columns=columns)

    @property
    def arch(self) -> str:
        """Architecture whose instructions the bench draws from."""
        return ARCHITECTURE_OF_PRESET[self.preset]

    def environment(self) -> dict[str, str]:
        """Return the environment variables that pass these settings on."""
        return {_VARIABLE: json.dumps(asdict(self))}

    def record(self, coverage: Coverage) -> None:
        """Merge the coverage of a test into the coverage file, if one is set."""
        if self.coverage:
            path = Path(self.coverage)
            (Coverage.read(path).merge(coverage) if path.exists() else coverage).write(path)

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> "Settings":
        """Return the settings that the runner passed in the environment."""
        return cls(**json.loads(environment[_VARIABLE]))

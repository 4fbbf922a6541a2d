"""Settings of a bench, passed from the bench runner to the cocotb coroutines inside the simulator."""

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

#: Names of the top modules that have a bench: all combinational components of a unit together, or one clocked module.
TOPS = ("components", "row", "core", "warp", "warpgroup", "tcgen05")
_VARIABLE = "SPTC_BENCH"


@dataclass(frozen=True)
class Settings:
    """Settings of one bench: datapath, top module, number of items, and files."""

    preset: str  #: Datapath
    top: str  #: Name of the top module of the bench, one of :data:`TOPS`
    items: int  #: Number of vectors, steps, tiles or instructions in each test
    coverage: str = ""  #: Coverage file into which functional coverage is merged; empty for none
    #: Path of the file with the work of the bench. For a warpgroup, :func:`~.warpgroup_items.write_jobs` writes it; for
    #: the tensor cores of a CTA, :meth:`.tcgen05_items.CtaWork.write`.
    jobs: str = ""
    #: Number of rows and columns of units. The default is one row of two units: larger arrays have no other kinds of
    #: units.
    array: tuple[int, int] = (1, 2)

    @cached_property
    def config(self) -> CoreConfig:
        """Datapath configuration of the preset, with the array size of the bench."""
        rows, columns = self.array
        return replace(PRESETS[self.preset], rows=rows, columns=columns)

    @property
    def arch(self) -> str:
        """Architecture from which the bench draws instructions."""
        return ARCHITECTURE_OF_PRESET[self.preset]

    def environment(self) -> dict[str, str]:
        """Return environment variables that pass the settings of the bench to the simulator process."""
        return {_VARIABLE: json.dumps(asdict(self))}

    def record(self, coverage: Coverage) -> None:
        """Merge the functional coverage of a test into the coverage file, if one is set."""
        if self.coverage:
            path = Path(self.coverage)
            (Coverage.read(path).merge(coverage) if path.exists() else coverage).write(path)

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> "Settings":
        """Return the settings that the bench runner passed in an environment variable."""
        return cls(**json.loads(environment[_VARIABLE]))

"""Settings of a bench, passed in an environment variable from the bench runner to the simulator process."""

import json
import os
import pickle
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ...rtl.config import PRESETS, CoreConfig
from ..coverage.groups import Coverage
from .blocks import ARCHITECTURE_OF_PRESET

__all__ = ["TOPS", "Settings"]

#: For each top module with a bench, the Python module that contains the tests. The top module `components` contains all
#: combinational components.
TOPS = {
    "components": "component_tests",
    "row": "row_tests",
    "core": "stream_tests",
    "warp": "stream_tests",
    "warpgroup": "warpgroup_tests",
    "tcgen05": "tcgen05_tests",
}
_VARIABLE = "SPTC_BENCH"


@dataclass(frozen=True)
class Settings:
    """Settings of one testbench: preset, top module, number of random inputs per test, and files."""

    preset: str  #: Name of the datapath configuration, a key of `PRESETS`
    top: str  #: Name of the top module under test, a key of :data:`TOPS`
    items: int  #: Number of random input vectors, steps or instructions per test, by type of top module
    coverage: str = ""  #: Path of the file that collects functional coverage; empty for none
    jobs: str = ""  #: Path of the file with the test program, which :meth:`write_program` writes
    #: Rows and columns of the array of dot-product units. The default is one row of two units, which contains every
    #: kind of unit.
    array: tuple[int, int] = (1, 2)

    @cached_property
    def config(self) -> CoreConfig:
        """Configuration of the preset datapath, with an array of dot-product units of the size that the bench uses."""
        rows, columns = self.array
        return replace(PRESETS[self.preset], rows=rows, columns=columns)

    @property
    def arch(self) -> str:
        """Architecture whose instructions the bench executes."""
        return ARCHITECTURE_OF_PRESET[self.preset]

    def environment(self) -> dict[str, str]:
        """Return the environment variables that pass the settings of the bench to the simulator process."""
        return {_VARIABLE: json.dumps(asdict(self))}

    def record(self, coverage: Coverage) -> None:
        """Add the functional coverage of a test to the coverage file, if the settings name one."""
        if self.coverage:
            path = Path(self.coverage)
            (Coverage.read(path).merge(coverage) if path.exists() else coverage).write(path)

    def write_program(self, program: object) -> None:
        """Write the test program: a list of :class:`~.warpgroup_items.Job`, or a :class:`~.tcgen05_items.CtaWork`."""
        Path(self.jobs).write_bytes(pickle.dumps(program))

    def read_program(self) -> Any:
        """Return the test program that :meth:`write_program` wrote."""
        return pickle.loads(Path(self.jobs).read_bytes())

    @classmethod
    def of_environment(cls) -> "Settings":
        """Return the settings of a testbench from the environment variable that the bench runner set."""
        return cls(**json.loads(os.environ[_VARIABLE]))

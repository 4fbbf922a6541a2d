"""A small unit that is mapped to the cells of the test library, once per process."""

from functools import cache

from sptc.isa.instructions import parse
from sptc.rtl.config import CoreConfig
from sptc.synth.energy.electrical import CellLibrary
from sptc.synth.energy.measure import MappedUnit
from sptc.tests.synth.power_library import LIBRARY

SPARSE = parse("mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
DENSE = parse("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32")
CONFIG = CoreConfig(name="small", formats=("s8",), step_bytes=16, rows=8, columns=4)


@cache
def unit(*, by_module: bool, glitches: bool = False) -> MappedUnit:
    return MappedUnit(CONFIG, CellLibrary.of(LIBRARY), by_module=by_module, glitches=glitches)

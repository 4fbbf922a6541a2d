"""The warpgroup whose arrays echo: built once for all tests of this folder."""

import pytest
from sptc.rtl.tensor_core import TENSOR_CORE
from sptc.sim.engine.compiled_warpgroup import CompiledWarpgroup
from sptc.sim.engine.echo import echoing_arrays


@pytest.fixture(scope="session")
def echoing_warpgroup() -> CompiledWarpgroup:
    return CompiledWarpgroup(stand_in=echoing_arrays(TENSOR_CORE))

"""Kernels of Triton and TileLang, types, tiles, layouts and pipelines of many kinds: the bits that an H100 wrote."""

import numpy as np
import pytest
from sptc.tests.kernels.recorded import TILELANG, TRITON, compiled_kernel

#: Kernels that touch accumulators before they wait: Triton leaves that to the assembler.
WITHOUT_WAIT = ("f16.f16_accumulators", "e4m3.imprecise64")
#: Kernels that the quick tier runs of each compiler.
QUICK = 2


def check(name: str) -> int:
    """Run a kernel, and return the number of its outputs."""
    kernel = compiled_kernel(name)
    result, run = kernel.run(check=False)
    kernel.assert_equal(result)
    assert bool(run.findings) == (name in WITHOUT_WAIT), name
    return result.size


def test_some(rng: np.random.Generator) -> None:
    for names in (TRITON, TILELANG):
        for name in rng.choice(names, QUICK, replace=False).tolist():
            check(name)


@pytest.mark.regression
def test_all() -> None:
    assert sum(map(check, TRITON)) > 13_000_000
    assert sum(map(check, TILELANG)) > 3_000_000
    assert (len(TRITON), len(TILELANG)) == (50, 40)

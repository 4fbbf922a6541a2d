"""Kernels of Triton for sm_90, types, tiles, layouts and pipelines of many kinds: the bits that an H100 wrote."""

import hashlib

import numpy as np
import pytest
from sptc.tests.kernels.recorded import TRITON, triton_kernel

#: Kernels that touch accumulators before they wait: Triton leaves that to the assembler.
WITHOUT_WAIT = ("f16.f16_accumulators", "e4m3.imprecise64")
#: Kernels that the quick tier runs.
QUICK = 3


def check(name: str) -> int:
    """Run a kernel, and return the number of its outputs."""
    kernel = triton_kernel(name)
    result, run = kernel.run(check=False)
    assert hashlib.sha256(result.tobytes()).digest() == kernel.digest, name
    assert bool(run.findings) == (name in WITHOUT_WAIT), name
    return result.size


def test_some(rng: np.random.Generator) -> None:
    for name in rng.choice(TRITON, QUICK, replace=False).tolist():
        check(name)


@pytest.mark.regression
def test_all() -> None:
    assert sum(map(check, TRITON)) > 13_000_000
    assert len(TRITON) == 50

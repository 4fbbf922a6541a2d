"""Recorded kernels give right results on simulated hardware, wrong results without a wait, and modelled cycles."""

import re

import numpy as np
import pytest
from sptc.tests.kernels.recorded import recorded


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("triton.small.mma", "rtl"),  # simulates the hardware of dot-product units
        pytest.param("cuda_mma_sp_sm80", "warp", marks=pytest.mark.regression),
        pytest.param("cuda_wgmma_sp_sm90", "warpgroup", marks=pytest.mark.regression),
    ],
)
def test_on_the_hardware(name: str, backend: str) -> None:
    kernel = recorded(name)
    result, _ = kernel.run(backend=backend)
    np.testing.assert_array_equal(result, kernel.expected)


def test_a_missing_wait_changes_the_result() -> None:
    """Without a wait, the result is wrong, except after the last store, which completes at the end of the kernel."""
    for name, pattern, instead in (
        ("triton.f16.128", r"cp\.async\.wait_group\s+\d+;", "cp.async.wait_group 7;"),
        ("triton.e4m3", r"wgmma\.wait_group\.sync\.aligned\s+\d+;", "wgmma.wait_group.sync.aligned 7;"),
        ("triton.tma.f16", r"cp\.async\.bulk\.wait_group\.read\s+0;", "cp.async.bulk.wait_group.read 1;"),
    ):
        kernel = recorded(name)
        text, count = re.subn(pattern, instead, kernel.ptx)
        assert count
        result, _ = kernel.run(text, check=False)
        assert (result == kernel.expected).all() == ("bulk" in pattern), name


def test_cycles_of_wgmma_by_loop() -> None:
    """Each of 64 instructions m64n64k16 takes 32 cycles to multiply, and 32 cycles to read shared memory."""
    run = recorded("triton.f16.128").run()[1]
    whole, loop = run.loops
    assert run.cycles == 64 * 32
    assert (loop.multiplications, whole.multiplications) == (64, 64)
    assert whole.cycles is not None
    assert loop.cycles is not None
    assert loop.cycles["tensor core"] == 64 * 64 / 2
    # In each of 16 iterations, the loop copies 64 x 64 elements of f16 of A and of B, and issues four instructions.
    reads, copies = 64 * (64 * 32 + 64 * 16 * 2) / 128, 16 * 2 * 64 * 64 * 2 / 128
    assert loop.cycles["shared memory"] == reads + copies
    assert loop.bound_by == "shared memory"
    assert whole.cycles["shared memory"] > loop.cycles["shared memory"]
    assert whole.first_line < loop.first_line < loop.last_line < whole.last_line


def test_cycles_of_mma() -> None:
    """Each mma takes the interval of its timing law, also on a shared line. Cycles are None without a timing law."""
    kernel = recorded("triton.small.mma")
    assert kernel.run()[1].cycles == 64 * 6 / 4  # 64 instructions of six cycles on four tensor cores
    text = re.sub(r"\n\s*(mma\.sync)", r" \1", kernel.ptx)
    assert text != kernel.ptx
    assert kernel.run(text, arch="sm_90a")[1].cycles == 64 * 6 / 4
    run = kernel.run(arch="sm_80")[1]
    assert run.cycles is None
    assert run.loops[0].cycles is None
    assert str(run.loops[0]).endswith("64 tensor-core instructions, cycles not known")

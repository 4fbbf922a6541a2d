"""Recorded kernels of Triton and CUDA: on the simulated hardware, with mistakes in the PTX, and the cycles of a
launch.
"""

import re

import numpy as np
import pytest
import sptc
from sptc.tests.kernels.recorded import recorded


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("triton.small.mma", "rtl"),  # the simulated hardware of one dot-product unit
        pytest.param("cuda_mma_sp_sm80", "warp", marks=pytest.mark.regression),
        pytest.param("cuda_wgmma_sp_sm90", "warpgroup", marks=pytest.mark.regression),
    ],
)
def test_on_the_hardware(name: str, backend: str) -> None:
    kernel = recorded(name)
    result, _ = kernel.run(backend=backend)
    np.testing.assert_array_equal(result, kernel.expected)


def test_a_missing_wait_changes_the_result() -> None:
    """A missing wait changes the result, except after the last store, which completes at the end of the kernel."""
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


def test_accumulators_touched_before_the_wait() -> None:
    """An access to accumulators before the wait does not change the result, as the assembler inserts the wait. The
    access is reported with its line.
    """
    kernel = recorded("cuda_wgmma_sp_sm90")
    accumulator = re.search(r"wgmma\.mma_async\S+\s+\{\s*(%\w+)", kernel.ptx)
    assert accumulator
    wait = "wgmma.wait_group.sync.aligned"
    text = kernel.ptx.replace(wait, f"mov.b32 {accumulator[1]}, {accumulator[1]}; {wait}")
    result, run = kernel.run(text)
    np.testing.assert_array_equal(result, kernel.expected)
    line = next(number for number, line in enumerate(text.splitlines(), 1) if wait in line)
    (finding,) = run.findings
    assert (finding.kind, finding.line) == ("registers before the wait", line)
    assert finding.text == "mov.b32: it touches registers of a wgmma before wgmma.wait_group; undefined by PTX"


def test_undefined_or_unmodelled_ptx() -> None:
    for name, pattern, instead, message in (
        ("triton.tma.f16", r"(mbarrier\.init\S+\s+\[[^]]+\]), 1;", r"\1, 2;",
         r"^deadlock: .*threads wait at line \d+ \(mbar"),
        ("triton.tma.f16", r"expect_tx\.shared\.b64 _, \[(\S+)\], (\d+);", r"expect_tx.shared.b64 _, [\1], 64;",
         "deadlock"),
        ("triton.f16.128", r"ld\.global\.|cp\.async\.cg\.shared\.global \[ (\S+) \+ 0 \]", "", "line"),
        ("triton.small.mma", r"mma\.sync\.aligned\.m16n8k16", "mma.sync.aligned.m16n8k15", r"line \d+: .*shape"),
        ("triton.small.mma", r"ldmatrix\.sync", "ldmatrix2.sync", r"^line \d+: 'ldmatrix2.*' is not modelled"),
    ):  # fmt: skip
        kernel = recorded(name)
        text, count = re.subn(pattern, instead, kernel.ptx, count=1)
        assert count
        with pytest.raises(sptc.Error, match=message):
            kernel.run(text, limit=10_000_000)


def test_cycles_of_wgmma_by_loop() -> None:
    """64 instructions m64n64k16 with both operands in shared memory: each multiplies in 32 cycles, and reads in 32
    cycles.
    """
    run = recorded("triton.f16.128").run()[1]
    whole, loop = run.loops
    assert run.cycles == 64 * 32
    assert (loop.multiplications, whole.multiplications) == (64, 64)
    assert whole.cycles is not None
    assert loop.cycles is not None
    assert loop.cycles["tensor core"] == 64 * 64 / 2
    # The loop copies 64 x 64 elements of f16 of A and of B 16 times, for 16 products of four instructions each.
    reads, copies = 64 * (64 * 32 + 64 * 16 * 2) / 128, 16 * 2 * 64 * 64 * 2 / 128
    assert loop.cycles["shared memory"] == reads + copies
    assert loop.bound_by == "shared memory"
    assert whole.cycles["shared memory"] > loop.cycles["shared memory"]
    assert whole.first_line < loop.first_line < loop.last_line < whole.last_line


def test_cycles_of_mma() -> None:
    """Each mma takes its interval, also if several are on one line of PTX. On an architecture without timing law, the
    cycles are not known.
    """
    kernel = recorded("triton.small.mma")
    assert kernel.run()[1].cycles == 64 * 6 / 4  # 64 instructions of six cycles on four tensor cores
    text = re.sub(r"\n\s*(mma\.sync)", r" \1", kernel.ptx)
    assert text != kernel.ptx
    assert kernel.run(text, arch="sm_90a")[1].cycles == 64 * 6 / 4
    run = kernel.run(arch="sm_80")[1]
    assert run.cycles is None
    assert run.loops[0].cycles is None
    assert str(run.loops[0]).endswith("64 tensor-core instructions, cycles not known")

"""Compiled kernels of Triton and CUDA: every output equals that of an H100, and mistakes in the PTX change results."""

import re

import numpy as np
import pytest
import sptc
from sptc.tests.kernels.recorded import NAMES, recorded


@pytest.mark.parametrize("name", NAMES)
def test_the_bits_of_an_h100(name: str) -> None:
    kernel = recorded(name)
    result, run = kernel.run(check=False)
    np.testing.assert_array_equal(result, kernel.expected)
    assert run.opcodes.get("wgmma", 0) + run.opcodes.get("mma", 0) > 0
    assert run.findings == []


def test_on_the_hardware() -> None:
    """The kernel's operands go through the simulated RTL of one dot-product unit."""
    kernel = recorded("triton.small.mma")
    result, _ = kernel.run(backend="rtl")
    np.testing.assert_array_equal(result, kernel.expected)


@pytest.mark.regression
@pytest.mark.parametrize(("name", "backend"), [("cuda_mma_sp_sm80", "warp"), ("cuda_wgmma_sp_sm90", "warpgroup")])
def test_on_the_tops(name: str, backend: str) -> None:
    kernel = recorded(name)
    result, _ = kernel.run(backend=backend)
    np.testing.assert_array_equal(result, kernel.expected)


@pytest.mark.parametrize(
    ("name", "pattern", "instead"),
    [
        ("triton.f16.128", r"cp\.async\.wait_group\s+\d+;", "cp.async.wait_group 7;"),
        ("triton.e4m3", r"wgmma\.wait_group\.sync\.aligned\s+\d+;", "wgmma.wait_group.sync.aligned 7;"),
        ("triton.tma.f16", r"cp\.async\.bulk\.wait_group\.read\s+0;", "cp.async.bulk.wait_group.read 1;"),
    ],
)
def test_a_wait_that_is_missing_shows(name: str, pattern: str, instead: str) -> None:
    """A missing wait changes the result, except after the last store, which completes at the end of the kernel."""
    kernel = recorded(name)
    text, count = re.subn(pattern, instead, kernel.ptx)
    assert count
    result, _ = kernel.run(text, check=False)
    assert (result == kernel.expected).all() == ("bulk" in pattern)


def test_accumulators_touched_before_the_wait() -> None:
    """The result does not change, as the assembler inserts the wait; the access is reported with its line."""
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


@pytest.mark.parametrize(
    ("name", "pattern", "instead", "message"),
    [
        (
            "triton.tma.f16",
            r"(mbarrier\.init\S+\s+\[[^]]+\]), 1;",
            r"\1, 2;",
            r"^deadlock: .*threads wait at line \d+ \(mbar",
        ),
        (
            "triton.tma.f16",
            r"expect_tx\.shared\.b64 _, \[(\S+)\], (\d+);",
            r"expect_tx.shared.b64 _, [\1], 64;",
            "deadlock",
        ),
        ("triton.f16.128", r"ld\.global\.|cp\.async\.cg\.shared\.global \[ (\S+) \+ 0 \]", "", "line"),
        ("triton.small.mma", r"mma\.sync\.aligned\.m16n8k16", "mma.sync.aligned.m16n8k15", r"line \d+: .*shape"),
        ("triton.small.mma", r"ldmatrix\.sync", "ldmatrix2.sync", r"^line \d+: 'ldmatrix2.*' is not modelled"),
    ],
)
def test_what_ptx_forbids_or_nobody_modelled(name: str, pattern: str, instead: str, message: str) -> None:
    kernel = recorded(name)
    text, count = re.subn(pattern, instead, kernel.ptx, count=1)
    assert count
    with pytest.raises(sptc.Error, match=message):
        kernel.run(text, limit=10_000_000)

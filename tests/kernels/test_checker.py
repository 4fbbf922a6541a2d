"""The order of accesses to shared memory: what compilers wrote, and planted mistakes, each named with its line."""

import re

import numpy as np
import pytest
from sptc.errors import KernelError
from sptc.tests.kernels.recorded import NAMES, TRITON, compiled_kernel, recorded

#: Triton 3.6 has no fence of the proxy between cp.async and wgmma: true findings of kernels that nobody edited. Bits
#: are right all the same, since the barrier that stands there lets the copies land before the tensor cores read.
WITHOUT_FENCE = ("triton.e4m3", "triton.f16.128")
NO_FENCE = "and no fence.proxy.async lies between; undefined by PTX"


@pytest.mark.parametrize("name", NAMES)
def test_what_compilers_wrote(name: str) -> None:
    result, run = recorded(name).run(check=True)
    np.testing.assert_array_equal(result, recorded(name).expected)
    assert bool(run.findings) == (name in WITHOUT_FENCE)
    for finding in map(str, run.findings):
        assert re.match(
            r"line \d+: wgmma\.mma_async\S*: it reads shared memory that warp \d wrote at line \d+, ", finding
        )
        assert NO_FENCE in finding


@pytest.mark.regression
def test_what_triton_wrote(rng: np.random.Generator) -> None:
    """All findings are of the fence, or of accumulators; none where TMA, or mma alone, is used."""
    for name in rng.choice(TRITON, 12, replace=False).tolist():
        _, run = compiled_kernel(name).run(check=True)
        for finding in map(str, run.findings):
            assert NO_FENCE in finding or "before wgmma.wait_group" in finding, (name, finding)
        if name.startswith(("tma", "device_maps")) or ".mma" in name or "stages1" in name:
            assert not run.findings, name


#: Kernel, what is edited (a pattern, which of its places, and what stands there instead), where the finding is and what
#: it says.
PLANTED = [
    ("cuda_wgmma_sp_sm90", r"fence\.proxy\.async[^;]*;", 0, "", "wgmma.mma_async", NO_FENCE),
    ("triton.tma.f16", r"fence\.proxy\.async\.shared::cta;", -1, "", "cp.async.bulk.tensor", NO_FENCE),
    ("cuda_mma_sp_sm80", r"bar\.sync\s+0;", 0, "", "ld", "and no barrier orders the two; undefined by PTX"),
    ("triton.small.mma", r"cp\.async\.wait_group\s+\d+;", 0, "", "ldmatrix", r"copy of line \d+ may still write"),
    ("triton.f16.128", r"cp\.async\.wait_group\s+\d+;", 0, "", "wgmma.mma_async", r"copy of line \d+ may still write"),
    ("triton.e4m3", r"cp\.async\.wait_group\s+\d+;", 0, "", "wgmma.mma_async", r"copy of line \d+ may still write"),
    ("triton.e4m3", r"wgmma\.wait_group\.sync\.aligned\s+\d+;", 0, "", "cp.async", r"wgmma of line \d+ may still read"),
    ("triton.tma.f16", r"mbarrier\.try_wait\S+ complete, [^;]*;", 0, "setp.eq.u32 complete, 0, 0;", "wgmma.mma_async",
     r"copy of line \d+ may still write"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "pattern", "place", "instead", "opcode", "what"), PLANTED)
def test_planted_mistakes(name: str, pattern: str, place: int, instead: str, opcode: str, what: str) -> None:
    kernel = recorded(name)
    matches = list(re.finditer(pattern, kernel.ptx))
    assert matches
    chosen = matches if name in ("triton.f16.128", "triton.e4m3", "cuda_mma_sp_sm80") else [matches[place]]
    text = kernel.ptx
    for match in reversed(chosen):
        text = text[: match.start()] + instead + text[match.end() :]
    try:
        findings = [*map(str, kernel.run(text, check=True)[1].findings)]
    except KernelError as error:  # which says what was found before
        findings = [str(error).partition("; before that, ")[2]]
    matching = [finding for finding in findings if re.search(what, finding)]
    assert matching, findings
    line, said = re.match(r"line (\d+): (\S+):", matching[0]).groups()  # type: ignore[union-attr]
    assert said.startswith(opcode)
    assert said in text.splitlines()[int(line) - 1]

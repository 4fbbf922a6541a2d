"""The checker of memory accesses reports the errors in compiled kernels, and the lines of planted errors."""

import re
from dataclasses import replace

import numpy as np
import pytest
from sptc.kernels import checker
from sptc.kernels.bulk_copies import Box
from sptc.kernels.memory import GLOBAL_BASE, GlobalMemory
from sptc.kernels.tensor_maps import MapRecord
from sptc.tests.kernels.recorded import NAMES, REPORTED, TRITON, assert_reported, compiled_kernel, recorded

#: Kernels with true findings: Triton 3.6 generates no proxy fence between cp.async and wgmma. Results are correct
#: nevertheless, since the copies complete before the barrier that precedes the multiplication.
WITHOUT_FENCE = ("triton.e4m3", "triton.f16.128")
NO_FENCE = "and no fence.proxy.async lies between the accesses; undefined by PTX"


@pytest.mark.parametrize("name", NAMES)
def test_kernels_of_compilers(name: str) -> None:
    """Every output of a kernel equals that of an H100, with the checker and without it."""
    kernel = recorded(name)
    result, run = kernel.run(check=False)
    np.testing.assert_array_equal(result, kernel.expected)
    assert run.opcodes.get("wgmma", 0) + run.opcodes.get("mma", 0) > 0
    assert run.findings == []
    result, run = kernel.run(check=True)
    np.testing.assert_array_equal(result, kernel.expected)
    assert bool(run.findings) == (name in WITHOUT_FENCE)
    for finding in map(str, run.findings):
        reads = r"line \d+: wgmma\.mma_async\S*: the instruction reads shared memory that warp \d wrote at line \d+, "
        assert re.match(reads, finding)
        assert NO_FENCE in finding


@pytest.mark.regression
def test_kernels_of_triton(rng: np.random.Generator) -> None:
    """The checker finds only missing fences and early accumulator accesses, and nothing in kernels with TMA or mma."""
    for name in rng.choice(TRITON, 12, replace=False).tolist():
        _, run = compiled_kernel(name).run(check=True)
        for finding in map(str, run.findings):
            assert NO_FENCE in finding or "before wgmma.wait_group" in finding, (name, finding)
        if name.startswith(("tma", "device_maps")) or ".mma" in name or "stages1" in name:
            assert not run.findings, name


#: Expected findings, by TileLang issue number, in kernels with wrong results that these issues report. Either copies
#: wrote 48-byte rows of B, although its descriptor describes core matrices of 16-byte rows, or no proxy fence follows a
#: store or a copy.
TILE_OF_B = (
    r"the descriptor of B \(start 0x{}, leading offset 384, stride offset 128, no swizzle\) describes core matrices "
    r"of 8 rows of 16 bytes, but the copies of lines {} wrote a tile of rows of 48 bytes there, and 28672 bytes of "
    r"it are never read \(CTA \(0, 0, 0\)\)"
)
READS = "the instruction reads shared memory that"
REPORTS = {
    "reported.2593": {r"line 369: wgmma\.mma_async\S*: " + TILE_OF_B.format("4000", "148, 171, 194, 256, 267, 278")},
    "reported.2603": {
        r"line 369: wgmma\.mma_async\S*: " + TILE_OF_B.format("2400", "141, 164, 187, 238, 249, 260"),
        *(rf"line {line}: wgmma\.mma_async\S*: {READS} warp 0 wrote at line {copy}, {NO_FENCE}.*"
          for line, copy in ((369, 84), (547, 204))),
    },
    "reported.2634": {
        rf"line {line}: wgmma\.mma_async\S*: {READS} warp 4 wrote at line {store}, {NO_FENCE}.*"
        for line, store in ((1601, 996), (1631, 1136))
    },
}  # fmt: skip


@pytest.mark.parametrize("name", [REPORTED[1], *(pytest.param(n, marks=pytest.mark.regression) for n in REPORTED[::2])])
def test_kernels_of_public_bug_reports(name: str) -> None:
    """Results equal the wrong results of an H100. The checker reports the descriptor or the store that is the cause."""
    kernel = compiled_kernel(name)
    result, run = kernel.run(check=True)
    kernel.assert_equal(result)
    findings = [*map(str, run.findings)]
    for pattern in REPORTS[name]:
        assert any(re.fullmatch(pattern, finding) for finding in findings), (pattern, findings)
    assert all(finding.kind in ("no proxy fence", "tile without core matrices") for finding in run.findings)


@pytest.mark.parametrize(("element", "size"), [("u8", 1), ("f16", 2), ("f32", 4), ("f64", 8)])
def test_global_offset_of_each_word_of_a_tile(element: str, size: int, rng: np.random.Generator) -> None:
    memory = GlobalMemory([rng.integers(0, 256, 4096, np.uint8)], {})
    tile = MapRecord(GLOBAL_BASE + 512, (64 // size, 20), (64,), (48 // size, 8), element)
    box = Box.from_map(tile, [16 // size, 5])
    assert box.words()[:13].tolist() == [*range(848, 896, 4), 912]
    np.testing.assert_array_equal(memory.views[4][box.words() // 4], box.read(memory).view("<u4"))


IN_FLIGHT = r"copy of line \d+ may still write"
#: Planted mistakes: kernel, edit of its PTX (pattern, replacement), opcode of the reported line, text of the finding.
PLANTED = [
    ("cuda_wgmma_sp_sm90", r"fence\.proxy\.async[^;]*;", "", "wgmma.mma_async", NO_FENCE),
    ("triton.tma.f16", r"fence\.proxy\.async\.shared::cta;", "", "cp.async.bulk.tensor", NO_FENCE),
    ("cuda_mma_sp_sm80", r"bar\.sync\s+0;", "", "ld", "reads .*, and no barrier orders the two accesses; undefined"),
    ("cuda.sm80.mma.f16", r"(?s)(bar\.sync\s+0;.*)bar\.sync\s+0;", r"\1", "cp.async",
     r"overwrites shared memory that warp \d read at line \d+, and no barrier orders the two"),
    ("triton.small.mma", r"cp\.async\.wait_group\s+\d+;", "", "ldmatrix", IN_FLIGHT),
    ("triton.f16.128", r"cp\.async\.wait_group\s+\d+;", "", "wgmma.mma_async", IN_FLIGHT),
    ("triton.e4m3", r"wgmma\.wait_group\.sync\.aligned\s+\d+;", "", "cp.async",
     r"overwrites shared memory that the wgmma of line \d+ may still read"),
    ("sm90.f16.to_f16.256_threads", r"wgmma\.wait_group\.sync\.aligned 0;", "", "cvt",
     "the instruction accesses registers of a wgmma before wgmma.wait_group"),
    ("sm90.sparse.f16", r"wgmma\.fence\.sync\.aligned;", "", "wgmma.mma_async",
     r"no wgmma.fence follows line \d+, which writes registers of the instruction"),
    ("tma.f16.persistent", r"cp\.async\.bulk\.wait_group\.read\s+0;", "", "st",
     r"overwrites shared memory that the copy of line \d+ may still read"),
    ("triton.tma.f16", r"mbarrier\.try_wait\S+ complete, [^;]*;", "setp.eq.u32 complete, 0, 0;", "wgmma.mma_async",
     IN_FLIGHT),
    ("sm90.bf16", r"expect_tx(\S+ \[%r\d+\]), %r\d+;", r"expect_tx\1, 64;", "mbarrier.try_wait",
     r"the mbarrier at 0x\w+ of CTA \(0, 0, 0\) expects 0 arrivals and -\d+ bytes"),
    ("device_maps.f16", r"(mbarrier\.init\S+\s+\S+), 1;", r"\1, 2;", "mbarrier.try_wait",
     r"the mbarrier at 0x\w+ of CTA \(0, 0, 0\) expects 1 arrivals and 0 bytes"),
    ("sm90.f16.relu", r"mov\.u32\s+(\S+), 128;", r"mov.u32 \1, 64;", "mbarrier.try_wait",
     "^deadlock: 768 threads wait"),
    ("tf32", "4611686293305294848", "4616189892932665344", "wgmma.mma_async", "descriptor"),
    ("sm80.sparse.bf16", r"mma\.sp([^;]*), (%r\d+), 0;", r"mov.b32 \2, 0; mma.sp\1, \2, 0;", "mma.sp",
     r": metadata at .*lane 0, bits 3:0.*nibble 0b0000"),
    ("sm80.f16", r"(ldmatrix[^;]*)\];", r"\1+2];", "ldmatrix", "not a multiple of 16"),
    pytest.param("cute.sm100.f16", r"mbarrier\.try_wait\S+ P1, \[%r221\], 0, \d+;", "setp.eq.u32 P1, 0, 0;",
                 "tcgen05.ld", r"reads tensor memory that line \d+ may still write", marks=pytest.mark.regression),
]  # fmt: skip


def test_undefined_metadata_of_one_multiplication() -> None:
    """A finding names the line and the thread of a single mma, although consecutive mma are computed together."""
    kernel = compiled_kernel("sm80.sparse.bf16")
    place = [*re.finditer(r"(mma\.sp[^;]*), %r\d+, 0;", kernel.ptx)][2]
    text = f"{kernel.ptx[: place.start()]}{place[1]}, %zero, 0;{kernel.ptx[place.end() :]}"
    thread = "mov.u32 %zero, %tid.x; setp.eq.u32 %bad, %zero, 36; selp.b32 %zero, 0, 0x44444444, %bad;"
    text = text.replace(".reg .b64", ".reg .b32 %zero; .reg .pred %bad; .reg .b64", 1)
    text = text.replace("ld.param", f"{thread} ld.param", 1)
    (finding,) = replace(kernel, ptx=text).run(check=True)[1].findings
    assert finding.kind == "undefined metadata"
    assert "%zero, 0;" in text.splitlines()[finding.line - 1]
    assert "metadata at row 1, chunk 0 (lane 4, bits 3:0): nibble 0b0000 breaks the " in finding.text
    assert finding.text.endswith("undefined by PTX (thread 36 of CTA (0, 0, 0))")


@pytest.mark.parametrize(("name", "pattern", "instead", "opcode", "what"), PLANTED)
def test_planted_mistakes(name: str, pattern: str, instead: str, opcode: str, what: str) -> None:
    """Each planted mistake is reported with its line, by a finding of the checker or by an error."""
    kernel = recorded(name) if name in NAMES else compiled_kernel(name)
    text, count = re.subn(pattern, instead, kernel.ptx)
    assert count
    assert_reported(lambda: replace(kernel, ptx=text).run(check=True)[1], text, opcode, what)


@pytest.mark.parametrize("name", ["triton.f16.128", "cuda_mma_sp_sm80"])
def test_findings_with_few_stored_accesses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings do not change if the checker drops superseded accesses as early as possible."""
    kernel = recorded(name)
    text = re.sub(r"bar\.sync\s+0;", "", kernel.ptx) if name.startswith("cuda") else kernel.ptx
    expected = kernel.run(text)[1].findings
    assert expected
    monkeypatch.setattr(checker, "_MOST_ACCESSES", 1)
    monkeypatch.setattr(checker, "_FIRST_ACCESSES", 1)
    assert kernel.run(text)[1].findings == expected

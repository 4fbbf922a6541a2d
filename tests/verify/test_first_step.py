"""The first step that can explain a wrong result is right, compared with a trial of all f16 accumulators."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sptc
from sptc.golden.matrix import multiply
from sptc.isa.instructions import parse
from sptc.isa.operands import MatrixOperands
from sptc.verify.first_step import first_possible_step
from sptc.verify.trace_golden import golden_traces
from sptc.verify.trace_output import trace

Random = np.random.Generator
WHOLE, HALF = (parse(f"mma.sync.aligned.m16n8k{k}.row.col.f16.f16.f16.f16") for k in (16, 8))


def output_of(rng: Random, special: int | None) -> MatrixOperands:
    """Return the operands of one output. If `special` is given, this element of the 32 of A and B is Inf or NaN."""
    a, b = (rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 7, shape) for shape in ((1, 1, 16), (1, 16, 1)))
    if special is not None:
        (b if special & 16 else a).flat[special & 15] = rng.choice([np.inf, np.nan])
    codes = [array.astype(np.float16).view(np.uint16) for array in (a, b, rng.standard_normal((1, 1, 1)))]
    return MatrixOperands(a=codes[0], b=codes[1], c=codes[2])


@pytest.mark.parametrize("specials", [(None, None), (3, 18, 12)], ids=["finite", "special"])
def test_every_accumulator(specials: tuple[int | None, ...], rng: Random) -> None:
    """Step 0 can explain D exactly if step 1, computed as m16n8k8 of sm_80, gives D for one of 65,536 accumulators."""
    every = np.arange(1 << 16).astype(np.uint16).reshape(1, 1, -1)
    firsts = set()
    for special in specials:
        operands = output_of(rng, special)
        [golden] = golden_traces(WHOLE, "sm_80", operands)
        behind = MatrixOperands(a=operands.a[..., 8:], b=operands.b[:, 8:].repeat(1 << 16, 2), c=every)
        reached = set(multiply(HALF, "sm_80", behind).ravel().tolist())
        near = [golden.d ^ 1 << bit for bit in range(16)]
        for d in {*near, *rng.integers(0, 1 << 16, 8).tolist(), 0x7C00, 0x7FFF} - {golden.d}:
            assert first_possible_step(golden, operands, d) == (0 if d in reached else 1), hex(d)
            firsts.add(d in reached)
    assert firsts == {True, False}


def test_d_of_a_file_is_compared(tmp_path: Path, rng: Random) -> None:
    path = tmp_path / "tile.npz"
    instruction = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    a = np.where(np.arange(32) % 4 < 2, rng.standard_normal((16, 32)), 0).astype(np.float16)
    tile = sptc.pack(instruction, a, rng.standard_normal((32, 8)).astype(np.float16))
    d = sptc.mma(**tile, arch="sm_80")
    sptc.save(path, **tile, D=d, arch="sm_80")
    traced = trace(path, row=3, column=5, hardware=False)
    assert traced.agrees
    assert traced.as_dict()["file"] == {"d": f"0x{traced.golden.d:08x}", "agrees": True, "first_possible_step": None}
    assert str(traced).splitlines()[1] == "the file holds the same D"
    sptc.save(path, **tile, D=d ^ np.uint32(1 << 20), arch="sm_80")
    traced = trace(path, row=3, column=5, hardware=False)
    assert not traced.agrees
    assert traced.file.first_step == 0
    assert str(traced).count("<- the first step that can explain the D of the file") == 1
    assert "; the first difference arose in step 1 of 2 or later" in str(traced)
    assert "; the first difference arose in step 1 of 2 or later" in traced._repr_html_()
    assert replace(traced, file=None).agrees

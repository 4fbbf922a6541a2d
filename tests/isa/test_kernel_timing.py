"""Whole products: what libraries took on an H200, and what decides it."""

import json
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import sptc
from sptc.errors import InstructionError, OperandError
from sptc.isa.instructions import parse
from sptc.isa.kernel_timing import Tile, dense_twin, product_timing

FOLDER = Path(sptc.__file__).parent / "recordings" / "cycles"
SPARSE = {
    "f16": "wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.f16.f16",
    "bf16": "wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.bf16.bf16",
    "e4m3": "wgmma.mma_async.sp.sync.aligned.m64n256k64.f32.e4m3.e4m3",
    "s8": "wgmma.mma_async.sp.sync.aligned.m64n256k64.s32.s8.s8",
}
RESULT_BYTES = {"f16": 2, "bf16": 2, "e4m3": 2, "s8": 4}
NAME = re.compile(r"(cuBLAS|cuSPARSELt) (\w+) (\d+)(?:x(\d+)x(\d+))? (zeros|normal)")


def measured() -> dict[tuple[str, bool, tuple[int, int, int], str], float]:
    """Cycles by type, sparsity, shape and operands, without the dense integer kernel, which is not of wgmma."""
    found = {}
    for path in ("libraries-h200-2026-11-24.json", "products-h200-2026-11-25.json"):
        values = {row["name"]: row["value"] for row in json.loads((FOLDER / path).read_text(encoding="utf-8"))}
        for name, milliseconds in values.items():
            if match := NAME.fullmatch(name):
                library, element, m, n, k, operands = match.groups()
                shape = (int(m), int(n or m), int(k or m))
                if (library, element) != ("cuBLAS", "s8"):
                    cycles = milliseconds * values[f"{name}, clock"] * 1e3
                    found[element, library == "cuSPARSELt", shape, operands] = cycles
    return found


def estimated(element: str, sparse: bool, shape: tuple[int, int, int]) -> float:
    instruction = parse(SPARSE[element])
    of = instruction if sparse else dense_twin(instruction)
    return product_timing(of, shape, result_bytes=RESULT_BYTES[element]).cycles


def test_the_estimate_of_a_product() -> None:
    """Large ones in the mean within an eighth; as many tiles as SMs, and any K, within a quarter, most an eighth."""
    ratios: dict[bool, list[float]] = {True: [], False: []}
    for (element, sparse, shape, _), cycles in measured().items():
        if min(shape[:2]) >= 4096 or shape[:2] in ((1536, 2816), (2816, 1536)):
            ratios[min(shape[:2]) >= 4096].append(estimated(element, sparse, shape) / cycles)
    large, of_a_wave = ratios[True], ratios[False]
    assert len(large) > 50
    assert all(0.64 < ratio < 1.25 for ratio in large)
    assert np.mean(np.abs(np.log(large))) < 1 / 8
    assert len(of_a_wave) == 84
    assert all(0.75 < ratio < 1.25 for ratio in of_a_wave)
    assert np.mean([0.875 < ratio < 1.125 for ratio in of_a_wave]) > 0.6


def test_what_sparsity_gains() -> None:
    """Less than the law of a single instruction, since operands come in over the port that they are read by."""
    cycles = measured()
    for element, shape in product(("f16", "bf16", "e4m3"), ((4096,) * 3, (8192,) * 3)):
        gain = estimated(element, False, shape) / estimated(element, True, shape)
        assert 1.3 < gain < 16 / 9
        for operands in ("zeros", "normal"):
            found = cycles[element, False, shape, operands] / cycles[element, True, shape, operands]
            assert gain == pytest.approx(found, rel=0.14), (element, shape, operands)


def test_parts() -> None:
    instruction = parse(SPARSE["f16"])
    one = product_timing(instruction, (1536, 2816, 3200))
    assert (one.waves, one.bound_by) == (1, "shared memory")
    assert product_timing(instruction, (1536, 2817, 3200)).waves == 2
    dense = product_timing(dense_twin(instruction), (1536, 2816, 3200))
    assert (dense.bound_by, dense.multiplying) == ("tensor core", 3200 // 16 * 256)
    assert one.cycles - one.multiplying - one.storing == dense.cycles - dense.multiplying - dense.storing
    wide = product_timing(instruction, (1536, 2816, 3200), Tile(64, 512))
    assert wide.multiplying >= 3200 // 32 * 2 * 144


def test_what_is_refused() -> None:
    with pytest.raises(OperandError, match="multiple of 64 rows"):
        Tile(96, 256)
    with pytest.raises(InstructionError, match="wgmma on sm_90"):
        product_timing(parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"), (64, 64, 64))

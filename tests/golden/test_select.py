"""The element of B that a nibble selects depends only on the nibble and its chunk."""

from dataclasses import fields

import numpy as np
import pytest
from sptc.golden.matrix import multiply
from sptc.isa.instructions import parse
from sptc.isa.operands import MatrixOperands

TF32 = "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32"
F16 = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"


@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
@pytest.mark.parametrize("text", [TF32, F16])
def test_a_nibble_in_all_chunks(text: str, arch: str, rng: np.random.Generator) -> None:
    """A tile with one nibble in all chunks gives the same result alone and beside a tile with all sixteen nibbles."""
    i = parse(text)
    code = np.uint16 if i.container_bits == 16 else np.uint32
    a, b = (
        rng.standard_normal(shape).astype(f"f{i.container_bits // 8}").view(code)
        for shape in ((2, i.m, i.stored_k), (2, i.k, i.n))
    )
    nibbles = rng.permutation(np.arange(2 * i.m * i.chunks, dtype=np.uint8) % 16).reshape(2, i.m, i.chunks)
    both = MatrixOperands(a, b, np.zeros((2, i.m, i.n), np.uint32), nibbles)
    for nibble in range(16):
        nibbles[0] = nibble
        parts = {field.name: getattr(both, field.name) for field in fields(both)}
        alone = MatrixOperands(**{name: None if array is None else array[:1] for name, array in parts.items()})
        np.testing.assert_array_equal(multiply(i, arch, alone)[0], multiply(i, arch, both)[0], f"{nibble:04b}")

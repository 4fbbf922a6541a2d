"""Modelled rows against what is written here by hand, or was recorded of another: `isa` gives nothing but shapes."""

from pathlib import Path

import numpy as np
import pytest
from sptc.api.backends import backend
from sptc.isa.instructions import parse
from sptc.isa.operands import MatrixOperands
from sptc.verify.register_file import read, shipped

ORDERED = {
    0x0: (0, None), 0x1: (1, None), 0x2: (2, None), 0x3: (None, None),
    0x4: (0, 1), 0x5: (1, 1), 0x6: (2, 1), 0x7: (None, 1),
    0x8: (0, 2), 0x9: (1, 2), 0xA: (2, 2), 0xB: (None, 2),
    0xC: (0, 3), 0xD: (1, 3), 0xE: (2, 3), 0xF: (None, 3),
}  # fmt: skip
#: Which of four units the multiplexers of slots 0 and 1 deliver: one reaches the first three, the other the last.
#: Under the plain rule they change places where the first index is the larger.
DELIVERED = {
    "sp::ordered_metadata": ORDERED,
    "sp": ORDERED | {0x1: (1, 0), 0x2: (2, 0), 0x3: (3, 0), 0x6: (2, 1), 0x7: (3, 1), 0xB: (3, 2)},
}
#: Values of four units of f16, and of two slots, so that each sum of products has one meaning.
UNITS, SLOTS = (1.0, 8.0, 64.0, 512.0), (1.0, 2.0)
#: Halves of two elements of tf32: low and high of the first, low and high of the second.
HALVES = (0x2000, 0x3F80, 0x4000, 0x4000)
BACKENDS = ["golden", "native", pytest.param("rtl", marks=pytest.mark.regression)]
#: fp8 of sm_90 through registers, which the assembler makes of steps of f16; that of sm_100 is the same sequence. What
#: undefined nibbles select is not.
EMULATED = [
    path
    for path in shipped()
    if path.name.startswith("mma.")
    and {"e4m3", "e5m2"} & set(path.name.split("."))
    and "every-nibble" not in path.name.split(".")
]


def one_dot_product(text: str, a: np.ndarray, b: np.ndarray, nibble: int, name: str) -> int:
    """Return an output whose first chunk of A and B is given, under one nibble; the rest is zero."""
    i = parse(text)
    operands = MatrixOperands(
        np.zeros((1, i.m, i.stored_k), a.dtype),
        np.zeros((1, i.k, i.n), b.dtype),
        np.zeros((1, i.m, i.n), np.uint32),
        np.full((1, i.m, i.chunks), nibble, np.uint8),
    )
    operands.a[:, :, : len(a)], operands.b[:, : len(b)] = a, b[:, None]
    d = backend(name).multiply(i, "sm_120", operands)
    assert (d == d.flat[0]).all()
    return int(d.flat[0])


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("sparse", DELIVERED)
def test_undefined_nibbles_of_3_to_1_multiplexers(sparse: str, name: str) -> None:
    a, b = (np.array(values, np.float16).view(np.uint16) for values in (SLOTS, UNITS))
    for nibble, units in DELIVERED[sparse].items():
        found = one_dot_product(f"mma.{sparse}.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", a, b, nibble, name)
        wanted = sum(slot * UNITS[unit] for slot, unit in zip(SLOTS, units, strict=True) if unit is not None)
        assert np.uint32(found).view(np.float32) == wanted, hex(nibble)


@pytest.mark.parametrize("name", BACKENDS)
def test_undefined_nibbles_of_tf32(name: str) -> None:
    """The halves of an element are units: what is spliced from two is multiplied, and a half without a unit is zero."""
    a = np.array([1.0], np.float32).view(np.uint32)
    b = np.array([HALVES[1] << 16 | HALVES[0], HALVES[3] << 16 | HALVES[2]], np.uint32)
    for nibble, (low, high) in ORDERED.items():
        found = one_dot_product(
            "mma.sp::ordered_metadata.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", a, b, nibble, name
        )
        upper, lower = (0 if unit is None else HALVES[unit] for unit in (high, low))
        assert found == upper << 16 | lower & 0xE000, hex(nibble)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("path", EMULATED, ids=lambda path: path.stem)
def test_emulated_fp8_of_sm_100_is_that_of_sm_90(path: Path, name: str) -> None:
    file = read(path).assuming("sm_100", None)
    np.testing.assert_array_equal(file.run(name), file.d)

"""``sptc.gemm`` and ``sptc.identify`` apply block scales like the golden model, and reject wrong arguments."""

from typing import Any

import numpy as np
import pytest
import sptc
from sptc.errors import Error
from sptc.gemm.choice import instructions_for
from sptc.golden.matrix import multiply
from sptc.isa.formats import FORMATS
from sptc.isa.operands import MatrixOperands
from sptc.tensors.sparsify import sparsify
from sptc.tests.gemm.sparse_factors import Random
from sptc.tests.isa.test_formats import DTYPES

#: Test cases: element format, scale format, whether the instruction is dense, and elements along K per scale.
KINDS = [
    ("e4m3", "ue8m0", False, 64),
    ("e5m2", "ue8m0", True, 32),
    ("e3m2", "ue8m0", False, 64),
    ("e2m1", "ue8m0", False, 64),
    ("e2m1", "ue8m0", False, 32),
    ("e2m1", "ue4m3", False, 32),
    ("e2m1", "ue4m3", True, 16),
]


class Drawn:
    """Random factors with block scales. K is three and a half times the K of an instruction."""

    def __init__(self, rng: Random, fmt: str, scale: str, dense: bool, span: int, shape: tuple[int, int]) -> None:
        self.i = next(i for i in instructions_for(fmt, "sm_120", dense=dense, scales=scale) if i.span == span)
        self.k, (m, n) = 3 * self.i.k + self.i.k // 2, shape
        bits = FORMATS[fmt].bits
        finite = (1 << bits) - 1 & ~(0b100 if bits == 8 else 0)

        def codes(*size: int) -> np.ndarray:
            return (rng.integers(0, 1 << bits, size) & finite).astype(np.uint8)

        self.a, self.b = codes(m, self.k), codes(self.k, n)
        if self.i.granularity:
            halves = self.a.reshape(m, -1, self.i.granularity.logical // 2)
            halves[:, 1::2] = 0
            self.a = np.ascontiguousarray(halves.reshape(m, self.k))
        low, high = (120, 134) if scale == "ue8m0" else (1, 0x7E)
        blocks = -(-self.k // span)
        self.scale_a = rng.integers(low, high, (m, blocks)).astype(np.uint8)
        self.scale_b = rng.integers(low, high, (n, blocks)).astype(np.uint8)

    def words(self, scale: str) -> dict[str, Any]:
        scales = {"block_scale_a": self.scale_a, "block_scale_b": self.scale_b}
        return {"arch": "sm_120", **{name: codes.view(DTYPES[scale]) for name, codes in scales.items()}}


def chain(drawn: Drawn, first: int, last: int) -> np.ndarray:
    """Return the golden model's D of a chain of the instructions with numbers `first` to `last` - 1 along K."""
    i, size = drawn.i, drawn.i.scale_size or 0

    def part(array: np.ndarray, unit: int) -> np.ndarray:
        return np.pad(array, ((0, 0), (0, 4 * unit - array.shape[1])))[:, first * unit : last * unit]

    a, nibbles = part(drawn.a, i.k), None
    if i.granularity:
        packed = sparsify(a, i.granularity)
        a, nibbles = packed.stored, packed.nibbles[None]
    a, b = a << i.low_bit(i.a), part(drawn.b.T, i.k).T << i.low_bit(i.b)
    scales = (part(codes, size)[None] for codes in (drawn.scale_a, drawn.scale_b))
    c = np.zeros((1, len(a), b.shape[1]), np.uint32)
    return multiply(i, "sm_120", MatrixOperands(a[None], b[None], c, nibbles, *scales))[0].view(np.float32)


@pytest.mark.parametrize(("fmt", "scale", "dense", "span"), KINDS)
def test_a_chain_of_instructions(rng: Random, fmt: str, scale: str, dense: bool, span: int) -> None:
    drawn = Drawn(rng, fmt, scale, dense, span, (19, 11))
    words = drawn.words(scale) | ({"instruction": str(drawn.i)} if dense else {})
    whole = chain(drawn, 0, 4)
    found = sptc.gemm(drawn.a, drawn.b, format=fmt, **words)
    np.testing.assert_array_equal(found.view(np.uint32), whole.view(np.uint32))
    assert np.isfinite(whole).all()
    halves = chain(drawn, 0, 2) + chain(drawn, 2, 4)
    np.testing.assert_array_equal(sptc.gemm(drawn.a, drawn.b, format=fmt, split_k=2, **words), halves)
    turned = words | {"block_scale_a": words["block_scale_b"], "block_scale_b": words["block_scale_a"]}
    found = sptc.gemm(drawn.b.T, drawn.a.T, format=fmt, swapped=True, **turned)
    np.testing.assert_array_equal(found, whole.T)


def test_codes_vectors_and_batches(rng: Random) -> None:
    drawn = Drawn(rng, "e4m3", "ue8m0", False, 64, (6, 3))
    words = drawn.words("ue8m0")
    expected = sptc.gemm(drawn.a, drawn.b, format="e4m3", **words)
    codes = {"block_scale_a": drawn.scale_a, "block_scale_b": drawn.scale_b, "arch": "sm_120"}
    np.testing.assert_array_equal(sptc.gemm(drawn.a, drawn.b, format="e4m3", **codes), expected)
    np.testing.assert_array_equal(sptc.gemm(sparsify(drawn.a, "2:4"), drawn.b, format="e4m3", **words), expected)
    vector = codes | {"block_scale_b": drawn.scale_b[1]}
    np.testing.assert_array_equal(sptc.gemm(drawn.a, drawn.b[:, 1], format="e4m3", **vector), expected[:, 1])
    batch = codes | {"block_scale_a": np.stack([drawn.scale_a, drawn.scale_a + 1])}
    found = sptc.gemm(np.stack([drawn.a] * 2), drawn.b, format="e4m3", **batch)
    np.testing.assert_array_equal(found, np.stack([expected, 2 * expected]))


def test_scales_as_floats(rng: Random) -> None:
    """Block scales may be given as floats, which are converted to codes in the scale format of the instruction."""
    for fmt, scale, dense, span in KINDS[4:]:
        drawn = Drawn(rng, fmt, scale, dense, span, (6, 3))
        words = drawn.words(scale)
        floats = {name: word.astype(np.float32) for name, word in words.items() if name != "arch"}
        expected = sptc.gemm(drawn.a, drawn.b, instruction=str(drawn.i), **words)
        found = sptc.gemm(drawn.a, drawn.b, instruction=str(drawn.i), arch="sm_120", **floats)
        np.testing.assert_array_equal(found, expected)


def test_scales_do_not_exchange_the_formats_of_a_sparse_b() -> None:
    sparse = np.tile(np.array([1.125, 0, 0, 0], DTYPES["e4m3"]), (1, 16))  # 1.125 is no e5m2, 57344 no e4m3
    dense, one = np.full((1, 64), 57344, DTYPES["e5m2"]), np.full((1, 1), 127, np.uint8)
    scales = {"block_scale_a": one, "block_scale_b": one}
    assert sptc.gemm(dense, sparse.T, arch="sm_120", swapped=True, **scales) == 16 * 1.125 * 57344


@pytest.mark.parametrize("swapped", [False, True])
def test_the_way_is_found(rng: Random, swapped: bool) -> None:
    fmt, scale, dense, span = KINDS[int(rng.integers(4, 6))]
    drawn = Drawn(rng, fmt, scale, dense, span, (20, 24))
    words = drawn.words(scale)
    a, b = drawn.a, drawn.b
    if swapped:
        a, b = b.T, a.T
        words |= {"block_scale_a": words["block_scale_b"], "block_scale_b": words["block_scale_a"]}
    y = sptc.gemm(a, b, format=fmt, split_k=(1, 3), swapped=swapped, **words)
    found = sptc.identify(a, b, y, format=fmt, result="f32", **words)
    assert found.exact
    assert found.way
    assert (found.way.split_k, found.way.swapped, found.way.instruction) == ((1, 3), swapped, str(drawn.i))
    np.testing.assert_array_equal(sptc.gemm(a, b, way=found.way, **{n: w for n, w in words.items() if n != "arch"}), y)


def test_what_is_refused(rng: Random) -> None:
    drawn = Drawn(rng, "e2m1", "ue4m3", False, 32, (4, 3))
    words = drawn.words("ue4m3")
    other = drawn.words("ue8m0")
    codes = {"block_scale_a": drawn.scale_a, "block_scale_b": drawn.scale_b}
    for change, message in (
        ({"block_scale_b": None}, r"^block_scale_b is missing: give block scales of both factors or of neither$"),
        ({"block_scale_a": other["block_scale_a"]}, r"^block_scale_a and .* must have the same format, not ue4m3 and"),
        ({"block_scale_a": np.ones((4, 14), bool)}, r"^block_scale_a must hold codes .float8_e8m0fnu, .* not bool of "),
        ({"block_scale_a": np.full((4, 14), 0.3)}, r"^block_scale_a holds values that ue4m3 cannot represent$"),
        ({"block_scale_b": words["block_scale_b"][:2]}, r"^block_scale_b must be of shape \(3, 14\), .*, not \(2, 14"),
        ({"block_scale_a": words["block_scale_a"][0]}, r"^block_scale_a of shape \(14,\) does not fit a batch of "),
        ({"block_scale_a": words["block_scale_a"][:, :9]}, r"^no instruction for e2m1 on sm_120 has 9 block scales "),
        (codes, r"^block scales of e2m1 may be ue8m0 or ue4m3: pass them in an ml_dtypes type, or name an instr"),
        ({"arch": "sm_90"}, r"^sm_90 has no sparse instruction for e2m1 with block scales of ue4m3$"),
        ({"instruction": str(drawn.i), **other}, r"^mma.* has block scales of ue4m3, not ue8m0$"),
        ({"instruction": "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32",
          "prune": True}, r"^mma.* does not accept block scales$"),
    ):  # fmt: skip
        with pytest.raises(Error, match=message):
            sptc.gemm(drawn.a, drawn.b, format="e2m1", **{**words, **change})
    a = np.zeros((), np.uint8)
    with pytest.raises(Error, match=r"^a must be a matrix or a batch"):
        sptc.gemm(a, drawn.b, format="e2m1", **words)
    with pytest.raises(Error, match=r"^no instruction for e2m1 on sm_120 has 14 block scales along a K of 0"):
        sptc.identify(a, drawn.b, np.zeros((4, 3), np.float32), format="e2m1", result="f32", **words)

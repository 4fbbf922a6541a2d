"""Methods of summation use the right instructions in each chain and the right order of addition of the chains."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import sptc
from sptc.api.backends import backend
from sptc.errors import InstructionError, OperandError
from sptc.gemm.matrices import dense_codes, factors, sparse_codes
from sptc.gemm.sums import Chains
from sptc.gemm.ways import Way, combine, instruction_named
from sptc.golden.matrix import multiply
from sptc.isa.instructions import parse
from sptc.isa.operands import MatrixOperands
from sptc.tensors.sparsify import sparsify
from sptc.tests.gemm.sparse_factors import Random, drawn

WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
HALF = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f16.f16.f16"
FP8 = "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3"


def plain(
    way: Way, a: np.ndarray, b: np.ndarray, expression: str, chains: dict[str, list[int]], c: np.ndarray | None = None
) -> np.ndarray:
    """Evaluate a way of summation on the golden model, chain by chain.

    `chains` maps a name to positions of instructions along K. The first chain starts from C. `expression` adds chains.
    """
    i = parse(way.instruction)
    compressed = sparsify(a, i.granularity)
    number, code = (np.float16, np.uint16) if i.d.bits == 16 else (np.float32, np.uint32)
    values = {}
    for name, chain in chains.items():
        stored, of_k, chunks = (
            np.concatenate([np.arange(size) + place * size for place in chain]) for size in (i.stored_k, i.k, i.chunks)
        )
        begun = c is not None and name == next(iter(chains))
        start = c.view(code) if begun else np.zeros((len(a), b.shape[1]), code)
        left = compressed.stored[:, stored].view(np.uint8 if i.a.bits == 8 else np.uint16)
        right = b[of_k].view(left.dtype)
        operands = MatrixOperands(left[None], right[None], start[None], compressed.nibbles[None, :, chunks])
        values[name] = multiply(i, way.arch, operands)[0].view(number).astype(np.float32)
    return eval(expression, {"h": lambda x: x.astype(np.float16).astype(np.float32)}, values)


TWO = {"p": [0, 1, 2, 3], "q": [4, 5, 6, 7]}
FOUR = {"p": [0, 1], "q": [2, 3], "r": [4, 5], "s": [6, 7]}
#: Arguments of a way, number of instructions along K, sum of the chains, and positions of their instructions along K.
WAYS: list[tuple[dict[str, Any], int, str, dict[str, list[int]]]] = [
    ({}, 3, "p", {"p": [0, 1, 2]}),
    ({"k_order": "descending"}, 8, "p", {"p": [7, 6, 5, 4, 3, 2, 1, 0]}),
    ({"split_k": np.int64(2)}, 5, "p + q", {"p": [0, 1, 2], "q": [3, 4]}),
    ({"split_k": 4}, 8, "((p + q) + r) + s", FOUR),
    ({"split_k": 4}, 5, "(p + q) + r", {"p": [0, 1], "q": [2, 3], "r": [4]}),
    ({"split_k": 4, "cut": "balanced"}, 6, "((p + q) + r) + s", {"p": [0, 1], "q": [2, 3], "r": [4], "s": [5]}),
    ({"split_k": 4, "order": "reverse"}, 8, "((s + r) + q) + p", FOUR),
    ({"split_k": 4, "order": "last first"}, 8, "((s + p) + q) + r", FOUR),
    ({"split_k": 4, "order": "tree"}, 8, "(p + q) + (r + s)", FOUR),
    ({"split_k": 4, "order": "halves"}, 8, "(p + r) + (q + s)", FOUR),
    ({"split_k": 8, "order": "tree 1 2 0"}, 8, "((p + r) + (t + v)) + ((q + s) + (u + w))",
     {name: [number] for number, name in enumerate("pqrstuvw")}),
    ({"split_k": 4, "workspace": "f16"}, 8, "((h(p) + h(q)) + h(r)) + h(s)", FOUR),
    ({"split_k": 4, "running": "f16"}, 8, "h(h(h(h(p) + h(q)) + h(r)) + h(s))", FOUR),
    ({"split_k": 2, "cut": "in turn"}, 8, "p + q", {"p": [0, 2, 4, 6], "q": [1, 3, 5, 7]}),
    ({"split_k": 2, "cut": "in turn", "tile": 2}, 7, "p + q", {"p": [0, 1, 4, 5], "q": [2, 3, 6]}),
    ({"split_k": 2, "tile": 2}, 6, "p + q", {"p": [0, 1, 2, 3], "q": [4, 5]}),
    ({"tile": 1 << 60}, 3, "p", {"p": [0, 1, 2]}),
    ({"split_k": (1, 2), "tile": 2}, 5, "p + q", {"p": [0, 1], "q": [2, 3, 4]}),
    ({"split_k": 3, "order": "halves"}, 3, "(p + r) + q", {"p": [0], "q": [1], "r": [2]}),
    ({"split_k": 5, "order": "tree"}, 5, "((p + q) + (r + s)) + t", {"p": [0], "q": [1], "r": [2], "s": [3], "t": [4]}),
    ({"split_k": (1, 7)}, 8, "p + q", {"p": [0], "q": [1, 2, 3, 4, 5, 6, 7]}),
    ({"instruction": HALF, "split_k": 2}, 8, "p + q", TWO),
    ({"promote": 2}, 1, "p", {"p": [0]}),
    ({"promote": 4}, 3, "p", {"p": [0, 1, 2]}),
    ({"promote": 2}, 5, "(p + q) + r", {"p": [0, 1], "q": [2, 3], "r": [4]}),
    ({"promote": 3}, 7, "(p + q) + r", {"p": [0, 1, 2], "q": [3, 4, 5], "r": [6]}),
    ({"promote": 2, "k_order": "descending"}, 5, "(p + q) + r", {"p": [4, 3], "q": [2, 1], "r": [0]}),
    ({"split_k": 2, "order": "reverse"}, 3, "q + p", {"p": [0, 1], "q": [2]}),
    ({"split_k": 4, "order": "tree", "cut": "balanced"}, 5, "(p + q) + (r + s)",
     {"p": [0, 1], "q": [2], "r": [3], "s": [4]}),
    ({"split_k": 2, "promote": 2}, 6, "(p + q) + (r + s)", {"p": [0, 1], "q": [2], "r": [3, 4], "s": [5]}),
    ({"split_k": 2, "promote": 2, "k_order": "descending"}, 6, "(p + q) + (r + s)",
     {"p": [2, 1], "q": [0], "r": [5, 4], "s": [3]}),
    ({"split_k": (np.int8(1), 4), "promote": np.uint8(2)}, 5, "p + (q + r)", {"p": [0], "q": [1, 2], "r": [3, 4]}),
    ({"split_k": (3, 1), "promote": 2}, 4, "(p + q) + r", {"p": [0, 1], "q": [2], "r": [3]}),
    ({"split_k": 2, "cut": "in turn", "promote": 2}, 5, "(p + q) + r", {"p": [0, 2], "q": [4], "r": [1, 3]}),
    ({"instruction": HALF, "promote": 2}, 5, "(p + q) + r", {"p": [0, 1], "q": [2, 3], "r": [4]}),
    ({"instruction": FP8, "promote": 4}, 6, "p + q", {"p": [0, 1, 2, 3], "q": [4, 5]}),
]  # fmt: skip


@pytest.mark.parametrize("begun", [False, True])
def test_each_way_is_what_a_plain_evaluation_gives(rng: Random, begun: bool) -> None:
    """Sums equal those of `plain`, also with a shorter last chain, and with a K that ends within an instruction."""
    for words, instructions, expression, chains in WAYS:
        swapped = bool(rng.integers(2))
        way = Way(**{"instruction": WGMMA, "swapped": swapped, **words})
        i = way.parsed
        dtype = ml_dtypes.float8_e4m3fn if i.a.bits == 8 else np.float16
        a, b = drawn(rng, (3, 4, instructions * i.k), dtype)
        a[:, -8:], b[-8:] = 0, 0
        c = (8 * rng.standard_normal((3, 4))).astype(np.float16 if i.d.bits == 16 else np.float32) if begun else None
        expected = plain(way, a, b, expression, chains, c)
        for k in (instructions * i.k, instructions * i.k - 8):
            left, right, start = a[:, :k], b[:k], c
            if swapped:
                left, right, start = right.T, left.T, None if c is None else c.T
            for name in ("golden", "native"):
                found = sptc.gemm(left, right, start, way=way, backend=name)
                message = f"{words}, K of {k}, {name}, swapped {swapped}"
                np.testing.assert_array_equal(found.T if swapped else found, expected, message)
        with np.errstate(over="ignore"):
            half = sptc.gemm(left, right, start, way=replace(way, result="f16"), backend="native")
            np.testing.assert_array_equal(half.T if swapped else half, expected.astype(np.float16), str(words))


@pytest.mark.parametrize(("bits", "first"), [(32, [0, 1, 4, 5, 8, 9, 12, 13]), (64, [0, 1, 2, 3, 8, 9, 10, 11])])
def test_two_instructions_take_elements_in_turn(rng: Random, bits: int, first: list[int]) -> None:
    """Of 32 elements along K, the first of two instructions takes the elements e and e + 16 for each e in `first`."""
    a, b = rng.standard_normal((16, 96)).astype(np.float16), rng.standard_normal((96, 8)).astype(np.float16)
    both = [*first, *(16 + element for element in first)]
    both += [element for element in range(32) if element not in both]
    order = [32 * pair + element for pair in range(3) for element in both]
    way = Way(instruction="mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", interleave=bits, promote=1)
    expected = sptc.gemm(a[:, order], b[order], way=replace(way, interleave=0))
    assert (sptc.gemm(a, b, way=replace(way, interleave=0)) != expected).any()
    np.testing.assert_array_equal(sptc.gemm(a, b, way=way), expected)
    found = sptc.identify(a, b, expected, result="f32", instruction=way.instruction)
    assert (found.exact, found.way and found.way.interleave) == (True, bits)
    with pytest.raises(OperandError, match=r"^interleave needs an even number of instructions along K, not 5$"):
        sptc.gemm(a[:, :80], b[:80], way=way)
    message = r"^interleave needs a dense instruction and no scales: it does not apply to w"
    with pytest.raises(OperandError, match=message):
        sptc.gemm(np.zeros((64, 64), np.float16), b[:64], instruction=WGMMA, interleave=bits)


def test_a_chain_from_c_is_kept_apart_from_one_from_zero(rng: Random) -> None:
    """A search that reuses results of chains must not confuse chains that start from C with chains from zero."""
    i = parse(WGMMA)
    a, b = drawn(rng, (3, 4, 4 * i.k), np.float16)
    c = rng.standard_normal((3, 4)).astype(np.float32).view(np.uint32)
    operands = factors(sparse_codes("a", a, i), dense_codes("b", b, i.b), i)
    searched, chain = Chains(operands, "sm_90", backend("golden"), c), [np.array([2, 3])]
    expected = {first: Chains(operands, "sm_90", backend("golden"), c).results(chain, first) for first in (True, False)}
    assert (expected[True] != expected[False]).any()
    for first in (True, False, True):
        np.testing.assert_array_equal(searched.results(chain, first), expected[first])


def test_invalid_ways() -> None:
    for words, message in (
        ({"order": "random"},
         r"^order must be 'in order' or 'reverse' .* a tree over bits of slice indices, e.g. 'tree 1 0', not 'random"),
        ({"order": "tree 2 0"}, r"^order must be 'in order' or .*, not 'tree 2 0'$"),
        ({"interleave": 16}, r"^interleave must be 0, 32 or 64 bits, not 16$"),
        ({"interleave": np.zeros(2)}, r"^interleave must be 0, 32 or 64 bits, not "),
        ({"split_k": 0}, r"^split_k must be an integer of 1 or more, not 0$"),
        ({"split_k": ()}, r"^split_k must be an integer of 1 or more, not \(\)$"),
        ({"promote": -1}, r"^promote must be an integer of 0 or more, not -1$"),
        ({"tile": True}, r"^tile must be an integer of 1 or more, not True$"),
        ({"arch": None}, r"^arch must be a text, not None$"),
        ({"swapped": 1}, r"^swapped must be True or False, not 1$"),
    ):  # fmt: skip
        with pytest.raises(OperandError, match=message):
            Way(instruction=WGMMA, **words)
    with pytest.raises(OperandError, match=r"^split_k is 4, but K has only 3 tiles of 1 instructions$"):
        Way(instruction=WGMMA, split_k=4).slices(3)
    with pytest.raises(OperandError, match=r"^split_k is \(1, 1\), but its sum must be 3, the number of K tiles$"):
        Way(instruction=WGMMA, split_k=(1, 1)).slices(3)
    with pytest.raises(OperandError, match=r"^order 'tree 1 0' needs 4 slices of K, but there are 3$"):
        combine([1, 2, 3], "tree 1 0", lambda one, other: one + other)
    with pytest.raises(OperandError, match=r"^the sum of slices of K depends on their order: name an"):
        combine([1, 2, 3], "any", lambda one, other: one + other)
    for text, message in (
        ("tcgen05.mma.sp.kind::f16", r"must be a tcgen05.mma with shape and types in brackets"),
        ("tcgen05.mma.cta_group::1.kind::f16 (m256n64k16.f32.f16.f16)",
         r"^tcgen05.mma.cta_group.* has no shape and types"),
        ("tcgen05.mma.ws.cta_group::1.kind::f16 (m64n64k16.f32.f16.f16)", r"is not supported in matrix products"),
    ):  # fmt: skip
        with pytest.raises(InstructionError, match=message):
            instruction_named(text, "sm_100")
    pair = instruction_named("tcgen05.mma.kind::f16 (m256n64k16.f32.f16.f16)", "sm_100")
    assert (pair.m, pair.n, pair.k) == (256, 64, 16)


def test_a_way_in_words() -> None:
    way = Way(instruction=FP8, split_k=8, order="tree", promote=4, workspace="f16", running="f16", swapped=True)
    assert str(way) == (
        f"{FP8} on sm_90; A and B exchanged; 8 slices of K, added in a tree of neighbours; partial sums promoted to "
        "f32 every 4 instructions; slice results rounded to f16; running sum in f16; result f32 (RNE)"
    )
    for one in (Way(instruction=FP8), Way(instruction=FP8, workspace="f16", running="f16")):
        assert str(one) == f"{FP8} on sm_90; one chain along K; result f32 (RNE)"
    assert str(Way(instruction=FP8, result="s32")).endswith("; one chain along K; result s32")
    unequal = str(Way(instruction=FP8, split_k=(1, 3), tile=2))
    assert "slices of 1, 3 K tiles, tiles of 2 instructions, added in order" in unequal


def test_operands_of_an_epilogue_must_fit_float32() -> None:
    """The epilogue is computed in float32, so finite values must not become infinite or zero in float32."""
    a, b, c = np.ones((16, 32), np.float32), np.ones((32, 8), np.float32), np.zeros((16, 8), np.float32)
    words: dict[str, Any] = {"c": c, "format": "f16", "prune": True}
    for name in ("alpha", "beta", "bias", "scale_a"):
        for value in (2.0**130, -1e300, 1e-50):
            with pytest.raises(OperandError, match=rf"^{name} holds \S+, which is beyond the range of float32$"):
                sptc.gemm(a, b, **words, **{name: np.float64(value)})
        assert sptc.gemm(a, b, **words, **{name: np.float64(np.inf)}).shape == (16, 8)
    assert np.isnan(sptc.gemm(a, b, **words, bias=np.full((1, 8), 0x7C01, np.uint16).view(np.float16))).all()

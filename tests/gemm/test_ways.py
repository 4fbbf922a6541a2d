"""Ways to sum: which instructions make a chain, in which order chains are added, and each way evaluated plainly."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.errors import InstructionError, OperandError
from sptc.gemm.ways import Way, combine, instruction_named
from sptc.golden.matrix import multiply
from sptc.isa.instructions import parse
from sptc.isa.operands import MatrixOperands
from sptc.tensors.sparsify import sparsify

Random = np.random.Generator
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
SHORT = "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
HALF = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f16.f16.f16"
FP8 = "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3"
SCALED = (
    "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col."
    "kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"
)


def numbers(way: Way, instructions: int) -> list[list[list[int]]]:
    return [[chain.tolist() for chain in of_slice] for of_slice in way.slices(instructions)]


@pytest.mark.parametrize(
    ("words", "instructions", "expected"),
    [
        ({}, 3, [[[0, 1, 2]]]),
        ({"k_order": "descending"}, 3, [[[2, 1, 0]]]),
        ({"split_k": 2}, 5, [[[0, 1, 2]], [[3, 4]]]),
        ({"split_k": 4}, 5, [[[0, 1]], [[2, 3]], [[4]]]),
        ({"split_k": 4, "cut": "balanced"}, 6, [[[0, 1]], [[2, 3]], [[4]], [[5]]]),
        ({"split_k": 2, "cut": "in turn"}, 5, [[[0, 2, 4]], [[1, 3]]]),
        ({"split_k": 2, "cut": "in turn", "tile": 2}, 7, [[[0, 1, 4, 5]], [[2, 3, 6]]]),
        ({"split_k": 2, "tile": 2}, 6, [[[0, 1, 2, 3]], [[4, 5]]]),
        ({"split_k": (1, 3)}, 4, [[[0]], [[1, 2, 3]]]),
        ({"split_k": (1, 2), "tile": 2}, 5, [[[0, 1]], [[2, 3, 4]]]),
        ({"promote": 2}, 5, [[[0, 1], [2, 3], [4]]]),
        ({"promote": 2, "split_k": 2}, 6, [[[0, 1], [2]], [[3, 4], [5]]]),
        ({"promote": 2, "split_k": 2, "k_order": "descending"}, 6, [[[2, 1], [0]], [[5, 4], [3]]]),
    ],
)
def test_which_instructions_make_a_chain(words: dict[str, Any], instructions: int, expected: object) -> None:
    assert numbers(Way(instruction=WGMMA, **words), instructions) == expected


@pytest.mark.parametrize(
    ("order", "terms", "expected"),
    [
        ("in order", 4, "(((0+1)+2)+3)"),
        ("reverse", 4, "(((3+2)+1)+0)"),
        ("tree", 4, "((0+1)+(2+3))"),
        ("halves", 4, "((0+2)+(1+3))"),
        ("tree", 5, "(((0+1)+(2+3))+4)"),
        ("halves", 3, "((0+2)+1)"),
        ("tree", 1, "0"),
    ],
)
def test_the_order_of_additions(order: str, terms: int, expected: str) -> None:
    assert combine([*map(str, range(terms))], order, lambda one, other: f"({one}+{other})") == expected


def plain(way: Way, a: np.ndarray, b: np.ndarray, expression: str, chains: dict[str, list[int]]) -> np.ndarray:
    """Evaluate a way output by output, instruction by instruction, as `expression` adds the chains that are named."""
    i = parse(way.instruction)
    compressed = sparsify(a, i.granularity)
    result = np.zeros((len(a), b.shape[1]), np.float32)
    code = np.uint16 if i.d.bits == 16 else np.uint32
    for row, column in np.ndindex(result.shape):
        values = {}
        for name, chain in chains.items():
            d = np.zeros((1, 1, 1), code)
            for number in chain:
                stored = slice(number * i.stored_k, (number + 1) * i.stored_k)
                of_k = slice(number * i.k, (number + 1) * i.k)
                nibbles = compressed.nibbles[row, number * i.chunks : (number + 1) * i.chunks]
                left = compressed.stored[row, stored].view(np.uint8 if i.a.bits == 8 else np.uint16)
                right = np.ascontiguousarray(b[of_k, column]).view(left.dtype)
                d = multiply(
                    i, way.arch, MatrixOperands(left[None, None], right[None, :, None], d, nibbles[None, None])
                )
            values[name] = np.float32(d.view(np.float16 if i.d.bits == 16 else np.float32)[0, 0, 0])
        result[row, column] = eval(expression, {"h": lambda x: np.float32(np.float16(x))}, values)
    return result


def drawn(rng: Random, rows: int, columns: int, k: int, dtype: Any = np.float16) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix that is sparse 2:4 and a dense one, of mixed magnitudes."""
    a = rng.standard_normal((rows, k)) * 2.0 ** rng.integers(-3, 4, (rows, k))
    a[:, rng.integers(0, 2, k // 2) + np.arange(0, k, 2)] = 0
    return a.astype(dtype), rng.standard_normal((k, columns)).astype(dtype)


TWO = {"p": [0, 1, 2, 3], "q": [4, 5, 6, 7]}
FOUR = {"p": [0, 1], "q": [2, 3], "r": [4, 5], "s": [6, 7]}


@pytest.mark.parametrize(
    ("words", "expression", "chains"),
    [
        ({}, "p", {"p": [0, 1, 2, 3, 4, 5, 6, 7]}),
        ({"k_order": "descending"}, "p", {"p": [7, 6, 5, 4, 3, 2, 1, 0]}),
        ({"split_k": 2}, "p + q", TWO),
        ({"split_k": 4}, "((p + q) + r) + s", FOUR),
        ({"promote": 2}, "((p + q) + r) + s", FOUR),
        ({"split_k": 4, "order": "reverse"}, "((s + r) + q) + p", FOUR),
        ({"split_k": 4, "order": "last first"}, "((s + p) + q) + r", FOUR),
        ({"split_k": 4, "order": "tree"}, "(p + q) + (r + s)", FOUR),
        ({"split_k": 4, "order": "halves"}, "(p + r) + (q + s)", FOUR),
        ({"split_k": 2, "promote": 2}, "(p + q) + (r + s)", FOUR),
        ({"split_k": 4, "workspace": "f16"}, "((h(p) + h(q)) + h(r)) + h(s)", FOUR),
        ({"split_k": 4, "running": "f16"}, "h(h(h(h(p) + h(q)) + h(r)) + h(s))", FOUR),
        ({"split_k": 2, "cut": "in turn"}, "p + q", {"p": [0, 2, 4, 6], "q": [1, 3, 5, 7]}),
        ({"split_k": (1, 7)}, "p + q", {"p": [0], "q": [1, 2, 3, 4, 5, 6, 7]}),
        ({"instruction": HALF, "split_k": 2}, "p + q", TWO),
    ],
)
def test_each_way_is_what_a_plain_evaluation_gives(
    rng: Random, words: dict[str, Any], expression: str, chains: dict[str, list[int]]
) -> None:
    way = Way(**{"instruction": WGMMA, **words})
    a, b = drawn(rng, 3, 4, 8 * way.parsed.k)
    expected = plain(way, a, b, expression, chains)
    np.testing.assert_array_equal(sptc.gemm(a, b, way=way), expected)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(
            sptc.gemm(a, b, way=replace(way, result="f16"), backend="native"), expected.astype(np.float16)
        )


def test_what_is_no_way() -> None:
    for words, message in (
        (
            {"order": "random"},
            r"^order must be 'in order' or 'reverse' or 'last first' or 'tree' or 'halves' or 'any', not 'random'$",
        ),
        ({"split_k": 0}, r"^split_k must be an integer of 1 or more, not 0$"),
        ({"split_k": ()}, r"^split_k must be an integer of 1 or more, not \(\)$"),
        ({"promote": -1}, r"^promote must be an integer of 0 or more, not -1$"),
        ({"tile": True}, r"^tile must be an integer of 1 or more, not True$"),
        ({"arch": None}, r"^arch must be a text, not None$"),
        ({"swapped": 1}, r"^swapped must be True or False, not 1$"),
    ):
        with pytest.raises(OperandError, match=message):
            Way(instruction=WGMMA, **words)
    with pytest.raises(OperandError, match=r"^K has 3 tiles of 1 instructions, too few for 4 slices$"):
        Way(instruction=WGMMA, split_k=4).slices(3)
    with pytest.raises(OperandError, match=r"^slices of \(1, 1\) K tiles do not make up K, which has 3$"):
        Way(instruction=WGMMA, split_k=(1, 1)).slices(3)
    with pytest.raises(OperandError, match=r"^slices that are added in any order have many results; name an order$"):
        combine([1, 2, 3], "any", lambda one, other: one + other)
    with pytest.raises(InstructionError, match=r"is no tcgen05.mma with shape and types in brackets"):
        instruction_named("tcgen05.mma.sp.kind::f16", "sm_100")


def test_a_tile_that_is_longer_than_k() -> None:
    assert [[chain.tolist() for chain in one] for one in Way(instruction=WGMMA, tile=1 << 60).slices(3)] == [
        [[0, 1, 2]]
    ]


def test_a_way_in_words() -> None:
    way = Way(instruction=FP8, split_k=8, order="tree", promote=4, workspace="f16", running="f16", swapped=True)
    assert str(way) == (
        f"{FP8} on sm_90; A and B exchanged; 8 slices of K, added in a tree of neighbours; partial sums promoted to "
        "f32 every 4 instructions; slices rounded to f16; running sum in f16; result f32 (RNE)"
    )
    assert str(Way(instruction=FP8)) == f"{FP8} on sm_90; one chain along K; result f32 (RNE)"
    assert "slices of 1, 3 K tiles, tiles of 2 instructions, added in order" in str(
        Way(instruction=FP8, split_k=(1, 3), tile=2)
    )

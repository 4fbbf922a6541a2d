"""``sptc.mma`` and ``sptc.wgmma`` reject wrong operands and metadata with a message, and broadcast batch axes."""

import contextlib
import re
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.api.backends import backend
from sptc.api.warp import mma_tiles
from sptc.isa.fragments import a_fragment, accumulator_fragment, metadata_map
from sptc.isa.instructions import parse
from sptc.isa.memory import encode_descriptor
from sptc.isa.operands import Immediates
from sptc.operands.registers import pack_nibbles, to_registers
from sptc.sim.benches.random_operands import random_operands
from sptc.tests.isa.test_formats import LEGAL

Function = Callable[..., np.ndarray]


def prepared(text: str, cases: int, rng: np.random.Generator, selector: int = 0) -> tuple[Function, dict[str, Any]]:
    """Return the public function of an instruction, and its arguments for random tiles.

    For wgmma, operands are random bits, and the metadata selects elements 0 and 1 of every chunk. B starts at byte 0,
    without swizzle. Its core matrices of 128 bytes are contiguous along K. A column of B has 64 bytes if A is sparse,
    and 32 bytes if A is dense.
    """
    i = parse(text)
    if i.family == "wgmma":
        d, a = (
            rng.integers(0, 1 << 32, (cases, 128, fragment(i).registers), dtype=np.uint32)
            for fragment in (accumulator_fragment, a_fragment)
        )
        column_bytes = 64 if i.sparse else 32
        smem = rng.integers(0, 256, (cases, column_bytes * i.n), dtype=np.uint8)
        operands = {"d": d, "a": a, "b": encode_descriptor(0, 128, 8 * column_bytes), "smem": smem}
        metadata = {"e": np.full((cases, 128), 0x44444444, np.uint32), "selector": selector}
        return sptc.wgmma, {"instruction": text, **operands, **(metadata if i.sparse else {})}
    drawn = random_operands(i, "uniform" if i.a.is_integer else "mid", cases, rng, sparsity_selector=selector)
    operands = {name: drawn.arrays.get(name) for name in ("a", "b", "c", "e", "scale_a", "scale_b")}
    if i.scale_size:
        byte_a, thread_a, byte_b, thread_b = drawn.immediates.scale_ids
        operands["scale_a"] = (operands["scale_a"], byte_a, thread_a)
        operands["scale_b"] = (operands["scale_b"], byte_b, thread_b)
    arch = "sm_90" if "sm_90" in i.architectures else "sm_120"
    return sptc.mma, {"instruction": text, "selector": selector, "arch": arch} | operands


def refusal(kind: type[sptc.Error], function: Callable[..., object], operands: dict[str, Any]) -> str:
    """Return the message of the error that a call raises. The message must have one line."""
    with pytest.raises(sptc.Error) as caught:
        function(**operands)
    assert type(caught.value) is kind
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


PLAIN = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
ORDERED = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
TF32 = "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32"
FP8 = "mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32"
BYTES = "mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.u8.s32"
HALF_BYTES = "mma.sp.sync.aligned.m16n8k128.row.col.s32.u4.s4.s32"
CONTAINERS = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32"
SCALED = "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X"
SCALED += ".f32.e2m1.e2m1.f32.ue8m0"
MXF8 = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
MXF8 += ".f32.e4m3.e5m2.f32.ue8m0"
DENSE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
SPARSE = (PLAIN, ORDERED, TF32, FP8, BYTES, HALF_BYTES, CONTAINERS, SCALED)

Random = np.random.Generator


def mapped(operands: dict[str, Any], change: Any) -> dict[str, Any]:
    """Apply `change(name, array)` to every array, including the arrays of block scales."""
    result = dict(operands)
    for name, value in operands.items():
        if isinstance(value, tuple):
            result[name] = (change(name, value[0]), *value[1:])
        elif isinstance(value, np.ndarray):
            result[name] = change(name, value)
    return result


A_WANTED = r"^a of .* must be a uint32 array of shape \(\.\.\., 32, 4\), not "
E_WANTED = r"^e of .* must be a uint32 array of shape \(\.\.\., 32\), not "
TRIPLE_WANTED = r" must be a tuple \(data, byte id, thread id\), not "
SCALE_WANTED = r"^scale_. of .* must be a uint32 array of shape \(\.\.\., 32\), not "
REFUSALS = [
    (ORDERED, "a", lambda a: a.view(np.int32), A_WANTED + "int32 of shape"),
    (ORDERED, "a", lambda a: a[..., :2], A_WANTED + r"uint32 of shape \(3, 32, 2\)"),
    (ORDERED, "a", lambda a: a.tolist(), A_WANTED + "list"),
    (DENSE, "b", lambda b: b.repeat(2, -1), r"\(\.\.\., 32, 2\), not .*\(3, 32, 4\)"),
    (ORDERED, "c", lambda c: c.view(np.float32), r"^c of .* uint32 .*, not float32 "),
    (ORDERED, "e", lambda e: None, "is sparse and requires the metadata operand e"),
    (ORDERED, "e", lambda e: e[:, :8], E_WANTED + r"uint32 of shape \(3, 8\)"),
    (DENSE, "e", lambda e: np.zeros(32, np.uint32), "is dense and takes no metadata operand e"),
    (ORDERED, "selector", lambda s: 2, "selector of .* must be 0 to 1, not 2"),
    (DENSE, "selector", lambda s: 1, "selector of .* must be 0, not 1"),
    (ORDERED, "selector", lambda s: False, "selector of .* must be an int, not bool"),
    (ORDERED, "scale_a", lambda s: (0, 0, 0), "has no block scales and takes no scale_a"),
    (SCALED, "scale_a", lambda s: None, "is block-scaled and requires scale_a"),
    (SCALED, "scale_a", lambda s: s[0], TRIPLE_WANTED + r"uint32 of shape \(3, 32\)"),
    (SCALED, "scale_a", lambda s: (s[0] + 0.5, 0, 0), SCALE_WANTED + "float64 "),
    (SCALED, "scale_b", lambda s: (s[0][:, :9], 0, 0), SCALE_WANTED + r"uint32 .*\(3, 9\)"),
    (SCALED, "scale_a", lambda s: (s[0], 1, 0), "byte id in scale_a of .* must be 0 or 2, not 1"),
    (SCALED, "scale_a", lambda s: (s[0], 2.0, 0), r"byte id in .* 0 or 2, not 2\.0"),
    (SCALED, "scale_a", lambda s: (s[0], 0, 2), "thread id in scale_a of .* must be 0 or 1, not 2"),
    (SCALED, "scale_b", lambda s: (s[0], 0, 4), "thread id in scale_b of .* 2 or 3, not 4"),
    (ORDERED, "a", lambda a: a[:2], r"do not broadcast: a \(2,\), b \(3,\), c \(3,\), e \(3,\)$"),
    (WGMMA, "smem", lambda s: s[:2], r"broadcast: d \(3,\), a \(3,\), e \(3,\), smem \(2,\)$"),
]


def test_an_operand_that_does_not_fit(rng: Random) -> None:
    for text, name, change, words in REFUSALS:
        function, operands = prepared(text, 3, rng)
        message = refusal(sptc.OperandError, function, operands | {name: change(operands.get(name))})
        assert re.search(words, message), message
    for text in (ORDERED, WGMMA):
        function, operands = prepared(text, 1, rng)
        message = refusal(sptc.BackendError, function, operands | {"backend": "abacus"})
        assert re.search("^backend must be 'golden'.* not 'abacus'$", message), message
        message = refusal(sptc.OperandError, function, operands | {"metadata": "lenient"})
        assert re.search("^metadata must be 'strict'.*'software'.*'silicon', not 'lenient'$", message), message


UNKNOWN = "^'sm_70' is no known architecture; GPUs older than sm_80 have no sparse tensor cores$"
OPCODE = "tcgen05.mma.cta_group::1.kind"
TWO_LINES = f"{ORDERED}\n{ORDERED}"
INSTRUCTION_REFUSALS = [
    (SCALED, {"arch": "sm_90"}, f"^sm_90 does not have {SCALED}; sm_120 has it"),
    (FP8, {"arch": "sm_86"}, f"^sm_86 does not .* {FP8}; sm_89, sm_90, sm_100, sm_120 have it"),
    (ORDERED, {"arch": "sm_70"}, UNKNOWN),
    (ORDERED, {"instruction": WGMMA}, f"^{WGMMA} .* use sptc.wgmma"),
    (WGMMA, {"instruction": ORDERED}, f"^{ORDERED} .* use sptc.mma"),
    (WGMMA, {"instruction": "fma.rn.f32"}, "'fma.rn.f32'"),
    (ORDERED, {"instruction": TWO_LINES}, re.escape(repr(TWO_LINES))),
    (ORDERED, {"instruction": None}, "NoneType"),
]


def test_an_instruction_that_does_not_fit(rng: Random) -> None:
    for text, changes, words in INSTRUCTION_REFUSALS:
        function, operands = prepared(text, 1, rng)
        message = refusal(sptc.InstructionError, function, operands | changes)
        assert re.search(words, message), message
    words = "is no known architecture; it is an instruction. The architecture is the first argument of sptc.numerics"
    assert words in refusal(sptc.InstructionError, sptc.evidence, {"instruction": "sm_90", "arch": ORDERED})
    for text, words in (
        (f"{OPCODE}::f8f6f4", r"\(m128n8k32\.f16\.e4m3\.e4m3\)$"),
        (f"{OPCODE}::f16", "^the numerics of 'tcgen05.* depend on its types: add"),
    ):
        assert re.search(words, refusal(sptc.InstructionError, sptc.numerics, {"arch": "sm_100", "instruction": text}))
    assert sptc.numerics("sm_100", f"{OPCODE}::tf32").alignment_bits == 25  # the same for all types of this kind


def with_nibble(e: np.ndarray, batch: tuple[int, ...], lane: int, low_bit: int, nibble: int) -> np.ndarray:
    changed = e.copy()
    changed[(*batch, lane)] = changed[(*batch, lane)] & ~np.uint32(15 << low_bit) | np.uint32(nibble << low_bit)
    return changed


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        *((text, "plain") for text in (PLAIN, PLAIN.replace("k32", "k16"), FP8, BYTES, HALF_BYTES, WGMMA)),
        *((text, "ordered") for text in (ORDERED, ORDERED.replace("k32", "k16"), CONTAINERS, SCALED)),
        *((text, "tf32") for text in (TF32, TF32.replace("k16", "k8"))),
    ],
)
def test_strict_takes_the_defined_nibbles_alone(text: str, rule: str, rng: Random) -> None:
    function, operands = prepared(text, 1, rng)
    i = parse(text)
    where = metadata_map(i, 0)
    rows = (0, int(rng.integers(i.m)), i.m - 1)
    chunks = (0, int(rng.integers(1, i.chunks - 1)), i.chunks - 1)
    for place in zip(rng.permutation(rows).tolist(), chunks, strict=True):
        taken = set()
        for nibble in range(16):
            e = with_nibble(operands["e"], (0,), int(where.lanes[place]), int(where.low_bits[place]), nibble)
            silicon = function(**operands | {"e": e}, metadata="silicon")
            with contextlib.suppress(sptc.MetadataError):
                assert np.array_equal(function(**operands | {"e": e}, metadata="strict"), silicon)
                taken.add(nibble)
        assert taken == LEGAL[rule], place


# Row 9 is the second row of group 1. Its metadata is in lanes 4 to 7: for 16-bit types in bits 31:16, for 8-bit and
# 4-bit types in the odd lanes.
PLACES = [
    (PLAIN, 1, (5, 7, 20, 0b0101), "plain", "two different indices"),
    (ORDERED, 0, (5, 5, 20, 0b0001), "ordered", "increasing indices"),
    (TF32, 0, (7, 5, 28, 0b1001), "tf32", "0b0100 (first element) or 0b1110 (second element)"),
    (FP8, 0, (10, 7, 8, 0b0000), "plain", "two different indices"),
    (SCALED, 0, (3, 5, 12, 0b0110), "ordered", "increasing indices"),
]
# For each batch shape: how messages name the last tile. Batches are checked in blocks of 1024 tiles.
BATCHES = {(): "", (3,): "batch 2, ", (2, 3): "batch (1, 2), ", (2100,): "batch 2099, ", (3, 700): "batch (2, 699), "}


@pytest.mark.parametrize("shape", BATCHES)
def test_metadata_error_says_where(shape: tuple[int, ...], rng: Random) -> None:
    for text, selector, (chunk, lane, low_bit, nibble), rule, meaning in PLACES:
        batch = tuple(size - 1 for size in shape)
        _, operands = prepared(text, 1, rng, selector)
        e = np.broadcast_to(operands["e"][0], (*shape, 32))
        operands |= {name: operands[name][0] for name in ("a", "b", "c")}
        operands |= {name: (s[0][0], *s[1:]) for name in ("scale_a", "scale_b") if (s := operands[name])}
        operands["e"] = with_nibble(e, batch, lane, low_bit, nibble)
        with pytest.raises(sptc.MetadataError) as caught:
            sptc.mma(**operands)
        error = caught.value
        assert (error.batch, error.row, error.chunk) == (batch, 9, chunk)
        assert (error.lane, error.low_bit, error.nibble, error.rule) == (lane, low_bit, nibble, rule)
        assert all(type(number) is int for number in (*error.batch, error.row, error.chunk, error.lane, error.low_bit))
        assert str(error) == (
            f"undefined metadata at {BATCHES[shape]}row 9, chunk {chunk} (lane {lane}, bits {low_bit + 3}:{low_bit}): "
            f"nibble 0b{nibble:04b} breaks the {rule} rule, {error.meaning}"
        )
        assert meaning in error.meaning


def test_which_metadata_is_checked(rng: Random) -> None:
    """Messages name the first undefined nibble of the broadcast batch. Lanes that the selector skips are ignored."""
    _, operands = prepared(WGMMA, 3, rng, selector=1)
    operands["e"] = with_nibble(operands["e"], (2,), 96 + 7, 20, 0b1111)
    message = refusal(sptc.MetadataError, sptc.wgmma, operands)
    # Row 57 is row 9 of the last warp.
    assert "batch 2, row 57, chunk 5 (lane 103, bits 23:20): nibble 0b1111 breaks the wgmma rule" in message
    _, operands = prepared(ORDERED, 3, rng)
    doubled = operands | {"a": np.stack([operands["a"]] * 2)}
    for e, batch in ((operands["e"][0], ()), (operands["e"], (1,))):
        message = refusal(sptc.MetadataError, sptc.mma, doubled | {"e": with_nibble(e, batch, 4, 0, 5)})
        assert f"batch (0, {len(batch)}), row 1, chunk 0 " in message
    for batch, lane, low_bit in ((2, 0, 0), (1, 4, 20), (1, 4, 16), (1, 9, 12)):
        operands["e"] = with_nibble(operands["e"], (batch,), lane, low_bit, 0)
    assert "batch 1, row 2, chunk 7 " in refusal(sptc.MetadataError, sptc.mma, operands)
    _, operands = prepared(ORDERED, 2, rng, selector=1)
    expected = sptc.mma(**operands)
    operands["e"][:, np.arange(32) % 4 < 2] = 0
    assert np.array_equal(sptc.mma(**operands), expected)
    assert refusal(sptc.MetadataError, sptc.mma, operands | {"selector": 0})


# Stored elements of one chunk of A, all zero, as codes in containers.
ZEROS = [
    (PLAIN, [0x0000, 0x0000]),
    (ORDERED, [0x8000, 0x0000]),
    (FP8, [0x80, 0x00]),
    (BYTES, [0, 0]),
    (HALF_BYTES, [0, 0, 0, 0]),
    (TF32, [0x80001FFF]),  # -0, with ones in the ignored bits
    (CONTAINERS, [0b11000011, 0b10100001]),  # +0 and -0, with ones in the ignored bits
    (SCALED, [0x0, 0x8, 0x8, 0x0]),
]
NOT_TAKEN = [
    (ORDERED, [0x0000, 0x0001], 0),  # a nonzero element with nibble 0x0
    (PLAIN, [0xFE00, 0x0000], 0),
    (FP8, [0x00, 0x81], 0),
    (BYTES, [0x80, 0], 0),
    (HALF_BYTES, [0, 0, 8, 0], 0),
    (TF32, [0x00002000], 0),
    (CONTAINERS, [0b00000000, 0b00000100], 0),
    (SCALED, [0x0, 0x8, 0x8, 0x9], 0),
    (PLAIN, [0, 0], 0b0101),  # the elements are zero, but the nibble is not 0x0
    (ORDERED, [0, 0], 0b0001),
    (TF32, [0], 0b1000),
    (SCALED, [0, 0, 0, 0], 0b0110),
]


def with_chunk(text: str, codes: list[int], nibble: int, rng: Random) -> dict[str, Any]:
    """Return two tiles. Chunk 3 of row 9 has `codes` and `nibble`; all others have positive codes and nibble 0b0100."""
    parsed = parse(text)
    one = 1 << parsed.low_bit(parsed.a) + max(parsed.a.fraction_bits - 1, 0)
    matrix = np.full((2, parsed.m, parsed.stored_k), one)
    matrix[:, 9, 3 * len(codes) : 4 * len(codes)] = codes
    nibbles = np.full((2, parsed.m, parsed.chunks), 0b0100, np.uint8)
    nibbles[:, 9, 3] = nibble
    e = pack_nibbles(nibbles, parsed, 0, np.zeros((2, 32), np.uint32))
    return prepared(text, 2, rng)[1] | {"a": to_registers(matrix, a_fragment(parsed)), "e": e}


def test_software_takes_0x0_over_zeros_and_nothing_else(rng: Random) -> None:
    for text, codes in ZEROS:
        operands = with_chunk(text, codes, 0, rng)
        if "tf32" in text:  # nibble 0x0 joins two low halves of B, which must not be Inf or NaN
            operands["b"] = operands["b"] & np.uint32(0xFFFF0000)
        legal = with_chunk(text, codes, 0b0100, rng)["e"]
        result = sptc.mma(**operands, metadata="software")
        assert np.array_equal(result, sptc.mma(**operands, metadata="silicon")), text
        assert np.array_equal(result, sptc.mma(**operands | {"e": legal})), text
        assert "row 9, chunk 3" in refusal(sptc.MetadataError, sptc.mma, operands)
    for text, codes, nibble in NOT_TAKEN:
        operands = with_chunk(text, codes, nibble, rng)
        message = refusal(sptc.MetadataError, sptc.mma, operands | {"metadata": "software"})
        assert re.search(f"batch 0, row 9, chunk 3 .* nibble 0b{nibble:04b}", message), (text, codes, message)
        assert sptc.mma(**operands, metadata="silicon").shape == operands["c"].shape


@pytest.mark.parametrize("text", [*SPARSE, DENSE, WGMMA])
def test_leading_axes_broadcast(text: str, rng: Random) -> None:
    shapes = {"a": (2, 1), "b": (3,), "c": (2, 3), "d": (), "e": (), "scale_a": (1, 3), "scale_b": (2, 1), "smem": (3,)}

    def shaped(name: str, value: np.ndarray) -> np.ndarray:
        return value[: int(np.prod(shapes[name]))].reshape(*shapes[name], *value.shape[1:])

    function, operands = prepared(text, 6, rng)
    operands = mapped(operands, shaped)
    result = function(**operands)
    assert result.shape == (2, 3, *operands["d" if text == WGMMA else "c"].shape[-2:])
    full = mapped(operands, lambda name, value: np.broadcast_to(value, (2, 3, *value.shape[len(shapes[name]) :])))
    for case in np.ndindex(2, 3):
        assert np.array_equal(function(**mapped(full, lambda name, value, i=case: value[i])), result[case])


def test_empty_batches_and_an_instruction_in_an_array(rng: Random) -> None:
    for text, shape in product((ORDERED, SCALED, DENSE), ((0,), (2, 0), (0, 3))):
        _, operands = prepared(text, 1, rng)
        operands["c"] = np.zeros((*shape, *operands["c"].shape[1:]), np.uint32)
        result = sptc.mma(**operands)
        assert (result.shape, result.dtype) == (operands["c"].shape, np.uint32), text
    for text in (ORDERED, WGMMA):
        function, operands = prepared(text, 1, rng)
        assert np.array_equal(function(**operands | {"instruction": np.array(text)}), function(**operands))


@pytest.mark.parametrize("text", [ORDERED, BYTES])
def test_many_tiles_are_what_few_are(text: str, rng: Random) -> None:
    _, operands = prepared(text, 2500, rng)
    pieces = [slice(start, start + 400) for start in range(0, 2500, 400)]
    parts = [sptc.mma(**mapped(operands, lambda name, value, piece=piece: value[piece])) for piece in pieces]
    assert np.array_equal(sptc.mma(**operands), np.concatenate(parts))
    grid = mapped(operands, lambda name, value: value[:500] if name == "e" else value.reshape(5, 500, *value.shape[1:]))
    rows = [sptc.mma(**mapped(grid, lambda name, value, i=i: value if name == "e" else value[i])) for i in range(5)]
    assert np.array_equal(sptc.mma(**grid), np.stack(rows))


@pytest.mark.parametrize("text", [DENSE, PLAIN, HALF_BYTES, SCALED, MXF8])
def test_tiles_are_what_a_chain_of_instructions_gives(text: str, rng: Random) -> None:
    batch, rows, columns, steps = 2, 2, 3, 2
    _, drawn = prepared(text, batch * rows * columns * steps, rng)
    selector, options = drawn.pop("selector"), {"arch": drawn.pop("arch")}
    tiles = {"b": (columns, steps), "scale_b": (columns, steps), "c": (rows, columns)}
    operands, ids = {}, [0, 0, 0, 0]
    for name, value in drawn.items():
        if value is None or name == "instruction":
            continue
        first, second = tiles.get(name, (rows, steps))
        if isinstance(value, tuple):
            value, *ids[2 * (name == "scale_b") : 2 * (name == "scale_b") + 2] = value
        operands[name] = value[: batch * first * second].reshape(batch, first, second, *value.shape[1:])
    immediates = Immediates(selector, tuple(ids))
    expected = mma_tiles(text, operands, immediates, backend=backend("golden"), **options)
    for model in ("golden", "native"):
        np.testing.assert_array_equal(mma_tiles(text, operands, immediates, backend=model, **options), expected)
    if parse(text).sparse:
        operands["e"] = np.stack([operands["e"][0], 0 * operands["e"][1]])
        with pytest.raises(sptc.MetadataError) as caught:
            mma_tiles(text, operands, immediates, **options)
        assert caught.value.batch == (1,)

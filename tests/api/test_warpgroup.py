"""``sptc.wgmma`` rejects wrong operands with a message, and accepts operands at every permitted location."""

import re
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.api.backends import backend
from sptc.api.warpgroup import wgmma_chain
from sptc.isa.fragments import a_fragment
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.isa.memory import SWIZZLES, decode_descriptor, encode_descriptor, operand_map
from sptc.isa.operands import Immediates
from sptc.operands.registers import from_registers
from sptc.operands.shared_memory import gather_shared
from sptc.tests.api import test_warp as calls

WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
TF32 = "wgmma.mma_async.sp.sync.aligned.m64n16k16.f32.tf32.tf32"
FP8 = "wgmma.mma_async.sp.sync.aligned.m64n24k64.f16.e4m3.e5m2"
DENSE = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
DENSE_BYTES = "wgmma.mma_async.sync.aligned.m64n32k32.satfinite.s32.s8.u8"
BYTES = "wgmma.mma_async.sp.sync.aligned.m64n32k64.satfinite.s32.s8.u8"

Random = np.random.Generator


def prepared(text: str, cases: int, rng: Random) -> dict[str, Any]:
    return calls.prepared(text, cases, rng)[1]


def refusal(operands: dict[str, Any], kind: type[sptc.Error] = sptc.OperandError) -> str:
    return calls.refusal(kind, sptc.wgmma, operands)


SMEM_WANTED = r"^smem of .* must be a uint8 array of shape \(\.\.\., bytes\), not "
REFUSALS = [
    ("d", lambda d: d.view(np.int32), r"^d of .* uint32 .*\(\.\.\., 128, 4\), not int32 "),
    ("a", lambda a: 1.0, r"^a of .* array of registers or a descriptor \(an int\), not float"),
    ("a", lambda a: 0x3FFF, r"^descriptor a of .* reaches byte 262128, but smem has 512 bytes$"),
    ("b", lambda b: np.zeros((3, 128, 4), np.uint32), r"\(an int\), not uint32 of shape"),
    ("b", lambda b: b | 1 << 15, "0x0000002000088000 of wgmma sets .* bits 0x8000, which must be 0$"),
    ("smem", lambda s: s[:, :511], "b of .* reaches byte 511, but smem has 511 bytes$"),
    ("smem", lambda s: s.view(np.uint32), SMEM_WANTED + r"uint32 of shape \(3, 128\)"),
    ("selector", lambda s: 2, "selector of .* must be 0 to 1, not 2"),
    ("imm_scale_a", lambda _: 0, "^imm_scale_a of .* must be 1 or -1, not 0$"),
    ("imm_scale_b", lambda _: True, "^imm_scale_b of .* must be 1 or -1, not True$"),
    ("scale_d", lambda _: 1, "^scale_d of .* must be True or False, not 1$"),
    ("imm_trans_a", lambda _: 1, "^imm_trans_a .* 0 if operand a is in registers, not 1$"),
    ("imm_trans_b", lambda _: 2, "^imm_trans_b of .* must be 0 or 1, not 2$"),
]


def test_an_operand_that_does_not_fit(rng: Random) -> None:
    for name, change, words in REFUSALS:
        operands = prepared(WGMMA, 3, rng)
        message = refusal(operands | {name: change(operands.get(name))})
        assert re.search(words, message), message
    large = {"a": encode_descriptor((1 << 18) - 1024, 128, 256), "smem": np.zeros((3, 1 << 19), np.uint8)}
    message = refusal(prepared(WGMMA, 3, rng) | large)
    assert re.search("^descriptor a of .* reaches byte 262144, but descriptors address 262144 bytes$", message), message
    sparse, dense = prepared(WGMMA, 1, rng), prepared(DENSE, 1, rng)
    assert refusal(sparse | {"e": None}) == f"{WGMMA} is sparse and requires the metadata operand e"
    assert refusal(sparse | {"selector": None}) == f"{WGMMA} is sparse and requires the selector"
    assert refusal(dense | {"e": sparse["e"]}) == f"{DENSE} is dense and takes no metadata operand e"
    assert refusal(dense | {"selector": 0}) == f"{DENSE} is dense and takes no selector"
    for text in (TF32, FP8, BYTES):
        operands = prepared(text, 1, rng)
        assert refusal(operands | {"imm_trans_b": 1}).endswith("must be 0, not 1")
        assert refusal(operands | {"imm_trans_a": 1, "a": 0}).endswith("must be 0, not 1")
    assert refusal(prepared(BYTES, 1, rng) | {"imm_scale_a": -1}).endswith("must be 1, not -1")


@pytest.mark.parametrize("backend", ["golden", "native", pytest.param("rtl", marks=pytest.mark.regression)])
def test_wgmma_scales_by_signs(backend: str, rng: Random) -> None:
    """`imm_scale_a` or `imm_scale_b` of -1 inverts all signs of A or B. `scale_d` False acts like an old D of 0."""
    operands = prepared(WGMMA, 3, rng)
    minus_a = operands | {"a": operands["a"] ^ np.uint32(0x80008000)}
    minus_b = operands | {"smem": operands["smem"] ^ np.tile(np.array([0, 0x80], np.uint8), 256)}
    without_d = operands | {"d": np.zeros_like(operands["d"])}
    same_as = ({"imm_scale_a": -1}, minus_a), ({"imm_scale_b": -1}, minus_b), ({"scale_d": False}, without_d)
    for options, same in same_as:
        result = sptc.wgmma(**operands, **options, backend=backend)
        assert np.array_equal(result, sptc.wgmma(**same))
        assert not np.array_equal(result, sptc.wgmma(**operands))
    both = {"imm_scale_a": -1, "imm_scale_b": -1}
    assert np.array_equal(sptc.wgmma(**operands, **both, backend=backend), sptc.wgmma(**operands))


def natural_offsets(i: Instruction, operand: str, swizzle: str, transposed: int) -> tuple[int, int]:
    """Return the leading and stride byte offsets of a tile whose swizzle patterns follow each other without a gap."""
    mn, k = (i.m, i.stored_k) if operand == "a" else (i.n, i.k)
    inner, outer = (mn, k) if transposed else (k, mn)
    units = inner * i.container_bits // 128
    if swizzle == "none":
        return (128 * units, 128) if transposed else (128, 128 * units)
    pattern = 8 * SWIZZLES[swizzle].row_bytes
    return pattern * -(-outer // 8), pattern


@pytest.mark.quick_cases(48)
@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize(
    "text",
    [TF32, FP8, BYTES, DENSE_BYTES, *[str(i) for i in every_instruction("wgmma") if i.a.bits == 16 and i.n % 5 == 1]],
)
def test_operands_may_lie_anywhere(text: str, swizzle: str, rng: Random) -> None:
    """Operands in swizzled shared memory, K-major or MN-major, give the same D as A in registers and B unswizzled."""
    i = parse(text)
    operands = prepared(text, 2, rng)
    stored = {
        "a": from_registers(operands["a"], a_fragment(i)),
        "b": gather_shared(operands["smem"], operand_map(i, "b", decode_descriptor(operands["b"]))),
    }
    expected = sptc.wgmma(**operands)
    for trans_a, trans_b in ((0, 0), (1, 0), (0, 1), (1, 1)) if i.container_bits == 16 else ((0, 0),):
        smem = rng.integers(0, 256, (2, 1 << 17), dtype=np.uint8)
        descriptors = {}
        for name, trans in (("a", trans_a), ("b", trans_b)):
            start = {"a": 0, "b": 1 << 15}[name] + 1024 * int(rng.integers(8))
            descriptors[name] = encode_descriptor(start, *natural_offsets(i, name, swizzle, trans), swizzle)
            where = operand_map(i, name, decode_descriptor(descriptors[name]), transposed=bool(trans))
            assert np.unique(where.addresses).size == where.addresses.size
            octets = where.addresses[..., None] + np.arange(where.element_bits // 8)
            smem[:, octets] = stored[name][..., None].view(np.uint8)
        result = sptc.wgmma(**operands | descriptors | {"smem": smem}, imm_trans_a=trans_a, imm_trans_b=trans_b)
        assert np.array_equal(result, expected), (trans_a, trans_b)


def test_the_first_undefined_nibble_of_a_in_memory(rng: Random) -> None:
    """Also for A in shared memory, the software policy accepts nibble 0x0 only if its chunk is all zeros."""
    operands = prepared(WGMMA, 2, rng)
    operands["smem"] = rng.integers(1, 256, (2, 4096), dtype=np.uint8)
    operands |= {"a": encode_descriptor(2048, 128, 256), "e": operands["e"] & ~np.uint32(0xF0)}
    where = operand_map(parse(WGMMA), "a", decode_descriptor(operands["a"]))
    message = refusal(operands | {"metadata": "software"}, sptc.MetadataError)
    assert "batch 0, row 0, chunk 1 (lane 0, bits 7:4): nibble 0b0000 breaks the wgmma rule" in message
    operands["smem"][:, where.addresses] = 0
    operands["smem"][:, where.addresses + 1] = 0
    assert sptc.wgmma(**operands, metadata="software").shape == operands["d"].shape
    assert "nibble 0b0000" in refusal(operands, sptc.MetadataError)


@pytest.mark.parametrize("in_registers", [True, False])
@pytest.mark.parametrize("scale_d", [True, False])
def test_a_chain_is_one_instruction_after_the_other(in_registers: bool, scale_d: bool, rng: Random) -> None:
    text = "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16"
    instruction = parse(text)
    d, *fragments = (rng.standard_normal((2, 128, n)).astype(np.float32).view(np.uint32) for n in (8, 4, 4, 4))
    assert fragments[0].shape[2] == a_fragment(instruction).registers
    smem = rng.standard_normal((2, 4096)).astype(np.float16).view(np.uint8)
    steps = [
        (a if in_registers else encode_descriptor(2048 * place, 128, 256), encode_descriptor(512 * place, 128, 256))
        for place, a in enumerate(fragments)
    ]
    options = {"smem": smem, "immediates": Immediates(scale_d=scale_d, imm_scale=(-1, 1))}
    expected = wgmma_chain(text, d, steps, backend=backend("golden"), **options)
    for model in ("golden", "native"):
        np.testing.assert_array_equal(wgmma_chain(text, d, steps, backend=model, **options), expected)

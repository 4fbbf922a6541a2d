"""Matrices that are packed into registers and memory are unpacked unchanged, for every instruction and selector."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.errors import Error, MetadataError, OperandError
from sptc.golden.matrix import multiply
from sptc.isa.formats import Format
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.names import subject_named
from sptc.isa.operands import MatrixOperands
from sptc.isa.tcgen05 import every_opcode, instructions_of, parse_shaped
from sptc.operands.arrangement import arrangement
from sptc.operands.registers import CONTAINERS, random_nibbles
from sptc.tensors.compressed import Compressed
from sptc.tensors.sparsify import expand

Random = np.random.Generator
F16 = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
E4M3 = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32"
DENSE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.f16.f16"
SCALED = "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
SCALED += ".f32.e2m1.e2m1.f32.ue4m3"
TENSOR = "tcgen05.mma.sp.cta_group::1.kind::f16 (m128n16k32.f32.f16.f16)"


def texts() -> Iterator[str]:
    """Yield the names of all ``mma``, of ``wgmma`` with N = 8 or 40, and of ``tcgen05`` with the smallest N."""
    yield from (str(i) for i in every_instruction() if i.n in (8, 40))
    for opcode in every_opcode():
        forms: dict[tuple[object, ...], str] = {}
        for i in instructions_of(opcode):
            forms.setdefault((i.m, i.a, i.b, i.d, i.satfinite, i.scale_format), f"{opcode} ({i.shape_and_types})")
        yield from forms.values()


TEXTS = [*texts()]


def parsed(text: str) -> Instruction:
    return subject_named(text).instruction


def codes(fmt: Format, shape: tuple[int, ...], rng: Random) -> np.ndarray:
    """Return random codes of a format, in an array type as wide as the format's container."""
    width = CONTAINERS[fmt.container_bits if fmt.container_bits in (16, 32) else 8]
    return rng.integers(0, 1 << fmt.container_bits, shape).astype(width)


def drawn(i: Instruction, rng: Random, lead: tuple[int, ...] = (2,)) -> dict[str, Any]:
    """Return random arguments of `pack`. Sparse A is given as its stored elements and metadata."""
    arguments = {
        "a": codes(i.a, (*lead, i.m, i.stored_k), rng),
        "b": codes(i.b, (*lead, i.k, i.n), rng),
        "c": codes(i.c, (*lead, i.m, i.n), rng),
    }
    if i.sparse:
        arguments["nibbles"] = random_nibbles(i, int(np.prod(lead)), rng).reshape(*lead, i.m, i.chunks)
    if i.scale_size:
        for name, lines in (("scale_a", i.m), ("scale_b", i.n)):
            arguments[name] = rng.integers(0, 256, (*lead, lines, i.scale_size), dtype=np.uint8)
    return arguments


def unplaced(text: str, selector: int) -> bool:
    """Return whether no public source states the operand layout of a ``tcgen05`` form."""
    try:
        if text.startswith("tcgen05"):
            arrangement(*parse_shaped(text), selector)
    except OperandError:
        return True
    return False


def same(actual: np.ndarray | None, reference: np.ndarray) -> bool:
    return actual is not None and actual.shape == reference.shape and (actual.view(reference.dtype) == reference).all()


def run(i: Instruction, packed: dict[str, Any]) -> dict[str, Any]:
    if i.family == "mma":
        return {"instruction": packed["instruction"], "d": sptc.mma(**packed, arch=i.architectures[-1])}
    if i.family == "wgmma":
        return {"instruction": packed["instruction"], "d": sptc.wgmma(**packed)}
    return {**{name: packed[name] for name in ("instruction", "d", "idesc")}, "tmem": sptc.tcgen05_mma(**packed)}


def expected(i: Instruction, matrices: dict[str, Any]) -> np.ndarray:
    """Return the codes of D, computed by the golden model from the matrices."""

    def placed(name: str, fmt: Format) -> np.ndarray:
        return matrices[name].astype(CONTAINERS[max(8, i.container_bits)]) << (i.low_bit(fmt) - fmt.ignored_low_bits)

    others = {name: matrices.get(name) for name in ("nibbles", "scale_a", "scale_b")}
    return multiply(i, i.architectures[-1], MatrixOperands(placed("a", i.a), placed("b", i.b), matrices["c"], **others))


@pytest.mark.quick_cases(24)
@pytest.mark.parametrize("text", TEXTS)
def test_there_and_back(text: str, rng: Random) -> None:
    """Unpacking returns the packed matrices, and the instruction computes their product from the packed operands."""
    i, tried = parsed(text), 0
    matrices = drawn(i, rng)
    for selector in range(i.sparsity_selectors):
        if unplaced(text, selector):
            with pytest.raises(OperandError, match="no public source states"):
                sptc.pack(text, **matrices, selector=selector)
            continue
        packed = sptc.pack(text, **matrices, selector=selector)
        tried += 1
        unpacked = sptc.unpack(**packed)
        assert same(unpacked.stored, matrices["a"])
        assert same(unpacked.b, matrices["b"])
        assert same(unpacked.c if i.family == "mma" else unpacked.d, matrices["c"])
        for name in ("nibbles", "scale_a", "scale_b"):
            assert name not in matrices or same(getattr(unpacked, name), matrices[name]), name
        if i.sparse:
            stored, nibbles = matrices["a"].reshape(-1, i.stored_k), matrices["nibbles"].reshape(-1, i.chunks)
            flat = Compressed(stored, nibbles, i.granularity)
            assert same(unpacked.a, expand(flat, i.rule.name, strict=True).reshape(2, i.m, i.k))
        assert same(sptc.unpack(**run(i, packed)).d, expected(i, matrices))
    assert tried in (0, i.sparsity_selectors)


@pytest.mark.parametrize("a_from", ["registers", "shared"])
@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
def test_shared_memory(a_from: str, swizzle: str, rng: Random) -> None:
    for types in ("m64n24k16.f32.tf32.tf32", "m64n40k32.f16.f16.f16", "m64n8k64.s32.u8.s8", "m64n16k64.f32.e5m2.e4m3"):
        text = f"wgmma.mma_async.sp.sync.aligned.{types}"
        i = parsed(text)
        matrices = drawn(i, rng)
        packed = sptc.pack(text, **matrices, a_from=a_from, swizzle=swizzle)
        assert isinstance(packed["a"], int) == (a_from == "shared")
        unpacked = sptc.unpack(**packed)
        assert same(unpacked.stored, matrices["a"])
        assert same(unpacked.b, matrices["b"])
        assert same(sptc.unpack(text, d=sptc.wgmma(**packed)).d, expected(i, matrices))


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("text", [str(i) for i in every_instruction("mma")])
def test_registers_come_back(text: str, rng: Random) -> None:
    i = parsed(text)
    packed = sptc.pack(text, **drawn(i, rng, ()))
    registers = {n: rng.integers(0, 1 << 32, packed[n].shape, dtype=np.uint32) for n in ("a", "b", "c")}
    unpacked = sptc.unpack(text, **registers)
    others = {name: value for name, value in drawn(i, rng, ()).items() if name in ("nibbles", "scale_a", "scale_b")}
    again = sptc.pack(text, unpacked.stored, unpacked.b, unpacked.c, **others)
    for name, fmt in (("a", i.a), ("b", i.b), ("c", None)):
        element = i.container_bits
        used = (1 << fmt.container_bits) - 1 << (i.low_bit(fmt) - fmt.ignored_low_bits) if fmt else 0xFFFFFFFF
        mask = sum(used << place for place in range(0, 32, element)) if fmt else used
        np.testing.assert_array_equal(again[name], registers[name] & np.uint32(mask))


def test_types_and_batches(rng: Random) -> None:
    """Each format is unpacked to its own array type. Operands may have different batch axes, which broadcast."""
    a, b = np.ones((3, 1, 16, 64), np.float32), rng.integers(-8, 8, (2, 64, 8)).astype(np.float64)
    a[..., 1::2] = 0
    packed = sptc.pack(E4M3, a, b)
    assert packed["a"].shape[:-2] == (3, 1)
    assert packed["b"].shape[:-2] == (2,)
    d = sptc.unpack(E4M3, d=sptc.mma(**packed, arch="sm_89")).d
    assert (d.shape, d.dtype) == ((3, 2, 16, 8), np.float32)
    unpacked = sptc.unpack(**packed)
    assert str(unpacked.b.dtype) == "float8_e4m3fn"
    np.testing.assert_array_equal(unpacked.b.astype(np.float64), b)
    np.testing.assert_array_equal(unpacked.a.astype(np.float32), a)
    assert (unpacked.d, sptc.unpack(E4M3, a=packed["a"]).a) == (None, None)
    tiles = sptc.pack(WGMMA, np.zeros((3, 1, 64, 32)), np.zeros((2, 32, 16)), a_from="shared")
    assert tiles["smem"].shape[:-1] == (3, 2)
    pair = "tcgen05.mma.cta_group::2.kind::i8 (m256n32k32.s32.s8.s8)"
    low = sptc.pack(pair, np.full((256, 32), -8, np.int8), np.zeros((4, 32, 32), np.int8))
    assert low["tmem"].shape == (2, 4, 128, 512)
    assert (sptc.unpack(**low).a == -8).all()
    s4 = "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"
    unpacked = sptc.unpack(**sptc.pack(s4, np.full((16, 64), -3), np.full((64, 8), 7)))
    assert (unpacked.a.astype(int) == -3).all()
    assert (unpacked.b.astype(int) == 7).all()


def test_compressed_and_byte_ids(rng: Random) -> None:
    i = parsed(SCALED)
    matrices = drawn(i, rng, ())
    compressed = Compressed(matrices.pop("a"), matrices.pop("nibbles"), i.granularity)
    packed = sptc.pack(SCALED, compressed, **{**matrices, "scale_a": (matrices["scale_a"], 0, 1)})
    assert packed["scale_a"][1:] == (0, 1)
    unpacked = sptc.unpack(**packed)
    assert same(unpacked.scale_a, matrices["scale_a"])
    assert same(unpacked.nibbles, compressed.nibbles)


@pytest.mark.parametrize("text", [F16, E4M3, WGMMA, TENSOR, TENSOR.replace("::1", "::2").replace("m128", "m256")])
def test_random_metadata_is_legal(text: str, rng: Random) -> None:
    i = parsed(text)
    np.testing.assert_array_equal(sptc.random_metadata(text, 7, 3), sptc.random_metadata(text, 7, 3))
    assert (sptc.random_metadata(text, 7, 3) != sptc.random_metadata(text, 8, 3)).any()
    for selector in range(i.sparsity_selectors):
        words = sptc.random_metadata(text, rng, 40, selector=selector)
        packed = sptc.pack(text, np.zeros((i.m, i.k)), np.zeros((i.k, i.n)), selector=selector)
        if i.family == "tcgen05":
            tmem = np.broadcast_to(packed["tmem"][..., None, :, :], (*packed["tmem"].shape[:-2], 40, 128, 512)).copy()
            tmem[..., packed["e"] : packed["e"] + words.shape[-1]] = words
            packed["tmem"] = tmem
            sptc.tcgen05_mma(**packed)
        else:
            packed["e"] = words
            assert words.shape == (40, i.threads)
            run(i, packed)
        assert {*np.unique(sptc.unpack(**packed).nibbles).tolist()} == i.rule.legal


ZEROS = {"a": np.zeros((16, 32), np.float16), "b": np.zeros((32, 8), np.float16)}
STORED = {**ZEROS, "a": np.zeros((16, 16), np.float16)}
NIBBLES = np.full((16, 8), 4, np.uint8)

#: Instruction and keyword arguments that `pack` rejects, and the expected message.
UNPACKABLE: list[tuple[Any, dict[str, Any], str]] = [
    (F16, {**ZEROS, "a": ZEROS["a"][:8]}, r"^a of mma.* must be of shape \(\.\.\., 16, 32\), not \(8, 32\)$"),
    (F16, {**ZEROS, "b": ZEROS["b"].T}, r"^b of mma.* must be of shape \(\.\.\., 32, 8\), not \(8, 32\)$"),
    (F16, {**ZEROS, "b": "x"}, r"^b must be an array of numpy or a tensor of PyTorch, not str$"),
    (F16, {**ZEROS, "b": ZEROS["b"] > 0}, r"^b must hold bit patterns or numbers of f16, not values of type bool$"),
    (F16, {**ZEROS, "c": np.zeros((16, 8))}, r"^c must hold f32, as float32 or as codes in uint32, not float64$"),
    (F16, {**ZEROS, "selector": 2}, r"^the selector of mma.* must be 0 to 1, not 2$"),
    (F16, {**ZEROS, "nibbles": NIBBLES}, r"^a with its nibbles of mma.* must be of shape \(\.\.\., 16, 16\)"),
    (F16, {**STORED, "nibbles": NIBBLES[:, :4]}, r"^nibbles of mma.* must be uint8 below 16 of shape \(16, 8\)"),
    (F16, {**ZEROS, "scale_a": NIBBLES}, r"^mma.* has no block scales and takes no scale_a$"),
    (F16, {**ZEROS, "swizzle": "32B"}, r"^swizzle of mma.* must be 'none', not '32B'$"),
    (F16, {**ZEROS, "a_from": "shared"}, r"^a_from of mma.* must be 'registers', not 'shared'$"),
    (DENSE, {**STORED, "b": ZEROS["b"][:16], "nibbles": NIBBLES}, r"^mma.* is dense and takes no metadata$"),
    (SCALED, {"a": np.zeros((16, 128)), "b": np.zeros((128, 8))}, r"^scale_a of mma.* must be codes in uint8 of"),
    (TENSOR.replace("m128", "m99"), ZEROS, r"^tcgen05.* has no shape and types 'm99n16k32.f32.f16.f16'"),
    ("mma.sp", ZEROS, r"^the shape is missing in 'mma\.sp\."),
    (7, ZEROS, r"^an instruction must be a string, not int$"),
]
DENSE_TENSOR = TENSOR.replace(".sp", "").replace("k32", "k16")
NOT_PACKED: list[tuple[str, dict[str, Any], str]] = [
    (F16, {"d": np.zeros((32, 2), np.uint32)}, r"^d of mma.* must be a uint32 array of shape \(\.\.\., 32, 4\)"),
    (F16, {"tmem": 0}, r"has no operand tmem$"),
    (WGMMA, {"b": 0}, r"^smem of wgmma.* must be a uint8 array of shape"),
    (WGMMA, {"b": ZEROS["b"]}, r"^b of wgmma.* must be a descriptor \(an int\), not float16 of shape"),
    (WGMMA, {"a": 0.5}, r"^a of wgmma.* must be an array of registers or a descriptor \(an int\), not float$"),
    (DENSE, {"e": np.zeros(32, np.uint32)}, r"is dense and takes no metadata operand e$"),
    (SCALED, {"scale_a": (np.zeros(32, np.uint32), 1, 0)}, r"^the byte id in scale_a of mma.* must be 0, not 1$"),
    (SCALED, {"scale_a": 0}, r"^scale_a of mma.* must be a tuple \(data, byte id, thread id\), not int$"),
    (TENSOR, {"d": 0}, r"^unpack of tcgen05.* needs idesc as sptc.pack returns it: .*not from brackets after"),
    (DENSE_TENSOR, {"d": 0, "e": 0}, r"^tcgen05.* is dense and takes no metadata operand e$"),
    (F16, {"selector": 2}, r"^the selector of mma.* must be 0 to 1, not 2$"),
    (TENSOR, {"tmem": 0}, r"^unpack of tcgen05.* needs d, the address of D in tmem, as sptc.pack returns it"),
]


def test_what_is_refused() -> None:
    for function, refused in ((sptc.pack, UNPACKABLE), (sptc.unpack, NOT_PACKED)):
        for text, words, message in refused:
            with pytest.raises(Error, match=message):
                function(text, **words)
    for matrices, message in (
        ((DENSE, 0), r"is dense and has no metadata$"),
        ((F16, -1), r"^rng must be a numpy.random.Generator or a seed of 0 or more, not -1$"),
        ((F16, 0, 0), r"^tiles must be an integer of 1 to 65536, not 0$"),
    ):
        with pytest.raises(OperandError, match=message):
            sptc.random_metadata(*matrices)
    packed = sptc.pack(TENSOR, np.zeros((128, 32)), np.zeros((32, 16)))
    for others in ({"e": packed["e"]}, {"scale_a": 0}, {"smem": packed["smem"]}):
        with pytest.raises(OperandError, match=r"^tcgen05.* requires operand a if any operand other than d is given$"):
            sptc.unpack(TENSOR, **{name: packed[name] for name in ("d", "tmem", "idesc")}, **others)
    with pytest.raises(OperandError, match=r"^the selector of mma.* must be 0 to 1, not 5$"):
        sptc.random_metadata(F16, 0, selector=5)


def test_undefined_nibbles_are_named(rng: Random) -> None:
    for text, where in ((F16, "lane 9"), (TENSOR, "lane 10"), (WGMMA, "lane 9")):
        matrices = drawn(parsed(text), rng)
        matrices["nibbles"][1, 2, 5] = 0b1111
        with pytest.raises(MetadataError, match=r"undefined metadata .*nibble 0b1111 breaks") as caught:
            sptc.pack(text, **matrices)
        assert (caught.value.batch, caught.value.row, caught.value.chunk) == ((1,), 2, 5)
        assert where in str(caught.value)
        unpacked = sptc.unpack(**sptc.pack(text, **matrices, metadata="silicon"))
        assert unpacked.nibbles[1, 2, 5] == 0b1111
        with pytest.raises(Error, match="0b1111"):
            assert unpacked.a is None

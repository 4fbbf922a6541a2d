"""``tcgen05.mma.sp`` through memory and back: every bit is that of the matrices placed there, and what is refused."""

import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import sptc
from numpy.typing import NDArray
from sptc.golden.matrix import multiply
from sptc.golden.registers import CONTAINERS
from sptc.isa.formats import Format
from sptc.isa.instruction_descriptor import InstructionDescriptor, encode_instruction_descriptor
from sptc.isa.instructions import Instruction
from sptc.isa.memory import encode_descriptor
from sptc.isa.operands import MatrixOperands
from sptc.isa.tcgen05 import instructions_of, parse_opcode
from sptc.isa.tensor_memory import TensorMap, a_map, accumulator_map, layout_for, metadata_map, scale_map
from sptc.rtl.config import PRESET_OF_ARCHITECTURE
from sptc.sim.benches.random_operands import distributions, random_codes

Random = np.random.Generator

SP, SP2 = "tcgen05.mma.sp.cta_group::1", "tcgen05.mma.sp.cta_group::2"
WS = "tcgen05.mma.ws.sp.cta_group::1"
F16, F16_2 = f"{SP}.kind::f16", f"{SP2}.kind::f16"
MXF8 = f"{SP}.kind::mxf8f6f4.block_scale"
NVF4 = f"{SP}.kind::mxf4nvf4.block_scale.block16"

#: Columns of tensor memory where the operands start; D may take 256.
D_AT, A_AT, E_AT, SFA_AT, SFB_AT = 256, 3, 40, 60, 90
#: Width of the pattern, and of what moves as a whole.
PATTERNS = {"none": (16, 16), "32B": (32, 16), "64B": (64, 16), "128B": (128, 16), "128B with 32B atoms": (128, 32)}


@dataclass
class Case:
    """One instruction with random operands: their matrices, and the images they were placed in."""

    text: str
    instruction: Instruction
    arguments: dict[str, Any]
    a: NDArray  # (m, stored k) containers, signs already flipped
    b: NDArray  # (k, n)
    c: NDArray  # (m, n)
    nibbles: NDArray[np.uint8]
    scale_a: NDArray[np.uint8] | None
    scale_b: NDArray[np.uint8] | None  # (CTAs, n, scales)
    d: TensorMap
    ctas: int = field(default=1)

    def run(self, **changes: Any) -> NDArray[np.uint32]:
        given = {"instruction": self.text, **self.arguments, **changes}
        return sptc.tcgen05_mma(**given)

    def matrix(self, c: NDArray | None = None) -> NDArray:
        """Return D as the matrices alone give it, (CTAs, rows of a CTA, n)."""
        cut = lambda part: part.reshape(self.ctas, -1, part.shape[-1])  # noqa: E731
        operands = MatrixOperands(
            cut(self.a),
            np.stack([self.b] * self.ctas),
            cut(self.c if c is None else c),
            cut(self.nibbles),
            None if self.scale_a is None else cut(self.scale_a),
            self.scale_b,
        )
        return multiply(self.instruction, "sm_100", operands)

    def expected(self, c: NDArray | None = None) -> NDArray[np.uint32]:
        """Return the tensor memory that holds it, all else as before."""
        tmem = self.arguments["tmem"].copy()
        _fill_tensor(tmem.reshape(self.ctas, 128, 512), self.d, self.matrix(c))
        return tmem


def _fill_tensor(tmem: NDArray[np.uint32], where: TensorMap, codes: NDArray) -> None:
    mask = np.uint32((1 << where.element_bits) - 1) << where.low_bits.astype(np.uint32)
    for cta, copy in np.ndindex(len(tmem), len(where.copies)):
        places = (where.lanes + where.copies[copy], where.columns)
        np.bitwise_and.at(tmem[cta], places, ~mask)
        np.bitwise_or.at(tmem[cta], places, codes[cta].astype(np.uint32) << where.low_bits.astype(np.uint32))


def _place_shared(
    smem: NDArray[np.uint8], start: int, matrix: NDArray, fmt: Format, padded: bool, transposed: bool, swizzle: str
) -> tuple[int, int]:
    """Write a matrix (mn, k) of codes as the manual lays it out; return its descriptor and the first byte behind."""
    width, atom = PATTERNS[swizzle]
    bits = fmt.container_bits
    per_unit = 16 if padded else 128 // bits
    period = 4 if atom == 32 else 8
    mn, k = np.indices(matrix.shape)
    inner, outer = (mn, k) if transposed else (k, mn)
    rows_step = period * width + 16 * (swizzle == "none")  # with a gap, where nothing asks for alignment
    units_step = (outer.max() // period + 1) * rows_step
    unit = inner // per_unit
    addresses = start + outer % period * width + outer // period * rows_step
    addresses += unit // (width // 16) * units_step + unit % (width // 16) * 16
    addresses ^= ((addresses >> 7) % (width // atom)) * atom
    places = 8 * addresses[..., None] + (inner % per_unit * bits)[..., None] + np.arange(bits)
    flat = np.unpackbits(smem, bitorder="little")
    flat[places] = matrix[..., None] >> np.arange(bits) & 1
    smem[:] = np.packbits(flat, bitorder="little")
    end = int(places.max()) // 8 + 1
    leading, stride = int(units_step), rows_step
    if transposed and swizzle == "none":
        leading, stride = stride, leading
    return encode_descriptor(start, leading, stride, swizzle, family="tcgen05"), -(-end // 1024) * 1024


def case(
    text: str,
    rng: Random,
    *,
    distribution: str = "",
    a_in: str = "shared",
    swizzles: tuple[str, str] = ("none", "none"),
    options: dict[str, Any] | None = None,
    any_nibble: bool = False,
    **wanted: object,
) -> Case:
    """Build an instruction whose shape and types are as wanted, with random operands and random bits around them."""
    opcode = parse_opcode(text)
    wanted = {"m": 32 if opcode.weight_stationary else 128 * opcode.cta_group, **wanted}
    i = next(
        i for i in instructions_of(opcode)
        if all(getattr(getattr(i, name), "name", getattr(i, name)) == value for name, value in wanted.items())
    )  # fmt: skip
    ctas = opcode.cta_group
    layout = layout_for(i.m, ctas, opcode.weight_stationary)
    options = {"sparsity_selector": int(rng.integers(i.sparsity_selectors)), **(options or {})}
    for name in ("scale_id_a", "scale_id_b"):
        options.setdefault(name, int(rng.choice(range(0, 4, i.scale_size))) if i.scale_size else 0)
    descriptor = InstructionDescriptor(instruction=i, **options)
    distribution = distribution or ("uniform" if i.a.is_integer else "mid")
    codes_a, codes_b = (
        random_codes(fmt, distribution, shape, rng) << fmt.ignored_low_bits
        | rng.integers(0, 1 << fmt.ignored_low_bits, shape)
        for fmt, shape in ((i.a, (i.m, i.stored_k)), (i.b, (i.n, i.k)))
    )
    c = random_codes(i.c, distribution, (i.m, i.n), rng).astype(CONTAINERS[i.c.bits])
    legal = np.array(range(16) if any_nibble else sorted(i.rule.legal), np.uint8)  # type: ignore[union-attr]
    nibbles = legal[rng.integers(0, len(legal), (i.m, i.chunks))]
    tmem = rng.integers(0, 1 << 32, (ctas, 128, 512), dtype=np.uint32)
    smem = rng.integers(0, 256, (ctas, 1 << 17), dtype=np.uint8)

    cut = lambda part: part.reshape(ctas, -1, part.shape[-1])  # noqa: E731
    padded = [fmt.bits < 8 and "mxf4" not in i.kind for fmt in (i.a, i.b)]
    arguments: dict[str, Any] = {"d": D_AT, "a": A_AT, "e": E_AT}
    where_d = accumulator_map(layout, i.n, i.d.bits, D_AT)
    _fill_tensor(tmem, where_d, cut(c))
    _fill_tensor(tmem, metadata_map(layout, i, descriptor.sparsity_selector, E_AT), cut(nibbles))
    starts = [0] * ctas
    if a_in == "shared":
        for cta in range(ctas):
            arguments["a"], starts[cta] = _place_shared(
                smem[cta], 0, cut(codes_a)[cta], i.a, padded[0], descriptor.transpose_a, swizzles[0]
            )
    else:
        noise = rng.integers(0, 4, codes_a.shape) << 6 if padded[0] else 0
        _fill_tensor(tmem, a_map(layout, i, A_AT), cut(codes_a | noise))
    for cta in range(ctas):
        columns = codes_b.reshape(ctas, i.n // ctas, i.k)[cta]
        arguments["b"], _ = _place_shared(
            smem[cta], starts[cta], columns, i.b, padded[1], descriptor.transpose_b, swizzles[1]
        )
    scales: list[NDArray | None] = [None, None]
    if i.scale_format and i.scale_size:
        for number, (name, lines, base) in enumerate((("a", layout.rows, SFA_AT), ("b", i.n, SFB_AT))):
            scale_codes = random_codes(i.scale_format, "mid", (ctas, lines, i.scale_size), rng).astype(np.uint8)
            scale_id = options[f"scale_id_{name}"]
            _fill_tensor(tmem, scale_map(name, lines, i.scale_size, scale_id, base), scale_codes)
            scales[number] = scale_codes
            arguments[f"scale_{name}"] = base
    signs = (descriptor.negate_a, descriptor.negate_b)
    codes_a, codes_b = (
        codes ^ (1 << fmt.bits + fmt.ignored_low_bits - 1 if negated else 0)
        for codes, fmt, negated in ((codes_a, i.a, signs[0]), (codes_b, i.b, signs[1]))
    )
    container = CONTAINERS[i.container_bits]
    shifts = [2 * (wide and fmt.bits == 4) for fmt, wide in zip((i.a, i.b), padded, strict=True)]
    arguments["idesc"] = encode_instruction_descriptor(opcode, descriptor)
    arguments["tmem"], arguments["smem"] = (tmem, smem) if ctas == 2 else (tmem[0], smem[0])
    return Case(
        text, i, arguments, (codes_a << shifts[0]).astype(container), (codes_b.T << shifts[1]).astype(container), c,
        nibbles, None if scales[0] is None else scales[0].reshape(i.m, -1), scales[1], where_d, ctas,
    )  # fmt: skip


KINDS: list[tuple[str, dict[str, object]]] = [
    (".kind::tf32", {}),
    (".kind::f16", {"d": "f16"}),
    (".kind::f16", {"d": "f32"}),
    (".kind::f16", {"a": "bf16"}),
    (".kind::f8f6f4", {"a": "e4m3", "b": "e5m2", "d": "f16"}),
    (".kind::f8f6f4", {"a": "e5m2", "b": "e2m1", "d": "f32"}),
    (".kind::i8", {"a": "s8", "b": "u8", "satfinite": True}),
    (".kind::mxf8f6f4.block_scale", {"a": "e5m2", "b": "e2m3"}),
    (".kind::mxf4.block_scale", {}),
    (".kind::mxf4nvf4.block_scale.block32", {}),
    (".kind::mxf4nvf4.block_scale.block16", {"scale_format": "ue4m3"}),
    (".kind::mxf4nvf4.block_scale.scale_vec::4X.collector::a::use", {"scale_format": "ue8m0"}),
]


@pytest.mark.parametrize("a_in", ["shared", "tensor"])
@pytest.mark.parametrize("head", [SP, SP2])
@pytest.mark.parametrize(("tail", "wanted"), KINDS)
def test_through_memory_and_back(head: str, tail: str, wanted: dict[str, object], a_in: str, rng: Random) -> None:
    given = case(head + tail, rng, a_in=a_in, n=32, **wanted)
    before = given.arguments["tmem"].copy(), given.arguments["smem"].copy()
    np.testing.assert_array_equal(given.run(), given.expected())
    np.testing.assert_array_equal(given.arguments["tmem"], before[0])
    np.testing.assert_array_equal(given.arguments["smem"], before[1])


@pytest.mark.parametrize("a", ["e2m1", "e3m2", "e2m3", "e5m2"])
def test_small_elements_are_padded_in_shared_memory(a: str, rng: Random) -> None:
    for text in (f"{SP}.kind::f8f6f4", f"{SP2}.kind::f8f6f4", MXF8):
        b, options = "e2m1" if a != "e2m1" else "e3m2", {"negate_a": bool(rng.integers(2))}
        given = case(text, rng, n=32, a=a, b=b, distribution="special", options=options)
        np.testing.assert_array_equal(given.run(), given.expected())


@pytest.mark.parametrize("m", [32, 64, 128])
@pytest.mark.parametrize("kind", ["tf32", "f16", "f8f6f4", "i8"])
def test_weight_stationary(kind: str, m: int, rng: Random) -> None:
    given = case(f"{WS}.kind::{kind}.collector::b2::fill", rng, m=m, n=64)
    np.testing.assert_array_equal(given.run(), given.expected())


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
def test_swizzles(swizzle: str, rng: Random) -> None:
    for text, n in ((F16, 24), (F16_2, 16), (f"{SP}.kind::f8f6f4", 8)):
        given = case(text, rng, n=n, swizzles=(swizzle, swizzle))
        np.testing.assert_array_equal(given.run(), given.expected())


@pytest.mark.parametrize(("a", "b"), [(True, False), (False, True), (True, True)])
def test_transposition(a: bool, b: bool, rng: Random) -> None:
    options = {"transpose_a": a, "transpose_b": b}
    for text, swizzle in ((F16, "none"), (F16, "32B"), (F16_2, "128B"), (f"{SP}.kind::i8", "64B")):
        given = case(text, rng, n=32, swizzles=(swizzle, swizzle), options=options)
        np.testing.assert_array_equal(given.run(), given.expected())
    atoms = tuple("128B with 32B atoms" if transposed else "128B" for transposed in (a, b))
    given = case(f"{SP}.kind::tf32", rng, n=32, swizzles=atoms, options=options)  # type: ignore[arg-type]
    np.testing.assert_array_equal(given.run(), given.expected())


@pytest.mark.parametrize(("a", "b"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("tail", "wanted"), [row for row in KINDS if "i8" not in row[0]])
def test_negation(tail: str, wanted: dict[str, object], a: bool, b: bool, rng: Random) -> None:
    given = case(SP + tail, rng, n=8, options={"negate_a": a, "negate_b": b}, **wanted)
    np.testing.assert_array_equal(given.run(), given.expected())


def test_every_distribution(rng: Random) -> None:
    for text, kind in ((F16, "d"), (NVF4, "")):
        for distribution in distributions(case(text, rng, n=8).instruction):
            given = case(text, rng, n=8, distribution=distribution, **({kind: "f16"} if kind else {}))
            np.testing.assert_array_equal(given.run(), given.expected(), err_msg=distribution)


def test_largest_tile(rng: Random) -> None:
    given = case(f"{SP2}.kind::mxf4.block_scale", rng, n=256)
    np.testing.assert_array_equal(given.run(), given.expected())


def test_integers_are_exact_sums(rng: Random) -> None:
    for _ in range(4):
        given = case(f"{SP}.kind::i8", rng, n=256, a="s8", b="u8", satfinite=False)
        kept = np.stack([given.nibbles & 3, given.nibbles >> 2], -1) + 4 * np.arange(16)[:, None]
        met = given.b.astype(np.int64)[kept.reshape(128, -1)]
        d = np.einsum("mk,mkn->mn", given.a.view(np.int8).astype(np.int64), met) + given.c.view(np.int32)
        np.testing.assert_array_equal(given.run()[:, D_AT:], d & 0xFFFFFFFF)


def test_without_input_d(rng: Random) -> None:
    given = case(F16, rng, n=8, d="f16", distribution="special")
    zero = np.zeros_like(given.c)
    np.testing.assert_array_equal(given.run(enable_input_d=False), given.expected(zero))
    np.testing.assert_array_equal(given.run(enable_input_d=np.False_, scale_input_d=15), given.expected(zero))


@pytest.mark.parametrize("text", [F16, f"{SP}.kind::tf32"])
def test_scaled_input_d(text: str, rng: Random) -> None:
    given = case(text, rng, n=8, d="f32")
    given.arguments["tmem"][3, D_AT : D_AT + 4] = [0, 1 << 31, 0x7F800000, 0x7FC00001]
    given.c[3, :4] = [0, 1 << 31, 0x7F800000, 0x7FC00001]
    for exponent in (0, 1, 15):
        scaled = (given.c.view(np.float32) * np.float32(2.0**-exponent)).view(np.uint32)
        np.testing.assert_array_equal(given.run(scale_input_d=exponent), given.expected(scaled))


def test_scaled_half_precision(rng: Random) -> None:
    given = case(F16, rng, n=8, d="f16", distribution="narrow")
    given.c[0, 0] = 0x3C00  # one; the others are near it
    scaled = (given.c.view(np.float16) / np.float16(8)).view(np.uint16)
    given.arguments["tmem"][0, D_AT] = 0x3C00
    np.testing.assert_array_equal(given.run(scale_input_d=3), given.expected(scaled))
    for subnormal, exponent in ((0x0001, 1), (0x83FF, 15), (0x0400, 1), (0x3C00, 15)):
        given.arguments["tmem"][0, D_AT] = subnormal
        with pytest.raises(sptc.OperandError, match=rf"must leave no subnormal number in D, not {exponent}: no public"):
            given.run(scale_input_d=exponent)


def test_disabled_lanes(rng: Random) -> None:
    given = case(F16, rng, n=8)
    masks = [1 << 31 | 1, 0, 0xFFFFFFFF, 1 << 5]
    expected = given.expected()
    lanes = [0, 31, *range(64, 96), 101]
    expected[lanes] = given.arguments["tmem"][lanes]
    np.testing.assert_array_equal(given.run(disable_output_lane=masks), expected)
    np.testing.assert_array_equal(given.run(disable_output_lane=[0] * 4), given.expected())


def test_batches_broadcast(rng: Random) -> None:
    for text in (F16, F16_2):
        given = [case(text, rng, n=16, options={"sparsity_selector": 1}) for _ in range(3)]
        assert len({(one.arguments["a"], one.arguments["idesc"]) for one in given}) == 1
        at = given[0].ctas - 1  # where the batch stands
        images = {name: np.stack([one.arguments[name] for one in given], at) for name in ("tmem", "smem")}
        np.testing.assert_array_equal(given[0].run(**images), np.stack([one.run() for one in given], at))
        two = images["smem"].take([0, 1], at)
        crossed = given[0].run(tmem=np.expand_dims(images["tmem"], at + 1), smem=two)
        np.testing.assert_array_equal(crossed[..., 2, 1, :, :], given[2].run(smem=given[1].arguments["smem"]))
        with pytest.raises(sptc.OperandError, match=r"do not broadcast: tmem \(3,\), smem \(2,\)"):
            given[0].run(tmem=images["tmem"], smem=two)


def test_many_images(rng: Random) -> None:
    """More than are worked on at once."""
    given = case(F16, rng, n=8)
    smem = np.stack([given.arguments["smem"]] * 19)
    smem[18] ^= smem[18] >> 1
    result = given.run(smem=smem)
    np.testing.assert_array_equal(result[:18], np.stack([given.expected()] * 18))
    np.testing.assert_array_equal(result[18], given.run(smem=smem[18]))


@pytest.mark.parametrize(
    ("text", "wanted"), [(F16, {"d": "f32"}), (F16_2, {"d": "f16"}), (NVF4, {"scale_format": "ue4m3"})]
)
def test_the_hardware_gives_the_same(
    text: str, wanted: dict[str, object], rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The datapaths differ in name alone; other tests build this one.
    monkeypatch.setitem(PRESET_OF_ARCHITECTURE, "sm_100", "rtx-blackwell")
    given = case(text, rng, n=16, any_nibble=True, **wanted)
    np.testing.assert_array_equal(given.run(backend="rtl", metadata="silicon"), given.expected())


# --- metadata ---


@pytest.mark.parametrize(("text", "row", "chunk"), [(F16, 41, 6), (F16_2, 233, 6), (f"{SP}.kind::i8", 77, 11)])
def test_undefined_metadata(text: str, row: int, chunk: int, rng: Random) -> None:
    given = case(text, rng, n=32, options={"sparsity_selector": 0})
    i = given.instruction
    cta, local = divmod(row, 128)
    where = metadata_map(layout_for(i.m, given.ctas), i, 0, E_AT)
    lane, column, low = (int(part[local, chunk]) for part in (where.lanes, where.columns, where.low_bits))
    tmem = np.stack([given.arguments["tmem"]] * 2)
    words = tmem.reshape(2, -1, 128, 512)[1, cta]
    words[lane, column] = words[lane, column] & ~np.uint32(15 << low) | np.uint32(0b0101 << low)
    with pytest.raises(sptc.MetadataError) as caught:
        given.run(tmem=tmem)
    error = caught.value
    assert (error.batch, error.row, error.chunk) == ((1,), row, chunk)
    assert (error.lane, error.column, error.low_bit, error.nibble, error.rule) == (lane, column, low, 5, "tcgen05")
    assert f"batch 1, row {row}, chunk {chunk} (lane {lane}, column {column}, bits {low + 3}:{low}): " in str(error)
    given.nibbles[row, chunk] = 0b0101
    given.arguments["tmem"] = tmem[1]
    np.testing.assert_array_equal(given.run(metadata="silicon"), given.expected())


def test_software_takes_empty_chunks(rng: Random) -> None:
    given = case(F16, rng, n=8, a_in="tensor", options={"sparsity_selector": 0})
    where = metadata_map(layout_for(128, 1), given.instruction, 0, E_AT)
    _fill_tensor(given.arguments["tmem"][None], replace(where, copies=(0,)), np.zeros((1, 128, 8), np.uint32))
    given.nibbles[:] = 0
    given.a[:] = 0x8000
    _fill_tensor(given.arguments["tmem"][None], a_map(layout_for(128, 1), given.instruction, A_AT), given.a[None])
    with pytest.raises(sptc.MetadataError, match="row 0, chunk 0 "):
        given.run()
    np.testing.assert_array_equal(given.run(metadata="software"), given.expected())
    given.arguments["tmem"][19, A_AT] ^= 1
    with pytest.raises(sptc.MetadataError, match="row 19, chunk 0 "):
        given.run(metadata="software")


# --- what is refused ---

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (F16, {"instruction": "tcgen05.mma"}, r"'\.sp' is missing"),
    (F16, {"backend": "cuda"}, r"^back end 'cuda' executes mma and wgmma, not tcgen05\.mma\.sp$"),
    (F16, {"metadata": "lax"}, r"^metadata must be 'strict'"),
    (F16, {"idesc": 4.5}, r"^idesc of .* must be an int, not float$"),
    (F16, {"idesc": 0}, r"is of a dense instruction"),
    (F16, {"d": None}, r"^d of .* must be an int, not NoneType$"),
    (F16, {"a": True}, r"^a of .* must be an int, not bool$"),
    (F16, {"a": 1 << 40}, r"^a must be a 32-bit address of tensor memory, not 1099511627776$"),
    (F16, {"b": 0}, r"must hold 0b001 in bits 48:46"),
    (F16, {"d": 1 << 16}, r"^d must start at lane 0 "),
    (F16, {"d": 509}, r"^d at column 509 of tensor memory reaches column 524"),
    (F16, {"e": 41}, r"^e of .* must start at an even column of tensor memory, not 41$"),
    (F16, {"e": D_AT + 2}, r"^e of .* must lie apart from d in tensor memory; they overlap$"),
    (F16, {"a": D_AT - 5}, r"^a of .* must lie apart from d "),
    (NVF4, {"scale_a": D_AT - 3}, r"^scale_a of .* must lie apart from d "),
    (NVF4, {"scale_b": D_AT + 7}, r"^scale_b of .* must lie apart from d "),
    (F16, {"scale_a": 5}, r"has no block scales and takes no scale_a$"),
    (NVF4, {"scale_b": None}, r"is block-scaled and requires scale_b$"),
    (F16, {"enable_input_d": 1}, r"^enable_input_d of .* must be True or False, not 1$"),
    (F16, {"scale_input_d": 16}, r"^scale_input_d of .* must be 0 to 15, not 16$"),
    (F16, {"scale_input_d": "1"}, r"^scale_input_d of .* must be an int, not str$"),
    (NVF4, {"scale_input_d": 1}, r"^scale_input_d of .* must be 0, not 1; it belongs to kinds f16 and tf32$"),
    (f"{WS}.kind::f16", {"scale_input_d": 1}, r"^scale_input_d of .* must be 0, not 1"),
    (F16, {"disable_output_lane": [0] * 8}, r"^disable_output_lane of .* must be 4 numbers of 32 bits"),
    (F16, {"disable_output_lane": [0, 0, 0, 1 << 32]}, r"must be 4 numbers of 32 bits"),
    (F16_2, {"disable_output_lane": [0] * 8}, r"must be left out: no public source states which of its eight"),
    (NVF4, {"disable_output_lane": [0] * 4}, r"takes no disable_output_lane$"),
    (f"{WS}.kind::f16", {"disable_output_lane": [0] * 4}, r"takes no disable_output_lane$"),
    (F16, {"tmem": np.zeros((128, 511), np.uint32)}, r"\(\.\.\., 128, 512\), not uint32 of shape \(128, 511\)$"),
    (F16, {"tmem": np.zeros((128, 512), np.int32)}, r"^tmem of .* must be a uint32 array"),
    (F16_2, {"tmem": np.zeros((128, 512), np.uint32)}, r"of shape \(2, \.\.\., 128, 512\), not"),
    (F16, {"smem": np.zeros(9, np.int8)}, r"^smem of .* must be a uint8 array of shape \(\.\.\., bytes\)"),
    (F16_2, {"smem": np.zeros(1 << 17, np.uint8)}, r"^smem of .* of shape \(2, \.\.\., bytes\), not uint8"),
    (F16, {"smem": np.zeros(64, np.uint8)}, r"^descriptor a of .* reaches byte 64, but smem has 64 bytes$"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "changes", "message"), REFUSED)
def test_refused(text: str, changes: dict[str, Any], message: str, rng: Random) -> None:
    given = case(text, rng, **({"n": 64} if "ws" in text else {"n": 16}))
    with pytest.raises(sptc.Error) as caught:
        given.run(**changes)
    assert re.search(message, str(caught.value)), str(caught.value)


@pytest.mark.parametrize(
    ("text", "flipped", "message"),
    [
        (F16, 1 << 1, r"^the selector of .* must be 0 or 1: no public source states which columns [23] picks$"),
        (f"{WS}.kind::f16", 1 << 30, r"^the maximum shift of .* must be 0, not 8: no public source states"),
        (F16, 12 << 24, r"is not covered: no public source states where layout F, 64 rows in a CTA, has its metadata$"),
        (F16_2, 24 << 24, r"is not covered: no public source states where layout C, 64 rows in a CTA"),
    ],
)
def test_what_no_source_states(text: str, flipped: int, message: str, rng: Random) -> None:
    given = case(text, rng, **({"n": 64} if "ws" in text else {"n": 16}))
    with pytest.raises(sptc.OperandError) as caught:
        given.run(idesc=given.arguments["idesc"] ^ flipped)
    assert re.search(message, str(caught.value)), str(caught.value)


def test_operands_on_half_of_the_lanes_share_it(rng: Random) -> None:
    given = case(F16, rng, n=16)
    idesc = given.arguments["idesc"] ^ 12 << 24
    for changes, told in (
        ({"d": 16 << 16 | D_AT}, "d at 16, e at 0"),
        ({"d": 16 << 16 | D_AT, "e": 16 << 16 | E_AT, "a": A_AT}, "d at 16, e at 16, a at 0"),
    ):
        with pytest.raises(sptc.OperandError, match=f"must start at one lane, not {told}$"):
            given.run(idesc=idesc, **changes)
    everything = {"d": 16 << 16 | D_AT, "e": 16 << 16 | E_AT, "a": 16 << 16 | A_AT}
    with pytest.raises(sptc.OperandError, match="layout F"):
        given.run(idesc=idesc, **everything)


def test_swizzles_that_do_not_fit(rng: Random) -> None:
    tf32 = f"{SP}.kind::tf32"
    atoms, plain = (encode_descriptor(0, 128, 256, name, family="tcgen05") for name in ("128B with 32B atoms", "128B"))
    for text, options, changes, message in (
        (F16, {}, {"b": atoms}, r"descriptor b of .* must not use .* for K-major \.f16$"),
        (F16, {"transpose_b": True}, {"b": atoms}, r"descriptor b of .* must not use .* for transposed \.f16$"),
        (tf32, {}, {"a": atoms}, r"descriptor a of .* must not use .* for K-major \.tf32$"),
        (tf32, {"transpose_b": True}, {"b": plain}, r"descriptor b of .* must use .* for transposed \.tf32$"),
    ):
        atom = "128B with 32B atoms" if text == tf32 and options else "none"
        given = case(text, rng, n=16, options=options, swizzles=("none", atom), d="f32")
        with pytest.raises(sptc.OperandError, match=message):
            given.run(**changes)
    given = case(F16, rng, n=16, options={"transpose_a": True})
    with pytest.raises(sptc.OperandError, match=r"a of .* must be in shared memory to be transposed"):
        given.run(a=A_AT)


def test_copies_must_agree(rng: Random) -> None:
    scaled = case(NVF4, rng, n=16)
    stationary = case(f"{WS}.kind::f16", rng, m=64, n=64, options={"sparsity_selector": 0})
    for given, lane, column, message in (
        (scaled, 35, SFA_AT, r"^scale_a of .* in its 4 copies .* lanes 3 and 35, column 60, differ$"),
        (scaled, 105, SFB_AT, r"^scale_b of .* lanes 9 and 105, column 90, differ$"),
        (stationary, 64, E_AT, r"^e of .* in its 2 copies .* lanes 0 and 64, column 40, differ$"),
    ):
        tmem = given.arguments["tmem"].copy()
        tmem[lane, column] ^= 1
        with pytest.raises(sptc.OperandError, match=message):
            given.run(tmem=tmem)

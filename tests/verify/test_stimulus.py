"""Random operands have the right nibbles, values and shapes, and are reproducible with the seed."""

import numpy as np
import pytest
from sptc.isa.formats import FORMATS, Format, Specials
from sptc.isa.fragments import a_fragment, b_fragment
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.isa.memory import decode_descriptor
from sptc.operands.registers import from_registers, unpack_nibbles
from sptc.operands.shared_memory import gather_shared
from sptc.sim.benches import random_operands as benches
from sptc.sim.benches.random_operands import distributions, random_codes, random_operands
from sptc.tests.isa.test_formats import DTYPES
from sptc.verify.stimulus import random_register_file

FLOATS = [fmt for fmt in FORMATS.values() if not fmt.is_integer]
FINITE = [name for name in benches.FLOAT_DISTRIBUTIONS if name not in ("special", "bits")]

Random = np.random.Generator
#: One instruction for every combination of type of A, sparsity, kind and block scales.
KINDS = [*{(i.a, i.sparse, i.kind, i.scale_size, i.scale_format): i for i in every_instruction("mma")}.values()]
SPARSE = [instruction for instruction in KINDS if instruction.sparse]


def values(codes: np.ndarray, fmt: Format) -> np.ndarray:
    """Return the values of float codes (low bits of unsigned integers), computed without the package's decoder."""
    dtype = np.dtype(DTYPES[fmt.name])
    with np.errstate(invalid="ignore"):  # signalling NaNs become quiet NaNs
        return (codes.astype(f"u{dtype.itemsize}") << fmt.ignored_low_bits).view(dtype).astype(float)


def architecture_of(i: Instruction) -> str:
    return "sm_90" if "sm_90" in i.architectures else "sm_120"


def test_every_distribution_has_the_right_shapes(rng: Random) -> None:
    for i in KINDS:
        bits = i.container_bits
        assert distributions(i) == (benches.INTEGER_DISTRIBUTIONS if i.a.is_integer else benches.FLOAT_DISTRIBUTIONS)
        for distribution in distributions(i):
            drawn, case = random_operands(i, distribution, 2, rng).arrays, f"{i}, {distribution}"
            elements = {"a": i.m * i.stored_k * bits, "b": i.k * i.n * bits, "c": i.m * i.n * i.c.bits}
            shapes = {name: (2, 32, size // 1024) for name, size in elements.items()}
            others = ["e"] * bool(i.sparse) + ["scale_a", "scale_b"] * bool(i.scale_size)
            assert {name: array.shape for name, array in drawn.items()} == shapes | dict.fromkeys(others, (2, 32)), case
            assert all(array.dtype == np.uint32 for array in drawn.values()), case
            d = random_register_file(i, architecture_of(i), distribution, 2, rng).run()
            assert d.shape == drawn["c"].shape, case


def check_nibbles(i: Instruction, cases: int, rng: Random) -> None:
    for sparsity_selector in range(i.sparsity_selectors):
        for any_nibble, expected in ((False, set(i.rule.legal)), (True, set(range(16)))):
            options = {"sparsity_selector": sparsity_selector, "any_nibble": any_nibble}
            drawn = random_register_file(i, architecture_of(i), distributions(i)[0], cases, rng, **options)
            assert drawn.sparsity_selector == sparsity_selector
            assert set(unpack_nibbles(drawn.e, i, sparsity_selector).flat) == expected, (str(i), any_nibble)


def test_nibbles_and_metadata_outside_the_selected_lanes(rng: Random) -> None:
    for i in SPARSE:
        check_nibbles(i, 8, rng)
    check_nibbles(parse("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"), 4, rng)
    instruction = parse("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    drawn = random_operands(instruction, "mid", 8, rng, sparsity_selector=1)
    assert set(unpack_nibbles(drawn.arrays["e"], instruction, 0).flat) == set(range(16))


def test_special_values_are_those_of_the_format(rng: Random) -> None:
    for fmt in FLOATS:
        for distribution in FINITE:
            codes = random_codes(fmt, distribution, (5000,), rng)
            assert 0 <= codes.min() <= codes.max() < 1 << fmt.bits, (fmt.name, distribution)
            assert np.isfinite(values(codes, fmt)).all(), (fmt.name, distribution)
        result = values(random_codes(fmt, "special", (5000,), rng), fmt)
        assert np.isnan(result).any() == (fmt.specials is not Specials.NONE), fmt.name
        assert np.isinf(result).any() == (fmt.specials is Specials.IEEE), fmt.name
        assert np.isfinite(result).any(), fmt.name
        assert (result == 0).any() or not fmt.subnormals, fmt.name
        assert np.signbit(result[result == 0]).any() or not fmt.signed, fmt.name


@pytest.mark.parametrize("fmt", [FORMATS[name] for name in ("f16", "bf16", "tf32", "e5m2")], ids=lambda fmt: fmt.name)
def test_spreads_of_exponents(fmt: Format, rng: Random) -> None:
    finest, largest = 2.0**fmt.minimum_exponent, fmt.maximum

    def magnitudes(distribution: str) -> np.ndarray:
        return np.abs(values(random_codes(fmt, distribution, (5000,), rng), fmt))

    narrow, mid, wide = magnitudes("narrow"), magnitudes("mid"), magnitudes("wide")
    assert 0.5 <= narrow.min() < narrow.max() < 4
    assert 2**-4 <= mid.min() < 0.25 < 8 < mid.max() < 2**5
    assert wide.min() < 2 * finest
    assert wide.max() > largest / 4
    assert magnitudes("tiny").max() < 4 * finest
    huge, ends = magnitudes("huge"), magnitudes("ends")
    assert huge[huge > 0].min() >= largest / 4
    assert 0.02 < (huge == 0).mean() < 0.1
    assert ((ends < 4 * finest) | (ends >= largest / 4)).all()
    assert 0 < (ends >= largest / 4).mean() < 0.5


def test_spreads_of_codes(rng: Random) -> None:
    assert 0.6 < (random_codes(FORMATS["f16"], "zeros", (5000,), rng) == 0).mean() < 0.8
    assert set(random_codes(FORMATS["e4m3"], "bits", (10000,), rng)) == set(range(256))
    for name in ("s8", "u8", "s4", "u4", "s32"):
        fmt = FORMATS[name]
        top = 1 << (fmt.bits - 1)
        assert set(random_codes(fmt, "extreme", (1000,), rng)) == {0, 1, top - 1, top, 2 * top - 1}, name
        uniform = random_codes(fmt, "uniform", (50000,), rng)
        assert 0 <= uniform.min() <= top / 8, name
        assert 2 * top - 1 - top / 8 <= uniform.max() < 2 * top, name


def test_neighbours_cancel(rng: Random) -> None:
    instruction = parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32")
    drawn = random_operands(instruction, "cancelling", 3, rng).arrays
    a, b = from_registers(drawn["a"], a_fragment(instruction)), from_registers(drawn["b"], b_fragment(instruction))
    assert np.array_equal(values(a[..., 1::2], instruction.a), -values(a[..., ::2], instruction.a))
    assert (b == b[:, :1]).all()


def test_ignored_bits_of_a_container_are_random(rng: Random) -> None:
    f8f6f4 = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4"
    for text, ignored in (
        ("mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", 0x1FFF),
        (f"{f8f6f4}.f32.e2m1.e2m1.f32", 0b11000011),
        (f"{f8f6f4}.f32.e3m2.e2m3.f32", 0b11000000),
    ):
        i = parse(text)
        containers = from_registers(random_operands(i, "narrow", 4, rng).arrays["a"], a_fragment(i))
        assert np.bitwise_or.reduce(containers & ignored, axis=None) == ignored, text
        assert np.bitwise_or.reduce(~containers & ignored, axis=None) == ignored, text


def test_every_scale_id_is_drawn(rng: Random) -> None:
    text = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"
    instruction = parse(text)
    drawn = [random_operands(instruction, "mid", 1, rng) for _ in range(400)]
    for first, threads in ((0, 2), (2, 4)):
        ids = {operands.immediates.scale_ids[first : first + 2] for operands in drawn}
        assert ids == {(byte, thread) for byte in range(4) for thread in range(threads)}


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("instruction", [i for i in every_instruction("wgmma") if i.n in (8, 48)], ids=str)
def test_a_register_file_of_wgmma(instruction: Instruction, rng: Random) -> None:
    """Operands are at the addresses of the descriptors. Every location, swizzle and major-ness occurs."""
    distribution = "extreme" if instruction.a.is_integer else "tiny"
    majors = {True, False} if instruction.container_bits == 16 else {False}
    expected = {(name, swizzle) for name in "ab" for swizzle in ("none", "32B", "64B", "128B")}
    expected |= {(name, flag) for name in "ab" for flag in majors | {True, False}}
    expected |= {("d", True), ("d", False), ("a", "registers"), ("a", "memory"), ("spread", True)}
    seen: set[tuple[str, object]] = set()
    # 60 files, and up to 300 until every way to store operands has occurred. 300 are too few in one of 10^6 runs.
    for number in range(300):
        if number >= 60 and seen >= expected:
            break
        spread = number % 4 == 3
        file = random_register_file(instruction, "sm_90", distribution, 2, rng, spread=spread)
        image = np.ascontiguousarray(file.b).view(np.uint8)
        assert image.shape[1] <= 1 << 18
        seen |= {("spread", True)} if spread and image.shape[1] > 1 << 16 else set()
        assert (file.a is None) != (file.a_descriptor is None)
        transposed = dict(zip("ab", map(bool, file.imm_trans), strict=True))
        for name, where in file.shared_maps.items():
            descriptor = decode_descriptor(int(getattr(file, f"{name}_descriptor")[0]))
            octets = where.addresses[..., None] + np.arange(instruction.container_bits // 8)
            assert len(np.unique(octets)) == octets.size
            fmt = getattr(instruction, name)
            codes = gather_shared(image, where) >> instruction.low_bit(fmt)
            top = 1 << fmt.bits - 1
            if fmt.is_integer:
                assert {*codes.flat} <= {0, 1, top - 1, top, 2 * top - 1}
            else:
                assert (np.abs(values(codes, fmt)) < 2.0 ** (fmt.minimum_exponent + 2)).all()
            seen |= {(name, descriptor.swizzle.name), (name, transposed[name]), (name, bool(descriptor.base_offset))}
        seen |= {("d", file.scale_d), ("a", "registers") if file.a_descriptor is None else ("a", "memory")}
        assert file.run().shape == file.c.shape
    assert seen == expected

"""Casts equal ml_dtypes. Recipes of quantisation equal their published formulas."""

import math

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.errors import OperandError
from sptc.isa.formats import FORMATS
from sptc.tensors import blocks
from sptc.tensors.encode import decode_codes
from sptc.tensors.quantise import quantise
from sptc.tests.isa.test_formats import DTYPES

#: Error message for a scale that float32 cannot represent; and powers of two by which matrices are multiplied, so that
#: some matrices need such a scale.
NO_SCALE = r"^the scale of a matrix with largest magnitude .* exceeds the range of float32$"
POWERS = (0, 70, 129, -126, -135, 140, 900, -170, -1060)


def numbers(name: str, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return values to round: numbers of the format, half-way points with their neighbours, and random numbers."""
    fmt = FORMATS[name]
    random = rng.integers(0, 1 << 32, 4096, dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        near = rng.normal(size=4096) * 2.0 ** rng.integers(fmt.minimum_exponent - 4, fmt.maximum_exponent + 2, 4096)
        if fmt.bits <= 8:
            exact = decode_codes(np.arange(1 << fmt.bits).astype(np.uint8), fmt)
        else:
            exact = near.astype(DTYPES[name]).astype(np.float64)
        exact = np.sort(exact[np.isfinite(exact)])
        half = (exact[1:] + exact[:-1]) / 2
        above = np.nextafter(half.astype(np.float32), np.float32(np.inf))
        points = np.concatenate([random[np.isfinite(random)], near, exact, half, above, -half, -exact])
        points = points.astype(np.float32)
    points = points[np.isfinite(points)]
    return points[: len(points) // 8 * 8].reshape(-1, 8)


@pytest.mark.parametrize("name", [name for name in DTYPES if name not in ("tf32", "ue4m3")])
def test_casts(name: str, rng: np.random.Generator) -> None:
    values = numbers(name, rng)
    if name == "ue8m0":
        # ml_dtypes rounds values between the two smallest numbers up. The next test covers these values.
        values = np.abs(values)
        values = np.where((values == 0) | ((values > 2.0**-127) & (values < 2.0**-126)), np.float32(1), values)
    saturate = name in ("e3m2", "e2m3", "e2m1")  # these formats have neither infinity nor NaN
    with np.errstate(all="ignore"):
        expected = values.astype(DTYPES[name])
    quantised = quantise(values, name, saturate=saturate)
    special = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(quantised.codes[~special], expected.view(f"u{expected.dtype.itemsize}")[~special])
    decoded = quantised.dequantise()
    assert np.isnan(decoded[special]).all()
    np.testing.assert_array_equal(decoded[~special], expected.astype(np.float32)[~special])


def test_roundings_that_are_easily_wrong(rng: np.random.Generator) -> None:
    smallest = np.array([[0.0, 1e-300, 2.0**-127, 1.49 * 2.0**-127, 1.5 * 2.0**-127, 2.0**-126]])
    assert quantise(smallest, "ue8m0").codes.tolist() == [[0, 0, 0, 0, 1, 1]]
    value = np.array([[1 + 2.0**-11 + 2.0**-40]])  # if rounded to float32 first, this value would become 1
    assert quantise(value, "f16").codes[0, 0] == 0x3C01
    assert np.float16(np.float32(value))[0, 0] == 1
    values = rng.normal(size=(16, 16)).astype(np.float32)
    codes = quantise(values, "tf32").codes
    assert codes.dtype == np.uint32
    assert not (codes & 0x1FFF).any()
    words = values.view(np.uint32)
    expected = (words + 0xFFF + (words >> 13 & 1)) & ~np.uint32(0x1FFF)
    np.testing.assert_array_equal(codes, expected)
    np.testing.assert_array_equal(quantise(values, "tf32").dequantise(), expected.view(np.float32))


def test_beyond_the_range() -> None:
    for name, saturated, open_ended in (
        ("f16", 65504, np.inf), ("bf16", 255 * 2.0**120, np.inf), ("tf32", 2047 * 2.0**117, np.inf),
        ("e5m2", 57344, np.inf), ("e4m3", 448, np.nan), ("ue4m3", 448, np.nan), ("e2m1", 6, None), ("e3m2", 28, None),
        ("e2m3", 7.5, None),
    ):  # fmt: skip
        for value in (np.inf, np.float64(1e300)):
            values = np.array([[value, 1.0]])
            assert quantise(values, name).dequantise(np.float64).tolist() == [[saturated, 1]], name
            if open_ended is None:
                with pytest.raises(OperandError, match=r"neither infinity nor NaN .* at row 0, column 0"):
                    quantise(values, name, saturate=False)
            else:
                result = quantise(values, name, saturate=False).dequantise()
                np.testing.assert_array_equal(result, [[open_ended, 1]], name)
        if FORMATS[name].signed:
            assert quantise(np.array([[-np.inf]]), name).dequantise(np.float64)[0, 0] == -saturated, name
    assert quantise(np.array([[-3.0]]), "ue4m3").codes[0, 0] == 0
    with pytest.raises(OperandError, match=r"ue4m3 has no negative numbers: -3\.0 at row 1, column 0"):
        quantise(np.array([[1.0], [-3.0]]), "ue4m3", saturate=False)
    values = np.array([[3.0, -2.0]])
    assert quantise(values, "u8").codes.tolist() == [[255, 0]]
    with pytest.raises(OperandError, match=r"u8 has the range 0 to 255: -169\.9.* at row 0, column 1"):
        quantise(values, "u8", saturate=False)


def test_nan_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 2)
    values = np.array([[1.0, 2], [3, 4], [5, np.nan]])
    with pytest.raises(OperandError, match="nan cannot be quantised: row 2, column 1"):
        quantise(values, "f16")
    assert quantise(values, "f16", nan="zero").codes[2, 1] == 0
    kept = {"f16": 0x7E00, "bf16": 0x7FC0, "tf32": 0x7FC00000, "f32": 0x7FC00000, "e4m3": 0x7F, "e5m2": 0x7E}
    kept |= {"ue8m0": 0xFF, "ue4m3": 0x7F}
    for name, code in kept.items():
        assert quantise(values, name, nan="keep").codes[2, 1] == code
    for name in ("e2m1", "s8"):
        with pytest.raises(OperandError, match=f"{name} has no NaN: nan at row 2, column 1"):
            quantise(values, name, nan="keep")
    assert (quantise(np.full((1, 4), 0x7F800001, np.uint32).view(np.float32), "bf16", nan="keep").codes == 0x7FC0).all()
    words = np.array([0x7FA50000, 0xFF800001, 0x7FC00000, 0x7F800000, 0x3F800000], np.uint32)
    np.testing.assert_array_equal(decode_codes(words, FORMATS["f32"]), [np.nan, np.nan, np.nan, np.inf, 1])


def float32_scale(largest: float, divisor: float) -> float | None:
    """Return the scale `largest` / `divisor` rounded to float32, or None if it exceeds the range of float32."""
    exact = largest / divisor
    return None if exact >= 2.0**128 - 2.0**103 or exact <= 2.0**-150 else float(np.float32(exact))


@pytest.mark.parametrize(("name", "largest"), [("s8", 127), ("u8", 255), ("s4", 7), ("u4", 15), ("s32", 2**31 - 1)])
def test_integers(name: str, largest: int, rng: np.random.Generator) -> None:
    refused = 0
    for power in POWERS:
        values = np.ldexp(rng.normal(size=(20, 30)), power)
        values = values if name[0] == "s" else np.abs(values)
        scale = float32_scale(float(np.abs(values).max()), largest)
        if scale is None:
            refused += 1
            with pytest.raises(OperandError, match=NO_SCALE):
                quantise(values, name)
            continue
        quantised = quantise(values, name)
        assert quantised.tensor_scale == scale, power
        expected = np.clip(np.rint(values / scale), -largest - 1 if name[0] == "s" else 0, largest)
        codes = expected.astype(np.int64) & ((1 << FORMATS[name].bits) - 1)
        np.testing.assert_array_equal(quantised.codes, codes, f"power {power}")
        np.testing.assert_array_equal(quantised.dequantise(np.float64), expected * scale, f"power {power}")
    assert refused >= 3
    assert quantise(np.zeros((2, 2)), name).dequantise().tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e3m2", "e2m3", "e2m1"])
def test_mx(name: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 300)
    emax = {"e4m3": 8, "e5m2": 15, "e3m2": 4, "e2m3": 2, "e2m1": 2}[name]
    values = rng.normal(size=(12, 80)).astype(np.float32) * 2.0 ** rng.integers(-140, 127, (12, 1))
    values[0] = np.ldexp(values[0], 300)  # magnitudes beyond the range of any scale, also in rows 1 and 2
    values[1] = np.ldexp(rng.normal(size=80), -1060)
    values[2] = rng.uniform(1, 2, 80).astype(np.float32).astype(np.float64) * 2.0**130
    values[3, 32:64] = 0
    for span, blocks_of_row in ((32, 3), (64, 2)):
        quantised = quantise(values, name, recipe="mx", block=None if span == 32 else span)
        assert quantised.scales is not None
        assert quantised.scales.shape == (12, blocks_of_row)
        decoded = quantised.dequantise(np.float64)
        for row, block in np.ndindex(12, blocks_of_row):
            here = slice(span * block, span * block + span)
            largest = float(np.abs(values[row, here]).max())
            exponent = max(-127, min(127, math.floor(math.log2(largest)) - emax)) if largest else -127
            assert quantised.scales[row, block] == exponent + 127
            limit = FORMATS[name].maximum
            scaled = np.clip(values[row, here].astype(np.float64) * 2.0**-exponent, -limit, limit)
            cast = scaled.astype(np.float32).astype(DTYPES[name])
            np.testing.assert_array_equal(quantised.codes[row, here], cast.view(np.uint8))
            np.testing.assert_array_equal(decoded[row, here], cast.astype(np.float64) * 2.0**exponent)


def test_nvfp4(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 100)
    refused = 0
    for power in POWERS:
        values = rng.normal(size=(10, 40)).astype(np.float32) * 2.0 ** (rng.integers(-12, 6, (10, 1)) + power)
        values[4, 16:32] = 0
        tensor_scale = float32_scale(float(np.abs(values).max()), 6 * 448)
        if tensor_scale is None:
            refused += 1
            with pytest.raises(OperandError, match=NO_SCALE):
                quantise(values, "e2m1", recipe="nvfp4")
            continue
        quantised = quantise(values, "e2m1", recipe="nvfp4")
        assert quantised.tensor_scale == tensor_scale, power
        assert quantised.scales is not None
        decoded = quantised.dequantise(np.float64)
        for row, block in np.ndindex(10, 3):
            here = slice(16 * block, 16 * block + 16)
            exact = min(np.abs(values[row, here]).max() / 6 / tensor_scale, 448)
            scale = np.float32(exact).astype(ml_dtypes.float8_e4m3fn)
            assert quantised.scales[row, block] == scale.view(np.uint8), power
            divisor = scale.astype(np.float64) * tensor_scale
            scaled = values[row, here] / divisor if divisor else 0 * values[row, here]
            cast = np.clip(scaled, -6, 6).astype(np.float32).astype(ml_dtypes.float4_e2m1fn)
            np.testing.assert_array_equal(quantised.codes[row, here] & 7, cast.view(np.uint8) & 7)
            np.testing.assert_allclose(decoded[row, here], cast.astype(np.float64) * divisor, rtol=1e-15)
    assert refused >= 3


def test_nan_in_a_block() -> None:
    values = np.ones((2, 70), np.float32)
    values[1, 40] = np.inf
    for name, recipe, block, code in (("e4m3", "mx", 32, 0xFF), ("e2m1", "nvfp4", 16, 0x7F)):
        with pytest.raises(OperandError, match="inf cannot be quantised: row 1, column 40"):
            quantise(values, name, recipe=recipe)
        quantised = quantise(values, name, recipe=recipe, nan="keep")
        nan = np.isnan(quantised.dequantise())
        assert nan.any()
        assert {(int(row), int(column) // block) for row, column in np.argwhere(nan)} == {(1, 40 // block)}
        assert quantised.scales is not None
        assert quantised.scales[1, 40 // block] == code
        assert quantise(values, name, recipe=recipe, nan="zero").dequantise()[1, 40] == 0


def test_bad_words() -> None:
    words: dict[str, object]
    for words, message in (
        ({"fmt": "f8"}, "the format must be one of f32, f16"),
        ({"fmt": ["f16"]}, r"^the format must be one of .*, not \['f16'\]$"),
        ({"fmt": "e4m3", "recipe": "mx", "block": "8"}, "quantisation recipe mx does not accept the block size '8'$"),
        ({"recipe": "mx"}, "the quantisation recipe mx supports e4m3, e5m2, e3m2, e2m3, e2m1, not f16"),
        ({"fmt": "e4m3", "recipe": "nvfp4"}, "the quantisation recipe nvfp4 supports e2m1, not e4m3"),
        ({"fmt": "e4m3", "recipe": "mx", "saturate": False}, "mx always saturates"),
        ({"saturate": np.ones(2, bool)}, r"^saturate must be True or False, not array\(\[ True, True\]\)$"),
        ({"recipe": "int8"}, "the recipe must be one of plain, mx, nvfp4"),
        ({"nan": "ignore"}, "the policy for NaN must be one of error, keep, zero"),
        ({"fmt": "e4m3", "block": 64}, r"^the quantisation recipe plain does not accept the block size 64$"),
    ):
        with pytest.raises(OperandError, match=message):
            quantise(np.ones((2, 2)), **{"fmt": "f16", **words})  # type: ignore[arg-type]
    for kind in ("f32", int, [1]):
        with pytest.raises(OperandError, match=r"^dtype must be a type of floats, such as numpy\.float32, not "):
            quantise(np.ones((2, 2)), "f16").dequantise(kind)  # type: ignore[arg-type]

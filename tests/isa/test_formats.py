"""Format records against the published tables, and against the decoders of numpy and ml_dtypes."""

import dataclasses
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.isa.formats import FORMATS, Format, Specials

IEEE, NAN, NONE = Specials.IEEE, Specials.NAN, Specials.NONE


class Float(NamedTuple):
    """A published format; `emin` is the smallest normal exponent, `maximum` the largest finite number."""

    name: str
    sign: int
    exponent_bits: int
    fraction_bits: int
    bias: int
    emin: int
    emax: int
    maximum: float
    specials: Specials


FLOATS = [
    Float("f32", 1, 8, 23, 127, -126, 127, float.fromhex("0x1.fffffep127"), IEEE),
    Float("f16", 1, 5, 10, 15, -14, 15, 65504.0, IEEE),
    Float("bf16", 1, 8, 7, 127, -126, 127, float.fromhex("0x1.fep127"), IEEE),
    Float("tf32", 1, 8, 10, 127, -126, 127, float.fromhex("0x1.ffcp127"), IEEE),
    Float("e4m3", 1, 4, 3, 7, -6, 8, 448.0, NAN),
    Float("e5m2", 1, 5, 2, 15, -14, 15, 57344.0, IEEE),
    Float("e3m2", 1, 3, 2, 3, -2, 4, 28.0, NONE),
    Float("e2m3", 1, 2, 3, 1, 0, 2, 7.5, NONE),
    Float("e2m1", 1, 2, 1, 1, 0, 2, 6.0, NONE),
    Float("ue8m0", 0, 8, 0, 127, -127, 127, 2.0**127, NAN),
    Float("ue4m3", 0, 4, 3, 7, -6, 8, 448.0, NAN),
]
# name, signed, bits, largest value
INTEGERS = [
    ("s32", True, 32, 2147483647),
    ("s8", True, 8, 127),
    ("u8", False, 8, 255),
    ("s4", True, 4, 7),
    ("u4", False, 4, 15),
]
ML_DTYPES = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
    "bf16": ml_dtypes.bfloat16,
}


def _values(record: Format, codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Decode codes from the fields of a record alone."""
    fraction_range = 1 << record.fraction_bits
    top = (1 << record.exponent_bits) - 1
    fraction = codes & (fraction_range - 1)
    exponent = codes >> record.fraction_bits & top
    normal = (exponent > 0) | (not record.subnormals)
    significand = normal + fraction / fraction_range
    values = np.ldexp(significand, np.where(normal, exponent - record.bias, record.minimum_exponent))
    if record.specials is Specials.IEEE:
        values = np.where(exponent == top, np.where(fraction == 0, np.inf, np.nan), values)
    if record.specials is Specials.NAN:
        values = np.where((exponent == top) & (fraction == fraction_range - 1), np.nan, values)
    negative = (codes >> (record.bits - 1) & 1 == 1) & record.signed
    return np.where(negative, -values, values)


def _assert_same_values(actual: NDArray[np.float64], expected: NDArray[np.float64]) -> None:
    np.testing.assert_array_equal(actual, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(actual[numbers]), np.signbit(expected[numbers]))


def _decoded(codes: NDArray, dtype: type) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # the casts of signalling NaNs
        return codes.view(dtype).astype(np.float64)


def test_the_tables_list_every_format() -> None:
    assert [row[0] for row in [*FLOATS, *INTEGERS]] == list(FORMATS)


@pytest.mark.parametrize("published", FLOATS, ids=lambda published: published.name)
def test_float_record(published: Float) -> None:
    record = FORMATS[published.name]
    assert record.name == published.name
    assert not record.is_integer
    assert record.signed is bool(published.sign)
    assert (record.exponent_bits, record.fraction_bits) == (published.exponent_bits, published.fraction_bits)
    assert record.bits == published.sign + published.exponent_bits + published.fraction_bits
    assert record.bias == published.bias
    assert record.minimum_exponent == published.emin
    assert record.maximum_exponent == published.emax
    assert record.maximum == published.maximum
    assert record.specials is published.specials
    assert record.subnormals is (published.name != "ue8m0")


@pytest.mark.parametrize(("name", "signed", "bits", "maximum"), INTEGERS)
def test_integer_record(name: str, signed: bool, bits: int, maximum: int) -> None:
    record = FORMATS[name]
    assert record.name == name
    assert record.is_integer
    assert record.signed is signed
    assert record.bits == record.container_bits == bits
    assert record.maximum == maximum
    assert (record.exponent_bits, record.bias) == (0, 0)
    assert record.specials is Specials.NONE


@pytest.mark.parametrize("name", FORMATS)
def test_only_tf32_drops_low_bits(name: str) -> None:
    record = FORMATS[name]
    assert record.ignored_low_bits == (13 if name == "tf32" else 0)
    assert record.container_bits == (32 if name == "tf32" else record.bits)


@pytest.mark.parametrize("name", ML_DTYPES)
def test_record_against_ml_dtypes(name: str) -> None:
    record, limits = FORMATS[name], ml_dtypes.finfo(ML_DTYPES[name])
    assert record.bits == limits.bits
    assert record.exponent_bits == limits.nexp
    assert record.fraction_bits == limits.nmant
    assert record.minimum_exponent == limits.minexp
    assert record.maximum_exponent == limits.maxexp - 1
    assert record.maximum == float(limits.max)
    assert 2.0**record.minimum_exponent == float(limits.smallest_normal)
    smallest = record.minimum_exponent - record.fraction_bits
    assert 2.0**smallest == float(limits.smallest_subnormal)


@pytest.mark.parametrize(("name", "dtype"), [("f16", np.float16), ("f32", np.float32)])
def test_record_against_numpy(name: str, dtype: type) -> None:
    record, limits = FORMATS[name], np.finfo(dtype)
    assert record.bits == limits.bits
    assert record.exponent_bits == limits.iexp
    assert record.fraction_bits == limits.nmant
    assert record.minimum_exponent == limits.minexp
    assert record.maximum_exponent == limits.maxexp - 1
    assert record.maximum == float(limits.max)


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("s32", np.iinfo(np.int32)),
        ("s8", np.iinfo(np.int8)),
        ("u8", np.iinfo(np.uint8)),
        ("s4", ml_dtypes.iinfo(ml_dtypes.int4)),
        ("u4", ml_dtypes.iinfo(ml_dtypes.uint4)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_integer_record_against_libraries(name: str, limits: np.iinfo) -> None:
    record = FORMATS[name]
    assert record.bits == limits.bits
    assert record.maximum == limits.max
    assert record.signed is (limits.min < 0)


@pytest.mark.parametrize(("name", "dtype"), [*ML_DTYPES.items(), ("f16", np.float16)])
def test_every_code_means_what_the_library_decodes(name: str, dtype: type) -> None:
    record = FORMATS[name]
    codes = np.arange(1 << record.bits)
    stored = codes.astype(np.uint16 if record.bits == 16 else np.uint8)
    _assert_same_values(_values(record, codes), _decoded(stored, dtype))


def test_every_ue4m3_code_is_the_positive_e4m3_code() -> None:
    codes = np.arange(1 << 7)
    assert FORMATS["ue4m3"].bits == 7
    _assert_same_values(_values(FORMATS["ue4m3"], codes), _decoded(codes.astype(np.uint8), ml_dtypes.float8_e4m3fn))


def test_every_tf32_code_is_an_f32_code_without_its_low_bits() -> None:
    record = FORMATS["tf32"]
    codes = np.arange(1 << record.bits)
    stored = (codes << record.ignored_low_bits).astype(np.uint32)
    _assert_same_values(_values(record, codes), _decoded(stored, np.float32))


def test_f32_codes(rng: np.random.Generator) -> None:
    ends = [0, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FFFFFFF]
    codes = np.concatenate([ends, [code | 1 << 31 for code in ends], rng.integers(0, 1 << 32, 100_000)])
    _assert_same_values(_values(FORMATS["f32"], codes), _decoded(codes.astype(np.uint32), np.float32))


@pytest.mark.parametrize(
    ("name", "infinities", "nans"),
    [
        ("f16", 2, 2 * 1023),
        ("bf16", 2, 2 * 127),
        ("tf32", 2, 2 * 1023),
        ("e4m3", 0, 2),
        ("e5m2", 2, 6),
        ("e3m2", 0, 0),
        ("e2m3", 0, 0),
        ("e2m1", 0, 0),
        ("ue8m0", 0, 1),
        ("ue4m3", 0, 1),
    ],
)
def test_number_of_special_codes_and_largest_value(name: str, infinities: int, nans: int) -> None:
    record = FORMATS[name]
    values = _values(record, np.arange(1 << record.bits))
    assert np.isinf(values).sum() == infinities
    assert np.isnan(values).sum() == nans
    assert values[np.isfinite(values)].max() == record.maximum


def test_records_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        FORMATS["f16"].bias = 16  # type: ignore[misc]

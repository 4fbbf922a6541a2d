"""Format records against the published tables, and against the decoders of numpy and ml_dtypes."""

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.isa.formats import FORMATS, Format, Specials

# name: signed, bits, largest value
INTEGERS = {
    "s32": (True, 32, 2147483647),
    "s8": (True, 8, 127),
    "u8": (False, 8, 255),
    "s4": (True, 4, 7),
    "u4": (False, 4, 15),
}
#: What decodes each format; a code of tf32 is one of f32 without its low bits, one of ue4m3 a positive one of e4m3.
DTYPES = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
    "ue4m3": ml_dtypes.float8_e4m3fn,
}
#: Bits of formats that are not all of what the library takes.
BITS = {"tf32": 19, "e3m2": 6, "e2m3": 6, "e2m1": 4, "ue4m3": 7}


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


@pytest.mark.parametrize("name", DTYPES)
def test_every_code_means_what_the_library_decodes(name: str, rng: np.random.Generator) -> None:
    """Of f32 the ends and some."""
    record, dtype = FORMATS[name], np.dtype(DTYPES[name])
    assert record.bits == BITS.get(name, 8 * dtype.itemsize)
    codes = np.arange(1 << min(record.bits, 20))
    if name == "f32":
        codes = np.concatenate([codes, 0x7F7FFFF0 + codes[:64], rng.integers(0, 1 << 31, 100_000)])
        codes = np.concatenate([codes, codes ^ 1 << 31])
    with np.errstate(invalid="ignore"):  # the casts of signalling NaNs
        stored = (codes << (13 if name == "tf32" else 0)).astype(f"u{dtype.itemsize}")
        expected = stored.view(dtype).astype(np.float64)
    found, numbers = _values(record, codes), np.isfinite(expected)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))
    assert record.maximum == expected[numbers].max()
    assert record.maximum_exponent == np.frexp(record.maximum)[1] - 1


def test_the_other_fields() -> None:
    assert [*DTYPES, *INTEGERS] == [*FORMATS]
    for name, record in FORMATS.items():
        assert (record.name, record.is_integer) == (name, name in INTEGERS)
        assert record.ignored_low_bits == (13 if name == "tf32" else 0)
        assert record.container_bits == (32 if name == "tf32" else record.bits)
        if name in INTEGERS:
            assert (record.signed, record.bits, record.maximum) == INTEGERS[name]
            assert (record.exponent_bits, record.bias, record.specials) == (0, 0, Specials.NONE)

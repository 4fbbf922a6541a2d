"""Number formats agree with published tables, numpy and ml_dtypes. Metadata rules are checked for all nibbles."""

import re

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.isa.formats import FORMATS, Format, Specials
from sptc.isa.metadata import GRANULARITIES, RULES, UNITS_PER_CHUNK, indices, nibble, swap_for_mux3

# Integer formats by name: signed or not, bits, largest value
INTEGERS = {
    "s32": (True, 32, 2147483647), "s8": (True, 8, 127), "u8": (False, 8, 255), "s4": (True, 4, 7),
    "u4": (False, 4, 15),
}  # fmt: skip
#: NumPy type that decodes each format. tf32 codes are f32 codes without 13 low bits; ue4m3 codes are positive e4m3.
DTYPES = {
    "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn, "e2m1": ml_dtypes.float4_e2m1fn, "ue8m0": ml_dtypes.float8_e8m0fnu,
    "ue4m3": ml_dtypes.float8_e4m3fn,
}  # fmt: skip
#: Width in bits of formats that are narrower than their type in numpy or ml_dtypes.
BITS = {"tf32": 19, "e3m2": 6, "e2m3": 6, "e2m1": 4, "ue4m3": 7}


def _values(record: Format, codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the values of codes, computed only from the fields of a format record."""
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
    return np.where((codes >> (record.bits - 1) & 1 == 1) & record.signed, -values, values)


@pytest.mark.parametrize("name", DTYPES)
def test_every_code_is_decoded_as_by_the_library(name: str, rng: np.random.Generator) -> None:
    """Every code is decoded as by numpy or ml_dtypes. Of f32, only random codes and codes near 0 and Inf are tested."""
    record, dtype = FORMATS[name], np.dtype(DTYPES[name])
    assert record.bits == BITS.get(name, 8 * dtype.itemsize)
    codes = np.arange(1 << min(record.bits, 20))
    if name == "f32":
        codes = np.concatenate([codes, 0x7F7FFFF0 + codes[:64], rng.integers(0, 1 << 31, 100_000)])
        codes = np.concatenate([codes, codes ^ 1 << 31])
    with np.errstate(invalid="ignore"):  # signalling NaNs cause a warning when they are converted
        expected = (codes << (13 if name == "tf32" else 0)).astype(f"u{dtype.itemsize}").view(dtype).astype(np.float64)
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


PLAIN = {0b0001, 0b0010, 0b0011, 0b0100, 0b0110, 0b0111, 0b1000, 0b1001, 0b1011, 0b1100, 0b1101, 0b1110}
ORDERED = {0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110}
TCGEN05 = {0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b0110, 0b1110}
TF32 = {0b1110, 0b0100}
LEGAL = {"plain": PLAIN, "ordered": ORDERED, "tf32": TF32, "wgmma": PLAIN, "tcgen05": TCGEN05}
SECTIONS = {"plain": "9.7.14.6.1", "ordered": "9.7.14.6.1", "tf32": "9.7.14.6.1", "wgmma": "9.7.15.6.1"}

# Each nibble that the plain rule defines, and the nibble after the exchange of slots that 3:1 multiplexers may need.
MUX3 = {
    0b0001: 0b0100, 0b0010: 0b1000, 0b0011: 0b1100, 0b0100: 0b0100, 0b0110: 0b0110, 0b0111: 0b1101,
    0b1000: 0b1000, 0b1001: 0b1001, 0b1011: 0b1110, 0b1100: 0b1100, 0b1101: 0b1101, 0b1110: 0b1110,
}  # fmt: skip


def test_each_rule_defines_its_nibbles_alone_and_states_them() -> None:
    assert set(RULES) == set(LEGAL)
    for name, legal in LEGAL.items():
        assert (RULES[name].name, set(RULES[name].legal)) == (name, legal)
        assert re.search(rf"PTX ISA {re.escape(SECTIONS.get(name, '9.7.16'))}(?![.\d])", RULES[name].source)
    for name in ("ordered", "tf32", "tcgen05"):
        assert {int(value, 2) for value in re.findall(r"\b0b[01]{4}\b", RULES[name].meaning)} == LEGAL[name]
    for name in ("plain", "wgmma"):
        assert "two different indices (i0 = low two bits, i1 = high two bits)" in RULES[name].meaning


def test_indices_of_a_nibble_and_granularities() -> None:
    pairs = [(i0, i1) for i1 in range(UNITS_PER_CHUNK) for i0 in range(UNITS_PER_CHUNK)]
    assert [indices(value) for value in range(16)] == pairs
    assert [nibble(i0, i1) for i0, i1 in pairs] == list(range(16))
    for dtype in (np.uint8, np.uint32, np.int64):
        values = np.arange(16, dtype=dtype).reshape(2, 8)
        i0, i1 = indices(values)
        assert (i0.dtype, i1.dtype, i0.shape, i1.shape) == (dtype, dtype, (2, 8), (2, 8))
        assert (i0 + 4 * i1 == values).all()
        assert [*zip(i0.ravel(), i1.ravel(), strict=True)] == pairs
    actual = {(name, record.name, record.stored, record.logical) for name, record in GRANULARITIES.items()}
    assert actual == {("1:2", "1:2", 1, 2), ("2:4", "2:4", 2, 4), ("4:8", "4:8", 4, 8)}
    assert UNITS_PER_CHUNK == 4


def test_swapped_slots_fit_the_multiplexers() -> None:
    """Slots are exchanged only if needed: slot 0 reaches units 0 to 2 of a chunk, and slot 1 reaches units 1 to 3."""
    assert set(MUX3) == PLAIN
    for value, expected in MUX3.items():
        swapped = swap_for_mux3(value)
        assert swapped is (value != expected), value
        i0, i1 = indices(value)
        assert (nibble(i1, i0) if swapped else value) == expected
    assert set(MUX3.values()) == TCGEN05
    assert not any(swap_for_mux3(value) for value in TCGEN05)

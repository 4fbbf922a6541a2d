"""Block scales: every code of either format against an independent decoder."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.rtl.scale import GROUP_SCALE_FRACTION_BITS, ExponentOffset, GroupScale, ScaleCode

CODES = np.arange(256, dtype=np.uint8)
RTX = PRESETS["rtx-blackwell"]
BIASES = {"f16": 15, "bf16": 127, "tf32": 127, "e4m3": 7, "e5m2": 15, "e3m2": 3, "e2m3": 1, "e2m1": 1}
SOME_UE8M0 = (0, 1, 2, 126, 127, 128, 200, 254, 255)
SOME_UE4M3 = (0x00, 0x01, 0x07, 0x08, 0x38, 0x3F, 0x7E, 0x7F, 0x80, 0x83, 0xB8, 0xFF)


def with_scales(*scales: str) -> CoreConfig:
    return CoreConfig(name="test", formats=("e2m1/4",), scales=scales)


def ue8m0(codes: np.ndarray) -> np.ndarray:
    return codes.astype(np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(float)


def ue4m3(codes: np.ndarray) -> np.ndarray:
    return (codes.astype(np.uint8) & 0x7F).view(ml_dtypes.float8_e4m3fn).astype(float)


def every_code_against(some: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return operands a and b: all codes with some, and the other way round."""
    all_codes, few = np.tile(CODES, len(some)), np.array(some).repeat(256)
    return np.concatenate([all_codes, few]), np.concatenate([few, all_codes])


@pytest.mark.parametrize("a_word", RTX.formats)
def test_biases(simulate: Callable, a_word: str) -> None:
    """Both of a pair; integers and packed e2m1 have none. Scales matter only while they are enabled."""
    codes = np.arange(len(RTX.formats))
    expected = BIASES.get(a_word, 0) + np.array([BIASES.get(word, 0) for word in RTX.formats])
    for a, b in ((RTX.formats.index(a_word), codes), (codes, RTX.formats.index(a_word))):
        got = simulate(ExponentOffset(RTX), a=a, b=b, scale_a=255, scale_b=3)
        np.testing.assert_array_equal(got["offset"], expected)
        assert not got["nan"].any()


@pytest.mark.parametrize(("a_word", "b_word"), [("e4m3", "e4m3"), ("e5m2", "e2m1"), ("bf16", "bf16"), ("e2m1", "e3m2")])
def test_ue8m0_is_added_to_the_exponent(simulate: Callable, a_word: str, b_word: str) -> None:
    scale_a, scale_b = every_code_against(SOME_UE8M0)
    elements = {name: RTX.formats.index(word) for name, word in (("a", a_word), ("b", b_word))}
    got = simulate(ExponentOffset(RTX), **elements, enable=1, scale_a=scale_a, scale_b=scale_b)
    product = ue8m0(scale_a) * ue8m0(scale_b)
    np.testing.assert_array_equal(got["nan"], np.isnan(product))
    ordered = ~np.isnan(product)
    true_exponent = BIASES[a_word] + BIASES[b_word] - got["offset"]
    np.testing.assert_array_equal(np.ldexp(1.0, true_exponent)[ordered], product[ordered])


@pytest.mark.parametrize("made", [PRESETS["hopper"], with_scales("ue4m3")], ids=["none", "ue4m3"])
def test_without_ue8m0_nothing_is_added(simulate: Callable, made: CoreConfig) -> None:
    elements = [element.format.name for element in made.elements]
    expected = 0 if elements == ["e2m1"] else 2 * BIASES[elements[0]]
    got = simulate(ExponentOffset(made), enable=1, scale_a=CODES, scale_b=255)
    assert set(got["offset"]) == {expected}
    assert not got["nan"].any()


@pytest.mark.parametrize("scales", [("ue8m0",), ("ue8m0", "ue4m3")], ids="+".join)
def test_groups_scaled_by_ue8m0(simulate: Callable, scales: tuple[str, ...]) -> None:
    scale_a, scale_b = every_code_against(SOME_UE8M0)
    made = GroupScale(with_scales(*scales))
    got = simulate(made, scale=ScaleCode.UE8M0.value, scale_a=scale_a, scale_b=scale_b)
    product = ue8m0(scale_a) * ue8m0(scale_b)
    np.testing.assert_array_equal(got["nan"], np.isnan(product))
    ordered = ~np.isnan(product)
    assert set(got["significand"]) == {1 << GROUP_SCALE_FRACTION_BITS}
    np.testing.assert_array_equal(np.ldexp(1.0, got["exponent"])[ordered], product[ordered])


@pytest.mark.parametrize("scales", [("ue4m3",), ("ue8m0", "ue4m3")], ids="+".join)
def test_groups_scaled_by_ue4m3(simulate: Callable, scales: tuple[str, ...]) -> None:
    """Subnormals keep the exponent -6, and the sign bit says nothing."""
    scale_a, scale_b = every_code_against(SOME_UE4M3)
    made = GroupScale(with_scales(*scales))
    got = simulate(made, scale=ScaleCode.UE4M3.value, scale_a=scale_a, scale_b=scale_b)
    values = ue4m3(scale_a), ue4m3(scale_b)
    product = values[0] * values[1]
    np.testing.assert_array_equal(got["nan"], np.isnan(product))
    ordered = ~np.isnan(product)
    read = np.ldexp(got["significand"].astype(float), got["exponent"] - GROUP_SCALE_FRACTION_BITS)
    np.testing.assert_array_equal(read[ordered], product[ordered])
    exponents = [np.maximum(np.frexp(np.where(v > 0, v, 2.0**-6))[1] - 1, -6) for v in values]
    np.testing.assert_array_equal(got["exponent"][ordered], sum(exponents)[ordered])
    signs = np.arange(len(scale_a)) % 3 % 2 << 7
    unsigned = simulate(made, scale=ScaleCode.UE4M3.value, scale_a=scale_a ^ signs, scale_b=scale_b ^ signs[::-1])
    for name in ("significand", "exponent", "nan"):
        np.testing.assert_array_equal(unsigned[name], got[name])


@pytest.mark.parametrize("scales", [("ue8m0",), ("ue4m3",), ("ue8m0", "ue4m3")], ids="+".join)
def test_no_scaling_no_nan(simulate: Callable, scales: tuple[str, ...]) -> None:
    got = simulate(GroupScale(with_scales(*scales)), scale=ScaleCode.NONE.value, scale_a=CODES, scale_b=CODES[::-1])
    assert not got["nan"].any()

"""Conversions of ``cvt`` equal ``ml_dtypes`` for every code, and round ties to the right neighbour in every mode."""

import numpy as np
import pytest
from sptc.isa.formats import FORMATS
from sptc.kernels.codes import Rounding, decoded, encoded
from sptc.tensors.element_types import TYPE_OF, named_dtype
from sptc.tensors.encode import container_type


@pytest.mark.parametrize("name", ["f16", "bf16", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1"])
def test_every_code_and_every_tie(name: str) -> None:
    codes = np.arange(1 << FORMATS[name].bits).astype(container_type(FORMATS[name]))
    with np.errstate(invalid="ignore"):
        values = codes.view(named_dtype(TYPE_OF[name])).astype(np.float64)
    np.testing.assert_array_equal(decoded(codes, name), values)
    finite = np.isfinite(values)
    np.testing.assert_array_equal(encoded(values[finite], name, Rounding("rn")), codes[finite])
    numbers = np.unique(values[finite])
    ties = (numbers[:-1] + numbers[1:]) / 2
    below, above = numbers[:-1], numbers[1:]
    for mode, expected in (
        ("rn", np.where(encoded(below, name, Rounding("rn")) & 1 == 0, below, above)),
        ("rna", np.where(np.abs(above) > np.abs(below), above, below)),
        ("rz", np.where(np.abs(above) > np.abs(below), below, above)),
        ("rm", below),
        ("rp", above),
    ):
        neighbours = decoded(encoded(ties, name, Rounding(mode)).astype(codes.dtype), name)
        np.testing.assert_array_equal(neighbours, expected, err_msg=mode)


def test_beyond_the_range_scales_and_relu() -> None:
    beyond = np.array([3e39, -3e39, np.nan])
    for name, mode, saturate, expected in (
        ("f16", "rn", False, (0x7C00, 0xFC00, 0x7FFF)),
        ("f16", "rz", False, (0x7BFF, 0xFBFF, 0x7FFF)),
        ("f16", "rm", False, (0x7BFF, 0xFC00, 0x7FFF)),
        ("e4m3", "rn", True, (0x7E, 0xFE, 0x7F)),
        ("e5m2", "rn", True, (0x7B, 0xFB, 0x7F)),
        ("e2m1", "rn", True, (0x7, 0xF, 0x7)),
        ("tf32", "rna", False, (0x7F800000, 0xFF800000, 0x7FFFE000)),
    ):
        assert encoded(beyond, name, Rounding(mode, saturate)).tolist() == list(expected), (name, mode)
    values = np.array([0.0, 1.0, 1.5, 2.0**-200, -3.0, 2.0**127 * 1.5, np.inf, np.nan])
    assert encoded(values, "ue8m0", Rounding("rz")).tolist() == [0, 127, 127, 0, 0, 254, 255, 255]
    assert encoded(values, "ue8m0", Rounding("rp", saturate=True)).tolist() == [0, 127, 128, 0, 0, 254, 254, 255]
    assert encoded(np.array([-2.0, -0.0, 2.0]), "f16", Rounding("rn", relu=True)).tolist() == [0, 0, 0x4000]

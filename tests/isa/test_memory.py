"""Shared-memory descriptors have the manual's fields, and address the same bytes as on an H200."""

from importlib import resources
from typing import Any

import numpy as np
import pytest
from sptc.errors import OperandError
from sptc.isa.memory import SWIZZLES, SharedDescriptor, decode_descriptor, encode_descriptor, shared_map

WGMMA_SWIZZLES = ("none", "32B", "64B", "128B")
MATRICES = [f"{operand}.{bits}-bit.{major}-major" for operand in "ab" for bits, major in
            ((8, "k"), (16, "k"), (16, "mn"), (32, "k"))]  # fmt: skip
#: Pairs of leading and stride offset in bytes that were recorded for every swizzle.
OFFSETS = ((128, 256), (256, 128), (16, 512), (1024, 2048), (2048, 1024), (4096, 1024), (1040, 528), (0, 1024))


@pytest.mark.parametrize("matrix", MATRICES)
def test_every_address_equals_the_recorded_one(matrix: str) -> None:
    """Addresses equal those of an H200 for four swizzles with eight pairs of offsets each, and for all base offsets."""
    with np.load(str(resources.files("sptc") / "recordings" / "addresses" / "wgmma.npz")) as archive:
        recorded = dict(archive)
    _, bits, major = matrix.split(".")
    seen = set()
    for case, addresses in enumerate(recorded[matrix]):
        fields = [int(recorded[name][case]) for name in ("start", "leading_offset", "stride_offset", "base_offset")]
        swizzle = str(recorded["swizzle"][case])
        descriptor, element_bits = SharedDescriptor(*fields, SWIZZLES[swizzle]), int(bits.removesuffix("-bit"))
        where = shared_map(descriptor, *addresses.shape, element_bits, major=major.removesuffix("-major"))
        np.testing.assert_array_equal(where.addresses, addresses, err_msg=f"{swizzle} {fields}")
        assert not where.low_bits.any()
        seen.add((swizzle, *fields))
    expected = {(swizzle, *offsets) for swizzle in WGMMA_SWIZZLES for offsets in OFFSETS}
    assert {(fields[0], *fields[2:4]) for fields in seen if fields[1] == fields[4] == 0} >= expected
    assert {fields[4] for fields in seen} == set(range(8))


def test_the_fields_are_where_the_manual_has_them() -> None:
    assert encode_descriptor(0x12340, 0x80, 0x400, "64B", 5) == 0x1234 | 8 << 16 | 64 << 32 | 5 << 49 | 2 << 62
    narrow: Any = np.uint8(16)
    assert encode_descriptor(0, narrow, 32, "32B", 0, "tcgen05") == 1 << 16 | 2 << 32 | 1 << 46 | 6 << 61


def test_fields_and_values_that_are_no_descriptor() -> None:
    for numbers, options, words in (
        ((8, 0, 0), {}, "^the start of .* a multiple of 16 bytes from 0 to 262128, not 8"),
        ((1 << 18, 0, 0), {}, "the start of .* not 262144"),
        ((0, -16, 0), {}, "the leading offset of .* not -16"),
        ((0, 0, 100), {}, "the stride offset of .* not 100"),
        ((0, 0, 0), {"base_offset": 8}, "the base offset of a descriptor must be 0 to 7, not 8"),
        ((0, 0, 0), {"swizzle": "128B with 32B atoms"}, "must be none, 128B, 64B, 32B"),
    ):
        with pytest.raises(OperandError, match=words):
            encode_descriptor(*numbers, **options)  # type: ignore[arg-type]
    for value, family, words in (
        (-1, "wgmma", "64-bit number, not -0x1"),
        (1 << 30, "wgmma", "0x0000000040000000 of wgmma sets the reserved bits 0x40000000"),
        (0, "tcgen05", "0x0000000000000000 of tcgen05 must hold 0b001 in bits 48:46"),
        (1 << 46 | 3 << 61, "tcgen05", r"has the swizzle mode 3; expected 0 \(none\), 1 \(128B"),
        (1 << 46 | 1 << 54, "tcgen05", "sets the reserved bits 0x40000000000000"),
    ):
        with pytest.raises(OperandError, match=words):
            decode_descriptor(value, family)


@pytest.mark.parametrize(("bits", "unit_elements"), [(4, 0), (4, 16), (6, 16), (8, 0), (16, 0), (32, 0)])
def test_the_first_byte_beyond_an_image(bits: int, unit_elements: int) -> None:
    """`first_beyond(size)` returns the lowest address, from `size` on, of a byte that holds part of an element."""
    descriptor = SharedDescriptor(64, 512, 256, 0, SWIZZLES["none"])
    where = shared_map(descriptor, 16, 48, bits, major="k", unit_elements=unit_elements)
    touched = {
        (8 * address + low + bit) // 8
        for address, low in zip(where.addresses.ravel().tolist(), where.low_bits.ravel().tolist(), strict=True)
        for bit in range(bits)
    }
    assert where.first_beyond(max(touched) + 1) is None
    for size in range(max(touched) + 1):
        result = where.first_beyond(size)
        assert size <= result <= max(touched)
        assert size not in touched or result == size

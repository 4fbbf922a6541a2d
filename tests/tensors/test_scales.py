"""Layouts of block scales: every scale is at the offset that cuBLAS documents, and is read back."""

import ml_dtypes
import numpy as np
import pytest
from sptc.errors import OperandError
from sptc.tensors.scales import SCALE_LAYOUTS, from_scale_blocks, to_scale_blocks


def test_every_scale_is_where_a_kernel_reads_it(rng: np.random.Generator) -> None:
    for rows, columns in ((128, 4), (128, 8), (256, 4), (1, 1), (130, 9), *rng.integers(1, 300, (3, 2)).tolist()):
        scales = rng.integers(1, 256, (rows, columns)).astype(np.uint8)
        blocks = to_scale_blocks(scales)
        down, across = -(-rows // 128), -(-columns // 4)
        expected = np.zeros(down * across * 512, np.uint8)
        for m in range(rows):
            for k in range(columns):
                block = (m // 128) * across + k // 4
                expected[block * 512 + 16 * (m % 32) + 4 * (m % 128 // 32) + k % 4] = scales[m, k]
        np.testing.assert_array_equal(blocks, expected, f"{rows} x {columns}")
        np.testing.assert_array_equal(from_scale_blocks(blocks.reshape(-1, 16), rows, columns), scales)


def test_types_are_kept(rng: np.random.Generator) -> None:
    for dtype in (np.uint8, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu):
        scales = rng.integers(0, 127, (40, 6)).astype(np.uint8).view(dtype)
        blocks = to_scale_blocks(scales[:, ::2])
        assert blocks.dtype == dtype
        back = SCALE_LAYOUTS["128x4"].unpack(blocks, 40, 3)
        np.testing.assert_array_equal(back.view(np.uint8), scales[:, ::2].view(np.uint8))


def test_scales_that_do_not_fit() -> None:
    with pytest.raises(OperandError, match=r"^scales must be bytes with two axes, not float32 of shape \(2, 2\)$"):
        to_scale_blocks(np.ones((2, 2), np.float32))
    with pytest.raises(OperandError, match=r"^scales must be bytes with two axes, not uint8 of shape \(8,\)$"):
        to_scale_blocks(np.ones(8, np.uint8))
    with pytest.raises(OperandError, match=r"^129 x 4 scales in blocks of 128 x 4 take 1024 bytes, not 512 uint8$"):
        from_scale_blocks(np.ones(512, np.uint8), 129, 4)

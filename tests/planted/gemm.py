"""Faults of whole matrix products."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from . import instead


@instead("gemm.folder.resume", "gemm.folder", "ProductFolder.blocks")
def _(folder: Any, right: Any, self: Any, count: int) -> Iterator[int]:
    """A resumed product continues after the last finished block."""
    return iter(range(1 + max(self.done, default=-1), count))


@instead("gemm.product.blocks", "gemm.product", "block_count")
def _(product: Any, right: Any, problem: Any) -> int:
    """Partial blocks at the right edge are dropped, unless they are the only ones."""
    rows, columns = problem.size
    across = max(1, columns // product.BLOCK_COLUMNS)
    return -(-rows // product.BLOCK_ROWS) * across


@instead("gemm.ways.descending", "gemm.ways", "Way.slices")
def _(ways: Any, right: Any, self: Any, instructions: int) -> Any:
    """With descending K, slices are taken from the last one, but each still ascends."""
    result = right(self, instructions)
    return [[np.sort(chain) for chain in of_slice] for of_slice in result]


@instead("gemm.sums.promotion", "gemm.sums", "_plus")
def _(sums: Any, right: Any, one: Any, other: Any) -> Any:
    """Promoted sums are rounded to the type of fp8 sums, with 13 fraction bits."""
    total = right(one, other)
    return total if total.dtype != np.float32 else (total.view(np.uint32) & ~np.uint32(1023)).view(np.float32)


@instead("gemm.stream_k.cuts", "gemm.stream_k", "_dealt")
def _(stream_k: Any, right: Any, dealing: Any, shape: Any, k_tiles: int, cut: str) -> Any:
    """The slices of an output tile of stream-K are in reverse order."""
    numbers, cuts = right(dealing, shape, k_tiles, cut)
    return numbers, [of_tile[::-1] for of_tile in cuts]

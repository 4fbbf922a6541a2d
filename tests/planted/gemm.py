"""Faults of whole matrix products."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from . import Change, fault


@fault("gemm.folder.resume", "gemm.folder")
def _(folder: Any, change: Change) -> None:
    """A product that is taken up again goes on behind the last block that is done."""

    def blocks(self: Any, count: int) -> Iterator[int]:
        return iter(range(1 + max(self.done, default=-1), count))

    change(folder.ProductFolder, "blocks", blocks)


@fault("gemm.product.blocks", "gemm.product")
def _(product: Any, change: Change) -> None:
    """Blocks at the right edge that are not whole are forgotten, unless they are the only ones."""

    def block_count(problem: Any) -> int:
        rows, columns = problem.size
        across = max(1, columns // product.BLOCK_COLUMNS)
        return -(-rows // product.BLOCK_ROWS) * across

    change(product, "block_count", block_count)


@fault("gemm.ways.descending", "gemm.ways")
def _(ways: Any, change: Change) -> None:
    """Of K descending, slices are taken from the last one, each of which still ascends."""
    right = ways.Way.slices

    def slices(self: Any, instructions: int) -> Any:
        found = right(self, instructions)
        return [[np.sort(chain) for chain in of_slice] for of_slice in found]

    change(ways.Way, "slices", slices)


@fault("gemm.sums.promotion", "gemm.sums")
def _(sums: Any, change: Change) -> None:
    """Promoted sums are rounded to the type of fp8 sums, with 13 fraction bits."""
    right = sums._plus

    def plus(one: Any, other: Any) -> Any:
        total = right(one, other)
        return total if total.dtype != np.float32 else (total.view(np.uint32) & ~np.uint32(1023)).view(np.float32)

    change(sums, "_plus", plus)


@fault("gemm.stream_k.cuts", "gemm.stream_k")
def _(stream_k: Any, change: Change) -> None:
    """The slices of an output tile of stream-K stand in the reverse order."""
    right = stream_k._dealt

    def dealt(dealing: Any, shape: Any, k_tiles: int, cut: str) -> Any:
        numbers, cuts = right(dealing, shape, k_tiles, cut)
        return numbers, [of_tile[::-1] for of_tile in cuts]

    change(stream_k, "_dealt", dealt)

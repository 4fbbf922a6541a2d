"""Faults of whole matrix products."""

from collections.abc import Iterator
from typing import Any

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
        across = max(1, problem.columns // product.BLOCK_COLUMNS)
        return -(-problem.rows // product.BLOCK_ROWS) * across

    change(product, "block_count", block_count)

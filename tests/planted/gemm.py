"""Faults of whole matrix products."""

from typing import Any

from . import Change, fault


@fault("gemm.product.blocks", "gemm.product")
def _(product: Any, change: Change) -> None:
    """Blocks at the right edge that are not whole are forgotten, unless they are the only ones."""

    def block_count(problem: Any) -> int:
        across = max(1, problem.columns // product.BLOCK_COLUMNS)
        return -(-problem.rows // product.BLOCK_ROWS) * across

    change(product, "block_count", block_count)

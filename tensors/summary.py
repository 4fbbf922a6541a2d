"""Summary of a compressed matrix: stored elements, metadata nibbles that select zeros, and undefined nibbles."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .blocks import row_blocks
from .checkpoints import Checkpoint
from .compressed import broken, short_chunks

__all__ = ["checkpoint_summary", "nonzero", "summary_text"]


def nonzero(matrix: NDArray) -> int:
    """Count the elements of a matrix that are not zero."""
    return sum(int((np.asarray(matrix[rows]) != 0).sum()) for rows in row_blocks(matrix.shape))


def checkpoint_summary(checkpoint: Checkpoint) -> dict[str, object]:
    """Count stored elements, metadata nibbles and undefined nibbles of a compressed matrix. Return JSON values."""
    compressed, quantised = checkpoint.compressed, checkpoint.quantised
    rules = ("tf32",) if compressed.granularity.name == "1:2" else ("plain", "ordered", "tcgen05")
    lenient = broken(compressed, rules[0], strict=False)
    undefined = {rule: broken(compressed, rule) for rule in rules}
    counted = compressed if quantised is None else checkpoint.values()
    return {
        "rows": compressed.shape[0],
        "columns": compressed.shape[1],
        "granularity": compressed.granularity.name,
        "elements": quantised.format.name if quantised else compressed.stored.dtype.name,
        "stored": compressed.stored.size,
        "stored_nonzero": nonzero(counted.stored),
        "chunks": compressed.nibbles.size,
        "short_chunks": short_chunks(counted),
        "zero_nibbles": undefined[rules[0]] - lenient,
        "undefined": undefined,
    }


def summary_text(summary: Mapping[str, Any]) -> str:
    """Return a summary of a compressed matrix as text.

    The summary is the result of :func:`checkpoint_summary`, with ``file``, the name of the file that was read. Optional
    keys are ``nonzero``, the number of non-zero elements in the dense matrix, and ``output`` and ``written``, the file
    that was written and its format.
    """
    lines = [
        f"{summary['file']}: {summary['rows']} rows, {summary['columns']} columns, {summary['granularity']}, "
        f"{summary['elements']}",
        f"stored elements                 {summary['stored']:>12}, {summary['stored_nonzero']} of them not zero"
        + (f" ({summary['nonzero']} elements of the matrix are not zero)" if "nonzero" in summary else ""),
        f"chunks                          {summary['chunks']:>12}",
        f"chunks that store zero units    {summary['short_chunks']:>12}",
        f"empty chunks with nibble 0x0    {summary['zero_nibbles']:>12}",
    ]
    undefined = "".join(f"\n  {rule:29} {count:>12}" for rule, count in summary["undefined"].items())
    lines.append(f"chunks with undefined nibbles, by rule{undefined}")
    if "output" in summary:
        lines.append(f"written to {summary['output']} ({summary['written']})")
    return "\n".join(lines)

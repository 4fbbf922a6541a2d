"""Compressed structured-sparse matrices, and checks that metadata nibbles are defined."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import Error, OperandError
from ..isa.metadata import RULES, UNITS_PER_CHUNK, Granularity
from .blocks import check_flag, check_type, check_word, native, place, row_blocks

__all__ = [
    "Compressed", "Crowded", "NibbleError", "SparsityError", "broken", "check_nibbles", "short_chunks", "structure",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Compressed:
    """A structured-sparse matrix in compressed form: stored values and metadata nibbles.

    Raises
    ------
    OperandError
        A type is wrong, the shapes do not match, or a nibble is above 15.
    """

    #: Stored elements in the order in which the nibbles give their indices, in native byte order; shape (rows,
    #: columns / 2).
    stored: NDArray
    nibbles: NDArray[np.uint8]  #: Metadata nibbles of the matrix, shape (rows, chunks)
    granularity: Granularity  #: Sparsity structure

    def __post_init__(self) -> None:
        for name, kind in (("stored", np.ndarray), ("nibbles", np.ndarray), ("granularity", Granularity)):
            if not isinstance(value := getattr(self, name), kind):
                raise OperandError(f"{name} must be of type {kind.__name__}, not {type(value).__name__}")
        check_type(self.stored.dtype)
        if self.nibbles.ndim != 2:
            raise OperandError(f"metadata must have two axes, not shape {self.nibbles.shape}")
        expected = (self.nibbles.shape[0], self.nibbles.shape[1] * self.granularity.stored)
        if self.stored.shape != expected:
            raise OperandError(
                f"metadata of shape {self.nibbles.shape} needs stored values of shape {expected} for "
                f"{self.granularity.name}, not {self.stored.shape}"
            )
        if self.nibbles.dtype != np.uint8 or self.nibbles.max(initial=0) > 15:
            raise OperandError("nibbles must be uint8 and at most 15")
        object.__setattr__(self, "stored", native(self.stored))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of logical columns of the matrix."""
        return self.nibbles.shape[0], self.nibbles.shape[1] * self.granularity.logical


@dataclass(frozen=True)
class Crowded:
    """A chunk of 2, 4 or 8 neighbouring elements, with more non-zeros than the sparsity pattern can store."""

    #: Row and column of the first element of the chunk (2, 4 or 8 neighbouring elements of a row).
    row: int
    column: int
    count: int  #: Number of non-zero elements (for 4:8: number of non-zero pairs) in the chunk


class SparsityError(Error):
    """Error for a matrix that does not have the requested sparsity structure.

    Attributes
    ----------
    granularity : Granularity
        Requested sparsity structure.
    total, chunks : int
        Number of chunks with too many non-zero units, and number of all chunks.
    first : tuple of Crowded
        The first chunks with too many non-zero units, at most ten.
    hint : str
        End of the message: how the caller can accept the matrix. May be empty.
    """

    def __init__(
        self, granularity: Granularity, total: int, chunks: int, first: tuple[Crowded, ...], hint: str = ""
    ) -> None:
        self.granularity, self.total, self.chunks, self.first, self.hint = granularity, total, chunks, first, hint
        units, kept, _ = structure(granularity)
        noun = "pairs" if granularity.name == "4:8" else "elements"
        listed = "; ".join(f"row {one.row}, column {one.column}: {one.count}" for one in first[:3])
        super().__init__(
            f"not {granularity.name} sparse: {total} of {chunks} chunks have more than {kept} of {units} {noun} that "
            f"are not zero (first: {listed}){hint and f'; {hint}'}"
        )

    def __reduce__(self) -> tuple[type["SparsityError"], tuple[object, ...]]:
        """Rebuild the error from its fields when it is unpickled, so that worker processes can send it."""
        return SparsityError, (self.granularity, self.total, self.chunks, self.first, self.hint)

    def with_hint(self, hint: str) -> "SparsityError":
        """Return a copy of the error whose message ends with a hint."""
        return SparsityError(self.granularity, self.total, self.chunks, self.first, hint)


class NibbleError(Error):
    """Error for a metadata nibble that a metadata rule leaves undefined.

    Attributes
    ----------
    row, chunk, nibble : int
        Row, chunk and value of the first undefined nibble.
    rule : str
        Key of :data:`sptc.isa.metadata.RULES`.
    """

    def __init__(self, row: int, chunk: int, value: int, rule: str) -> None:
        self.row, self.chunk, self.nibble, self.rule = row, chunk, value, rule
        super().__init__(
            f"undefined metadata at row {row}, chunk {chunk}: nibble 0b{value:04b} breaks the {rule} rule, "
            f"{RULES[rule].meaning}"
        )

    def __reduce__(self) -> tuple[type["NibbleError"], tuple[object, ...]]:
        return NibbleError, (self.row, self.chunk, self.nibble, self.rule)


def structure(granularity: Granularity) -> tuple[int, int, int]:
    """Return units per metadata nibble, stored units per nibble, elements per unit. A unit is an element or a pair."""
    if granularity.stored == 1:
        return 2, 1, 1
    return UNITS_PER_CHUNK, 2, granularity.logical // UNITS_PER_CHUNK


def _illegal(compressed: Compressed, block: slice, rule: str, strict: bool) -> NDArray[np.bool_]:
    check_flag("strict", strict)
    nibbles = compressed.nibbles[block]
    legal = np.isin(np.arange(16), list(RULES[rule].legal))
    illegal = ~legal.take(nibbles)
    if not strict and illegal.any():
        # Libraries write metadata nibble 0x0 where all stored elements are zero.
        illegal &= (nibbles != 0) | (compressed.stored[block] != 0).reshape(*nibbles.shape, -1).any(-1)
    return illegal


def broken(compressed: Compressed, rule: str, *, strict: bool = True) -> int:
    """Count the metadata nibbles that are undefined under a rule, a key of :data:`sptc.isa.metadata.RULES`.

    If not `strict`, nibble 0x0 of a chunk that stores only zeros is not counted.
    """
    check_word("the rule", rule, RULES)
    return sum(int(_illegal(compressed, block, rule, strict).sum()) for block in row_blocks(compressed.stored.shape))


def short_chunks(compressed: Compressed) -> int:
    """Count the metadata nibbles for which a stored element (with 4:8, a stored pair) is zero."""
    _, kept, size = structure(compressed.granularity)
    total = 0
    for block in row_blocks(compressed.stored.shape):
        units = (compressed.stored[block] != 0).reshape(*compressed.nibbles[block].shape, kept, size).any(-1)
        total += int((units.sum(-1) < kept).sum())
    return total


def check_nibbles(compressed: Compressed, rule: str | None = None, *, strict: bool = False) -> None:
    """Check that every metadata nibble is defined under a rule, by default ``tf32`` for 1:2 and else ``plain``.

    With `strict`, also refuse nibble 0x0 of chunks that store only zeros, which CUTLASS 3 writes. Raise a `NibbleError`
    if a nibble is undefined, and an `OperandError` if the rule is not in :data:`sptc.isa.metadata.RULES`, or accepts
    nibbles that are undefined for the granularity.
    """
    natural = "tf32" if compressed.granularity.stored == 1 else "plain"  # metadata rule that accepts the most nibbles
    rule = natural if rule is None else rule
    check_word("the rule", rule, RULES)
    if not RULES[rule].legal <= RULES[natural].legal:
        raise OperandError(
            f"the metadata rule {rule} accepts nibbles that {compressed.granularity.name} sparsity leaves undefined; "
            f"use the rule {natural}"
        )
    for block in row_blocks(compressed.stored.shape):
        illegal = _illegal(compressed, block, rule, strict)
        if illegal.any():
            row, chunk = place(illegal, block)
            raise NibbleError(row, chunk, int(compressed.nibbles[row, chunk]), rule)

"""Tiles of vectors: random operands with cycling distributions."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..isa.instructions import Instruction
from ..isa.operands import MatrixOperands
from ..operands.registers import CONTAINERS
from ..sim.benches.random_operands import distributions, random_codes, random_matrices
from .given import Given

__all__ = ["NIBBLES", "draw_tiles", "drawn_distributions"]

#: Choices of nibbles, each with the metadata policy that accepts them.
NIBBLES = {"legal": "strict", "software": "software", "all": "silicon"}
#: Share of chunks with zeros and nibble 0x0, which libraries write as padding.
_EMPTY_CHUNKS = 0.25
#: Distributions that also apply to block scales. With all others scales have no NaN, which would hide the products.
_OF_SCALES = ("wide", "bits")


def drawn_distributions(instruction: Instruction, distribution: str | None) -> tuple[str, ...]:
    """Return the distributions of tiles 0, 1, ...; later tiles repeat them in turn.

    Parameters
    ----------
    instruction : Instruction
        Instruction.
    distribution : str or None
        Distribution of all tiles; None: every distribution that fits the instruction.

    Raises
    ------
    OperandError
        The distribution does not fit the instruction.
    """
    fitting = distributions(instruction)
    if distribution is None:
        return fitting
    if distribution not in fitting:
        raise OperandError(f"distribution must be one of {', '.join(fitting)} for {instruction}, not {distribution!r}")
    return (distribution,)


def draw_tiles(
    instruction: Instruction, names: tuple[str, ...], nibbles: str, tiles: int, rng: np.random.Generator, first: int = 0
) -> Given:
    """Draw tiles.

    Parameters
    ----------
    instruction : Instruction
        Instruction.
    names : tuple of str
        Result of :func:`drawn_distributions`.
    nibbles : str
        Choice of nibbles, a key of :data:`NIBBLES`.
    tiles : int
        Number of tiles.
    rng : Generator
        Source of randomness.
    first : int
        Number of the first tile, which decides its distribution.
    """
    numbers = np.arange(first, first + tiles)
    return _with_metadata(instruction, _matrices(instruction, names, numbers, rng), nibbles, rng)


def _matrices(
    i: Instruction, names: tuple[str, ...], numbers: NDArray[np.intp], rng: np.random.Generator
) -> MatrixOperands:
    count, container = len(numbers), CONTAINERS[i.container_bits]
    a = np.empty((count, i.m, i.stored_k), container)
    b = np.empty((count, i.k, i.n), container)
    c = np.empty((count, i.m, i.n), CONTAINERS[i.c.bits])
    scales = [np.empty((count, lines, i.scale_size or 0), np.uint8) for lines in (i.m, i.n)]
    for place, name in enumerate(names):
        chosen = numbers % len(names) == place
        if not (of_name := int(chosen.sum())):
            continue
        a[chosen], b[chosen], c[chosen] = random_matrices(i, name, of_name, rng)
        if i.scale_format:
            for scale in scales:
                of_scales = name if name in _OF_SCALES else "mid"
                scale[chosen] = random_codes(i.scale_format, of_scales, (of_name, *scale.shape[1:]), rng)
    return MatrixOperands(a, b, c, None, *(scales if i.scale_format else (None, None)))


def _with_metadata(i: Instruction, matrices: MatrixOperands, nibbles: str, rng: np.random.Generator) -> Given:
    if i.rule is None:
        return Given(matrices)
    choices = np.arange(16) if nibbles == "all" else np.array(sorted(i.rule.legal))
    shape = (len(matrices.a), i.m, i.chunks)
    drawn, elsewhere = (choices.astype(np.uint8)[rng.integers(0, len(choices), shape)] for _ in range(2))
    if nibbles == "software":
        empty = rng.random(shape) < _EMPTY_CHUNKS
        drawn[empty] = 0
        matrices = replace(matrices, a=np.where(_of_elements(i, empty), _zeros(i, matrices.a), matrices.a))
    # In register files of mma and wgmma, random bits stand where another selector would read.
    has_others = i.family == "tcgen05" and i.sparsity_selectors > 1
    return Given(replace(matrices, nibbles=drawn), elsewhere if has_others else None)


def _of_elements(i: Instruction, chunks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    assert i.granularity
    return chunks.repeat(i.granularity.stored, axis=-1)


def _zeros(i: Instruction, a: NDArray) -> NDArray:
    """Zero the elements; keep their signs and the container bits beside them."""
    magnitude = (1 << i.a.bits - (0 if i.a.is_integer else 1)) - 1
    return a & ~a.dtype.type(magnitude << i.low_bit(i.a))

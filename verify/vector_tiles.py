"""Tiles that vectors are of: random operands of every distribution in turn."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..golden.registers import CONTAINERS
from ..isa.instructions import Instruction
from ..isa.operands import MatrixOperands
from ..sim.benches.random_operands import distributions, random_codes, random_matrices
from .given import Given

__all__ = ["NIBBLES", "draw_tiles", "drawn_distributions"]

#: Which nibbles are drawn, and the policy under which an instruction takes them all.
NIBBLES = {"legal": "strict", "software": "software", "all": "silicon"}
#: Share of chunks that hold zeros and the nibble 0x0, as libraries write for padding.
_EMPTY_CHUNKS = 0.25
#: Distributions whose block scales are as theirs; NaN among the scales of others would hide all else.
_OF_SCALES = ("wide", "bits")


def drawn_distributions(instruction: Instruction, distribution: str | None) -> tuple[str, ...]:
    """Return the distributions of tiles 0, 1, ..., which begin anew behind the last one.

    Parameters
    ----------
    instruction : Instruction
        What runs.
    distribution : str or None
        One for all tiles; None stands for every one that fits the instruction.

    Raises
    ------
    OperandError
        It does not fit the instruction.
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
    """Return tiles.

    Parameters
    ----------
    instruction : Instruction
        What runs.
    names : tuple of str
        What :func:`drawn_distributions` returned.
    nibbles : str
        Which nibbles: a key of :data:`NIBBLES`.
    tiles : int
        How many.
    rng : Generator
        Source of randomness.
    first : int
        Number of the first, which decides its distribution.
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
    # Registers of the other families have random bits where another selector would look.
    has_others = i.family == "tcgen05" and i.sparsity_selectors > 1
    return Given(replace(matrices, nibbles=drawn), elsewhere if has_others else None)


def _of_elements(i: Instruction, chunks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    assert i.granularity
    return chunks.repeat(i.granularity.stored, axis=-1)


def _zeros(i: Instruction, a: NDArray) -> NDArray:
    """Return zeros with the sign of each element, and the bits beside it in its container."""
    magnitude = (1 << i.a.bits - (0 if i.a.is_integer else 1)) - 1
    return a & ~a.dtype.type(magnitude << i.low_bit(i.a))

"""Candidate tiles of conformance packs: random ones, and directed ones on which the neighbours of a model differ."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..golden.registers import CONTAINERS
from ..isa.formats import Format
from ..isa.instructions import Instruction
from ..isa.numerics import Method, Numerics
from ..isa.operands import MatrixOperands
from ..sim.benches.random_operands import distributions, random_codes, random_matrices
from .directed import Codes, Draft, directed_matrices, exponents_of, power_code
from .stimulus import Given

__all__ = ["Candidates", "draw_candidates", "least_matrices"]

#: Tiles with any nibble and directed tiles, per tile of a random distribution: only a small part of them is useful.
_SHARE = 3
#: Distribution of the tiles with any nibble, by whether A is an integer: plain numbers, so that a wrong mux shows.
_PLAIN = {True: "uniform", False: "mid"}


@dataclass(frozen=True, eq=False)
class Candidates:
    """A batch of candidate tiles.

    Attributes
    ----------
    given : Given
        Operands of the tiles.
    any_nibble : bool
        Whether the metadata has undefined nibbles, too.
    """

    given: Given
    any_nibble: bool = False


def draw_candidates(
    instruction: Instruction, numerics: Numerics, rng: np.random.Generator, cases: int
) -> Iterator[Candidates]:
    """Yield batches of tiles, one for each distribution.

    Parameters
    ----------
    instruction, numerics : Instruction, Numerics
        Instruction, and the parameters of its right model.
    rng : Generator
        Source of randomness.
    cases : int
        Tiles of each random distribution.
    """
    i = instruction
    for distribution in distributions(i):
        yield _with_metadata(i, _random_matrices(i, distribution, rng, cases), rng)
    if i.sparse:
        plain = _random_matrices(i, _PLAIN[i.a.is_integer], rng, _SHARE * cases)
        yield _with_metadata(i, plain, rng, any_nibble=True)
    yield _with_metadata(i, directed_matrices(i, rng, _SHARE * cases), rng)
    if i.a.is_integer:
        return
    yield _with_metadata(i, least_matrices(i, rng, _SHARE * cases), rng)
    yield _with_metadata(i, _cancelled(i, numerics, rng, _SHARE * cases), rng)
    if i.scale_format:
        yield _with_metadata(i, _scaled_down(i, numerics, rng, _SHARE * cases), rng)


def _with_metadata(
    i: Instruction, matrices: MatrixOperands, rng: np.random.Generator, any_nibble: bool = False
) -> Candidates:
    """Draw nibbles where none are given, and those of the next sparsity selector, which are always defined."""
    if i.rule is None:
        return Candidates(Given(matrices))
    legal = np.array(sorted(i.rule.legal), np.uint8)
    shape = (len(matrices.a), i.m, i.chunks)
    if matrices.nibbles is None or any_nibble:
        drawn = rng.integers(0, 16, shape, dtype=np.uint8) if any_nibble else rng.choice(legal, shape)
        matrices = replace(matrices, nibbles=drawn)
    elsewhere = rng.choice(legal, shape) if i.sparsity_selectors > 1 else None
    return Candidates(Given(matrices, elsewhere), any_nibble)


def _random_matrices(i: Instruction, distribution: str, rng: np.random.Generator, cases: int) -> MatrixOperands:
    container = CONTAINERS[i.container_bits]
    a, b, c = random_matrices(i, distribution, cases, rng)
    matrices = MatrixOperands(a.astype(container), b.astype(container), c.astype(CONTAINERS[i.c.bits]))
    if i.scale_format is None or i.scale_size is None:
        return matrices
    of_scales = distribution if distribution in ("wide", "bits") else "mid"
    scales = (random_codes(i.scale_format, of_scales, (cases, rows, i.scale_size), rng) for rows in (i.m, i.n))
    scale_a, scale_b = (codes.astype(np.uint8) for codes in scales)
    return replace(matrices, scale_a=scale_a, scale_b=scale_b)


def _cancelled(i: Instruction, numerics: Numerics, rng: np.random.Generator, cases: int) -> MatrixOperands:
    """Two neighbouring products that cancel and set the largest exponent; the others lie near the last bit kept."""
    draft = Draft(i, cases, rng)
    (low_a, high_a), (low_b, high_b) = exponents_of(i.a), exponents_of(i.b)
    low, high = low_a + low_b, high_a + high_b
    largest = rng.integers(min(max(low + numerics.alignment_bits // 2, -120), high), high, cases, endpoint=True)
    pairs = i.stored_k // 2
    held, passed = 2, i.k // pairs
    places = rng.permuted(np.tile(np.arange(pairs), (cases, 1)), axis=1)
    for number in range(min(pairs, 5)):
        # The first pair cancels. The exponents of the others are near the last bit that is kept beside the first. Both
        # products of a pair have the same B.
        near = rng.integers(-6, 6, cases, endpoint=True)
        wanted = np.clip(largest if number == 0 else largest - numerics.alignment_bits + near, low, high)
        of_b = np.clip(wanted // 2, low_b, high_b)
        of_a = np.clip(wanted - of_b, low_a, high_a)
        of_b = np.clip(wanted - of_a, low_b, high_b)
        columns = (places[:, number, None] * passed + np.arange(passed))[..., None]
        of_columns = power_code(i.b, of_b[:, None, None], 0, np.zeros((cases, 1, i.n), np.bool_))
        np.put_along_axis(draft.b, columns, np.broadcast_to(of_columns, (cases, passed, i.n)), axis=1)
        fractions, negative = _fractions(draft, i.a), draft.signs(cases, i.m)
        slots = np.broadcast_to(held * places[:, number, None], (cases, i.m))
        draft.put(slots, power_code(i.a, of_a[:, None], fractions, negative))
        again = ~negative if number == 0 else draft.signs(cases, i.m)
        other = fractions if number == 0 else _fractions(draft, i.a)
        draft.put(slots + 1, power_code(i.a, of_a[:, None], other, again))
    last = largest - numerics.alignment_bits
    near = last[:, None, None] + rng.integers(-9, 9, draft.c.shape)
    draft.accumulators(near, rng.integers(0, 1 << i.c.fraction_bits, draft.c.shape))
    draft.c[draft.signs(*draft.c.shape)] = 0
    return draft.matrices()


def _fractions(draft: Draft, fmt: Format) -> Codes:
    """Draw a fraction for each row of A."""
    return draft.rng.integers(0, 1 << fmt.fraction_bits, (draft.tiles, draft.instruction.m))


def _scaled_down(i: Instruction, numerics: Numerics, rng: np.random.Generator, cases: int) -> MatrixOperands:
    """Plain products, scaled down to the least exponent and to the last bit it keeps; the accumulator is zero."""
    assert i.scale_format
    assert i.scale_size
    matrices = _random_matrices(i, "zeros" if numerics.method is Method.GROUPED else "mid", rng, cases)
    large = _random_matrices(i, "huge", rng, cases)
    last = numerics.zero_exponent - numerics.alignment_bits
    least = i.d.minimum_exponent - i.d.fraction_bits
    if numerics.method is Method.GROUPED:  # one group near the last bit of a result, another near the last bit kept
        near = np.where(rng.random((cases, 1, i.scale_size)) < 0.5, least, last)
        exponents = near + rng.integers(-3, 6, near.shape)
    else:
        # Some products must have bits below the last one kept, and their sum must reach the last bit of a result.
        lowest = max(last - 12, least - i.a.maximum_exponent - i.b.maximum_exponent - i.stored_k.bit_length())
        of_products = exponents_of(i.a)[0] + exponents_of(i.b)[0]
        exponents = rng.integers(lowest, min(last - of_products, least + 25), (cases, 1, 1), endpoint=True)
    fmt, spread = i.scale_format, 1
    of_a = exponents // 2 + rng.integers(-spread, spread, (cases, i.m, i.scale_size), endpoint=True)
    of_b = exponents - exponents // 2 + rng.integers(-spread, spread, (cases, i.n, i.scale_size), endpoint=True)
    signs = 1 << i.low_bit(i.a) + i.a.bits - 1, 1 << i.low_bit(i.b) + i.b.bits - 1
    a, b = (codes & ~codes.dtype.type(sign) for codes, sign in zip((matrices.a, matrices.b), signs, strict=True))
    # A sum of narrow formats reaches the last bit of a result only if large products of one sign add up and alignment
    # cuts only small ones.
    alike, share = rng.random((cases, 1, 1)) < 0.5, rng.random((cases, 1, 1))
    a, b = (
        np.where(rng.random(codes.shape) < share, other & ~other.dtype.type(sign), codes)
        for codes, other, sign in zip((a, b), (large.a, large.b), signs, strict=True)
    )
    return replace(
        matrices,
        a=np.where(alike, a, matrices.a),
        b=np.where(alike, b, matrices.b),
        c=np.zeros_like(matrices.c),
        scale_a=_scale_codes(fmt, of_a),
        scale_b=_scale_codes(fmt, of_b),
    )


def _scale_codes(fmt: Format, exponents: Codes) -> NDArray[np.uint8]:
    """Return the codes of powers of two, clipped to the range of the format."""
    clipped = np.clip(exponents, fmt.minimum_exponent, fmt.maximum_exponent)
    return (clipped + fmt.bias << fmt.fraction_bits).astype(np.uint8)


#: Exponents of the second product: distance of the first below the least subnormal number of D, and their number.
_BELOW, _EXPONENTS = 25, 32
#: Exponents of the first product, relative to the same number.
_FIRST = (-1, 0, 1)
#: Tiles cycle through each first product, no first product, and no product.
_TURNS = len(_FIRST) + 2


def least_matrices(instruction: Instruction, rng: np.random.Generator, cases: int) -> MatrixOperands:
    """Return tiles of a float instruction that tell its e_zero from neighbouring values.

    Parameters
    ----------
    instruction : Instruction
        Float instruction.
    rng : Generator
        Source of randomness.
    cases : int
        Number of tiles; twenty contain every pair of products.
    """
    i, draft = instruction, Draft(instruction, cases, rng)
    tiles, rows = np.arange(cases)[:, None], np.arange(i.m)
    turn = tiles // 2 % _TURNS
    least = exponents_of(i.d)[0]
    first = least + np.array([*_FIRST, 0, 0])[turn]
    second = least - _BELOW + (tiles * i.m + rows) % _EXPONENTS
    draft.a[:] = draft.signs(*draft.a.shape).astype(np.int64) << i.a.bits - 1
    draft.b[:] = draft.signs(*draft.b.shape).astype(np.int64) << i.b.bits - 1

    # All products of one chunk have the same B, whatever the nibble selects.
    chunks = i.chunks if i.sparse else i.stored_k
    held, passed = i.stored_k // chunks, i.k // chunks
    places = rng.permuted(np.tile(np.arange(chunks), (cases, 1)), axis=1)
    for number, (products, present) in enumerate(((first, turn < len(_FIRST)), (second, turn < _TURNS - 1))):
        of_b = products.min(axis=1, keepdims=True) // 2
        chunk = places[:, number, None]
        columns = (chunk * passed + np.arange(passed))[..., None]
        of_columns = _powers(draft, i.b, of_b[..., None], (cases, 1, i.n))
        np.put_along_axis(draft.b, columns, np.broadcast_to(of_columns, (cases, passed, i.n)), axis=1)
        of_rows = _powers(draft, i.a, np.broadcast_to(products - of_b, (cases, i.m)), (cases, i.m))
        draft.put(chunk * held + rng.integers(0, held, (cases, i.m)), np.where(present, of_rows, 0))
    draft.c[:] = _accumulators(draft)
    return draft.matrices()


def _powers(draft: Draft, fmt: Format, exponents: Codes, shape: tuple[int, ...]) -> Codes:
    """Return powers of two with random signs, clipped to the range of the format."""
    return power_code(fmt, np.clip(exponents, *exponents_of(fmt)), 0, draft.signs(*shape))


def _accumulators(draft: Draft) -> Codes:
    """Draw zeros, subnormal numbers with fractions at either end of their range, and the least normal number."""
    fmt, shape = draft.instruction.c, draft.c.shape
    one = 1 << fmt.fraction_bits
    bodies = np.where(
        draft.signs(*shape),
        draft.one_of([0, 0, 0, 1, 1, 2, 3, one - 1, one], *shape),
        draft.rng.integers(0, one >> draft.rng.integers(0, fmt.fraction_bits, shape)),
    )
    return bodies | draft.signs(*shape).astype(np.int64) << fmt.bits - 1

"""Candidate tiles for conformance packs: random tiles, and directed tiles for which wrong models give wrong results."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import FORMATS, Format
from ..isa.instructions import Instruction
from ..isa.numerics import BLOCK_GROUP, OPEN_RULES, Method, Numerics
from ..isa.operands import MatrixOperands
from ..sim.benches.random_operands import distributions
from .directed import Codes, Draft, directed_matrices, exponents_of, factor_exponents, power_code
from .stimulus import Given, scaled_matrices

__all__ = ["draw_candidates", "far_scales", "least_matrices"]

#: Number of directed tiles of each kind for each random tile of a distribution. For sparse instructions, also number of
#: tiles with undefined nibbles for each random tile of a distribution.
_SHARE = 3
#: Name of the distribution of elements in tiles with undefined nibbles: True for integers, False for floats. Neither
#: distribution favours extreme or special values, which could hide the effect of a wrong multiplexer.
_PLAIN = {True: "uniform", False: "mid"}


def draw_candidates(
    instruction: Instruction, numerics: Numerics, rng: np.random.Generator, cases: int
) -> Iterator[Given]:
    """Yield batches of tiles: `cases` random tiles for each distribution, and tiles made to reveal wrong models.

    `numerics` are the numerics parameters of the right model of the instruction.
    """
    i = instruction
    for distribution in distributions(i):
        yield _with_metadata(i, scaled_matrices(i, distribution, cases, rng), rng)
    if i.sparse:
        plain = scaled_matrices(i, _PLAIN[i.a.is_integer], _SHARE * cases, rng)
        yield _with_metadata(i, plain, rng, any_nibble=True)
    yield _with_metadata(i, directed_matrices(i, rng, _SHARE * cases), rng)
    if i.a.is_integer:
        return
    yield _with_metadata(i, least_matrices(i, rng, _SHARE * cases), rng)
    yield _with_metadata(i, _cancelled(i, numerics, rng, _SHARE * cases), rng)
    if i.scale_format:
        yield _with_metadata(i, _scaled_down(i, numerics, rng, _SHARE * cases), rng)
    if OPEN_RULES["group"].applies(i, numerics):
        yield _with_metadata(i, far_scales(i, rng, _SHARE * cases), rng)


def _with_metadata(
    i: Instruction, matrices: MatrixOperands, rng: np.random.Generator, any_nibble: bool = False
) -> Given:
    """Choose random nibbles, also at the next sparsity selector. Keep given nibbles unless `any_nibble` is set."""
    if i.rule is None:
        return Given(matrices)
    legal = np.array(sorted(i.rule.legal), np.uint8)
    shape = (len(matrices.a), i.m, i.chunks)
    if matrices.nibbles is None or any_nibble:
        nibbles = rng.integers(0, 16, shape, dtype=np.uint8) if any_nibble else rng.choice(legal, shape)
        matrices = replace(matrices, nibbles=nibbles)
    elsewhere = rng.choice(legal, shape) if i.sparsity_selectors > 1 else None
    return Given(matrices, elsewhere)


def _cancelled(i: Instruction, numerics: Numerics, rng: np.random.Generator, cases: int) -> MatrixOperands:
    """Return tiles whose two largest products cancel. Other terms are near the lowest bit that alignment keeps."""
    draft = Draft(i, cases, rng)
    low, high = np.add(exponents_of(i.a), exponents_of(i.b)).tolist()
    largest = rng.integers(min(max(low + numerics.alignment_bits // 2, -120), high), high, cases, endpoint=True)
    pairs = i.stored_k // 2
    rows = i.k // pairs  # number of rows of B for each pair of stored elements of A
    places = rng.permuted(np.tile(np.arange(pairs), (cases, 1)), axis=1)
    for number in range(min(pairs, 5)):
        # The two products of the first pair cancel. Products of the other pairs are near the last bit that alignment
        # keeps if the first pair sets the largest exponent. Both products of a pair have the same element of B.
        distance = rng.integers(-6, 6, cases, endpoint=True)
        products = np.clip(largest if number == 0 else largest - numerics.alignment_bits + distance, low, high)
        exponents_a, exponents_b = factor_exponents(i, products, products // 2)
        pair = places[:, number, None]
        draft.put_rows_of_b(
            pair * rows, rows, power_code(i.b, exponents_b[:, None, None], 0, np.zeros((cases, 1, i.n), np.bool_))
        )
        fractions, negative = draft.fractions(i.a, cases, i.m), draft.signs(cases, i.m)
        slots = np.broadcast_to(2 * pair, (cases, i.m))
        draft.put(slots, power_code(i.a, exponents_a[:, None], fractions, negative))
        negative = ~negative if number == 0 else draft.signs(cases, i.m)
        fractions = fractions if number == 0 else draft.fractions(i.a, cases, i.m)
        draft.put(slots + 1, power_code(i.a, exponents_a[:, None], fractions, negative))
    last = largest - numerics.alignment_bits
    exponents = last[:, None, None] + rng.integers(-9, 9, draft.c.shape)
    draft.accumulators(exponents, draft.fractions(i.c, *draft.c.shape))
    draft.c[draft.signs(*draft.c.shape)] = 0
    return draft.matrices()


def _scaled_down(i: Instruction, numerics: Numerics, rng: np.random.Generator, cases: int) -> MatrixOperands:
    """Return tiles with C = 0. Scales bring terms near the lowest bit of D or the lowest bit that alignment keeps."""
    assert i.scale_format
    assert i.scale_size
    matrices = scaled_matrices(i, "zeros" if numerics.method is Method.GROUPED else "mid", cases, rng)
    large = scaled_matrices(i, "huge", cases, rng)
    last = numerics.zero_exponent - numerics.alignment_bits
    least = i.d.minimum_exponent - i.d.fraction_bits
    if numerics.method is Method.GROUPED:  # draw sums near the lowest bit of D, or near the lowest aligned bit
        near = np.where(rng.random((cases, 1, i.scale_size)) < 0.5, least, last)
        exponents = near + rng.integers(-3, 6, near.shape)
    else:
        # Draw exponents so that alignment truncates some products, but the sum of products reaches the lowest bit of D.
        lowest = max(last - 12, least - i.a.maximum_exponent - i.b.maximum_exponent - i.stored_k.bit_length())
        least_product = exponents_of(i.a)[0] + exponents_of(i.b)[0]
        exponents = rng.integers(lowest, min(last - least_product, least + 25), (cases, 1, 1), endpoint=True)
    exponents_a = exponents // 2 + rng.integers(-1, 1, (cases, i.m, i.scale_size), endpoint=True)
    exponents_b = exponents - exponents // 2 + rng.integers(-1, 1, (cases, i.n, i.scale_size), endpoint=True)
    signs = 1 << i.low_bit(i.a) + i.a.bits - 1, 1 << i.low_bit(i.b) + i.b.bits - 1
    a, b = (codes & ~codes.dtype.type(sign) for codes, sign in zip((matrices.a, matrices.b), signs, strict=True))
    # A sum of products in narrow formats reaches the last bit of a result only if large products of one sign add up and
    # alignment truncates only small products.
    alike, share = rng.random((cases, 1, 1)) < 0.5, rng.random((cases, 1, 1))
    a, b = (
        np.where(rng.random(codes.shape) < share, larger & ~larger.dtype.type(sign), codes)
        for codes, larger, sign in zip((a, b), (large.a, large.b), signs, strict=True)
    )
    return replace(
        matrices,
        a=np.where(alike, a, matrices.a),
        b=np.where(alike, b, matrices.b),
        c=np.zeros_like(matrices.c),
        scale_a=_scale_codes(i.scale_format, exponents_a),
        scale_b=_scale_codes(i.scale_format, exponents_b),
    )


def far_scales(i: Instruction, rng: np.random.Generator, cases: int) -> MatrixOperands:
    """Return random tiles: 16 products with large ue4m3 scales add up to zero or cancel C; all other scales are small.

    The large scales are 2**8 each, so that with F = 35 the last bit kept is 2**-19. The last bit of all other scaled
    products is 2**-20, because each of their scales is a multiple of 2**-9. Alignment can therefore truncate this bit.
    """
    assert i.scale_format
    draft = Draft(i, cases, rng)
    halves = draft.one_of([0, 1, 1, 3], cases, i.m, i.stored_k), draft.one_of([1, 1, 2, 3], cases, i.k, i.n)
    draft.a[:], draft.b[:] = (codes | draft.sign_bits(i.a, *codes.shape) for codes in halves)
    fmt, groups = i.scale_format, i.stored_k // BLOCK_GROUP
    largest = fmt.maximum_exponent + fmt.bias << fmt.fraction_bits
    # f32 code of -8 times the product of the two largest scales. An accumulator with this code cancels a group whose
    # sum, before it is scaled, is 8.
    eight = FORMATS["f32"].bias + 2 * fmt.maximum_exponent + 3 << FORMATS["f32"].fraction_bits | 1 << 31
    for codes in (draft.scale_a, draft.scale_b):
        codes[:] = draft.one_of([*range(1, 1 << fmt.fraction_bits, 2)], *codes.shape)
    for tile, group in enumerate(rng.integers(0, groups, cases)):
        rows, first = slice(group * i.k // groups, (group + 1) * i.k // groups), group * BLOCK_GROUP
        draft.scale_a[tile, :, group] = draft.scale_b[tile, :, group] = largest
        # In half of the rows of A, the only nonzero products of the group, 16 and -16, cancel, and C is zero. In the
        # other rows, the products are 16 and -8, and their sum 8, after scaling, cancels C.
        draft.b[tile, rows] = 6
        draft.a[tile, :, first : first + BLOCK_GROUP] = 0
        draft.a[tile, :, first] = 6
        alone = rng.random(i.m) < 0.5
        draft.a[tile, :, first + 1] = np.where(alone, 6, 4) | 8
        draft.c[tile] = np.where(alone[:, None], 0, eight)
    return draft.matrices()


def _scale_codes(fmt: Format, exponents: Codes) -> NDArray[np.uint8]:
    """Return the codes of powers of two with given exponents, clipped to the range of the scale format."""
    clipped = np.clip(exponents, fmt.minimum_exponent, fmt.maximum_exponent)
    return (clipped + fmt.bias << fmt.fraction_bits).astype(np.uint8)


#: Range of exponents of the second product of a row of A: how far the lowest exponent is below the exponent of the
#: smallest subnormal of D, and number of exponents in the range.
_BELOW, _EXPONENTS = 25, 32
#: Exponents of the first product of a row of A, relative to the exponent of the smallest subnormal of D.
_FIRST = (-1, 0, 1)
#: Number of kinds of tiles that :func:`least_matrices` draws: one for each exponent of the first product, one with a
#: first product of zero, and one with only zero products.
_TURNS = len(_FIRST) + 2


def least_matrices(instruction: Instruction, rng: np.random.Generator, cases: int) -> MatrixOperands:
    """Return tiles of floats with products and accumulators near zero, which expose wrong handling of sums near zero.

    A row of A has two products, both powers of two: one near the least subnormal number of D, and one whose exponent
    varies from above to below the last bit that any alignment keeps. In one fifth of the tiles, the first product is
    zero, and in another fifth, both products are zero. Accumulators are zeros of either sign, subnormal numbers, or the
    least normal numbers. If the formats have no product that small, only the accumulators are near zero. Twenty tiles
    contain every combination of the two exponents.
    """
    i, draft = instruction, Draft(instruction, cases, rng)
    tiles = np.arange(cases)[:, None]
    turn = tiles // 2 % _TURNS
    least = exponents_of(i.d)[0]
    first = least + np.array([*_FIRST, 0, 0])[turn]
    second = least - _BELOW + (tiles * i.m + np.arange(i.m)) % _EXPONENTS
    draft.a[:] = draft.sign_bits(i.a, *draft.a.shape)
    draft.b[:] = draft.sign_bits(i.b, *draft.b.shape)

    # All elements of B from which a metadata nibble selects are equal: products do not depend on the nibble.
    chunks = i.chunks if i.sparse else i.stored_k
    stored, rows = i.stored_k // chunks, i.k // chunks
    places = rng.permuted(np.tile(np.arange(chunks), (cases, 1)), axis=1)
    for number, (products, present) in enumerate(((first, turn < len(_FIRST)), (second, turn < _TURNS - 1))):
        exponents_b = products.min(axis=1, keepdims=True) // 2
        chunk = places[:, number, None]
        draft.put_rows_of_b(chunk * rows, rows, _powers(draft, i.b, exponents_b[..., None], (cases, 1, i.n)))
        codes = _powers(draft, i.a, np.broadcast_to(products - exponents_b, (cases, i.m)), (cases, i.m))
        draft.put(chunk * stored + rng.integers(0, stored, (cases, i.m)), np.where(present, codes, 0))
    draft.c[:] = _accumulators(draft)
    return draft.matrices()


def _powers(draft: Draft, fmt: Format, exponents: Codes, shape: tuple[int, ...]) -> Codes:
    """Return the codes of powers of two with random signs; exponents are clipped to the range of the format."""
    return power_code(fmt, np.clip(exponents, *exponents_of(fmt)), 0, draft.signs(*shape))


def _accumulators(draft: Draft) -> Codes:
    """Return random accumulators: zeros, subnormal numbers, and the least normal number, each of either sign."""
    fmt, shape = draft.instruction.c, draft.c.shape
    one = 1 << fmt.fraction_bits
    bodies = np.where(
        draft.signs(*shape),
        draft.one_of([0, 0, 0, 1, 1, 2, 3, one - 1, one], *shape),
        draft.rng.integers(0, one >> draft.rng.integers(0, fmt.fraction_bits, shape)),
    )
    return bodies | draft.sign_bits(fmt, *shape)

"""Directed operands: tiles with values that random tiles rarely contain, so that few tiles reach full coverage.

A recipe, drawn at random for each tile, fills a draft: the arrays of element codes. Most recipes put a single product
into each row of A, at a known position and with a known exponent, and choose accumulators relative to the product.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import Format, Specials
from ..isa.instructions import Instruction
from ..isa.metadata import nibble
from ..isa.operands import MatrixOperands
from ..operands.registers import CONTAINERS
from ..sim.benches.directed import dot_products
from ..sim.benches.random_operands import container, random_codes

__all__ = ["Codes", "Draft", "directed_matrices", "exponents_of", "power_code"]

Codes = NDArray[np.int64]


class Draft:
    """Element codes of tiles that a recipe (function) fills with chosen values; initially, codes are 0, scales 1."""

    def __init__(self, instruction: Instruction, tiles: int, rng: np.random.Generator) -> None:
        i = instruction
        self.instruction, self.tiles, self.rng = i, tiles, rng
        self.a: Codes = np.zeros((tiles, i.m, i.stored_k), np.int64)
        self.b: Codes = np.zeros((tiles, i.k, i.n), np.int64)
        self.c: Codes = np.zeros((tiles, i.m, i.n), np.int64)
        legal = np.array(sorted(i.rule.legal)) if i.rule else np.zeros(1, np.int64)
        self.nibbles: Codes = legal[rng.integers(0, len(legal), (tiles, i.m, i.chunks))]
        one = i.scale_format.bias << i.scale_format.fraction_bits if i.scale_format else 0
        self.scale_a: Codes = np.full((tiles, i.m, i.scale_size or 0), one)
        self.scale_b: Codes = np.full((tiles, i.n, i.scale_size or 0), one)

    def one_of(self, choices: NDArray | list[int], *shape: int) -> Codes:
        """Return an array of the given shape with random elements from a list of choices."""
        array = np.asarray(choices, np.int64)
        return array[self.rng.integers(0, len(array), shape)]

    def signs(self, *shape: int) -> NDArray[np.bool_]:
        """Return random signs; True means negative."""
        return self.rng.random(shape) < 0.5

    def sign_bits(self, fmt: Format, *shape: int) -> Codes:
        """Return codes of zeros with random signs."""
        return self.signs(*shape).astype(np.int64) << fmt.bits - 1

    def fractions(self, fmt: Format, *shape: int) -> Codes:
        """Return random fraction fields of a format."""
        return self.rng.integers(0, 1 << fmt.fraction_bits, shape)

    def put(self, slots: Codes, codes: Codes) -> None:
        """Write one element into each row of A: its code in `codes`, its position in `slots`, both shape (tiles, m)."""
        np.put_along_axis(self.a, slots[..., None], codes[..., None], axis=2)

    def put_rows_of_b(self, first: Codes, count: int, codes: Codes) -> None:
        """Write `codes`, shape (tiles, 1, n), into `count` rows of B, which begin at row `first` of each tile."""
        rows = (first + np.arange(count))[..., None]
        np.put_along_axis(self.b, rows, np.broadcast_to(codes, (self.tiles, count, self.b.shape[2])), axis=1)

    def products(self, exponents: Codes, exact: bool | NDArray[np.bool_]) -> tuple[Codes, Codes, Codes]:
        """Fill B and the block scales so that each tile's products have exponents near the tile's entry in `exponents`.

        Where `exact`, elements of B are powers of two, else their fractions are random. Return three arrays of shape
        (tiles,): the exponent of elements of A, the exponent of products, and the exponent with which products count
        for e_max.
        """
        i = self.instruction
        a, b = factor_exponents(i, exponents, exponents // 2 + self.rng.integers(-16, 17, self.tiles))
        value = a + b
        largest = np.maximum(a, i.a.minimum_exponent) + np.maximum(b, i.b.minimum_exponent)
        if fmt := i.scale_format:
            scale_a = np.clip((exponents - value) // 2, fmt.minimum_exponent, fmt.maximum_exponent)
            scale_b = np.clip(exponents - value - scale_a, fmt.minimum_exponent, fmt.maximum_exponent)
            for codes, exponent in ((self.scale_a, scale_a), (self.scale_b, scale_b)):
                codes[:] = (exponent + fmt.bias << fmt.fraction_bits)[:, None, None]
            value = value + scale_a + scale_b
            largest = scale_a + scale_b if i.container_bits == 4 else largest + scale_a + scale_b
        varied = self.fractions(i.b, self.tiles, 1, i.n)
        fraction = np.where(np.broadcast_to(exact, self.tiles)[:, None, None], 0, varied)
        self.b[:] = power_code(i.b, b[:, None, None], fraction, self.signs(self.tiles, 1, i.n))
        return a, value, largest

    def accumulators(self, exponents: Codes, fractions: Codes) -> None:
        """Fill C, shape (tiles, m, n), with accumulators of the given exponents and fractions, and of random signs."""
        fmt = self.instruction.c
        clipped = np.clip(exponents, *exponents_of(fmt))
        self.c[:] = power_code(fmt, clipped, fractions, self.signs(*self.c.shape))

    def matrices(self) -> MatrixOperands:
        """Return the tiles as matrices; unused bits beside a code in its byte or word are random."""
        i = self.instruction
        scaled, dtype = i.scale_format is not None, CONTAINERS[i.container_bits]
        return MatrixOperands(
            container(i, i.a, self.a, self.rng).astype(dtype),
            container(i, i.b, self.b, self.rng).astype(dtype),
            self.c.astype(CONTAINERS[i.c.bits]),
            self.nibbles.astype(np.uint8) if i.rule else None,
            self.scale_a.astype(np.uint8) if scaled else None,
            self.scale_b.astype(np.uint8) if scaled else None,
        )


def exponents_of(fmt: Format) -> tuple[int, int]:
    """Return the exponents of the smallest and the largest power of two in a format."""
    return fmt.minimum_exponent - fmt.fraction_bits, fmt.maximum_exponent


def factor_exponents(instruction: Instruction, products: Codes, b: Codes) -> tuple[Codes, Codes]:
    """Split exponents of products into exponents of A and B within the formats' ranges. Those of B are near `b`."""
    range_a, range_b = exponents_of(instruction.a), exponents_of(instruction.b)
    a = np.clip(products - np.clip(b, *range_b), *range_a)
    return a, np.clip(products - a, *range_b)


def power_code(fmt: Format, exponent: Codes, fraction: Codes | int, negative: NDArray[np.bool_]) -> Codes:
    """Return codes of floats with the given exponents. Exponents below the normal range give subnormal powers of 2."""
    normal = exponent >= fmt.minimum_exponent
    field = np.where(normal, exponent + fmt.bias, 0) << fmt.fraction_bits
    below = 1 << np.clip(exponent - fmt.minimum_exponent + fmt.fraction_bits, 0, fmt.fraction_bits)
    body = np.where(normal, field | fraction, below)
    if fmt.specials is Specials.NAN:
        body = np.where(body == (1 << fmt.bits - 1) - 1, body - 1, body)
    return body | negative.astype(np.int64) << fmt.bits - 1


#: Metadata nibble that selects the first two of four elements (4:8: pairs). Every metadata rule permits this nibble.
_FIRST_UNITS = nibble(0, 1)
#: Maximum difference between the exponents of accumulator and products in directed tiles, by container width in bits.
_SPAN = {4: 50, 8: 30, 16: 30, 32: 30}
_MOST, _LEAST = 2**31 - 1, -(2**31)


def _range(instruction: Instruction) -> tuple[int, int]:
    """Return the lowest and highest exponent to draw for products: the range of the formats, limited to that of f32."""
    a, b, scaled = instruction.a, instruction.b, 40 if instruction.scale_format else 0
    low, high = a.minimum_exponent + b.minimum_exponent, a.maximum_exponent + b.maximum_exponent
    return max(low - scaled, -140), min(high + scaled, 110)


def _distances(draft: Draft) -> None:
    """Fill tiles with one product per row of A, and accumulators that are larger or smaller than the product."""
    i, rng = draft.instruction, draft.rng
    exponents_a, _, largest = draft.products(rng.integers(*_range(i), draft.tiles, endpoint=True), exact=False)
    rows = (draft.tiles, i.m)
    draft.put(
        rng.integers(0, i.stored_k, rows),
        power_code(i.a, exponents_a[:, None], draft.fractions(i.a, *rows), draft.signs(*rows)),
    )
    span = _SPAN[i.container_bits]
    distance = rng.integers(-span, span, draft.c.shape, endpoint=True)
    draft.accumulators(largest[:, None, None] + distance, draft.fractions(i.c, *draft.c.shape))


def _edges(draft: Draft) -> None:
    """Fill tiles with C whose fraction is nearly all zeros or all ones, and products of 0.25 to 1.5 ulp of C."""
    i, rng = draft.instruction, draft.rng
    fmt = i.c
    kept = (
        int(rng.choice([fmt.fraction_bits, 13])) if fmt.name == "f32" and i.container_bits == 8 else fmt.fraction_bits
    )
    top, bottom = fmt.maximum_exponent - kept, fmt.minimum_exponent - kept
    anywhere = rng.integers(*_range(i), draft.tiles, endpoint=True)
    choice = rng.integers(0, 3, draft.tiles)
    near_top, near_bottom = top - rng.integers(1, 3, draft.tiles), bottom - rng.integers(0, 3, draft.tiles)
    exponents_a, value, _ = draft.products(np.choose(choice, [near_top, near_bottom, anywhere]), exact=True)
    rows = (draft.tiles, i.m)
    half = 1 << max(0, i.a.fraction_bits - 1)
    draft.put(
        rng.integers(0, i.stored_k, rows),
        power_code(i.a, exponents_a[:, None], draft.one_of([0, half], *rows), draft.signs(*rows)),
    )
    ones = (1 << kept) - 1
    fractions = np.where(
        rng.random(draft.c.shape) < 0.75,
        draft.one_of([0, 1, ones - 1, ones], *draft.c.shape),
        rng.integers(0, ones, draft.c.shape, endpoint=True),
    )
    exponents = value[:, None, None] + rng.integers(0, 3, draft.c.shape) + kept
    draft.accumulators(np.maximum(exponents, fmt.minimum_exponent), fractions << fmt.fraction_bits - kept)
    subnormal = (exponents <= fmt.minimum_exponent) & draft.signs(*draft.c.shape)
    draft.c[subnormal] &= (1 << fmt.fraction_bits) - 1 | 1 << fmt.bits - 1


def _cancellations(draft: Draft) -> None:
    """Fill tiles with two adjacent products that cancel, and with accumulators of zero or smaller than the products."""
    i, rng = draft.instruction, draft.rng
    exponents_a, _, largest = draft.products(rng.integers(*_range(i), draft.tiles, endpoint=True), exact=False)
    draft.b[:] = draft.b[:, :1]
    rows = (draft.tiles, i.m)
    slots, negative = rng.integers(0, i.stored_k, rows), draft.signs(*rows)
    fraction = draft.fractions(i.a, *rows)
    draft.put(slots, power_code(i.a, exponents_a[:, None], fraction, negative))
    draft.put(slots ^ 1, power_code(i.a, exponents_a[:, None], fraction, ~negative))
    below = largest[:, None, None] - rng.integers(1, 2 * _SPAN[i.container_bits], draft.c.shape)
    draft.accumulators(below, draft.fractions(i.c, *draft.c.shape))
    draft.c[draft.signs(*draft.c.shape)] &= 1 << i.c.bits - 1


def _least(draft: Draft) -> None:
    """Fill tiles with one product per row of A, near the lowest bit that alignment keeps, and zero or subnormal C."""
    i, rng = draft.instruction, draft.rng
    low, high = (-50, -12) if i.d.name == "f16" else (-175, -115)
    exponents_a, _, _ = draft.products(rng.integers(low, high, draft.tiles), exact=draft.signs(draft.tiles))
    rows = (draft.tiles, i.m)
    fraction = draft.fractions(i.a, *rows)
    draft.put(rng.integers(0, i.stored_k, rows), power_code(i.a, exponents_a[:, None], fraction, draft.signs(*rows)))
    draft.c[:] = draft.one_of([0, 0, 1, 2], *draft.c.shape) | draft.sign_bits(i.c, *draft.c.shape)


def _zeros(draft: Draft) -> None:
    """Fill tiles with products of +0 and -0, or only -0, with zero or subnormal accumulators, and some NaN scales."""
    i, rng = draft.instruction, draft.rng
    draft.products(rng.integers(*_range(i), draft.tiles, endpoint=True), exact=False)
    draft.b &= ~(1 << i.b.bits - 1)
    draft.a |= 1 << i.a.bits - 1
    mixed = draft.signs(draft.tiles)[:, None, None]
    draft.a ^= (draft.signs(*draft.a.shape) & mixed).astype(np.int64) << i.a.bits - 1
    last = i.c.fraction_bits - 13 if i.c.name == "f32" else 0  # bit position of the last E8M13 fraction bit
    ends = draft.one_of([0, 0, 1, 1 << last, (1 << i.c.fraction_bits) - 1], *draft.c.shape)
    anything = draft.fractions(i.c, *draft.c.shape)
    draft.c[:] = np.where(rng.random(draft.c.shape) < 0.75, ends, anything)
    draft.c |= draft.sign_bits(i.c, *draft.c.shape)
    if i.scale_format:
        codes = draft.scale_a if rng.integers(2) else draft.scale_b
        rows = draft.signs(*codes.shape[:2])
        _put_one_a_row(draft, codes, rows, draft.one_of(_nan_codes(i.scale_format), int(rows.sum())))


def _special(draft: Draft) -> None:
    """Fill tiles with NaN and Inf: at most two per row of A or column of B, so that few sums contain more than one."""
    i, rng = draft.instruction, draft.rng
    draft.a[:] = random_codes(i.a, "zeros" if rng.integers(2) else "narrow", draft.a.shape, rng)
    draft.b[:] = random_codes(i.b, "zeros" if rng.integers(2) else "narrow", draft.b.shape, rng)
    draft.c[:] = random_codes(i.c, "narrow", draft.c.shape, rng)
    rows, columns = rng.random((draft.tiles, i.m)) < 0.4, rng.random((draft.tiles, i.n)) < 0.4
    for fmt, codes, chosen in ((i.a, draft.a, rows), (i.b, draft.b.transpose(0, 2, 1), columns)):
        for _ in range(2):
            some = chosen & draft.signs(*chosen.shape)
            _put_one_a_row(draft, codes, some, _special_codes(draft, fmt, int(some.sum())))
    accumulators = rng.random(draft.c.shape) < 0.2
    draft.c[accumulators] = _special_codes(draft, i.c, int(accumulators.sum()))


def _unselected(draft: Draft) -> None:
    """Fill tiles with NaN and Inf in rows of B that no nibble selects; other elements are finite, of medium size."""
    i, rng = draft.instruction, draft.rng
    draft.a[:] = random_codes(i.a, "mid", draft.a.shape, rng)
    draft.b[:] = random_codes(i.b, "mid", draft.b.shape, rng)
    draft.c[:] = random_codes(i.c, "mid", draft.c.shape, rng)
    if i.granularity:
        draft.nibbles[:] = _FIRST_UNITS
        passed = np.arange(i.k) % i.granularity.logical >= i.granularity.logical // 2
        special = _special_codes(draft, i.b, draft.b.size).reshape(draft.b.shape)
        draft.b[:] = np.where(passed[:, None] & (rng.random(draft.b.shape) < 0.2), special, draft.b)


def _scales(draft: Draft) -> None:
    """Fill tiles with block scales of the whole range; in some rows of A or columns of B, one block scale is NaN."""
    i, rng = draft.instruction, draft.rng
    assert i.scale_format
    draft.a[:] = random_codes(i.a, "zeros", draft.a.shape, rng)
    draft.b[:] = random_codes(i.b, "mid", draft.b.shape, rng)
    draft.c[:] = random_codes(i.c, "mid", draft.c.shape, rng)
    fmt = i.scale_format
    nan = _nan_codes(fmt)
    ends = [0, 1, nan[0] - 1, fmt.bias << fmt.fraction_bits]
    if fmt.subnormals:
        ends += [0x80, 0x83, 0x85, 0xC0, 0xFE]
    for codes in (draft.scale_a, draft.scale_b):
        anything = rng.integers(0, nan[0], codes.shape)
        codes[:] = np.where(draft.signs(*codes.shape), draft.one_of(ends, *codes.shape), anything)
    codes = draft.scale_a if rng.integers(2) else draft.scale_b
    rows = rng.random(codes.shape[:2]) < 0.1
    _put_one_a_row(draft, codes, rows, draft.one_of(nan, int(rows.sum())))


def _integers(draft: Draft) -> None:
    """Fill tiles with extreme integers, constant in each half of K. Many sums equal an s32 limit or exceed it by 1."""
    i, rng = draft.instruction, draft.rng
    total = np.zeros(draft.c.shape, np.int64)
    half_a, half_b = i.stored_k // 2, i.k // 2
    extremes = [_extremes(draft, fmt, rows) for fmt, rows in ((i.a, i.m), (i.b, i.n))]
    for half, (a, b) in enumerate(zip(*extremes, strict=True)):
        draft.a[:, :, half * half_a : (half + 1) * half_a] = a[:, :, None]
        draft.b[:, half * half_b : (half + 1) * half_b] = b[:, None, :]
        total += half_a * a[:, :, None] * b[:, None, :]
    draft.a &= (1 << i.a.bits) - 1
    draft.b &= (1 << i.b.bits) - 1
    target = draft.one_of([_MOST, _MOST + 1, _LEAST, _LEAST - 1, 0], *draft.c.shape)
    accumulators = np.where(
        rng.random(draft.c.shape) < 0.6, target - total, draft.one_of([_MOST, _LEAST], *total.shape)
    )
    draft.c[:] = np.clip(accumulators, _LEAST, _MOST) & 0xFFFFFFFF


def _extremes(draft: Draft, fmt: Format, rows: int) -> tuple[Codes, Codes]:
    """Choose two random values per row: for one half of K an extreme of the format; for the other, an extreme or 0."""
    low, high = (-(1 << fmt.bits - 1), (1 << fmt.bits - 1) - 1) if fmt.signed else (0, (1 << fmt.bits) - 1)
    first = draft.one_of([low, high], draft.tiles, rows)
    turned = draft.one_of([low, high, 0], draft.tiles, rows)
    return first, np.where(draft.signs(draft.tiles, rows), first, turned)


def _put_one_a_row(draft: Draft, matrix: Codes, rows: NDArray[np.bool_], codes: Codes) -> None:
    """Write one code into each chosen row of a matrix, at a random position; `matrix` is changed in place."""
    tiles, lines = np.nonzero(rows)
    matrix[tiles, lines, draft.rng.integers(0, matrix.shape[2], len(codes))] = codes


def _nan_codes(fmt: Format) -> list[int]:
    """Return the NaN codes of a scale format: ue8m0 has one; ue4m3 has two, since its sign bit is ignored."""
    return [0xFF] if fmt.name == "ue8m0" else [0x7F, 0xFF]


def _special_codes(draft: Draft, fmt: Format, count: int) -> Codes:
    """Choose NaN and Inf of either sign at random; formats without NaN and Inf get their largest number."""
    top = (1 << fmt.exponent_bits) - 1 << fmt.fraction_bits
    ones = top | (1 << fmt.fraction_bits) - 1
    bodies = {Specials.IEEE: [top, top, ones, top | 1], Specials.NAN: [ones], Specials.NONE: [ones]}[fmt.specials]
    return draft.one_of(bodies, count) | draft.sign_bits(fmt, count)


def _recipes(instruction: Instruction) -> list[Callable[[Draft], None]]:
    if instruction.a.is_integer:
        return [_integers]
    scaled = [_scales] if instruction.scale_format else []
    return [_distances, _distances, _edges, _edges, _cancellations, _least, _zeros, _special, _unselected, *scaled]


def _drafted(instruction: Instruction, rng: np.random.Generator, cases: int) -> Draft:
    """Choose a random recipe (kind of directed operands) for each tile, and return the element codes of all tiles."""
    all_tiles = Draft(instruction, cases, rng)
    recipes = _recipes(instruction)
    drawn = rng.integers(0, len(recipes), cases)
    for number, recipe in enumerate(recipes):
        tiles = np.flatnonzero(drawn == number)
        if tiles.size:
            draft = Draft(instruction, tiles.size, rng)
            recipe(draft)
            for name in ("a", "b", "c", "nibbles", "scale_a", "scale_b"):
                getattr(all_tiles, name)[tiles] = getattr(draft, name)
    return all_tiles


def directed_matrices(instruction: Instruction, rng: np.random.Generator, cases: int) -> MatrixOperands:
    """Return tiles of any instruction as matrices; each is filled by a recipe (function), which is chosen at random.

    The module describes the recipes. With a hundred `cases`, each recipe is used about ten times. The first tile also
    has the dot products of :mod:`sptc.sim.benches.directed` that the instruction can compute: the first in row 0 and
    column 0, the next in row 1 and column 1, and so on.
    """
    tiles = _drafted(instruction, rng, cases).matrices()
    stored = (one for one in dot_products() if one.fits(instruction))
    for place, one in enumerate(stored):
        output = one.operands(instruction, 1, 1)
        tiles.a[0, place], tiles.b[0, :, place] = output.a[0, 0], output.b[0, :, 0]
        tiles.c[0, place, place] = output.c[0, 0, 0]
        for name in ("nibbles", "scale_a", "scale_b"):
            if (values := getattr(output, name)) is not None:
                getattr(tiles, name)[0, place] = values
    return tiles

"""A draft of directed tiles: arrays of codes that recipes fill in, and codes of powers of two."""

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import Format, Specials
from ..isa.instructions import Instruction
from ..isa.operands import MatrixOperands
from ..operands.registers import CONTAINERS

__all__ = ["Codes", "Draft", "exponents_of", "power_code"]

Codes = NDArray[np.int64]


class Draft:
    """Codes of the tiles of one recipe. Initially all are zero, nibbles are legal and scales are one."""

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
        """Draw an array of the given shape from a list of choices."""
        array = np.asarray(choices, np.int64)
        return array[self.rng.integers(0, len(array), shape)]

    def signs(self, *shape: int) -> NDArray[np.bool_]:
        """Draw random signs; True is negative."""
        return self.rng.random(shape) < 0.5

    def put(self, slots: Codes, codes: Codes) -> None:
        """Write one element into each row of A; `slots` and `codes` have the shape (tiles, m)."""
        np.put_along_axis(self.a, slots[..., None], codes[..., None], axis=2)

    def products(self, wanted: Codes, exact: bool | NDArray[np.bool_]) -> tuple[Codes, Codes, Codes]:
        """Fill B and the scales so that the products of each tile have an exponent near `wanted`, shape (tiles,).

        Where `exact`, elements of B are powers of two, else their fractions are random. Returns three arrays of shape
        (tiles,): the exponent for A, the exponent of the product, and the exponent that enters the maximum.
        """
        i = self.instruction
        (low_a, high_a), (low_b, high_b) = exponents_of(i.a), exponents_of(i.b)
        of_b = np.clip(wanted // 2 + self.rng.integers(-16, 17, self.tiles), low_b, high_b)
        of_a = np.clip(wanted - of_b, low_a, high_a)
        of_b = np.clip(wanted - of_a, low_b, high_b)
        value = of_a + of_b
        largest = np.maximum(of_a, i.a.minimum_exponent) + np.maximum(of_b, i.b.minimum_exponent)
        if i.scale_format:
            fmt = i.scale_format
            scale = np.clip((wanted - value) // 2, fmt.minimum_exponent, fmt.maximum_exponent)
            other = np.clip(wanted - value - scale, fmt.minimum_exponent, fmt.maximum_exponent)
            for codes, exponent in ((self.scale_a, scale), (self.scale_b, other)):
                codes[:] = (exponent + fmt.bias << fmt.fraction_bits)[:, None, None]
            value = value + scale + other
            largest = scale + other if i.container_bits == 4 else largest + scale + other
        varied = self.rng.integers(0, 1 << i.b.fraction_bits, (self.tiles, 1, i.n))
        fraction = np.where(np.broadcast_to(exact, self.tiles)[:, None, None], 0, varied)
        self.b[:] = power_code(i.b, of_b[:, None, None], fraction, self.signs(self.tiles, 1, i.n))
        return of_a, value, largest

    def accumulators(self, exponents: Codes, fractions: Codes) -> None:
        """Fill C, shape (tiles, m, n), with these exponents and fractions and random signs."""
        fmt = self.instruction.c
        clipped = np.clip(exponents, *exponents_of(fmt))
        self.c[:] = power_code(fmt, clipped, fractions, self.signs(*self.c.shape))

    def matrices(self) -> MatrixOperands:
        """Return the tiles as matrices; container bits beside a code are random."""
        i = self.instruction
        scaled = i.scale_format is not None
        return MatrixOperands(
            self._contained(self.a, i.a),
            self._contained(self.b, i.b),
            self.c.astype(CONTAINERS[i.c.bits]),
            self.nibbles.astype(np.uint8) if i.rule else None,
            self.scale_a.astype(np.uint8) if scaled else None,
            self.scale_b.astype(np.uint8) if scaled else None,
        )

    def _contained(self, codes: Codes, fmt: Format) -> NDArray:
        i = self.instruction
        low_bit = i.low_bit(fmt)
        noise = self.rng.integers(0, 1 << i.container_bits, codes.shape) & ~(((1 << fmt.bits) - 1) << low_bit)
        return (codes << low_bit | noise).astype(CONTAINERS[i.container_bits])


def exponents_of(fmt: Format) -> tuple[int, int]:
    """Return the exponents of the smallest and the largest power of two in a format."""
    return fmt.minimum_exponent - fmt.fraction_bits, fmt.maximum_exponent


def power_code(fmt: Format, exponent: Codes, fraction: Codes | int, negative: NDArray[np.bool_]) -> Codes:
    """Return finite codes; an exponent below the normal range gives a subnormal power of two."""
    normal = exponent >= fmt.minimum_exponent
    field = np.where(normal, exponent + fmt.bias, 0) << fmt.fraction_bits
    below = 1 << np.clip(exponent - fmt.minimum_exponent + fmt.fraction_bits, 0, fmt.fraction_bits)
    body = np.where(normal, field | fraction, below)
    if fmt.specials is Specials.NAN:
        body = np.where(body == (1 << fmt.bits - 1) - 1, body - 1, body)
    return body | negative.astype(np.int64) << fmt.bits - 1

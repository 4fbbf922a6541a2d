"""Bench of the rounding stage: random exact sums, many with ties or carries, and a NumPy model of the rounding."""

import numpy as np
from numpy.typing import NDArray

from ...golden.accumulator import encode_accumulator
from ...golden.rounding import round_sum
from ...isa.formats import FORMATS
from ...isa.numerics import Rounding, zero_exponent_for
from ...operands.registers import CONTAINERS
from ...rtl.cells.max_exponent import ALIGNED_EXPONENT_BITS
from ...rtl.config import CoreConfig
from ...rtl.round import ResultCode, RoundStage
from ...rtl.slots import kept_bits
from ...rtl.widths import Widths
from .bench import Values
from .blocks import integer_results

__all__ = ["rounded", "rounding_inputs"]

_ROUNDINGS = {ResultCode.F32: Rounding.RZ_F32, ResultCode.E8M13: Rounding.RZ_E8M13, ResultCode.F16: Rounding.RNE_F16}
_FLAGS = ("nan", "positive_inf", "negative_inf")
#: Exponent large enough that every nonzero sum overflows f32, and small enough that no sum overflows float64.
_FAR = 512


def rounding_inputs(config: CoreConfig, rounder: RoundStage, rng: np.random.Generator, count: int) -> Values:
    """Return random inputs of the rounding stage: sums of every bit width, ties, carries, overflows, underflows."""
    results = np.array([code.value for code in sorted(rounder.results, key=lambda code: int(code.value))])
    result = results[rng.integers(0, len(results), count)]
    half = result == ResultCode.F16.value
    integer = result == ResultCode.S32.value
    bits = rng.integers(1, rounder.total_bits - 1, count)
    total = rng.integers(0, 1 << bits)
    # Some sums consist of ones only, so rounding up carries through all bits. Other sums are ties: their bits below
    # the last f16 fraction bit are a one followed by zeros.
    kind = rng.random(count)
    total = np.where(kind < 0.15, (1 << bits) - 1, total)
    tie = np.maximum(bits - 12, 0)
    total = np.where((kind > 0.15) & (kind < 0.4), (total >> tie | 1) << tie, total)
    total = np.where((kind > 0.4) & (kind < 0.5), (((1 << bits) - 1) >> tie) << tie, total)
    total = np.where(rng.integers(0, 2, count), -total, total)

    # Bit 0 of the drawn sum is the least significant bit that alignment keeps.
    kept, floor = _grids(config, half, rng)
    top = np.where(half, 18, 130)
    near = np.where(rng.random(count) < 0.5, top - rng.integers(0, 40, count), floor + rng.integers(0, 50, count))
    exponent = np.where(rng.random(count) < 0.3, rng.integers(floor, top), near)
    # In some test vectors, the exponent is far above the leading one of the sum, as after the cancellation of two
    # large products.
    exponent = np.where(rng.random(count) < 0.1, top + rng.integers(0, np.where(half, 16, 126)), exponent)
    smallest = np.where(half, FORMATS["f16"].minimum_exponent, FORMATS["f32"].minimum_exponent)
    headroom = rounder.total_bits - 1 + exponent - kept - smallest
    # In 20 % of test vectors, the smallest normal number of the result format is at a random bit position of the sum.
    headroom = np.where(rng.random(count) < 0.2, rng.integers(0, rounder.total_bits, count), headroom)
    # In 10 % of test vectors, the sum is far below the smallest normal number of the result format: one upper bit of
    # the input `headroom` is set.
    upper = 1 << rng.integers((rounder.total_bits - 1).bit_length(), ALIGNED_EXPONENT_BITS, count)
    headroom = np.where(rng.random(count) < 0.1, rng.integers(0, rounder.total_bits, count) | upper, headroom)
    headroom = headroom.clip(0, (1 << ALIGNED_EXPONENT_BITS) - 2)

    beyond = rng.integers(-(1 << 20), 1 << 20, count) + rng.choice([-(1 << 31), (1 << 31) - 1], count)
    whole = np.where(rng.random(count) < 0.5, beyond, total >> max(0, rounder.total_bits - 33))
    total = np.where(integer, whole << rounder.integer_bits, total)
    flags = {name: ((rng.random(count) < 0.03) & ~integer).astype(np.int64) for name in _FLAGS}
    headroom = np.where(integer, rng.integers(0, 1 << ALIGNED_EXPONENT_BITS, count), headroom)
    return {"total": total, "headroom": headroom, "result": result, "saturate": rng.integers(0, 2, count)} | flags


def _grids(config: CoreConfig, half: NDArray[np.bool_], rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Choose for each vector how many bits alignment keeps below the largest exponent, and this exponent's minimum."""
    aligned, packed = config.alignment_bits, config.block_alignment_bits
    floors = [zero_exponent_for(aligned, half_result=one, floor=config.exponent_floor) for one in (False, True)]
    rows = [(kept, *floors) for kept in sorted({kept_bits(config, element) for element in Widths(config).floats})]
    floats = len(rows)
    if Widths(config).packed:  # no instruction with packed e2m1 elements has f16 results
        rows.append((packed, zero_exponent_for(packed, grouped=True), 0))
    grids = np.array(rows or [(0, 0, 0)])
    drawn = rng.integers(0, np.where(half, max(1, floats), len(grids)))
    return grids[drawn, 0], grids[drawn, 1 + half]


def rounded(rounder: RoundStage, inputs: Values) -> Values:
    """Return the expected result codes, and the overflow bits of integer sums that are not clamped to 32 bits."""
    count = len(inputs["total"])
    output, overflow = np.zeros(count, np.int64), np.zeros(count, bool)
    for code in rounder.results:
        where = inputs["result"] == code.value
        total = inputs["total"][where]
        if code is ResultCode.S32:
            whole = total >> rounder.integer_bits
            clamped, unclamped = integer_results(whole, True), integer_results(whole, False)
            word = np.where(inputs["saturate"][where], clamped, unclamped)
            output[where], overflow[where] = word & np.uint64(0xFFFFFFFF), word >> np.uint64(32)
            continue
        fmt = FORMATS["f16" if code is ResultCode.F16 else "f32"]
        scale = inputs["headroom"][where] + fmt.minimum_exponent - (rounder.total_bits - 1)
        exact = np.ldexp(total.astype(np.float64), np.minimum(scale, _FAR))
        nan, positive, negative = (inputs[name][where] == 1 for name in _FLAGS)
        cases = [nan | positive & negative, positive, negative]
        floats = np.select(cases, [np.nan, np.inf, -np.inf], round_sum(exact, _ROUNDINGS[code])).astype(np.float32)
        output[where] = encode_accumulator(floats, CONTAINERS[fmt.bits])
    return {"output": output, "overflow": overflow}

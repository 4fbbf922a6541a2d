"""Coverage of integer steps: hand-made steps reach the bins they should and no others."""

import numpy as np
import pytest
from sptc.isa.instructions import parse
from sptc.isa.operands import MatrixOperands
from sptc.rtl.config import PRESETS
from sptc.sim.coverage.steps import StepCoverage
from sptc.sim.engine.steps import step_words, steps_of

SIZES = {8: 16, 4: 32}
MOST, LEAST = 2**31 - 1, -(2**31)
Elements = dict[int, int]


def sample(
    pair: str,
    a: Elements,
    b: Elements,
    c: int,
    clamped: bool = False,
    overflow: bool = False,
    wrong: int = 0,
) -> tuple[set[str], bool]:
    """Return the events of one dense step, computed by hand, and whether its result was taken for the right one.

    `c` is the true accumulator; where it leaves 32 bits, `overflow` says that the step before passed it on. Bits of
    `wrong` are flipped in the result.
    """
    name_a, name_b = pair.split()
    bits = int(name_a[1:])
    k = SIZES[bits]
    text = f"mma.sync.aligned.m16n8k{k}.row.col.{'satfinite.' * clamped}s32.{name_a}.{name_b}.s32"
    config = PRESETS["ampere"]
    codes = np.zeros((2, 1, 1, k), np.uint8)
    for row, elements in zip(codes, (a, b), strict=True):
        row[0, 0, [*elements]] = np.array([*elements.values()]) & (1 << bits) - 1
    (step,) = steps_of(
        config, parse(text), MatrixOperands(codes[0], codes[1].swapaxes(1, 2), np.zeros((1, 1, 1), np.uint32))
    )
    words = step_words(config)
    step[..., words.c] = c & 0xFFFFFFFF
    step[..., words.control.start] |= np.uint32(overflow << words.overflow_bit)
    total = c + sum(value * b.get(slot, 0) for slot, value in a.items())
    d = max(LEAST, min(MOST, total)) & 0xFFFFFFFF if clamped else total & 0xFFFFFFFF
    left = not clamped and (total < 0) != (d >> 31 == 1)
    coverage = StepCoverage(config)
    coverage.sample(step.reshape(1, -1), np.array([(d | left << 32) ^ wrong], np.uint64))
    group = coverage.coverage["ampere", "integers"]
    assert not group.contradictions
    names = [name.split("), ") for name in group.names(group.hits > 0)]
    assert {label.split(" (")[0] for label, _ in names} <= {f"{name_a} x {name_b}"}
    return {event for _, event in names}, not coverage.coverage["ampere", "results"].contradictions


ALL_LOW, ALL_HIGH = dict.fromkeys(range(16), -128), dict.fromkeys(range(16), 127)
EVENTS = [
    ("s8 s8", {0: 5}, {0: 7}, 3, False, {"in range"}),
    ("s8 s8", {0: 5}, {0: 7}, MOST, False, {"wrapped high", "largest accumulator"}),
    ("s8 s8", {0: 5}, {0: -7}, LEAST, False, {"wrapped low", "smallest accumulator"}),
    ("s8 s8", {0: 5}, {0: 7}, MOST - 1, True, {"clamped high"}),
    ("s8 s8", {0: 5}, {0: -7}, LEAST + 1, True, {"clamped low"}),
    ("s8 s8", {0: 5}, {0: 7}, MOST - 35, False, {"in range", "the largest result exactly"}),
    ("s8 s8", {0: 5}, {0: -7}, LEAST + 35, False, {"in range", "the smallest result exactly"}),
    ("s8 s8", {0: 5}, {0: 7}, MOST - 34, True, {"clamped high", "one above the largest result"}),
    ("s8 s8", {0: 5}, {0: -7}, LEAST + 34, True, {"clamped low", "one below the smallest result"}),
    ("s8 s8", {0: -128}, {0: 1}, 0, False, {"in range", "smallest A"}),
    ("s8 s8", {0: 127}, {0: 1}, 0, False, {"in range", "largest A"}),
    ("s8 s8", {0: 1}, {0: -128}, 0, False, {"in range", "smallest B"}),
    ("s8 s8", {0: 1}, {0: 127}, 0, False, {"in range", "largest B"}),
    ("s8 s8", {0: -128}, {1: -128}, 0, False, {"in range"}),
    ("s8 s8", ALL_LOW, ALL_LOW, 0, False,
     {"in range", "smallest A", "smallest B", "smallest A times smallest B", "largest sum of products"}),
    ("s8 s8", ALL_LOW, ALL_HIGH, 0, False,
     {"in range", "smallest A", "largest B", "smallest A times largest B", "smallest sum of products"}),
    ("s8 s8", {0: 127}, {0: -128}, 0, False, {"in range", "largest A", "smallest B", "largest A times smallest B"}),
    ("s8 s8", {0: 127}, {0: 127}, 0, False, {"in range", "largest A", "largest B", "largest A times largest B"}),
    ("s4 u4", {31: -8}, {31: 15}, 0, False, {"in range", "smallest A", "largest B", "smallest A times largest B"}),
    ("s4 u4", {30: 7}, {30: 1}, 0, False, {"in range", "largest A"}),
    ("s4 s4", dict.fromkeys(range(32), -8), dict.fromkeys(range(32), -8), MOST - 2048, False,
     {"in range", "smallest A", "smallest B", "smallest A times smallest B", "largest sum of products",
      "the largest result exactly"}),
]  # fmt: skip


@pytest.mark.parametrize(("pair", "a", "b", "c", "clamped", "wanted"), EVENTS, ids=lambda value: None)
def test_events(pair: str, a: Elements, b: Elements, c: int, clamped: bool, wanted: set[str]) -> None:
    assert sample(pair, a, b, c, clamped) == (wanted, True)


ABOVE, BELOW = "passed on from above the range", "passed on from below the range"
PASSED_ON = [
    ("s8 s8", MOST + 1, 4, False, {"wrapped high", ABOVE}),
    ("s8 s8", MOST + 1, 4, True, {"clamped high", ABOVE}),
    ("s8 s8", MOST + 1, -4, False, {"in range", ABOVE, "passed on from above, back in range"}),
    ("s8 s8", LEAST - 1, -4, False, {"wrapped low", BELOW}),
    ("s8 s8", LEAST - 1, 4, True, {"in range", BELOW, "passed on from below, back in range"}),
    ("u8 u8", MOST + 1, 4, False, {"wrapped high", ABOVE, "smallest A times smallest B"}),
    ("s4 s4", MOST + 1, -4, False, {"in range", ABOVE, "passed on from above, back in range"}),
]


@pytest.mark.parametrize(("pair", "c", "product", "clamped", "wanted"), PASSED_ON)
def test_accumulators_beyond_the_range(pair: str, c: int, product: int, clamped: bool, wanted: set[str]) -> None:
    assert sample(pair, {3: 1}, {3: product}, c, clamped, overflow=True) == (wanted, True)


def test_an_accumulator_that_unsigned_products_cannot_pass_on() -> None:
    """Below the range without a negative product: computed as it stands, but no event."""
    assert sample("u8 u8", {3: 1}, {3: 4}, LEAST - 1, overflow=True) == (set(), True)


@pytest.mark.parametrize("wrong", [1, 1 << 31, 1 << 32])
def test_a_wrong_result_or_overflow_bit(wrong: int) -> None:
    assert sample("s8 s8", {3: 1}, {3: 4}, 7)[1]
    assert not sample("s8 s8", {3: 1}, {3: 4}, 7, wrong=wrong)[1]

"""Random items and blocks of a bench reach all kinds of input that hardware could process wrongly."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest
from amaranth.lib import data
from sptc.golden.decode import WIDE, decode
from sptc.isa.formats import Format, Specials
from sptc.isa.instructions import Instruction
from sptc.rtl.config import PRESETS
from sptc.rtl.core import tile_layout, tile_result_layout
from sptc.rtl.step import control_layout
from sptc.rtl.warp import warp_operands_layout, warp_result_layout
from sptc.sim.benches import blocks
from sptc.sim.benches.blocks import ARCHITECTURE_OF_PRESET, native, random_blocks
from sptc.sim.benches.items import TAG, tiles, warp_instructions, warp_item, warp_items
from sptc.sim.benches.random_operands import distributions

Random = np.random.Generator
TINY = PRESETS["tiny"]
PRESET = "rtx-blackwell"
CONFIG, ARCH = PRESETS[PRESET], ARCHITECTURE_OF_PRESET[PRESET]
FLOATS = {i.a: i for i in native(CONFIG, ARCH) if not i.a.is_integer}


def of_warp(rng: Random) -> list[tuple[Instruction, data.Const, data.Const]]:
    """Return each warp instruction once, with random registers and the expected result."""
    results = []
    for i in warp_instructions(TINY, "sm_80"):
        item = warp_item(TINY, "sm_80", i, rng)
        operands, result = warp_operands_layout(), warp_result_layout()
        results.append((i, operands.from_bits(item.payload), result.from_bits(item.expected)))
    return results


def test_a_round_has_every_instruction(rng: Random) -> None:
    expected = warp_instructions(TINY, "sm_80")
    items = islice(warp_items(TINY, "sm_80", rng), 2 * len(expected))
    assert Counter(item.name.rpartition(" selector ")[0] for item in items) == Counter({str(i): 2 for i in expected})


def test_metadata_of_a_warp_is_any_nibble(rng: Random) -> None:
    flagged, sparse = 0, 0
    for i, _, result in of_warp(rng):
        flags = [int(word) for word in result["illegal"]]
        sparse += bool(i.sparse)
        flagged += any(flags)
        assert i.sparse or not any(flags)
    assert sparse > 4
    assert flagged == sparse


def test_registers_that_are_not_read_hold_noise(rng: Random) -> None:
    words: Counter[int] = Counter()
    for i, operands, _ in of_warp(rng):
        registers = np.array([[int(word) for word in thread] for thread in operands["c"]], np.uint32)
        used = 2 if i.c.bits == 16 else 4
        words.update(registers[:, used:].ravel().tolist())
    total = sum(words.values())
    assert total > 100
    assert 0.3 < words[0xFFFFFFFF] / total < 0.7
    assert len(words) > 0.3 * total


def test_tiles_cover_tags_rules_flags_and_overflow(rng: Random) -> None:
    """Random tiles have many tags and metadata flags, all eight rule codes, and overflow at input and output."""
    tags, rules, flags, came, left = set(), set(), set(), 0, 0
    layout, answer = tile_layout(TINY, TAG), tile_result_layout(TINY, TAG)
    place = layout["control"].offset + control_layout()["rule"].offset
    for item in islice(tiles(TINY, "sm_80", rng), 400):
        tile, result = layout.from_bits(item.payload), answer.from_bits(item.expected)
        assert tile["tag"] == result["tag"]
        tags.add(int(tile["tag"]))
        if tile["control"]["sparse"]:
            rules.add(item.payload >> place & 7)
            flags.update(int(row) for row in result["illegal"])
        else:
            assert not any(int(row) for row in result["illegal"])
        came += int(tile["overflow"]) > 0
        left += int(result["overflow"]) > 0
    assert len(tags) > 200
    assert rules == {*range(8)}
    assert len(flags) > 20
    assert came
    assert left


def value(code: int, fmt: Format) -> float:
    if fmt.is_integer:
        return code - (1 << fmt.bits) if fmt.signed and code >> fmt.bits - 1 else code
    return float(decode(np.array([code]), fmt, WIDE).values[0])


@pytest.mark.parametrize("instruction", native(CONFIG, ARCH)[::7], ids=str)
def test_the_largest_products(instruction: Instruction, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(blocks, "_LARGEST", 1.0)
    monkeypatch.setattr(blocks, "_LONE", 0.0)
    monkeypatch.setattr(blocks, "_NEARLY_SPECIAL", 0.0)
    operands = blocks._matrices(instruction, distributions(instruction)[0], (8, 4), np.random.default_rng(seed))
    for fmt, codes in ((instruction.a, operands.a), (instruction.b, operands.b)):
        drawn = codes.ravel() >> instruction.low_bit(fmt) & (1 << fmt.bits) - 1
        most = int(np.bincount(drawn).argmax())
        assert (drawn == most).mean() > 0.8
        least = -(1 << fmt.bits - 1) if fmt.is_integer else -fmt.maximum
        assert value(most, fmt) in ({least, fmt.maximum} if fmt.signed else {fmt.maximum})


@pytest.mark.parametrize(("recipe", "least"), [("_enlarge", 2), ("_bring_near", 20)])
def test_share_of_extreme_blocks(recipe: str, least: int, monkeypatch: pytest.MonkeyPatch, rng: Random) -> None:
    """A block has the largest products with probability 1/20; a float block has nearly special elements with 1/5."""
    made = 0

    def counted(*_: object) -> None:
        nonlocal made
        made += 1

    monkeypatch.setattr(blocks, recipe, counted)
    assert len([*islice(random_blocks(CONFIG, ARCH, rng, 1, 1), 300)]) == 300
    assert made >= least


@pytest.mark.parametrize("instruction", FLOATS.values(), ids=[fmt.name for fmt in FLOATS])
def test_elements_a_bit_away_from_a_special_one(instruction: Instruction, seed: int) -> None:
    fmt = instruction.a
    codes = np.zeros((1, 64, 64), np.uint32)
    blocks._bring_near(codes, fmt, instruction.low_bit(fmt), np.random.default_rng(seed))
    drawn = codes[codes != 0].astype(np.int64) >> instruction.low_bit(fmt)
    whole = fmt.exponent_bits + fmt.fraction_bits
    assert (drawn >> whole <= fmt.signed).all()
    looked_at = fmt.exponent_bits if fmt.specials is not Specials.NAN else whole
    missing = (1 << looked_at) - 1 ^ (drawn & (1 << whole) - 1) >> whole - looked_at
    assert set(missing.tolist()) == {1 << bit for bit in range(looked_at)}
    assert 0.4 < len(drawn) / codes.size < 0.6

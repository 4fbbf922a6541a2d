"""Tiles of A and B in shared memory are right for all swizzles and majors, and wrong offsets are reported."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from sptc.errors import OperandError
from sptc.isa.instructions import Instruction, parse
from sptc.isa.memory import GENERATIONS, decode_descriptor
from sptc.isa.names import subject_named
from sptc.isa.placement import placements
from sptc.isa.shared_tile import MAJORS, SharedTile, packed_tile, tile_shape
from sptc.isa.tcgen05 import Opcode

from .test_placement import assert_every_bit_once, assert_formulas_agree

WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n{}k{}.f32.{}"
TCGEN05 = "tcgen05.mma.sp.cta_group::{}.kind::{}"
TEXTS = (
    WGMMA.format(64, 32, "f16.f16"), WGMMA.format(40, 64, "e4m3.e5m2"), WGMMA.format(8, 16, "tf32.tf32"),
    TCGEN05.format(1, "f16 (m128n64k32.f32.f16.f16)"), TCGEN05.format(2, "tf32 (m256n64k16.f32.tf32.tf32)"),
    TCGEN05.format(1, "f8f6f4 (m64n64k64.f32.e2m1.e3m2)"),
    TCGEN05.format(1, "mxf4.block_scale (m128n64k128.f32.e2m1.e2m1.ue8m0)"),
)  # fmt: skip


def parsed(text: str) -> tuple[Instruction, Opcode | None]:
    subject = subject_named(text)
    return subject.instruction, subject.opcode


@pytest.mark.parametrize("text", TEXTS)
def test_every_swizzle_and_major(text: str) -> None:
    """In a packed tile, formulas and descriptor place each bit once. Unsupported combinations are rejected."""
    (i, opcode), seen = parsed(text), 0
    for swizzle, major in product(GENERATIONS[i.family].swizzles.values(), MAJORS):
        options: dict[str, Any] = {"swizzle": swizzle, "major": major, "base_offset": 3 * (swizzle != "none")}
        try:
            tiles = {name: packed_tile(i, name, opcode, **options) for name in "ab"}
        except OperandError:
            continue
        seen += 1
        shared = [place for place in placements(i, 0, opcode, tiles).operands if place.tile]
        assert [place.operand for place in shared] == ["a", "b"]
        for place in shared:
            assert_every_bit_once(place)
            assert_formulas_agree(place, 0)
            tile, shape = tiles[place.operand], tile_shape(i, place.operand, opcode)
            assert [*tile.problems(shape)] == []
            assert decode_descriptor(int(place.notes[0].split()[3].rstrip(":"), 16), i.family) == tile.descriptor
    packed = opcode is not None and "mxf4" in opcode.kind
    kinds = {"f16": 8, "bf16": 8, "tf32": 4 + (i.family == "tcgen05"), "e2m1": 4 if packed else 8}
    assert seen == kinds.get(i.a.name, 4)


def test_offsets_of_random_tiles(rng: np.random.Generator) -> None:
    """The printed formulas are right for any offsets, start and base offset, even if elements overlap."""
    for _ in range(20):
        i, opcode = parsed(TEXTS[int(rng.choice([0, 3]))])
        swizzle = str(rng.choice(["none", "32B", "64B", "128B"]))
        start, *offsets = (int(number) * 16 for number in rng.integers(64, size=3))
        options: dict[str, Any] = {"swizzle": swizzle, "offsets": tuple(offsets), "start": start}
        options["base_offset"] = int(rng.integers(8)) if swizzle != "none" else 0
        majors = {name: str(rng.choice(["k", "mn"])) for name in "ab"}
        tiles = {name: packed_tile(i, name, opcode, major=major, **options) for name, major in majors.items()}
        for place in placements(i, 0, opcode, tiles).operands:
            if place.tile:
                assert_formulas_agree(place, 0)
                places = place.words * 8 + place.low_bits
                overlaps = len(np.unique(places)) < places.size
                assert overlaps == any("share bytes" in note for note in place.notes)


def test_wrong_offsets_and_unsupported_tiles() -> None:
    i = parse(TEXTS[0])
    shape = tile_shape(i, "b")
    tile = packed_tile(i, "b", offsets=(0, 128))
    assert [*tile.problems(shape)] == ["1536 of 2048 elements of B share bytes with others: the offsets are too small"]
    far = SharedTile(packed_tile(i, "b", start=262_128 - 16, offsets=(16, 32)).descriptor)
    assert any("beyond the 232448 bytes of a CTA" in problem for problem in far.problems(shape))
    for text, words, message in (
        (TEXTS[1], {"major": "mn"}, r"reads .e4m3 operands in K-major order only"),
        (TEXTS[6], {"major": "mn"}, r"reads .e2m1 operands in K-major order only"),
        (TEXTS[0], {"swizzle": "128B with 32B atoms"}, "wgmma does not have the swizzle"),
        (TEXTS[3], {"swizzle": "128B with 32B atoms"}, "K-major .f16 operand of .* cannot have the swizzle"),
        (TEXTS[4], {"swizzle": "128B", "major": "mn"}, "MN-major .tf32 operand of .* needs the swizzle"),
        (TEXTS[0], {"offsets": (8, None)}, "the leading offset of a descriptor must be a multiple of 16"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", {}, "reads A and B from registers"),
    ):
        i, opcode = parsed(text)
        with pytest.raises(OperandError, match=message):
            packed_tile(i, "a", opcode, **words)  # type: ignore[arg-type]

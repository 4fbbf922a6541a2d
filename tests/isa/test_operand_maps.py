"""Maps of the metadata and the block scales: no bit twice, none left over, and equal to the per-shape tables."""

from collections.abc import Callable
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from sptc.isa.fragments import MetadataMap, metadata_map, scale_map
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.tests.isa.every import for_every

SPARSE = [instruction for instruction in every_instruction() if instruction.sparse]
SCALED = [instruction for instruction in every_instruction() if instruction.scale_size]


def _nibbles(entry: MetadataMap) -> list[tuple[int, int]]:
    return list(zip(entry.lanes.ravel().tolist(), entry.low_bits.ravel().tolist(), strict=True))


@for_every(SPARSE)
def test_metadata_of_all_selectors_fills_the_registers(instruction: Instruction) -> None:
    held = []
    for sparsity_selector in range(instruction.sparsity_selectors):
        entry = metadata_map(instruction, sparsity_selector)
        assert entry.lanes.shape == entry.low_bits.shape == (instruction.m, instruction.chunks)
        assert len(set(_nibbles(entry))) == entry.lanes.size
        held += _nibbles(entry)
    assert sorted(held) == list(product(range(instruction.threads), range(0, 32, 4)))


# Row and first logical column of the nibble at 4 * position in lane `quad` of a group of four, under selector f; None
# where the lane does not contribute. Group g serves rows g and g + 8.
Place = tuple[int, int] | None


def _m16n8k16_f16(g: int, quad: int, position: int, f: int) -> Place:
    if quad != f:
        return None
    return (g, 4 * position) if position < 4 else (g + 8, 4 * (position - 4))


def _m16n8k32_f16(g: int, quad: int, position: int, f: int) -> Place:
    if quad not in (2 * f, 2 * f + 1):
        return None
    first = 0 if quad == 2 * f else 16
    return (g, first + 4 * position) if position < 4 else (g + 8, first + 4 * (position - 4))


def _m16n8k8_tf32(g: int, quad: int, position: int, f: int) -> Place:
    if quad != f:
        return None
    return (g, 2 * position) if position < 4 else (g + 8, 2 * (position - 4))


def _m16n8k16_tf32(g: int, quad: int, position: int, f: int) -> Place:
    if quad not in (2 * f, 2 * f + 1):
        return None
    first = 0 if quad == 2 * f else 8
    return (g, first + 2 * position) if position < 4 else (g + 8, first + 2 * (position - 4))


def _m16n8k32_s8(g: int, quad: int, position: int, f: int) -> Place:
    return {2 * f: (g, 4 * position), 2 * f + 1: (g + 8, 4 * position)}.get(quad)


def _m16n8k64_s8(g: int, quad: int, position: int, f: int) -> Place:
    assert f == 0
    return [(g, 4 * position), (g + 8, 4 * position), (g, 32 + 4 * position), (g + 8, 32 + 4 * position)][quad]


def _m16n8k64_s4(g: int, quad: int, position: int, f: int) -> Place:
    return {2 * f: (g, 8 * position), 2 * f + 1: (g + 8, 8 * position)}.get(quad)


def _m16n8k128_s4(g: int, quad: int, position: int, f: int) -> Place:
    assert f == 0
    return [(g, 8 * position), (g + 8, 8 * position), (g, 64 + 8 * position), (g + 8, 64 + 8 * position)][quad]


# k, container bits: the function, the selectors
METADATA: dict[tuple[int, int], tuple[Callable[[int, int, int, int], Place], int]] = {
    (16, 16): (_m16n8k16_f16, 4),
    (32, 16): (_m16n8k32_f16, 2),
    (8, 32): (_m16n8k8_tf32, 4),
    (16, 32): (_m16n8k16_tf32, 2),
    (32, 8): (_m16n8k32_s8, 2),
    (64, 8): (_m16n8k64_s8, 1),
    (64, 4): (_m16n8k64_s4, 2),
    (128, 4): (_m16n8k128_s4, 1),
}


@lru_cache
def _table(k: int, bits: int, f: int, threads: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Map (thread, low bit) to (row, first logical column)."""
    table = {}
    for thread, position in product(range(threads), range(8)):
        warp, lane = divmod(thread, 32)
        place = METADATA[k, bits][0](lane >> 2, lane & 3, position, f)
        if place is not None:
            table[thread, 4 * position] = (16 * warp + place[0], place[1])
    return table


@for_every(SPARSE)
def test_metadata_against_the_table(instruction: Instruction) -> None:
    selectors = METADATA[instruction.k, instruction.container_bits][1]
    assert instruction.sparsity_selectors == selectors
    width = instruction.k // instruction.chunks
    places = [(row, width * chunk) for row, chunk in product(range(instruction.m), range(instruction.chunks))]
    for f in range(selectors):
        found = dict(zip(_nibbles(metadata_map(instruction, f)), places, strict=True))
        assert found == _table(instruction.k, instruction.container_bits, f, instruction.threads), f


BYTE_IDS = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}
THREAD_IDS = {"a": (0, 1), "b": (0, 1, 2, 3)}


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize("instruction", SCALED, ids=str)
def test_scales_of_all_selectors_fill_the_registers(instruction: Instruction, operand: str) -> None:
    size = instruction.scale_size
    assert size is not None
    held = []
    for byte_id, thread_id in product(BYTE_IDS[size], THREAD_IDS[operand]):
        entry = scale_map(instruction, operand, byte_id, thread_id)
        assert entry.lanes.shape == entry.bytes.shape == (16 if operand == "a" else 8, size)
        places = list(zip(entry.lanes.ravel().tolist(), entry.bytes.ravel().tolist(), strict=True))
        assert len(set(places)) == len(places)
        held += places
    assert sorted(held) == list(product(range(32), range(4)))


@for_every(SCALED)
def test_scales_against_the_manual(instruction: Instruction) -> None:
    """A pair of lanes holds rows g and g + 8 of A, one lane column g of B; the bytes ascend with k."""
    size = instruction.scale_size
    assert size is not None
    for byte_id in BYTE_IDS[size]:
        for thread_id in THREAD_IDS["a"]:
            entry = scale_map(instruction, "a", byte_id, thread_id)
            pair = {0: (0, 1), 1: (2, 3)}[thread_id]
            for g, block in product(range(8), range(size)):
                assert (entry.lanes[g, block], entry.bytes[g, block]) == (4 * g + pair[0], byte_id + block)
                assert (entry.lanes[g + 8, block], entry.bytes[g + 8, block]) == (4 * g + pair[1], byte_id + block)
        for thread_id in THREAD_IDS["b"]:
            entry = scale_map(instruction, "b", byte_id, thread_id)
            for g, block in product(range(8), range(size)):
                assert (entry.lanes[g, block], entry.bytes[g, block]) == (4 * g + thread_id, byte_id + block)


def test_scales_of_the_manuals_example() -> None:
    """``scaleAData, {2, 1}, scaleBData, {2, 3}``: upper two bytes of lanes 2 and 3, and of lane 3, of each group."""
    instruction = parse(
        "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
    )
    a, b = scale_map(instruction, "a", 2, 1), scale_map(instruction, "b", 2, 3)
    assert a.lanes[:, 0].tolist() == [2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31]
    assert b.lanes[:, 0].tolist() == [3, 7, 11, 15, 19, 23, 27, 31]
    for entry in (a, b):
        assert np.array_equal(entry.bytes, np.broadcast_to([2, 3], entry.bytes.shape))
        assert np.array_equal(entry.lanes[:, 0], entry.lanes[:, 1])

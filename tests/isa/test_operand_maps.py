"""Maps of the metadata and the block scales: no bit twice, none left over, and equal to the manual's."""

from functools import lru_cache
from itertools import product

import numpy as np
from sptc.isa.fragments import MetadataMap, metadata_map, scale_map
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.tests.isa.every import for_every

SPARSE = [instruction for instruction in every_instruction() if instruction.sparse]


def _nibbles(entry: MetadataMap) -> list[tuple[int, int]]:
    return list(zip(entry.lanes.ravel().tolist(), entry.low_bits.ravel().tolist(), strict=True))


# k and container bits by how lanes and nibbles are laid out, with the number of selectors.
SELECTORS = {(16, 16): 4, (8, 32): 4, (32, 16): 2, (16, 32): 2, (32, 8): 2, (64, 4): 2, (64, 8): 1, (128, 4): 1}


def _place(k: int, bits: int, lane: int, position: int, f: int) -> tuple[int, int] | None:
    """Return row and first logical column of the nibble at bit 4 * position of a lane; None if it does not contribute.

    A group of four lanes serves rows g and g + 8; f is the selector.
    """
    (g, quad), width = divmod(lane, 4), {32: 2, 4: 8}.get(bits, 4)
    upper, within = divmod(position, 4)
    match k, bits:
        case (16, 16) | (8, 32):  # one lane
            return (g + 8 * upper, width * within) if quad == f else None
        case (32, 16) | (16, 32):  # a pair, half of the columns each
            return (g + 8 * upper, width * (4 * (quad % 2) + within)) if quad // 2 == f else None
        case (32, 8) | (64, 4):  # a pair, a row each
            return (g + 8 * (quad % 2), width * position) if quad // 2 == f else None
        case (64, 8) | (128, 4):  # two pairs, half of the columns each
            return g + 8 * (quad % 2), width * (8 * (quad // 2) + position)
    raise AssertionError((k, bits))


@lru_cache
def _table(k: int, bits: int, f: int, threads: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Map (thread, low bit) to (row, first logical column)."""
    table = {}
    for thread, position in product(range(threads), range(8)):
        place = _place(k, bits, thread % 32, position, f)
        if place is not None:
            table[thread, 4 * position] = (16 * (thread // 32) + place[0], place[1])
    return table


@for_every(SPARSE)
def test_metadata_against_the_table(instruction: Instruction) -> None:
    selectors = SELECTORS[instruction.k, instruction.container_bits]
    assert instruction.sparsity_selectors == selectors
    width = instruction.k // instruction.chunks
    places = [(row, width * chunk) for row, chunk in product(range(instruction.m), range(instruction.chunks))]
    for f in range(selectors):
        found = dict(zip(_nibbles(metadata_map(instruction, f)), places, strict=True))
        assert found == _table(instruction.k, instruction.container_bits, f, instruction.threads), f


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

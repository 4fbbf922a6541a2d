"""Maps of operands, metadata and scales to registers. ``test_placement.py`` compares all maps with printed formulas."""

import numpy as np
import pytest
from sptc.isa.fragments import a_fragment, b_fragment, metadata_map, scale_map
from sptc.isa.instructions import parse
from sptc.isa.matrix_moves import every_matrix_move, matrix_move_map

SCALED = parse("mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0")


def test_maps_cannot_be_written_and_b_of_wgmma_has_none() -> None:
    """Maps are read-only, because all callers share cached maps."""
    instruction = parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    fragment, metadata, scales = a_fragment(instruction), metadata_map(instruction, 0), scale_map(SCALED, "a", 0, 0)
    assert fragment.positions.shape == fragment.shape  # the positions are computed when they are first read
    maps = [fragment, metadata, scales, matrix_move_map(every_matrix_move()[0])]
    for index in (index for each in maps for index in vars(each).values() if isinstance(index, np.ndarray)):
        with pytest.raises(ValueError, match="read-only"):
            index[...] = 0
    with pytest.raises(ValueError, match=r"^operand B of wgmma\.mma_async\.sp\..* is not in registers$"):
        b_fragment(parse("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"))


def test_scales_of_the_manuals_example() -> None:
    """Byte and thread id {2, 1} of A and {2, 3} of B select the upper bytes of lanes 2, 3 (A) and 3 (B) of a quad."""
    a, b = scale_map(SCALED, "a", 2, 1), scale_map(SCALED, "b", 2, 3)
    assert a.lanes[:, 0].tolist() == [2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31]
    assert b.lanes[:, 0].tolist() == [3, 7, 11, 15, 19, 23, 27, 31]
    for entry in (a, b):
        assert np.array_equal(entry.low_bits, np.broadcast_to([16, 24], entry.low_bits.shape))
        assert np.array_equal(entry.lanes[:, 0], entry.lanes[:, 1])

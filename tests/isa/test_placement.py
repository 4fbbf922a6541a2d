"""The placement of an operand uses every bit once, and agrees with printed formulas."""

import numpy as np
import pytest
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.isa.placement import Memory, OperandPlacement, placements
from sptc.isa.tcgen05 import Opcode, build_instruction, every_opcode, instructions_of, parse_opcode

#: One instruction of each shape, container and width of results; of wgmma only those with N of 8, 24 and 256.
EVERY = {
    (i.family, bool(i.sparse), i.shape, i.container_bits, i.low_bit(i.a), i.d.bits, i.scale_size): i
    for i in every_instruction() if i.family == "mma" or i.n in (8, 24, 256)
}.values()  # fmt: skip
#: One instruction of each opcode, number of rows and width of A and D, with A and B of equal and of different types.
TCGEN05 = {
    (opcode, i.m, i.a.bits, i.a == i.b, i.d.bits): (opcode, i)
    for opcode in every_opcode() for i in instructions_of(opcode)
    if i.n == opcode.columns[0 if i.m == opcode.rows[0] else -1]
}.values()  # fmt: skip


def assert_every_bit_once(place: OperandPlacement) -> None:
    per_word, per_lane = (8, 1 << 20) if place.memory is Memory.SHARED else (32, 512)
    first = np.sort(((place.lanes * per_lane + place.words) * per_word + place.low_bits).ravel())
    assert (np.diff(first) >= place.bits).all()
    assert place.lanes.shape == place.low_bits.shape == place.shape
    assert place.value_low_bit >= 0
    assert 0 < place.value_bits <= place.bits - place.value_low_bit
    if place.memory is not Memory.SHARED:
        assert (place.low_bits + place.bits <= 32).all()


def assert_formulas_agree(place: OperandPlacement, sparsity_selector: int) -> None:
    """Check that the printed formulas of an operand give the same positions as its index arrays."""
    row, column = np.indices(place.shape)
    names = dict(zip(place.indices, (row, column), strict=True))
    known = {"lane": place.lanes, "column": place.words, "byte": place.words, "low bit": place.low_bits, **names}
    if place.memory is Memory.REGISTERS and "lane" not in place.formulas:
        lane = place.lanes % 32
        given = {"w": place.lanes // 32, "g": lane >> 2, "t": lane & 3, "r": place.words}
        given["j"] = place.low_bits // place.bits
        assert tuple(place.formulas) == place.indices
    else:
        given = {**names, "f": sparsity_selector}
        if place.memory is Memory.SHARED:
            rows = place.shape[1] if place.operand == "b" else place.shape[0]
            given |= {"SBO": 128, "LBO": rows // 8 * 128}
            if place.tile:
                given |= {"SBO": place.tile.descriptor.stride_offset, "LBO": place.tile.descriptor.leading_offset}
            assert f"SBO {given['SBO']}, LBO {given['LBO']}" in place.notes[0]
    for name, formula in place.formulas.items():
        result = np.broadcast_to(eval(formula, {"__builtins__": {}}, given), place.shape)
        if name == "unit":  # the next formula applies the swizzle to this value
            given["unit"] = result
            continue
        np.testing.assert_array_equal(result, known[name], err_msg=f"{name} = {formula}")


def test_every_element_has_its_own_bits() -> None:
    for i in EVERY:
        for sparsity_selector in range(i.sparsity_selectors):
            result = placements(i, sparsity_selector)
            shapes = {"a": (i.m, i.stored_k), "b": (i.k, i.n), "d": (i.m, i.n)}
            shapes |= {"metadata": (i.m, i.chunks)} if i.sparse else {}
            shapes |= {"scale_a": (i.m, i.scale_size), "scale_b": (i.n, i.scale_size)} if i.scale_size else {}
            assert {place.operand for place in result.operands} == shapes.keys()
            assert result.unknown == {}
            for place in result.operands:
                assert place.shape == shapes[place.operand]
                assert_every_bit_once(place)
                assert_formulas_agree(place, sparsity_selector)


@pytest.mark.parametrize(("opcode", "i"), TCGEN05, ids=lambda part: getattr(part, "shape_and_types", str(part)))
def test_tcgen05(opcode: Opcode, i: Instruction) -> None:
    for sparsity_selector in range(i.sparsity_selectors):
        result = placements(i, sparsity_selector, opcode)
        assert {key.split()[0] for key in result.unknown} <= {"a", "scale_b"}
        in_tensor = {place.operand for place in result.operands if place.memory is Memory.TENSOR}
        expected = {"a", "d", *(["metadata"] if i.sparse else []), *(["scale_a", "scale_b"] if i.scale_size else [])}
        assert in_tensor | {key.split()[0] for key in result.unknown} == expected
        assert [place.operand for place in result.operands if place.memory is Memory.SHARED] == ["a", "b"]
        for place in result.operands:
            assert_every_bit_once(place)
            assert_formulas_agree(place, sparsity_selector)


def test_half_of_b_is_in_each_cta_and_an_opcode_is_needed() -> None:
    opcode = parse_opcode("tcgen05.mma.sp.cta_group::2.kind::f16")
    i = build_instruction(opcode, 256, 64, "f32", "f16", "f16")
    b = next(place for place in placements(i, 0, opcode).operands if place.operand == "b")
    assert b.shape == (32, 32)
    assert "each CTA holds 32 of the 64 columns" in b.notes
    i = next(instructions_of(parse_opcode("tcgen05.mma.sp.cta_group::1.kind::f16")))
    with pytest.raises(ValueError, match="depends on its opcode, which is missing"):
        placements(i)


def test_position_of_the_value_in_its_container() -> None:
    for text, value in (
        ("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", (13, 19, 32)),
        ("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32", (2, 4, 8)),
        ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", (0, 16, 16)),
    ):
        a = placements(parse(text)).operands[0]
        assert (a.value_low_bit, a.value_bits, a.bits) == value

"""The placement of an operand uses every bit once, and agrees with printed formulas and with packing."""

from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.isa.fragments import a_fragment, accumulator_fragment, b_fragment
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.isa.memory import decode_descriptor, encode_descriptor, operand_map
from sptc.isa.placement import Memory, OperandPlacement, placements
from sptc.isa.tcgen05 import Opcode, build_instruction, every_opcode, instructions_of, parse_opcode
from sptc.isa.tensor_memory import a_map, accumulator_map, layout_for, metadata_map, scale_map
from sptc.operands.registers import pack_nibbles, to_registers, unpack_scales
from sptc.operands.shared_memory import gather_shared
from sptc.operands.tensor_memory import gather_tensor

FRAGMENTS = {"a": a_fragment, "b": b_fragment, "d": accumulator_fragment}


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


def words_of(place: OperandPlacement, held: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return every element of an operand, read at the lane, word and bit that its placement states."""
    mask = np.uint32((1 << place.bits) - 1)
    return held[place.lanes, place.words] >> place.low_bits.astype(np.uint32) & mask


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
            assert f"LBO {given['LBO']}" in place.notes[0]
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


def test_packing_follows_the_placement(rng: np.random.Generator) -> None:
    for i, sparsity_selector in [(one, selector) for one in EVERY for selector in range(one.sparsity_selectors)]:
        for place in placements(i, sparsity_selector).operands:
            if place.memory is not Memory.REGISTERS or place.operand.startswith("scale"):
                continue
            matrix = rng.integers(0, 1 << place.bits, (1, *place.shape), np.uint64).astype(np.uint32)
            if place.operand == "metadata":
                others = rng.integers(0, 1 << 32, (1, i.threads), np.uint32)
                held = pack_nibbles(matrix.astype(np.uint8), i, sparsity_selector, others)[..., None]
                same = words_of(place, others[0][:, None])[None].astype(np.uint8)
                np.testing.assert_array_equal(pack_nibbles(same, i, sparsity_selector, others), others)
            else:
                held = to_registers(matrix, FRAGMENTS[place.operand](i))
            np.testing.assert_array_equal(words_of(place, held[0]), matrix[0], f"{place.operand} of {i}")


def test_scales_are_read_at_their_placement(rng: np.random.Generator) -> None:
    scaled = [i for i in EVERY if i.scale_size]
    assert scaled
    for i in scaled:
        data = rng.integers(0, 1 << 32, (1, 32), np.uint32)
        for place in placements(i).operands:
            if place.operand.startswith("scale"):
                expected = unpack_scales(data, i, place.operand[-1], 0, 0)
                np.testing.assert_array_equal(words_of(place, data[0][:, None]), expected[0])


def test_shared_memory_of_wgmma(rng: np.random.Generator) -> None:
    """A descriptor with the offsets that the printed note states addresses each element at the stated byte."""
    for i in (i for i in EVERY if i.family == "wgmma"):
        smem = rng.integers(0, 256, (1, 1 << 16), np.uint8)
        for place in placements(i).operands:
            if place.memory is Memory.SHARED:
                rows = i.m if place.operand == "a" else i.n
                descriptor = decode_descriptor(encode_descriptor(0, rows // 8 * 128, 128))
                expected = gather_shared(smem, operand_map(i, place.operand, descriptor))[0]
                bytes_of = smem[0][place.words[..., None] + np.arange(place.bits // 8)].astype(np.uint64)
                result = (bytes_of << (8 * np.arange(place.bits // 8)).astype(np.uint64)).sum(-1)
                np.testing.assert_array_equal(result, expected.T if place.operand == "b" else expected)


@pytest.mark.parametrize(("opcode", "i"), TCGEN05, ids=lambda part: getattr(part, "shape_and_types", str(part)))
def test_tcgen05(opcode: Opcode, i: Instruction, rng: np.random.Generator) -> None:
    layout = layout_for(opcode, i.m)
    tmem = rng.integers(0, 1 << 32, (1, 128, 512), np.uint32)
    makers = {
        "a": partial(a_map, layout, i, 0),
        "d": partial(accumulator_map, layout, i.n, i.d.bits, 0),
        "scale_a": partial(scale_map, "scale_a", layout.rows, i.scale_size or 0, 0, 0),
        "scale_b": partial(scale_map, "scale_b", i.n, i.scale_size or 0, 0, 0, layout.column_parts),
    }
    for sparsity_selector in range(i.sparsity_selectors):
        result = placements(i, sparsity_selector, opcode)
        assert {key.split()[0] for key in result.unknown} <= {"a", "scale_b"}
        makers["metadata"] = partial(metadata_map, layout, i, sparsity_selector, 0)
        in_tensor = {place.operand: place for place in result.operands if place.memory is Memory.TENSOR}
        expected = {"a", "d", *(["metadata"] if i.sparse else []), *(["scale_a", "scale_b"] if i.scale_size else [])}
        assert in_tensor.keys() | {key.split()[0] for key in result.unknown} == expected
        assert [place.operand for place in result.operands if place.memory is Memory.SHARED] == ["a", "b"]
        for place in result.operands:
            assert_every_bit_once(place)
            assert_formulas_agree(place, sparsity_selector)
        for name, place in in_tensor.items():
            np.testing.assert_array_equal(words_of(place, tmem[0]), gather_tensor(tmem, makers[name]())[0])


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

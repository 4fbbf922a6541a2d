"""Every bit of the instruction descriptor and of the zero-column mask of ``tcgen05`` is encoded and decoded right."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from sptc.errors import OperandError
from sptc.isa.column_mask import decode_column_mask, largest_shift
from sptc.isa.instruction_descriptor import MAX_SHIFTS, InstructionDescriptor
from sptc.isa.instruction_descriptor import decode_instruction_descriptor as decode
from sptc.isa.instruction_descriptor import encode_instruction_descriptor as encode
from sptc.isa.instructions import Instruction
from sptc.isa.tcgen05 import KINDS, Opcode, instructions_of, parse_opcode
from sptc.tests.api.tcgen05_case import Manual, instruction_for

SP, SP2 = "tcgen05.mma.sp.cta_group::1", "tcgen05.mma.sp.cta_group::2"
WS = "tcgen05.mma.ws.sp.cta_group::1"
TEXTS = [
    *(f"{head}.kind::{kind}" for head in (SP, SP2, WS) for kind in ("tf32", "f16", "f8f6f4", "i8")),
    *(f"{head}.kind::{kind}.block_scale" for head in (SP, SP2) for kind in ("mxf8f6f4", "mxf4")),
    *(f"{head}.kind::mxf4nvf4.block_scale.scale_vec::{size}X" for head in (SP, SP2) for size in (2, 4)),
]


def _options(opcode: Opcode, i: Instruction) -> dict[str, Sequence[object]]:
    kind = KINDS[opcode.kind]
    flag = lambda may: (False, True) if may else (False,)  # noqa: E731
    whole = i.container_bits > 8 or i.n % (16 * opcode.cta_group) == 0
    ids = range(0, 4, opcode.scale_size) if opcode.scale_size else (0,)
    return {
        "sparsity_selector": range(4) if opcode.kind in ("f16", "tf32") else (0,),
        "negate_a": flag(kind.negates), "negate_b": flag(kind.negates),
        "transpose_a": flag(kind.transposes), "transpose_b": flag(kind.transposes and whole),
        "scale_id_a": ids, "scale_id_b": ids, "max_shift": (0, 8, 16, 32) if opcode.weight_stationary else (0,),
    }  # fmt: skip


def _every(opcode: Opcode, descriptor: InstructionDescriptor) -> Iterator[InstructionDescriptor]:
    options = _options(opcode, descriptor.instruction)
    for values in product(*options.values()):
        yield replace(descriptor, **dict(zip(options, values, strict=True)))


@pytest.mark.parametrize("text", TEXTS)
def test_round_trip(text: str, rng: np.random.Generator) -> None:
    """Instructions with random options are encoded as in the manual's tables, and decoded to the same options."""
    opcode = parse_opcode(text)
    values = {}
    for instruction in instructions_of(opcode):
        options = {name: words[rng.integers(len(words))] for name, words in _options(opcode, instruction).items()}
        descriptor = InstructionDescriptor(instruction=instruction, **options)
        value = encode(opcode, descriptor)
        assert value == Manual(opcode, descriptor, 0).idesc(), descriptor
        assert decode(opcode, value) == descriptor
        values[value] = descriptor
    assert len(values) == sum(1 for _ in instructions_of(opcode))


@pytest.mark.parametrize("text", TEXTS)
def test_whatever_decodes_encodes_to_the_same_bits(text: str) -> None:
    """After a change of one or two bits, a descriptor is rejected, or decodes to options that encode the same bits."""
    opcode = parse_opcode(text)
    valid = encode(opcode, InstructionDescriptor(instruction=next(instructions_of(opcode))))
    accepted = set()
    for first, second in combinations_with_replacement(range(32), 2):
        value = valid ^ (1 << first | 1 << second)
        try:
            descriptor = decode(opcode, value)
        except OperandError:
            continue
        accepted.add(value)
        assert encode(opcode, descriptor) == value
    written = {
        encode(opcode, every)
        for i in instructions_of(opcode)
        if (encode(opcode, InstructionDescriptor(instruction=i)) ^ valid).bit_count() <= 2
        for every in _every(opcode, InstructionDescriptor(instruction=i))
    }
    assert accepted == {value for value in written if (value ^ valid).bit_count() in (1, 2)}


def _first(text: str, **attributes: object) -> tuple[Opcode, InstructionDescriptor]:
    """Return an opcode, and the descriptor of its first instruction with the given types and shape."""
    opcode = parse_opcode(text)
    return opcode, InstructionDescriptor(instruction=instruction_for(opcode, attributes))


# Opcode, type or shape of an instruction, bits that are inverted in its descriptor, and part of the error message.
REFUSED = [
    (f"{SP}.kind::f16", {}, 1 << 2, r"describes a dense instruction; bit 2 must be 1 for '\.sp'$"),
    (f"{SP}.kind::f16", {}, 1 << 3, r"enables saturation, which only '\.kind::i8' has; bit 3 must be 0$"),
    (f"{SP}.kind::mxf4.block_scale", {}, 1 << 31, r"sets K = 96, which only dense instructions have"),
    *((f"{SP}.kind::f16", {}, 1 << bit, rf"reserved bits {1 << bit:#x}, which must be 0$") for bit in (6, 23, 29)),
    *((f"{SP}.kind::mxf8f6f4.block_scale", {}, 1 << bit, rf"{1 << bit:#x}, which must be 0$") for bit in (0, 26, 31)),
    (f"{SP}.kind::mxf4.block_scale", {}, 1 << 12, r"sets the reserved bits 0x1000, which must be 0$"),
    (f"{SP}.kind::f16", {}, 2 << 4, r"the type of D in .* must be 0 \(\.f16\) or 1 \(\.f32\), not 2$"),
    (f"{SP}.kind::tf32", {}, 2 << 7, r"the type of A in .* must be 2 \(\.tf32\), not 0$"),
    (f"{SP}.kind::mxf4.block_scale", {}, 1 << 23, r"the type of the block scales in .* must be 1 \(\.ue8m0\), not 0$"),
    (f"{SP}.kind::f16", {"d": "f32"}, 1 << 7, r"A and B in .* must have the same type, not \.bf16 and \.f16$"),
    (f"{SP}.kind::f16", {"d": "f16"}, 1 << 7 | 1 << 10, r"type of D in .* must be \.f32 if A is \.bf16, not \.f16$"),
    (f"{SP}.kind::f16", {"m": 128}, 16 << 24, r"M in .* must be 64 or 128, not 384$"),
    (f"{SP}.kind::f16", {"n": 8}, 1 << 17, r"N in .* must be 8 to 256 in steps of 8, not 0$"),
    (f"{SP}.kind::i8", {}, 1 << 13, r"negates A, which '\.kind::i8' does not support$"),
    (f"{SP}.kind::mxf4.block_scale", {}, 1 << 15, r"transposes A, which kind mxf4 does not support for \.e2m1$"),
    (f"{SP}.kind::f8f6f4", {"n": 8}, 1 << 16, r"N in .* of 16 for transposed B with 8-bit elements, not 8$"),
    (f"{SP}.kind::i8", {}, 1, r"the selector in .* must be 0, not 1$"),
    (f"{SP}.kind::mxf4.block_scale", {}, 1 << 29, r"the scale factor A ID in .* must be 0 or 2, not 1$"),
    (f"{SP}.kind::mxf4nvf4.block_scale.block16", {}, 2 << 4, r"the scale factor B ID in .* must be 0, not 2$"),
    (f"{SP}.kind::f16", {}, 1 << 30, r"the maximum shift in .* must be 0 without '\.ws', not 8$"),
]  # fmt: skip


def test_invalid_descriptors() -> None:
    for text, expected, flipped, message in REFUSED:
        opcode, descriptor = _first(text, **expected)
        value = encode(opcode, descriptor)
        assert decode(opcode, value) == descriptor
        with pytest.raises(OperandError) as caught:
            decode(opcode, value ^ flipped)
        assert re.search(message, str(caught.value)), str(caught.value)
        assert f"{value ^ flipped:#010x} of {text}" in str(caught.value)
    for number in (-1, 1 << 32, True, "4", 4.0):
        with pytest.raises(OperandError, match=r"must be a 32-bit number, not"):
            decode(parse_opcode(f"{SP}.kind::f16"), number)  # type: ignore[arg-type]


def test_options_that_cannot_be_encoded() -> None:
    opcode, half = _first(f"{SP}.kind::f16", d="f16")
    _, integer = _first(f"{SP}.kind::i8")
    _, large = _first(f"{SP2}.kind::f16", m=256, d="f32")
    _, four = _first(f"{SP}.kind::mxf4nvf4.block_scale.block16")
    _, two = _first(f"{SP}.kind::mxf4nvf4.block_scale.block32")
    nvf4 = parse_opcode(f"{SP}.kind::mxf4nvf4.block_scale.block16")
    for text, descriptor, message in (
        (opcode, integer, r"the type of A in .* must be \.f16 or \.bf16, not \.u8$"),
        (opcode, large, r"M in an instruction descriptor of .* must be 64 or 128, not 256$"),
        (opcode, replace(half, max_shift=4), r"the maximum shift in .* must be 0, 8, 16 or 32, not 4$"),
        (opcode, replace(half, sparsity_selector=4), r"the selector in .* must be 0, 1, 2 or 3, not 4$"),
        (opcode, replace(half, instruction=replace(half.instruction, k=16)), r"cannot encode .*k16"),
        (opcode, replace(half, instruction=replace(half.instruction, satfinite=True)), r"cannot encode .*satfinite"),
        (nvf4, two, r"cannot encode .*scale_vec::2X"),
        (nvf4, replace(four, scale_id_a=2), r"the scale factor A ID in .* must be 0, not 2$"),
    ):
        with pytest.raises(OperandError, match=message):
            encode(text, descriptor)


#: Defined bits of the zero-column mask: four start counts, four first spans, flag, skip span, use span and shift.
DEFINED = {*range(36), 39, *range(40, 62)}

#: The manual's zero-column masks by M: start counts, first spans, and masks as printed, with the lowest column last.
#: The skip span is 2 and the use span is 3, so the masks repeat after seven columns.
PRINTED = {
    128: ((0,), (0,), ["11100001110000"]),
    64: ((0, 0), (1, 0), ["11100001110000111", "000011100001110000"]),
    32: ((0, 1, 2, 1), (1, 1, 0, 0), ["00001110000111", "0000111000011", "111000011100", "1110000111000"]),
}


@pytest.mark.parametrize("m", PRINTED)
def test_the_masks_that_the_manual_prints(m: int) -> None:
    starts, first_spans, masks = PRINTED[m]
    value = 1 << 39 | 2 << 40 | 3 << 48
    for part, (start, first) in enumerate(zip(starts, first_spans, strict=True)):
        value |= start << 8 * part | first << 32 + part
    expected: list[bool] = []
    for mask in masks:
        lowest_first = [bit == "1" for bit in reversed(mask)]
        expected += (lowest_first[:7] * 19)[: 128 // len(masks)]
        assert lowest_first[7:] == lowest_first[: len(mask) - 7]
    assert decode_column_mask(value, m, 128, 0, "it").zero.tolist() == expected


@pytest.mark.parametrize(("m", "most"), [(32, 16), (64, 32), (128, 32)])
def test_how_far_columns_may_be_shifted(m: int, most: int) -> None:
    assert largest_shift(m) == most
    for max_shift in MAX_SHIFTS:
        for shift in range(64):
            if shift <= min(most, max_shift):
                assert decode_column_mask(shift << 56, m, 128, max_shift, "it").shift == shift
                continue
            limit = f"the instruction descriptor allows {max_shift}" if max_shift <= most else f"M = {m} allows {most}"
            with pytest.raises(OperandError, match=f"^zero_column_mask of it shifts by {shift} columns, but {limit}$"):
                decode_column_mask(shift << 56, m, 128, max_shift, "it")


def test_reserved_bits() -> None:
    for bit in range(64):
        if bit in DEFINED:
            decode_column_mask(1 << bit, 128, 64, 32, "it")
        else:
            with pytest.raises(OperandError, match=rf"sets the reserved bits {1 << bit:#x}, which must be 0$"):
                decode_column_mask(1 << bit, 128, 64, 32, "it")
    for value in (-1, 1 << 64):
        with pytest.raises(OperandError, match=rf"must be a 64-bit number, not {re.escape(str(value))}$"):
            decode_column_mask(value, 128, 64, 0, "it")

"""Each bit of a descriptor belongs to one printed field, and the printed fields encode the descriptor's value."""

from collections.abc import Callable

import numpy as np
import pytest
from sptc.errors import OperandError
from sptc.isa import instruction_descriptor as idesc
from sptc.isa.descriptor_fields import DescriptorField, encoded, family_of, instruction_fields, readings, shared_fields
from sptc.isa.memory import GENERATIONS, SWIZZLES, SharedDescriptor, decode_descriptor, encode_descriptor
from sptc.isa.tcgen05 import Opcode, every_opcode, instructions_of, parse_opcode

#: Random descriptors per test case. All 40 test cases together have 10,000.
COUNT = 250
OPCODES = [*every_opcode()]


def named(fields: tuple[DescriptorField, ...]) -> dict[str, DescriptorField]:
    return {field.name: field for field in fields}


def assert_partition(fields: tuple[DescriptorField, ...], bits: int, value: int) -> None:
    assert [field.low for field in fields] == [0, *(field.low + field.width for field in fields[:-1])]
    assert fields[-1].low + fields[-1].width == bits
    assert encoded(fields) == value


def invalid(decode: Callable[..., object], *arguments: object) -> bool:
    try:
        decode(*arguments)
    except OperandError:
        return True
    return False


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("case", range(40))
def test_random_matrix_descriptors(case: int, rng: np.random.Generator) -> None:
    """Fields are decoded, and printed fields encode the descriptor. A field has an error if it cannot be decoded."""
    del case
    for _ in range(COUNT // 2):
        family = str(rng.choice([*GENERATIONS]))
        swizzle = str(rng.choice([*GENERATIONS[family].swizzles.values()]))
        start, leading, stride = (int(number) * 16 for number in rng.integers(1 << 14, size=3))
        base_offset = int(rng.integers(8)) * (swizzle != "none")
        value = encode_descriptor(start, leading, stride, swizzle, base_offset, family)
        expected = SharedDescriptor(start, leading, stride, base_offset, SWIZZLES[swizzle])
        assert decode_descriptor(value, family) == expected
        fields = shared_fields(value, family)
        assert_partition(fields, 64, value)
        assert [field.problem for field in fields if field.problem] == []
        assert family_of(value) == family
        printed = named(fields)
        again = [int(printed[f"{name} address" if name == "start" else f"{name} byte offset"].meaning.split()[0])
                 for name in ("start", "leading", "stride")]  # fmt: skip
        number = int(printed["base offset"].meaning.partition(" row ")[2][:1] or 0)
        assert encode_descriptor(*again, printed["swizzle"].meaning, number, family) == value
        # The base offset is set to 0: without swizzle, its field reports other offsets, but the decoder accepts them.
        bits = int(rng.integers(1 << 64, dtype=np.uint64)) & ~(7 << 49)
        fields = shared_fields(bits, family)
        assert_partition(fields, 64, bits)
        assert any(field.problem for field in fields) == invalid(decode_descriptor, bits, family), hex(bits)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("case", range(40))
def test_random_instruction_descriptors(case: int, rng: np.random.Generator) -> None:
    del case
    for _ in range(COUNT // 25):
        opcode = OPCODES[int(rng.integers(len(OPCODES)))]
        every = [*instructions_of(opcode)]
        for i in (every[int(place)] for place in rng.integers(len(every), size=12)):
            ids = rng.choice(range(0, 4, opcode.scale_size or 4), 2).tolist()
            selector = int(rng.integers(opcode.selectors))
            shift = int(rng.choice([0, 8, 16, 32])) if opcode.weight_stationary else 0
            options = {"sparsity_selector": selector, "scale_id_a": ids[0], "scale_id_b": ids[1], "max_shift": shift}
            value = idesc.encode_instruction_descriptor(opcode, idesc.InstructionDescriptor(instruction=i, **options))
            fields = instruction_fields(value, opcode)
            assert_partition(fields, 32, value)
            assert [field.problem for field in fields if field.problem] == []
            printed = named(fields)
            meanings = [printed[name].meaning for name in ("M", "N", "type of A", "type of B")]
            assert meanings == [str(i.m), str(i.n), i.a.name, i.b.name]
            wrong = value ^ 1 << int(rng.integers(32))
            fields = instruction_fields(wrong, opcode)
            assert_partition(fields, 32, wrong)
            # An invalid descriptor may have no field with an error, since some errors concern two fields: types that
            # cannot be mixed, or an N that a transposed B cannot have.
            if any(field.problem for field in fields):
                assert invalid(idesc.decode_instruction_descriptor, opcode, wrong), (hex(wrong), str(opcode))


def test_readings() -> None:
    assert {str(opcode): shape for opcode, shape in readings(0x08100014)} == {
        "tcgen05.mma.sp.cta_group::1.kind::f16": "m128n64k32.f32.f16.f16",
        "tcgen05.mma.sp.cta_group::2.kind::f16": "m128n64k32.f32.f16.f16",
        "tcgen05.mma.sp.cta_group::1.kind::f8f6f4": "m128n64k64.f32.e4m3.e4m3",
        "tcgen05.mma.sp.cta_group::2.kind::f8f6f4": "m128n64k64.f32.e4m3.e4m3",
        "tcgen05.mma.ws.sp.cta_group::1.kind::f16": "m128n64k32.f32.f16.f16",
        "tcgen05.mma.ws.sp.cta_group::1.kind::f8f6f4": "m128n64k64.f32.e4m3.e4m3",
    }
    assert [*readings(0xFFFFFFFF)] == []


def test_each_problem_of_an_instruction_descriptor() -> None:
    f16: Opcode = parse_opcode("tcgen05.mma.sp.cta_group::1.kind::f16")
    scaled = parse_opcode("tcgen05.mma.sp.cta_group::1.kind::mxf4nvf4.block_scale.block16")
    for opcode, value, name, problem in (
        (f16, 0x08100010, "sparse", "must be 1 for '.sp'"),
        (f16, 0x08100024, "type of D", "must be 0 (f16), 1 (f32)"),
        (f16, 0x0810001C, "saturate", "only .kind::i8 saturates"),
        (f16, 0x0A100014, "M", f"{f16} does not have this M"),
        (f16, 0x88100014, "maximum shift of B", "must be 0 without '.ws'"),
        (scaled, 0x90100084, "K", "K = 96 is not modelled"),
        (scaled, 0x10108084, "major of A", ".kind::mxf4nvf4 is K-major only"),
        (scaled, 0x10100094, "scale factor B id", "must be 0"),
    ):
        assert named(instruction_fields(value, opcode))[name].problem == problem

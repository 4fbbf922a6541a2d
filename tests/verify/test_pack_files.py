"""Operands that are packed into registers or memory are unpacked without loss."""

import numpy as np
import pytest
from sptc.errors import FileError, InstructionError, OperandError
from sptc.isa.instructions import ARCHITECTURES, every_instruction
from sptc.isa.names import Subject, subject_named
from sptc.isa.tcgen05 import every_opcode, instructions_of
from sptc.tests.verify.register_files import tensor_memory_file
from sptc.verify.candidates import draw_candidates
from sptc.verify.neighbours import right_model
from sptc.verify.pack_files import every_subject, file_of, given_of, require_placed
from sptc.verify.register_file import RegisterFile

WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n24k16.f32.tf32.tf32"
SUBJECTS = [
    "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32",
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e5m2.f32.ue8m0",
    "mma.sync.aligned.m16n8k64.row.col.s32.u4.s4.s32",
    WGMMA,
    "wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.s8",
    "tcgen05.mma.sp.cta_group::2.kind::f16 (m256n16k32.f16.f16.f16)",
    "tcgen05.mma.sp.cta_group::1.kind::tf32 (m64n8k16.f32.tf32.tf32)",
    "tcgen05.mma.ws.sp.cta_group::1.kind::f8f6f4 (m32n64k64.f32.e2m1.e3m2)",
    "tcgen05.mma.cta_group::2.kind::mxf8f6f4.block_scale (m128n64k32.f32.e2m3.e4m3.ue8m0)",
    "tcgen05.mma.sp.cta_group::2.kind::mxf4.block_scale (m256n16k128.f32.e2m1.e2m1.ue8m0)",
    "tcgen05.mma.sp.cta_group::1.kind::i8 (m128n8k64.satfinite.s32.u8.s8)",
]


@pytest.mark.parametrize("text", SUBJECTS)
def test_operands_come_back(text: str, rng: np.random.Generator) -> None:
    subject = subject_named(text)
    assert subject.name == text
    i, arch = subject.instruction, subject.instruction.architectures[-1]
    right = right_model(i, arch)
    for drawn in draw_candidates(i, right.numerics, rng, 1):
        for sparsity_selector in range(i.sparsity_selectors):
            file = file_of(subject, arch, drawn, rng, sparsity_selector)
            result = given_of(file)
            expected = right.multiply(drawn)
            assert (right.multiply(result) == expected).all()
            assert (file.matrix(file.run()) == expected).all()
            for name in ("c", "nibbles", "scale_a", "scale_b"):
                codes = getattr(drawn.matrices, name)
                assert codes is None or (getattr(result.matrices, name) == codes).all(), name
            assert (result.elsewhere is None) == (drawn.elsewhere is None) == (i.sparsity_selectors == 1)
            if result.elsewhere is not None:
                assert (result.elsewhere == drawn.elsewhere).all()


def test_wider_tiles_keep_their_first_columns(rng: np.random.Generator) -> None:
    name = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"
    i = subject_named(name).instruction
    narrow = next(draw_candidates(i, right_model(i, "sm_120").numerics, rng, 3))
    wide = narrow.widened(40)
    expected, result = (right_model(i, "sm_120").multiply(each) for each in (narrow, wide))
    assert result.shape == (3, 16, 40)
    assert (result[:, :, :8] == expected).all()
    assert (wide.matrices.b[0, :, 8:16] == narrow.matrices.b[1]).all()
    assert (wide.matrices.scale_b[2, 32:40] == narrow.matrices.scale_b[0]).all()


def test_packs_exist_for_every_instruction() -> None:
    """A pack can be made for every mma and wgmma, and for every opcode, M and type of tcgen05, with the smallest N."""
    subjects = {arch: list(every_subject(arch)) for arch in ARCHITECTURES}
    plain = [(i, arch) for i in every_instruction() for arch in i.architectures]
    assert sum(not subject.opcode for each in subjects.values() for subject in each) == len(plain)
    forms = {(str(opcode), i.m, i.shape_and_types.partition("k")[2])
             for opcode in every_opcode() for i in instructions_of(opcode)}  # fmt: skip
    actual = [subject for subject in subjects["sm_100"] if subject.opcode]
    assert len(actual) == len(forms) > 1000
    names = [subject.name for subject in subjects["sm_100"]]
    assert len(set(names)) == len(names)
    assert all(subject_named(subject.name) == subject for subject in actual[::50])


def test_instructions_without_a_pack() -> None:
    pair = "tcgen05.mma.cta_group::2.kind::mxf4.block_scale (m128n16k64.f32.e2m1.e2m1.ue8m0)"
    f16 = "tcgen05.mma.sp.cta_group::1.kind::f16"
    for text, arch, message in (
        (f"{f16} (m128n8k32.f32.f16.bf16)", "sm_100", "has no shape and types"),
        (f"{f16}.ashift (m128n8k32.f32.f16.f16)", "sm_100", "shifts A"),
        (f"{f16} (m128n8k32.f32.f16.f16)", "sm_90", "sm_90 does not have"),
        (pair, "sm_100", "multiple of 64"),
    ):
        with pytest.raises((InstructionError, OperandError), match=message):
            require_placed(subject_named(text), arch)


def test_files_of_others_are_refused(rng: np.random.Generator) -> None:
    with pytest.raises(FileError, match="are not at the addresses"):
        given_of(tensor_memory_file("tcgen05.mma.sp.cta_group::1.kind::f16", rng))
    subject = Subject(subject_named(WGMMA).instruction)
    drawn = next(draw_candidates(subject.instruction, right_model(subject.instruction, "sm_90").numerics, rng, 2))
    file = file_of(subject, "sm_90", drawn, rng, 0)
    assert isinstance(file, RegisterFile)
    other = file.b_descriptor + np.arange(len(file.c), dtype=np.uint64)
    for name, value in {"scale_d": False, "imm_scale": (1, -1), "b_descriptor": other}.items():
        with pytest.raises(FileError, match="a conformance pack of"):
            given_of(RegisterFile(**{**vars(file), name: value}))

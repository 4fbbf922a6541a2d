"""Instructions are found by exact names, names without some qualifiers, pasted lines and words."""

import numpy as np
import pytest
import sptc
from sptc.errors import InstructionError
from sptc.gemm.options import chosen
from sptc.isa.instructions import every_instruction
from sptc.isa.names import resolve, subject_named

ORDERED = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
PLAIN = ORDERED.replace("::ordered_metadata", "")
F8F6F4 = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32"
E4M3 = F8F6F4.replace(".kind::f8f6f4", "")
TCGEN05 = "tcgen05.mma.sp.cta_group::1.kind::f16 (m128n64k32.f32.f16.f16)"
OPERANDS = "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x1"
PASTED = f'asm volatile("{PLAIN} " "{OPERANDS};" '


@pytest.mark.parametrize(
    ("text", "arch", "name"),
    [
        (PLAIN, None, PLAIN),
        (f"{PLAIN} ;", None, PLAIN),
        ("mma.sp.m16n8k32.f32.f16.f16.f32", None, PLAIN),
        ("mma.sp.m16n8k32.row.col.f32.f16.f16.f32;", None, PLAIN),
        (PASTED, None, PLAIN),
        ("m16n8k32 f32 f16", None, ORDERED),
        ("f16 f32 m16n8k32", "sm_90a", ORDERED),
        ("mma m16n8k16 bf16 dense", None, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        ("m16n8k64.f32.e4m3.e4m3", "sm_90", E4M3),
        (TCGEN05.replace(".cta_group::1", ""), None, TCGEN05),
        ("tcgen05.mma.kind::f16 (m256n64k16.f32.f16.f16)", None,
         "tcgen05.mma.cta_group::2.kind::f16 (m256n64k16.f32.f16.f16)"),
        ("tcgen05.mma.sp.cta_group::1.kind::f16 [%r0], %rd0, %rd1, [%r1], 0x08100014, %p0;", None,
         "tcgen05.mma.sp.cta_group::1.kind::f16 (m128n64k32.f32.f16.f16)"),
    ],
)  # fmt: skip
def test_a_text_names_one_instruction(text: str, arch: str | None, name: str) -> None:
    assert resolve(text, arch).name == name


def test_ordered_metadata_is_preferred() -> None:
    """Of matches with equal numerics, that with ordered metadata is chosen. Otherwise, an error lists the matches."""
    for i in every_instruction():
        if i.sparse == "sp" and i.family == "mma":
            assert resolve(str(i)).instruction == i  # an exact name is never changed
    with pytest.raises(InstructionError, match="they differ in sparsity, kind, scales") as caught:
        resolve("m16n8k64 e4m3 e4m3 f32")
    assert caught.value.choices.splitlines()[1].split() == ["1", "ordered", "-", "-", E4M3]
    assert [line.split()[0] for line in caught.value.choices.splitlines()[1:]] == ["1", "2", "3", "4"]
    assert len(caught.value.choices.splitlines()) == 5
    assert resolve("m128n64k32 kind::f16 f32 bf16", product=True).instruction.a.name == "bf16"
    with pytest.raises(InstructionError, match="9 instructions have the words"):
        resolve("m128n64k32 kind::f16")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m16n8k32 f17", "no instruction has the word 'f17'; did you mean f1"),
        ("m16n8k32 f16 dense sparse", "no instruction has all the words"),
        ("mma.sp.m16n8k32.f32.f16", "has 2 types"),
        ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f33", "'.f33' in"),
        ("tcgen05.mma.sp.kind::f16", "'.cta_group' is missing"),
        ("", "is no known opcode"),
        (17, "must be a string"),
        (f"{PLAIN} {{%f0}}, %r0;", "operand d of .* must have 4 registers, not 1"),
    ],
)
def test_a_text_that_names_none(text: str, message: str) -> None:
    with pytest.raises(InstructionError, match=message):
        resolve(text)
    with pytest.raises(InstructionError, match="is no known architecture"):
        resolve("m16n8k32 f32 f16", ["sm_90"])  # type: ignore[arg-type]


def test_public_functions_take_words(rng: np.random.Generator) -> None:
    words = "m16n8k32 f32 f16"
    assert sptc.evidence(words, "sm_90") == sptc.evidence(ORDERED, "sm_90")
    assert sptc.numerics("sm_90", "mma.sp.m16n8k32.f32.f16.f16.f32") == sptc.numerics("sm_90", PLAIN)
    a = rng.standard_normal((16, 32)).astype(np.float16) * np.tile(np.float16([1, 0, 0, 1]), 8)
    b = rng.standard_normal((32, 8)).astype(np.float16)
    tile = sptc.pack(words, a, b)
    assert tile["instruction"] == ORDERED
    assert (sptc.mma(**tile) == sptc.mma(**{**sptc.pack(ORDERED, a, b), "instruction": words})).all()
    assert (sptc.unpack(**{**tile, "instruction": words}).b == b).all()
    assert (sptc.random_metadata(words, 3, 2) == sptc.random_metadata(ORDERED, 3, 2)).all()
    assert (sptc.gemm(a, b, instruction=words) == sptc.gemm(a, b, instruction=ORDERED)).all()
    assert chosen("f16", words, "sm_90") == subject_named(ORDERED).instruction

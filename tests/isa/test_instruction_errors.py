"""Which architecture has which instruction, and what the parser says about text that is no instruction."""

import pytest
from sptc.errors import InstructionError
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.tests.isa.every import for_every

EVERY = list(every_instruction())
ORDERED = "sp::ordered_metadata"
ALL = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
FP8 = ("sm_89", "sm_90", "sm_100", "sm_120")
BLACKWELL = ("sm_120",)


def _owners(instruction: Instruction) -> tuple[str, ...]:
    if instruction.family == "wgmma":
        return ("sm_90",)
    fp8 = {"e4m3", "e5m2"} >= {instruction.a.name, instruction.b.name}
    if instruction.kind or (fp8 and instruction.sparse and instruction.d.name == "f16"):
        return BLACKWELL
    return FP8 if fp8 else ALL


@for_every(EVERY)
def test_architectures_of_every_instruction(instruction: Instruction) -> None:
    assert instruction.architectures == _owners(instruction)


def _block(k: int, words: str, tail: str = "f32.e2m1.e2m1.f32.ue8m0", sparse: str = ORDERED) -> str:
    return f"mma.{sparse}.sync.aligned.m16n8k{k}.row.col.{words}.{tail}"


SP = "mma.sp.sync.aligned"
WG = "wgmma.mma_async.sp.sync.aligned"
FLOATS = r"expected '\.f16', '\.bf16', '\.tf32', '\.e4m3', '\.e5m2', '\.s8', '\.u8', '\.s4' or '\.u4'\.$"
INTEGER_SHAPES = r"'\.m64n8k64', '\.m64n16k64', '\.m64n24k64', '\.m64n32k64', '\.m64n48k64', .* or '\.m64n256k64'\.$"

E2M1, NVF4 = "f32.e2m1.e2m1.f32", "kind::mxf4nvf4"
MXF4_TAKES = r"'\.kind::mxf4' takes '\.scale_vec::2X' with '\.ue8m0'\."
SCALED_KINDS = r"belongs to '\.kind::mxf8f6f4', '\.kind::mxf4' or '\.kind::mxf4nvf4'\.$"

# Text, what the message says first, and what it says is accepted.
MALFORMED = [
    # opcode and mandatory qualifiers
    ("", r"^'' in ''", "accepted are mma and wgmma.mma_async"),
    ("tcgen05.mma.sp.cta_group::1.kind::f16", "^'tcgen05.mma.sp", "use sptc.tcgen05_mma, which takes both"),
    ("mma.sp.aligned.m16n8k16.row.col.f32.f16.f16.f32", r"^'\.sync' is missing", "mma requires it"),
    ("wgmma.sp.sync.aligned.m64n8k32.f32.f16.f16", r"^'\.mma_async' is missing", "wgmma requires it"),
    # layouts
    (f"{SP}.m16n8k16.col.row.f32.f16.f16.f32", r"^'\.col\.row' in", r"the layouts must be '\.row\.col'"),
    (f"{SP}.m16n8k16.f32.f16.f16.f32", "^no layout in", r"the layouts must be '\.row\.col'"),
    (f"{WG}.m64n8k32.row.col.f32.f16.f16", r"^'\.row' in", r"no part of wgmma; accepted are .* \.satfinite, a shape"),
    # twice, unknown, or of the other family
    ("mma.sp.sync.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", r"^'\.sync' stands twice", "once is expected"),
    (f"{SP}.{ORDERED}.m16n8k16.row.col.f32.f16.f16.f32", r"^'\.sp::ord.*' in .* repeats '\.sp'", "one is expected"),
    (f"{SP}.m16n8k16.m16n8k32.row.col.f32.f16.f16.f32", r"'\.m16n8k32' in .* repeats '\.m16n8k16'", "one is expected"),
    (_block(128, f"{NVF4}.block_scale.scale_vec::2X.scale_vec::4X"), r"4X' in .* repeats '.*2X'", "one is expected"),
    (f"{SP}.m16n8k16.row.col.relu.f32.f16.f16.f32", r"^'\.relu' in", r"qualifiers \.sp, .*, and the types \.f32, "),
    (f"{SP}.m16n8k16.row.col.f32.f64.f16.f32", r"^'\.f64' in", r"is not modelled; of mma and wgmma, every form with"),
    ("mma.mma_async.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", r"^'\.mma_async' in", "no part of mma; accepted"),
    ("wgmma.fence.sync.aligned", r"^'\.fence' in", r"qualifiers \.mma_async, \.sp, \.sync, \.aligned, \.satfinite, "),
    # shapes
    (f"{SP}.row.col.f32.f16.f16.f32", "^the shape is missing", r"expected one such as \.m16n8k32"),
    (f"{SP}.m16n8k64.row.col.f32.f16.f16.f32", r"^'\.m16n8k64' in", r"expected '\.m16n8k16' or '\.m16n8k32'\.$"),
    (_block(64, "kind::mxf4.block_scale"), r"^'\.m16n8k64' in", r"expected '\.m16n8k128'\.$"),
    (f"{WG}.m64n12k32.f32.f16.f16", r"^'\.m64n12k32' in", r"'\.m64n8k32', '\.m64n16k32', '\.m64n24k32', '\.m64n32k32"),
    (f"{WG}.m64n40k64.s32.u8.u8", r"^'\.m64n40k64' in", f"expected {INTEGER_SHAPES}"),
    # types
    (f"{SP}.m16n8k16.row.col", r"has 0 types \(none\)", "mma takes 4: dtype, atype, btype, ctype"),
    (f"{SP}.m16n8k16.row.col.f32.f16.f32", r"has 3 types \(f32 f16 f32\)", "mma takes 4: dtype, atype, btype, ctype"),
    (f"{WG}.m64n8k32.f32.f16.f16.f32", r"has 4 types \(f32 f16 f16 f32\)", r"wgmma takes 3: dtype, atype, btype\."),
    (_block(128, "kind::mxf4.block_scale", E2M1), r"has 4 types \(f32 e2m1 e2m1 f32\)", "takes 5: dtype, .* stype"),
    (f"{SP}.m16n8k16.row.col.f32.f32.f32.f32", r"^'\.f32' in .* atype", FLOATS),
    (f"{SP}.m16n8k16.row.col.f32.f16.bf16.f32", r"^'\.bf16' in .* btype", r"expected '\.f16'\.$"),
    (f"{SP}.m16n8k64.row.col.s32.s8.s4.s32", r"^'\.s4' in .* btype", r"expected '\.s8' or '\.u8'\.$"),
    (f"{WG}.m64n8k16.f32.tf32.bf16", r"^'\.bf16' in .* btype", r"expected '\.tf32'\.$"),
    (f"{SP}.m16n8k16.row.col.bf16.bf16.bf16.bf16", r"^'\.bf16' in .* dtype", r"expected '\.f32'\.$"),
    (f"{SP}.m16n8k64.row.col.f16.e4m3.e4m3.f16", r"^'\.f16' in .* dtype", r"expected '\.f32'\.$"),
    (f"{SP}.m16n8k16.row.col.f32.f16.f16.f16", r"^'\.f16' in .* ctype", r"expected '\.f32'\.$"),
    # sparsity variants, kinds, saturation
    (f"{SP}.m16n8k64.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32", r"^'\.sp' in", r"'\.sp::ordered_metadata' or nothing\.$"),
    ("wgmma.mma_async.sync.aligned.m64n8k32.f32.f16.f16", r"^'\.m64n8k32' in .* accepted as shape", r"'\.m64n8k16'"),
    (WG.replace("sp", ORDERED) + ".m64n8k32.f32.f16.f16", "'.sp::ordered_metadata' in", r"'\.sp' or nothing\.$"),
    (_block(64, "kind::f8", "f32.e4m3.e4m3.f32"), "f8' in .* kind", r"f8f6f4', .*mxf8f6f4', .*mxf4' or .*mxf4nvf4'\.$"),
    (f"{WG}.m64n8k64.kind::f8f6f4.f32.e4m3.e4m3", "f8f6f4' in .* kind", r"expected nothing\.$"),
    (f"{SP}.m16n8k16.row.col.satfinite.f32.f16.f16.f32", r"^'\.satfinite' in", "it belongs to the integer types"),
    # block scaling
    (_block(128, "kind::mxf4", E2M1), r"^'\.block_scale' is missing", r"'\.kind::mxf4' requires it"),
    (_block(128, f"{NVF4}.block_scale"), r"^'\.scale_vec' is missing", r"must say '\.scale_vec::2X' or '.*4X'\.$"),
    (_block(128, f"{NVF4}.block_scale.scale_vec::2X", f"{E2M1}.ue4m3"), r"^'\.scale_vec::2X' with '\.ue4m3' in",
     r"'\.scale_vec::2X' with '\.ue8m0', '\.scale_vec::4X' with '\.ue4m3' or '\.scale_vec::4X' with '\.ue8m0'\.$"),
    (_block(128, "kind::mxf4.block_scale.scale_vec::4X"), r"^'\.scale_vec::4X' with '\.ue8m0' in", f"{MXF4_TAKES}$"),
    (_block(128, "kind::mxf4.block_scale", f"{E2M1}.ue4m3"), r"^'\.ue4m3' in", f"{MXF4_TAKES}$"),
    (_block(64, "kind::f8f6f4.block_scale", "f32.e4m3.e4m3.f32.ue8m0"), r"^'\.block_scale' in", SCALED_KINDS),
    (f"{SP}.m16n8k16.row.col.scale_vec::2X.f32.f16.f16.f32", r"^'\.scale_vec::2X' in", SCALED_KINDS),
]  # fmt: skip


def test_malformed() -> None:
    for text, wrong, accepted in MALFORMED:
        with pytest.raises(InstructionError, match=f"{wrong}.*{accepted}") as caught:
            parse(text)
        assert repr(text) in str(caught.value)
        assert isinstance(caught.value, ValueError)

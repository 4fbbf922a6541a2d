"""The parser accepts the manual's examples and the whole syntax, and explains errors in invalid instructions."""

from dataclasses import replace

import numpy as np
import pytest
from sptc.errors import InstructionError
from sptc.isa.instructions import Instruction, every_instruction, parse

EVERY = list(every_instruction())
ORDERED = "sp::ordered_metadata"

# Example lines of the PTX ISA manual, with the fields of each instruction.
EXAMPLES = {
    "mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": "sp m16n8k8 f32 tf32 tf32 f32",
    "mma.sp.sync.aligned.m16n8k64.row.col.f32.e5m2.e4m3.f32": "sp m16n8k64 f32 e5m2 e4m3 f32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f16.e2m3.e2m1.f16": (
        f"{ORDERED} m16n8k64 f16 e2m3 e2m1 f16 f8f6f4"
    ),
    "mma.sp.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.u8.s32": "sp m16n8k32 s32 u8 u8 s32 satfinite",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1"
    ".f32.ue4m3": f"{ORDERED} m16n8k128 f32 e2m1 e2m1 f32 mxf4nvf4 4X ue4m3",
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32": "dense m16n8k32 f32 e4m3 e5m2 f32",
    "wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.u8": "sp m64n8k64 s32 s8 u8 s32",
}


def _describe(instruction: Instruction) -> str:
    words = [instruction.sparse or "dense", f"m{instruction.m}n{instruction.n}k{instruction.k}"]
    words += [fmt.name for fmt in (instruction.d, instruction.a, instruction.b, instruction.c)]
    words += [instruction.kind, "satfinite" if instruction.satfinite else ""]
    words += [f"{instruction.scale_size}X"] if instruction.scale_size is not None else []
    words += [instruction.scale_format.name] if instruction.scale_format else []
    return " ".join(filter(None, words))


def test_examples() -> None:
    for text, meaning in EXAMPLES.items():
        instruction = parse(text)
        assert _describe(instruction) == meaning
        assert (instruction.family, str(instruction)) == (text.split(".")[0], text)
        assert str(parse(f"  {text};\n")) == text


def test_every_n_of_wgmma() -> None:
    """Floats have every N from 8 to 256 in steps of 8, integers fewer N. ``test_sass.py`` checks other qualifiers."""
    sizes: dict[Instruction, set[int]] = {}
    for i in every_instruction("wgmma"):
        sizes.setdefault(replace(i, n=8), set()).add(i.n)
    for i, actual in sizes.items():
        expected = (8, 16, 24, 32, *range(48, 272, 16)) if i.a.is_integer else range(8, 264, 8)
        assert actual == {*expected}, str(i)
    texts = [str(i) for i in EVERY]
    assert len(texts) == len(set(texts)) == 1378
    assert len(list(every_instruction("mma"))) == 322


def test_any_order_of_qualifiers(rng: np.random.Generator) -> None:
    """The parser accepts qualifiers in any order, if the types and the two layouts are in the right order."""
    for instruction in EVERY:
        assert parse(str(instruction)) == instruction
        family, *words = str(instruction).split(".")
        formats = [instruction.d, instruction.a, instruction.b, instruction.c, instruction.scale_format]
        names = {fmt.name for fmt in formats if fmt}
        types, layouts = ([word for word in words if word in kept] for kept in (names, ("row", "col")))
        shuffled = [words[i] for i in rng.permutation(len(words))]
        ordered = [
            types.pop(0) if word in names else layouts.pop(0) if word in ("row", "col") else word for word in shuffled
        ]
        assert parse(".".join([family, *ordered])) == instruction, ordered


# By K and container width of an instruction: granularity, stored K, chunks per row, number of sparsity selectors
PROPERTIES = {
    (16, "16-bit"): ("2:4", 8, 4, 4), (32, "16-bit"): ("2:4", 16, 8, 2), (8, "tf32"): ("1:2", 4, 4, 4),
    (16, "tf32"): ("1:2", 8, 8, 2), (32, "8-bit"): ("2:4", 16, 8, 2), (64, "8-bit"): ("2:4", 32, 16, 1),
    (64, "4-bit"): ("4:8", 32, 8, 2), (128, "4-bit"): ("4:8", 64, 16, 1),
}  # fmt: skip
CONTAINERS = {"4-bit": 4, "8-bit": 8, "16-bit": 16, "tf32": 32}


def _width(instruction: Instruction) -> str:
    if instruction.kind in ("mxf4", "mxf4nvf4"):
        return "4-bit"
    widths = {"f16": "16-bit", "bf16": "16-bit", "tf32": "tf32", "s4": "4-bit", "u4": "4-bit"}
    return widths.get(instruction.a.name, "8-bit")


def test_properties() -> None:
    for i in EVERY:
        width = _width(i)
        assert (i.container_bits, i.threads) == (CONTAINERS[width], {"mma": 32, "wgmma": 128}[i.family])
        if i.sparse:
            assert (i.granularity.name, i.stored_k, i.chunks, i.sparsity_selectors) == PROPERTIES[i.k, width]
            rule = "wgmma" if i.family == "wgmma" else {"sp": "plain", ORDERED: "ordered"}[i.sparse]
            assert i.rule.name == ("tf32" if width == "tf32" else rule)
        else:
            assert i.granularity is i.rule is None
            assert (i.stored_k, i.chunks, i.sparsity_selectors) == (i.k, 0, 1)
        for fmt in (i.a, i.b):
            lone_e2m1 = fmt.name == "e2m1" and i.kind in ("f8f6f4", "mxf8f6f4")
            assert i.low_bit(fmt) == (2 if lone_e2m1 else 13 if fmt.name == "tf32" else 0)
        scales = {None: None, 1: 64, 2: 64, 4: 32} if i.sparse else {None: None, 1: 32, 2: 32, 4: 16}
        assert i.span == scales[i.scale_size]


def _block(k: int, words: str, tail: str = "f32.e2m1.e2m1.f32.ue8m0", sparse: str = ORDERED) -> str:
    return f"mma.{sparse}.sync.aligned.m16n8k{k}.row.col.{words}.{tail}"


SP = "mma.sp.sync.aligned"
WG = "wgmma.mma_async.sp.sync.aligned"
FLOATS = r"expected '\.f16', '\.bf16', '\.tf32', '\.e4m3', '\.e5m2', '\.s8', '\.u8', '\.s4' or '\.u4'$"
INTEGER_SHAPES = r"'\.m64n8k64', '\.m64n16k64', '\.m64n24k64', '\.m64n32k64', '\.m64n48k64', .* or '\.m64n256k64'$"

E2M1, NVF4 = "f32.e2m1.e2m1.f32", "kind::mxf4nvf4"
MXF4_TAKES = r"'\.kind::mxf4' takes '\.scale_vec::2X' with '\.ue8m0'"
SCALED_KINDS = r"belongs to '\.kind::mxf8f6f4', '\.kind::mxf4' or '\.kind::mxf4nvf4'$"

# Invalid instructions: text, beginning of the message, and another part of the message, mostly the accepted values.
MALFORMED = [
    # errors of opcodes and mandatory qualifiers
    ("", r"^'' in ''", "accepted are mma, wgmma and tcgen05"),
    ("tcgen05.mma.sp.cta_group::1.kind::f16", "of 'tcgen05.mma.sp", r"call sptc\.tcgen05_mma with this descriptor$"),
    ("mma.sp.aligned.m16n8k16.row.col.f32.f16.f16.f32", r"^'\.sync' is missing", "mma requires it"),
    ("wgmma.sp.sync.aligned.m64n8k32.f32.f16.f16", r"^'\.mma_async' is missing", "wgmma requires it"),
    # errors of layouts
    (f"{SP}.m16n8k16.col.row.f32.f16.f16.f32", r"^'\.col\.row' in", r"the layouts must be '\.row\.col'"),
    (f"{SP}.m16n8k16.f32.f16.f16.f32", "^no layout in", r"the layouts must be '\.row\.col'"),
    (f"{WG}.m64n8k32.row.col.f32.f16.f16", r"^'\.row' in", r"no part of wgmma; accepted are .* \.satfinite, a shape"),
    # qualifiers that are repeated, unknown, or of the other family
    ("mma.sp.sync.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", r"^'\.sync' appears twice", "once is expected"),
    (f"{SP}.{ORDERED}.m16n8k16.row.col.f32.f16.f16.f32", r"both '\.sp' and '\.sp::ord.*'", "only one of them"),
    (f"{SP}.m16n8k16.row.col.relu.f32.f16.f16.f32", r"^'\.relu' in", r"qualifiers \.sp, .*, and the types \.f32, "),
    (f"{SP}.m16n8k16.row.col.f32.f64.f16.f32", r"^'\.f64' in", r"is not modelled; mma and wgmma are modelled without"),
    # errors of shapes
    (f"{SP}.row.col.f32.f16.f16.f32", "^the shape is missing", r"expected one such as \.m16n8k32"),
    (f"{SP}.m16n8k64.row.col.f32.f16.f16.f32", r"^'\.m16n8k64' in", r"expected '\.m16n8k16' or '\.m16n8k32'$"),
    (f"{WG}.m64n40k64.s32.u8.u8", r"^'\.m64n40k64' in", f"expected {INTEGER_SHAPES}"),
    # errors of types
    (f"{SP}.m16n8k16.row.col", r"has 0 types \(none\)", "mma takes 4: dtype, atype, btype, ctype"),
    (f"{WG}.m64n8k32.f32.f16.f16.f32", r"has 4 types \(f32 f16 f16 f32\)", r"wgmma takes 3: dtype, atype, btype$"),
    (_block(128, "kind::mxf4.block_scale", E2M1), r"has 4 types \(f32 e2m1 e2m1 f32\)", "takes 5: dtype, .* stype"),
    (f"{SP}.m16n8k16.row.col.f32.f32.f32.f32", r"^'\.f32' in .* atype", FLOATS),
    (f"{SP}.m16n8k16.row.col.f32.f16.bf16.f32", r"^'\.bf16' in .* btype", r"expected '\.f16'$"),
    (f"{SP}.m16n8k16.row.col.bf16.bf16.bf16.bf16", r"^'\.bf16' in .* dtype", r"expected '\.f32'$"),
    (f"{SP}.m16n8k16.row.col.f32.f16.f16.f16", r"^'\.f16' in .* ctype", r"expected '\.f32'$"),
    # errors of sparsity variants, kinds and saturation
    (f"{SP}.m16n8k64.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32", r"^'\.sp' in", r"'\.sp::ordered_metadata' or nothing$"),
    ("wgmma.mma_async.sync.aligned.m64n8k32.f32.f16.f16", r"^'\.m64n8k32' in .* accepted as shape", r"'\.m64n8k16'"),
    (WG.replace("sp", ORDERED) + ".m64n8k32.f32.f16.f16", "'.sp::ordered_metadata' in", r"'\.sp' or nothing$"),
    (_block(64, "kind::f8", "f32.e4m3.e4m3.f32"), "f8' in .* kind", r"f8f6f4', .*mxf8f6f4', .*mxf4' or .*mxf4nvf4'$"),
    (f"{WG}.m64n8k64.kind::f8f6f4.f32.e4m3.e4m3", "f8f6f4' in .* kind", r"expected nothing$"),
    (f"{SP}.m16n8k16.row.col.satfinite.f32.f16.f16.f32", r"^'\.satfinite' in", "it belongs to the integer types"),
    # errors of block scaling
    (_block(128, "kind::mxf4", E2M1), r"^'\.block_scale' is missing", r"'\.kind::mxf4' requires it"),
    (_block(128, f"{NVF4}.block_scale"), r"^'\.scale_vec' is missing", r"requires '\.scale_vec::2X' or '.*4X'$"),
    (_block(128, f"{NVF4}.block_scale.scale_vec::2X", f"{E2M1}.ue4m3"), r"^'\.scale_vec::2X' with '\.ue4m3' in",
     r"'\.scale_vec::2X' with '\.ue8m0', '\.scale_vec::4X' with '\.ue4m3' or '\.scale_vec::4X' with '\.ue8m0'$"),
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

"""The instruction parser: the manual's examples, the whole syntax, and the properties of what it accepts."""

from collections.abc import Iterable
from itertools import product

import numpy as np
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.tests.isa.every import for_every

EVERY = list(every_instruction())
ORDERED = "sp::ordered_metadata"

# Example lines of the PTX ISA manual, and what each says.
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


@for_every(EVERY)
def test_round_trip(instruction: Instruction) -> None:
    assert parse(str(instruction)) == instruction


def _mma(
    variants: tuple[str, ...], shapes: str, pairs: Iterable, ends: Iterable, middles: Iterable = ("",)
) -> set[str]:
    return {
        f"mma{sp}.sync.aligned.{shape}.row.col{middle}.{d}.{a}.{b}.{c}"
        for sp, shape, (a, b), (d, c), middle in product(variants, shapes.split(), pairs, ends, middles)
    }


def test_the_syntax_is_that_of_the_manual() -> None:
    """Every combination of its qualifier lists, and nothing else."""
    plain, ordered, dense = (".sp", f".{ORDERED}"), (f".{ORDERED}",), ("",)
    f8, five = ("e4m3", "e5m2"), ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
    i8, i4, sat = list(product(("u8", "s8"), repeat=2)), list(product(("u4", "s4"), repeat=2)), ("", ".satfinite")
    f32, f16, s32 = (("f32", "f32"),), (("f16", "f16"),), (("s32", "s32"),)
    f16_2, bf16, tf32, e2m1 = ([(name, name)] for name in ("f16", "bf16", "tf32", "e2m1"))
    f8_2, five_2 = list(product(f8, f8)), list(product(five, five))
    block = ".kind::{}.block_scale.scale_vec::{}X"
    ue8, ue4 = (("f32", "f32.ue8m0"),), (("f32", "f32.ue4m3"),)
    expected = [
        _mma(plain, "m16n8k16 m16n8k32", f16_2, f16 + f32),
        _mma(plain, "m16n8k16 m16n8k32", bf16, f32),
        _mma(plain, "m16n8k8 m16n8k16", tf32, f32),
        _mma(plain, "m16n8k64", f8_2, f32),
        _mma(ordered, "m16n8k64", f8_2, f16),
        _mma(plain, "m16n8k32 m16n8k64", i8, s32, sat),
        _mma(plain, "m16n8k64 m16n8k128", i4, s32, sat),
        _mma(dense, "m16n8k8 m16n8k16", f16_2, f16 + f32),
        _mma(dense, "m16n8k8 m16n8k16", bf16, f32),
        _mma(dense, "m16n8k4 m16n8k8", tf32, f32),
        _mma(dense, "m16n8k16 m16n8k32", f8_2, f16 + f32),
        _mma(dense, "m8n8k16 m16n8k16 m16n8k32", i8, s32, sat),
        _mma(dense, "m8n8k32 m16n8k32 m16n8k64", i4, s32, sat),
    ]
    for variants, k64, k128 in ((ordered, "m16n8k64", "m16n8k128"), (dense, "m16n8k32", "m16n8k64")):
        expected += [
            _mma(variants, k64, five_2, f16 + f32, (".kind::f8f6f4",)),
            _mma(variants, k64, five_2, ue8, (block.format("mxf8f6f4", 1),)),
            _mma(variants, k128, e2m1, ue8, (block.format("mxf4", 2), block.format("mxf4nvf4", 2))),
            _mma(variants, k128, e2m1, ue8 + ue4, (block.format("mxf4nvf4", 4),)),
        ]
    float_n, integer_n = range(8, 264, 8), (8, 16, 24, 32, *range(48, 272, 16))
    for k, n, pairs, ds, ends in (
        (32, float_n, f16_2, ("f16", "f32"), ("",)),
        (32, float_n, bf16, ("f32",), ("",)),
        (16, float_n, tf32, ("f32",), ("",)),
        (64, float_n, f8_2, ("f16", "f32"), ("",)),
        (64, integer_n, i8, ("s32",), sat),
    ):
        for sparse, of_k in ((".sp", k), ("", k // 2)):
            combinations = product(n, pairs, ds, ends)
            prefix = f"wgmma.mma_async{sparse}.sync.aligned.m64n"
            expected.append({f"{prefix}{columns}k{of_k}{end}.{d}.{a}.{b}" for columns, (a, b), d, end in combinations})
    actual = [str(instruction) for instruction in EVERY]
    assert set(actual) == set().union(*expected)
    assert len(actual) == len(set(actual)) == sum(map(len, expected)) == 1378
    assert {str(instruction) for instruction in every_instruction("wgmma")} == set().union(*expected[-10:])
    assert len(list(every_instruction("mma"))) == 322


@for_every([i for i in EVERY if i.kind in ("mxf8f6f4", "mxf4")])
def test_default_of_scale_vec(instruction: Instruction) -> None:
    text = str(instruction).replace(f".scale_vec::{1 if instruction.kind == 'mxf8f6f4' else 2}X", "")
    assert "scale_vec" not in text
    assert parse(text) == instruction


def test_any_order_of_qualifiers(rng: np.random.Generator) -> None:
    """Types keep their order, and so do the layouts; the rest may stand anywhere."""
    for instruction in EVERY:
        family, *words = str(instruction).split(".")
        formats = [instruction.d, instruction.a, instruction.b, instruction.c, instruction.scale_format]
        names = {fmt.name for fmt in formats if fmt}
        types, layouts = ([word for word in words if word in kept] for kept in (names, ("row", "col")))
        shuffled = [words[i] for i in rng.permutation(len(words))]
        ordered = [
            types.pop(0) if word in names else layouts.pop(0) if word in ("row", "col") else word for word in shuffled
        ]
        assert parse(".".join([family, *ordered])) == instruction, ordered


# k, width of a type in its container: granularity, stored k, chunks, selectors
PROPERTIES = {
    (16, "16-bit"): ("2:4", 8, 4, 4),
    (32, "16-bit"): ("2:4", 16, 8, 2),
    (8, "tf32"): ("1:2", 4, 4, 4),
    (16, "tf32"): ("1:2", 8, 8, 2),
    (32, "8-bit"): ("2:4", 16, 8, 2),
    (64, "8-bit"): ("2:4", 32, 16, 1),
    (64, "4-bit"): ("4:8", 32, 8, 2),
    (128, "4-bit"): ("4:8", 64, 16, 1),
}
CONTAINERS = {"4-bit": 4, "8-bit": 8, "16-bit": 16, "tf32": 32}


def _width(instruction: Instruction) -> str:
    if instruction.kind in ("mxf4", "mxf4nvf4"):
        return "4-bit"
    widths = {"f16": "16-bit", "bf16": "16-bit", "tf32": "tf32", "s4": "4-bit", "u4": "4-bit"}
    return widths.get(instruction.a.name, "8-bit")


@for_every(EVERY)
def test_properties(instruction: Instruction) -> None:
    i, width = instruction, _width(instruction)
    assert (i.container_bits, i.threads) == (CONTAINERS[width], {"mma": 32, "wgmma": 128}[i.family])
    if i.sparse:
        assert i.granularity is not None
        assert i.rule is not None
        assert (i.granularity.name, i.stored_k, i.chunks, i.sparsity_selectors) == PROPERTIES[i.k, width]
        rule = (
            "tf32"
            if width == "tf32"
            else "wgmma"
            if i.family == "wgmma"
            else {"sp": "plain", ORDERED: "ordered"}[i.sparse]
        )
        assert i.rule.name == rule
    else:
        assert i.granularity is i.rule is None
        assert (i.stored_k, i.chunks, i.sparsity_selectors) == (i.k, 0, 1)
    for fmt in (i.a, i.b):
        lone_e2m1 = fmt.name == "e2m1" and i.kind in ("f8f6f4", "mxf8f6f4")
        assert i.low_bit(fmt) == (2 if lone_e2m1 else 13 if fmt.name == "tf32" else 0)
    assert (
        i.span == ({None: None, 1: 64, 2: 64, 4: 32} if i.sparse else {None: None, 1: 32, 2: 32, 4: 16})[i.scale_size]
    )

"""Numerics parameters of all architectures equal a table that was written by hand."""

import re
from collections.abc import Callable

import pytest
from sptc.errors import InstructionError
from sptc.isa.evidence import evidence
from sptc.isa.instructions import ARCHITECTURES, Instruction, every_instruction, parse
from sptc.isa.numerics import BLOCK_GROUP, Method, Rounding, numerics
from sptc.isa.tcgen05 import every_opcode, instructions_of

FUSED, GROUPED, EMULATED, INTEGER = Method.FUSED, Method.GROUPED, Method.EMULATED, Method.INTEGER
RZ, E8M13, RNE, EXACT = Rounding.RZ_F32, Rounding.RZ_E8M13, Rounding.RNE_F16, Rounding.EXACT

Row = tuple[Method, int, int, int, Rounding]

# Numerics by types of A and D: method, L (products per step), F (alignment bits), e_zero (smallest e_max), rounding.
SM_80: dict[str, Row] = {
    "f16 f32": (FUSED, 8, 24, -132, RZ), "f16 f16": (FUSED, 8, 24, -20, RNE), "bf16 f32": (FUSED, 8, 24, -132, RZ),
    "tf32 f32": (FUSED, 4, 24, -132, RZ), "int8 s32": (INTEGER, 16, 0, 0, EXACT),
    "int4 s32": (INTEGER, 32, 0, 0, EXACT),
}  # fmt: skip
SM_89: dict[str, Row] = {**SM_80, "fp8 f32": (FUSED, 16, 13, -132, E8M13), "fp8 f16": (FUSED, 16, 13, -20, RNE)}
SM_90: dict[str, Row] = {
    "f16 f32": (FUSED, 16, 25, -133, RZ), "f16 f16": (FUSED, 16, 25, -21, RNE), "bf16 f32": (FUSED, 16, 25, -133, RZ),
    "tf32 f32": (FUSED, 8, 25, -133, RZ), "fp8 f32": (EMULATED, 16, 25, -133, RZ),
    "fp8 f16": (EMULATED, 16, 25, -21, RNE), "int8 s32": (INTEGER, 32, 0, 0, EXACT),
    "int4 s32": (INTEGER, 64, 0, 0, EXACT),
}  # fmt: skip
SM_120: dict[str, Row] = {**SM_90, "fp8 f32": (FUSED, 32, 25, -133, RZ), "fp8 f16": (FUSED, 32, 25, -21, RNE)}
MMA: dict[str, dict[str, Row]] = {
    "sm_80": SM_80, "sm_86": SM_80, "sm_89": SM_89, "sm_90": SM_90, "sm_100": SM_90, "sm_120": SM_120,
}  # fmt: skip
WGMMA_SM_90: dict[str, Row] = {
    **{types: row for types, row in SM_90.items() if types != "int4 s32"},
    "fp8 f32": (FUSED, 32, 13, -133, E8M13),
    "fp8 f16": (FUSED, 32, 13, -21, RNE),
}
KINDS_SM_120: dict[str, dict[str, Row]] = {
    "f8f6f4": {"f32": (FUSED, 32, 25, -133, RZ), "f16": (FUSED, 32, 25, -21, RNE)},
    "mxf8f6f4": {"f32": (FUSED, 32, 25, -133, RZ)},
    "mxf4": {"f32": (GROUPED, 64, 35, -139, RZ)},
    "mxf4nvf4": {"f32": (GROUPED, 64, 35, -139, RZ)},
}
#: ``tcgen05.mma`` of sm_100 has the numerics of the datapath, also for fp8, although fp8 ``mma`` of sm_100 is emulated.
KINDS_SM_100: dict[str, dict[str, Row]] = {
    **KINDS_SM_120, "tf32": {"f32": SM_90["tf32 f32"]}, "i8": {"s32": SM_90["int8 s32"]},
    "f16": {"f32": SM_90["f16 f32"], "f16": SM_90["f16 f16"]},
}  # fmt: skip
TABLE = {
    **{(arch, "mma", types): row for arch, rows in MMA.items() for types, row in rows.items()},
    **{("sm_90", "wgmma", types): row for types, row in WGMMA_SM_90.items()},
    **{("sm_100", kind, d): row for kind, rows in KINDS_SM_100.items() for d, row in rows.items()},
    **{("sm_120", kind, d): row for kind, rows in KINDS_SM_120.items() for d, row in rows.items()},
}
TYPES = {"e4m3": "fp8", "e5m2": "fp8", "s8": "int8", "u8": "int8", "s4": "int4", "u4": "int4"}

EVERY = [
    *((instruction, arch) for instruction in every_instruction() for arch in instruction.architectures),
    *((i, "sm_100") for opcode in every_opcode() for i in instructions_of(opcode) if i.n == opcode.columns[0]),
]
SP = "mma.sp.sync.aligned"
ORDERED = "mma.sp::ordered_metadata.sync.aligned"
WG = "wgmma.mma_async.sp.sync.aligned"
FP8 = f"{SP}.m16n8k64.row.col.f32.e4m3.e4m3.f32"


def test_every_instruction_on_every_architecture() -> None:
    used = set()
    for instruction, arch in EVERY:
        a, kind, d = instruction.a.name, instruction.kind, instruction.d.name
        key = (arch, kind, d) if kind else (arch, instruction.family, f"{TYPES.get(a, a)} {d}")
        p = numerics(instruction, arch)
        assert (p.method, p.step, p.alignment_bits, p.zero_exponent, p.rounding) == TABLE[key], (str(instruction), arch)
        used.add(key)
    assert used == set(TABLE)
    assert {arch for arch, _, _ in used} == set(ARCHITECTURES)


def test_source() -> None:
    for instruction, arch in EVERY:
        source = numerics(instruction, arch).source
        assert bool(re.search("recorded on an NVIDIA H200", source)) is (arch == "sm_90"), (str(instruction), arch)
    for text, arch, source in (
        (f"{SP}.m16n8k32.row.col.f32.f16.f16.f32", "sm_80", r"published models of the dense instruction .*multiplexer"),
        (FP8, "sm_120", "published models of the dense instruction"),
        (FP8, "sm_100", "machine code of the CUDA 13.0 assembler"),
    ):
        assert re.search(source, numerics(parse(text), arch).source)
    assert BLOCK_GROUP == 16


@pytest.mark.parametrize("call", [numerics, evidence])
def test_architectures_that_do_not_fit(call: Callable[[Instruction, str], object]) -> None:
    others = ("sm_90a", "sm_103") if call is numerics else ()  # evidence also takes targets
    for arch in ("sm_75", "H200", "", *others):
        with pytest.raises(InstructionError, match=rf"^'{arch}' is no known architecture; "):
            call(parse(FP8), arch)
    for text, arch, owners in (
        (FP8, "sm_86", "sm_89, sm_90, sm_100, sm_120 have it"),
        (f"{ORDERED}.m16n8k64.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32", "sm_100", "sm_120 has it"),
        (f"{WG}.m64n8k32.f32.f16.f16", "sm_100", "sm_90 has it"),
        (f"{WG}.m64n8k32.f32.f16.f16", "sm_89", "sm_90 has it"),
    ):
        with pytest.raises(InstructionError, match=rf"^{arch} does not have {re.escape(text)}; {owners}$"):
            call(parse(text), arch)

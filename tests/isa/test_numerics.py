"""Numerics parameters against the table of every architecture, written out by hand."""

import dataclasses
import re

import pytest
from sptc.errors import InstructionError
from sptc.isa.evidence import evidence
from sptc.isa.instructions import ARCHITECTURES, Instruction, every_instruction, parse
from sptc.isa.numerics import BLOCK_GROUP, Method, Numerics, Rounding, numerics, zero_exponent_for

FUSED, GROUPED, EMULATED, INTEGER = Method.FUSED, Method.GROUPED, Method.EMULATED, Method.INTEGER
RZ, E8M13, RNE, EXACT = Rounding.RZ_F32, Rounding.RZ_E8M13, Rounding.RNE_F16, Rounding.EXACT

Row = tuple[Method, int, int, int, Rounding]

# Types of A and D: method, L, F, e_zero, rounding.
SM_80: dict[str, Row] = {
    "f16 f32": (FUSED, 8, 24, -132, RZ),
    "f16 f16": (FUSED, 8, 24, -20, RNE),
    "bf16 f32": (FUSED, 8, 24, -132, RZ),
    "tf32 f32": (FUSED, 4, 24, -132, RZ),
    "int8 s32": (INTEGER, 16, 0, 0, EXACT),
    "int4 s32": (INTEGER, 32, 0, 0, EXACT),
}
SM_89: dict[str, Row] = {
    **SM_80,
    "fp8 f32": (FUSED, 16, 13, -132, E8M13),
    "fp8 f16": (FUSED, 16, 13, -20, RNE),
}
SM_90: dict[str, Row] = {
    "f16 f32": (FUSED, 16, 25, -133, RZ),
    "f16 f16": (FUSED, 16, 25, -21, RNE),
    "bf16 f32": (FUSED, 16, 25, -133, RZ),
    "tf32 f32": (FUSED, 8, 25, -133, RZ),
    "fp8 f32": (EMULATED, 16, 25, -133, RZ),
    "fp8 f16": (EMULATED, 16, 25, -21, RNE),
    "int8 s32": (INTEGER, 32, 0, 0, EXACT),
    "int4 s32": (INTEGER, 64, 0, 0, EXACT),
}
SM_120: dict[str, Row] = {
    **SM_90,
    "fp8 f32": (FUSED, 32, 25, -133, RZ),
    "fp8 f16": (FUSED, 32, 25, -21, RNE),
}
MMA: dict[str, dict[str, Row]] = {
    "sm_80": SM_80,
    "sm_86": SM_80,
    "sm_89": SM_89,
    "sm_90": SM_90,
    "sm_100": SM_90,
    "sm_120": SM_120,
}
WGMMA_SM_90: dict[str, Row] = {
    "f16 f32": (FUSED, 16, 25, -133, RZ),
    "f16 f16": (FUSED, 16, 25, -21, RNE),
    "bf16 f32": (FUSED, 16, 25, -133, RZ),
    "tf32 f32": (FUSED, 8, 25, -133, RZ),
    "fp8 f32": (FUSED, 32, 13, -133, E8M13),
    "fp8 f16": (FUSED, 32, 13, -21, RNE),
    "int8 s32": (INTEGER, 32, 0, 0, EXACT),
}
KINDS_SM_120: dict[str, dict[str, Row]] = {
    "f8f6f4": {"f32": (FUSED, 32, 25, -133, RZ), "f16": (FUSED, 32, 25, -21, RNE)},
    "mxf8f6f4": {"f32": (FUSED, 32, 25, -133, RZ)},
    "mxf4": {"f32": (GROUPED, 64, 35, -139, RZ)},
    "mxf4nvf4": {"f32": (GROUPED, 64, 35, -139, RZ)},
}
TABLE = {
    **{(arch, "mma", types): row for arch, rows in MMA.items() for types, row in rows.items()},
    **{("sm_90", "wgmma", types): row for types, row in WGMMA_SM_90.items()},
    **{("sm_120", kind, d): row for kind, rows in KINDS_SM_120.items() for d, row in rows.items()},
}
TYPES = {"e4m3": "fp8", "e5m2": "fp8", "s8": "int8", "u8": "int8", "s4": "int4", "u4": "int4"}

EVERY = [(instruction, arch) for instruction in every_instruction() for arch in instruction.architectures]
SP = "mma.sp.sync.aligned"
ORDERED = "mma.sp::ordered_metadata.sync.aligned"
WG = "wgmma.mma_async.sp.sync.aligned"


def _key(instruction: Instruction, arch: str) -> tuple[str, str, str]:
    """Name an entry of TABLE."""
    if instruction.kind:
        return arch, instruction.kind, instruction.d.name
    a = TYPES.get(instruction.a.name, instruction.a.name)
    return arch, instruction.family, f"{a} {instruction.d.name}"


def _row(parameters: Numerics) -> Row:
    names = ("method", "step", "alignment_bits", "zero_exponent", "rounding")
    return tuple(getattr(parameters, name) for name in names)  # type: ignore[return-value]


def test_every_instruction_on_every_architecture() -> None:
    """No row of the table is left unused, and no instruction is without one."""
    used = set()
    for instruction, arch in EVERY:
        key = _key(instruction, arch)
        assert _row(numerics(instruction, arch)) == TABLE[key], (str(instruction), arch)
        used.add(key)
    assert used == set(TABLE)
    assert {arch for arch, _, _ in used} == set(ARCHITECTURES)


@pytest.mark.parametrize(
    ("text", "arch", "expected"),
    [
        (f"{SP}.m16n8k16.row.col.f32.f16.f16.f32", "sm_90", (FUSED, 16, 25, -133, RZ)),
        (f"{SP}.m16n8k32.row.col.f16.f16.f16.f16", "sm_90", (FUSED, 16, 25, -21, RNE)),
        (f"{ORDERED}.m16n8k32.row.col.f32.bf16.bf16.f32", "sm_80", (FUSED, 8, 24, -132, RZ)),
        (f"{ORDERED}.m16n8k32.row.col.f16.f16.f16.f16", "sm_86", (FUSED, 8, 24, -20, RNE)),
        (f"{SP}.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_100", (FUSED, 8, 25, -133, RZ)),
        (f"{SP}.m16n8k64.row.col.f32.e4m3.e5m2.f32", "sm_89", (FUSED, 16, 13, -132, E8M13)),
        (f"{SP}.m16n8k64.row.col.f32.e4m3.e5m2.f32", "sm_90", (EMULATED, 16, 25, -133, RZ)),
        (f"{SP}.m16n8k64.row.col.f32.e4m3.e5m2.f32", "sm_100", (EMULATED, 16, 25, -133, RZ)),
        (f"{SP}.m16n8k64.row.col.f32.e4m3.e5m2.f32", "sm_120", (FUSED, 32, 25, -133, RZ)),
        (f"{ORDERED}.m16n8k64.row.col.f16.e4m3.e5m2.f16", "sm_120", (FUSED, 32, 25, -21, RNE)),
        (f"{WG}.m64n128k64.f32.e5m2.e4m3", "sm_90", (FUSED, 32, 13, -133, E8M13)),
        (f"{WG}.m64n128k64.f16.e5m2.e4m3", "sm_90", (FUSED, 32, 13, -21, RNE)),
        (f"{SP}.m16n8k128.row.col.satfinite.s32.u4.u4.s32", "sm_80", (INTEGER, 32, 0, 0, EXACT)),
    ],
)
def test_rows_by_name(text: str, arch: str, expected: Row) -> None:
    """Spot checks that do not go through the classification of the table."""
    assert _row(numerics(parse(text), arch)) == expected


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (f"{SP}.m16n8k16.row.col.f32.f16.f16.f32", {"sm_80": [8], "sm_86": [8], "sm_90": [8], "sm_120": [8]}),
        (f"{SP}.m16n8k32.row.col.f32.bf16.bf16.f32", {"sm_80": [8, 8], "sm_89": [8, 8], "sm_90": [16], "sm_100": [16]}),
        (f"{SP}.m16n8k8.row.col.f32.tf32.tf32.f32", {"sm_80": [4], "sm_90": [4]}),
        (f"{SP}.m16n8k16.row.col.f32.tf32.tf32.f32", {"sm_80": [4, 4], "sm_89": [4, 4], "sm_90": [8], "sm_120": [8]}),
        (f"{SP}.m16n8k64.row.col.f32.e4m3.e4m3.f32", {"sm_89": [16, 16], "sm_90": [16, 16], "sm_120": [32]}),
        (f"{ORDERED}.m16n8k64.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32", {"sm_120": [32]}),
        (
            f"{ORDERED}.m16n8k128.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0",
            {"sm_120": [64]},
        ),
        (f"{WG}.m64n8k32.f32.f16.f16", {"sm_90": [16]}),
        (f"{WG}.m64n8k16.f32.tf32.tf32", {"sm_90": [8]}),
        (f"{WG}.m64n8k64.f32.e4m3.e5m2", {"sm_90": [32]}),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", {"sm_80": [8, 8], "sm_90": [16]}),
    ],
)
def test_groups_of_kept_products(text: str, steps: dict[str, list[int]]) -> None:
    instruction = parse(text)
    for arch, expected in steps.items():
        step = numerics(instruction, arch).step
        kept = range(instruction.stored_k)
        assert [len(kept[first : first + step]) for first in kept[::step]] == expected, arch


@pytest.mark.parametrize(
    ("arch", "stored_bytes"),
    [("sm_80", 16), ("sm_86", 16), ("sm_89", 16), ("sm_90", 32), ("sm_100", 32), ("sm_120", 32)],
)
def test_a_step_takes_a_constant_number_of_stored_bytes(arch: str, stored_bytes: int) -> None:
    seen = set()
    for instruction, owner in EVERY:
        parameters = numerics(instruction, owner)
        # Emulation unpacks to f16 first: its bytes are those of f16.
        bits = 16 if parameters.method is EMULATED else instruction.container_bits
        if owner == arch:
            seen.add(parameters.step * bits // 8)
    assert seen == {stored_bytes}


def test_alignment_and_zero_exponent_agree_on_the_last_bit() -> None:
    """The last effective bit is 2**-158 (f16: 2**-46) at F = 25, and 2**-156 (2**-44) at F = 24."""
    last = {24: {"f32": -156, "f16": -44}, 25: {"f32": -158, "f16": -46}}
    for instruction, arch in EVERY:
        parameters = numerics(instruction, arch)
        if parameters.alignment_bits in last:
            bits = parameters.zero_exponent - parameters.alignment_bits
            assert bits == last[parameters.alignment_bits][instruction.d.name], (str(instruction), arch)


@pytest.mark.parametrize(
    ("alignment_bits", "half_result", "grouped", "expected"),
    [
        (24, False, False, -132),
        (24, True, False, -20),
        (25, False, False, -133),
        (25, True, False, -21),
        (35, False, True, -139),
    ],
)
def test_zero_exponent_for(alignment_bits: int, half_result: bool, grouped: bool, expected: int) -> None:
    assert zero_exponent_for(alignment_bits, half_result=half_result, grouped=grouped) == expected


def test_group_of_the_block_scaled_kinds() -> None:
    assert BLOCK_GROUP == 16


def test_only_sm_90_is_measured() -> None:
    for instruction, arch in EVERY:
        source = numerics(instruction, arch).source
        assert bool(re.search("recorded on an NVIDIA H200", source)) is (arch == "sm_90"), (str(instruction), arch)


@pytest.mark.parametrize(
    ("text", "arch", "source"),
    [
        (f"{SP}.m16n8k32.row.col.f32.f16.f16.f32", "sm_80", r"published models of the dense instruction .*multiplexer"),
        (f"{SP}.m16n8k64.row.col.f32.e4m3.e4m3.f32", "sm_120", "published models of the dense instruction"),
        (f"{SP}.m16n8k64.row.col.f32.e4m3.e4m3.f32", "sm_100", "machine code of the CUDA 13.0 assembler"),
        (f"{SP}.m16n8k64.row.col.f32.e4m3.e4m3.f32", "sm_90", "NVIDIA H200"),
    ],
)
def test_source(text: str, arch: str, source: str) -> None:
    assert re.search(source, numerics(parse(text), arch).source)


@pytest.mark.parametrize("call", [numerics, evidence])
@pytest.mark.parametrize("arch", ["sm_75", "sm_90a", "sm_103", "H200", ""])
def test_unknown_architecture(call: object, arch: str) -> None:
    known = r"'sm_80', 'sm_86', 'sm_89', 'sm_90', 'sm_100' or 'sm_120'\.$"
    with pytest.raises(InstructionError, match=rf"^'{arch}' is no known architecture; expected {known}"):
        call(parse(f"{SP}.m16n8k32.row.col.f32.f16.f16.f32"), arch)  # type: ignore[operator]


@pytest.mark.parametrize("call", [numerics, evidence])
@pytest.mark.parametrize(
    ("text", "arch", "owners"),
    [
        (f"{SP}.m16n8k64.row.col.f32.e4m3.e4m3.f32", "sm_86", "sm_89, sm_90, sm_100, sm_120 have it"),
        (f"{ORDERED}.m16n8k64.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32", "sm_100", "sm_120 has it"),
        (f"{WG}.m64n8k32.f32.f16.f16", "sm_100", "sm_90 has it"),
        (f"{WG}.m64n8k32.f32.f16.f16", "sm_89", "sm_90 has it"),
    ],
)
def test_architecture_without_the_instruction(call: object, text: str, arch: str, owners: str) -> None:
    with pytest.raises(InstructionError, match=rf"^{arch} does not have {re.escape(text)}; {owners}\.$"):
        call(parse(text), arch)  # type: ignore[operator]


def test_records_are_frozen() -> None:
    parameters = numerics(parse(f"{SP}.m16n8k32.row.col.f32.f16.f16.f32"), "sm_90")
    with pytest.raises(dataclasses.FrozenInstanceError):
        parameters.step = 8  # type: ignore[misc]

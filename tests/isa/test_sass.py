"""The package finds the SASS name of each PTX instruction, and finds each PTX instruction by its SASS name."""

import csv
from pathlib import Path

import pytest
from sptc.errors import InstructionError
from sptc.isa.instructions import every_instruction, parse
from sptc.isa.sass import implementations, sass_name, sass_of, sass_of_opcode
from sptc.isa.tcgen05 import every_opcode, parse_opcode

#: File written by ``benchmarks/sass.py --write``: architectures, names from the disassembler, and PTX text.
TABLE = Path(__file__).parent / "sass.csv"
F16 = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"


def test_every_measured_name() -> None:
    measured = set()
    for row in csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()):
        text, names = row["instruction"], row["names"].split("+")
        for arch in row["architectures"].split():
            measured.add((text, arch))
            tensor_memory = text.startswith("tcgen05")
            name, count = (sass_of_opcode(parse_opcode(text)), 1) if tensor_memory else sass_of(parse(text), arch)
            assert names == [name] * count, (text, arch)
            actual = [one for one in implementations(name) if one.instruction == text and arch in one.architectures]
            assert [one.count for one in actual] == [count], (text, arch)
    expected = {(str(i), arch) for i in every_instruction() if i.n in (8, 64, 256) for arch in i.architectures}
    assert measured == expected | {(str(opcode), "sm_100") for opcode in every_opcode()}
    assert len(measured) == 1234


def test_another_spelling_and_an_unknown_name() -> None:
    assert F16 in {one.instruction for one in implementations("HMMA.16832.F32.SP")}
    with pytest.raises(InstructionError, match=r"^HMMA\.16816\.F33 executes no modelled .* is HMMA\.16816\.F32$"):
        [*implementations("HMMA.16816.F33")]


def test_names_in_a_text() -> None:
    for text, name in (
        ("        /*0070*/  @!P0 HMMA.SP.16832.F32 R4, R8, R12, R4, R0, 0x0 ;", "HMMA.SP.16832.F32"),
        ("UTCQMMA.2CTA gdesc[UR6], gdesc[UR8], tmem[UR4], tmem[UR10], idesc[UR11], UP0", "UTCQMMA.2CTA"),
        ("HGMMA", "HGMMA"),
        (F16, None),
        ("FFMA R1, R2, R3, R4", None),
    ):
        assert sass_name(text) == name
    for text, types in (("DMMA.884 R4, R8, R12, R4", "f64"), ("BMMA.88128.XOR.POPC", "b1")):
        with pytest.raises(InstructionError, match=rf"multiplies \.{types}, which is not modelled"):
            sass_name(text)

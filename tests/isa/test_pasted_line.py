"""A line of PTX is split into its operands, and each operand gets the right role, such as D or metadata."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import pytest
from sptc.errors import InstructionError
from sptc.isa.names import forms_named
from sptc.isa.pasted_line import PastedLine, completed, constant, operand_roles, paste

from .assembler import Line, mma_lines, tcgen05_lines, wgmma_lines

SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
VECTOR = "{%r1, %r2, %r3, %r4}"
OPERANDS = f"{VECTOR}, {VECTOR}, {VECTOR}, {VECTOR}, %r9, 0x1"


def roles(line: PastedLine) -> list[str]:
    subject = forms_named(line.opcode)[0]
    return [role.role for role in operand_roles(line, subject.instruction, subject.opcode)]


def pasted(text: str) -> PastedLine:
    line = paste(text)
    assert line, text
    return line


@pytest.mark.parametrize(
    "text",
    [
        f"{SPARSE} {OPERANDS};",
        f"{SPARSE}{OPERANDS.replace(' ', '')}",
        f"  148 |\t@!%p3 {SPARSE}\n\t{OPERANDS}; // sum of the tile, second half",
        f"/* 0x30 */ {SPARSE} /* d, a */ {OPERANDS}; ret;",
        '"{\\n\\t" "mma.sp.sync.aligned.m16n8k32" ".row.col.f32.f16.f16.f32 " "' + OPERANDS + ';\\n" "}\\n" : "=f"(x)',
        f"{{ .reg .b32 %r<10>; {SPARSE} {OPERANDS} }}",
        f"ptxas kernel.ptx, line 12; error: in '{SPARSE} {OPERANDS};'",
        f'call void asm sideeffect "@$9 {SPARSE} {OPERANDS.replace("%", "$")};", "=f,r"(i32 %1)',
        f"mma.sp.m16n8k32.f32.f16.f16.f32 {OPERANDS};",
    ],
)
def test_a_line_of_any_source(text: str) -> None:
    line = pasted(text)
    assert line.opcode == SPARSE
    operands = [operand.replace(" ", "").replace("$", "%") for operand in line.operands]
    assert operands == [*[VECTOR.replace(" ", "")] * 4, "%r9", "0x1"]
    assert roles(line) == ["d", "a", "b", "c", "e", "f"]
    predicate = next((word for word in text.split() if "@" in word), "").strip('"')
    assert line.predicate == {"@!%p3": "!%p3", "@$9": "$9"}.get(predicate, "")
    assert line.added == (".sync.aligned.row.col" if "mma.sp.m16" in text else "")


def test_invalid_lines_and_operands() -> None:
    for text in (SPARSE, f"{SPARSE};", "m16n8k32 f16", "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {r0, r1}, [r2];", ""):
        assert paste(text) is None, text
    for operands, message in (
        ("{%r1, %r2, %r3", "'{' is not closed in"),
        ("{%r1, %r2], %r3", r"'\]' does not match '{' in"),
        (f"{VECTOR},, {VECTOR}", "operand 2 of 3 is empty"),
        (f"{OPERANDS}; {SPARSE} {OPERANDS};", "one instruction is expected, not mma"),
        ("%r1, " * 5000, "at most 20000 characters"),
    ):
        with pytest.raises(InstructionError, match=message):
            paste(f"{SPARSE} {operands}")


def test_operands_that_do_not_fit() -> None:
    scaled = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"
    matrices = f"{VECTOR}, {VECTOR}, {{%r1, %r2}}, {VECTOR}"
    wgmma = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
    tcgen05 = "tcgen05.mma.cta_group::1.kind::f16"
    for opcode, operands, message in (
        (SPARSE, OPERANDS.replace("0x1", "2"), "f of mma.* must be 0, 1, not 2"),
        (SPARSE, OPERANDS.replace(", 0x1", ""), "operand f of mma.* is missing; the operands are d, a, b, c, e, f"),
        (SPARSE, f"{OPERANDS}, %r1", "'%r1' is superfluous: the operands of mma.* are d, a, b, c, e, f"),
        (SPARSE, OPERANDS.replace(VECTOR, "{%r1, %r2}", 1), "operand d of mma.* must have 4 registers, not 2"),
        (scaled, f"{matrices}, %r1, {{4, 0}}, %r2, {{0, 0}}",
         "the byte id in .*-a} of mma.* must be 0, 1, 2, 3, not 4"),
        (scaled, f"{matrices}, %r1, {{0, 2}}, %r2, {{0, 0}}", "the thread id in .* must be 0, 1, not 2"),
        (scaled, f"{matrices}, %r1, 0, %r2, 0", "must be two numbers in braces, not 0"),
        (wgmma, f"{VECTOR}, %rd1, %rd2, p, 2, 1, 0, 0", "imm-scale-a of wgmma.* must be 1, -1, not 2"),
        (wgmma, f"{VECTOR}, {VECTOR}, %rd2, p, 1, 1, 0, 0", "'0' is superfluous: .* imm-scale-b, imm-trans-b$"),
        (tcgen05, "%r1, %rd1, %rd2, %r2, p", r"\[d-tmem\] of tcgen05.* must be an address of tensor memory in square"),
        (tcgen05, "[%r1], %rd1, [%r3], %r2, p", "b-desc of tcgen05.* must be no address in brackets, not"),
        (tcgen05, "[%r1], %rd1, %rd2, %r2, p, 16", "scale-input-d of tcgen05.* must be 0, 1, .* 15, not 16"),
    ):  # fmt: skip
        with pytest.raises(InstructionError, match=message):
            roles(pasted(f"{opcode} {operands};"))


def test_an_ellipsis_stands_for_registers() -> None:
    for vector in ("{%f1, ..., %f4}", "{%f1, …, %f4}", "{%f1-%f4}"):
        assert roles(pasted(f"{SPARSE} {vector}, {OPERANDS.partition('}, ')[2]}"))[0] == "d"


SHORT, PAIR = "{r0, r1, r2, r3}", "{r8, r9}"
#: Lists of operands by opcode, and whether the assembler accepts each list.
ANSWERS = {
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16": {
        f"{SHORT}, d0, d1, p, 1, 1, 0, 0": True, f"{SHORT}, d0, d1, 1, -1, 1, 1, 0": True,
        f"{SHORT}, {SHORT}, d1, p, 1, 1, 0": True, f"{SHORT}, {SHORT}, d1, p, 1, 1, 0, 0": False,
        f"{SHORT}, d0, d1, p, 1, 1": False, f"{SHORT}, d0, d1": False,
    },
    "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8": {
        f"{SHORT}, d0, d1, p": True, f"{SHORT}, d0, d1": False, f"{SHORT}, d0, d1, p, 1, 1": False,
    },
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0": {
        f"{SHORT}, {SHORT}, {PAIR}, {SHORT}, {scales}": taken
        for scales, taken in (
            ("r1, {0, 0}, r2, {0, 0}", True), ("{r1}, {0, 0}, {r2}, {0, 0}", True), ("r1, r2", False),
            ("r1, {0}, r2, {0}", False), ("r1, 0, 0, r2, 0, 0", False),
        )
    },
    SPARSE: {
        f"{SHORT}, {SHORT}, {SHORT}, {SHORT}, {metadata}": taken
        for metadata, taken in (("r5, 0x1", True), ("{r5}, 1", True), ("r5", False))
    },
    "tcgen05.mma.cta_group::1.kind::f16": {
        "[r0], d0, d1, r2, p": True, "[r0], d0, d1, r2, 1": True, f"[r0], d0, d1, r2, {SHORT}, p": True,
        f"[r0], d0, d1, r2, {SHORT}, p, 3": True, "[r0], d0, d1, 0x8100010, p, 3": True, "[r0], d0, d1, r2": False,
    },
    "tcgen05.mma.ws.sp.cta_group::1.kind::f16": {"[r0], [r4], d1, [r5], r2, p, d2": True, "[r0], d0, d1, r2, p": False},
    "tcgen05.mma.sp.cta_group::1.kind::mxf4.block_scale.block32": {
        "[r0], d0, d1, [r5], r2, [r3], [r4], p": True, "[r0], d0, d1, [r5], r2, p": False,
    },
}  # fmt: skip


def test_operand_lists_of_the_assembler() -> None:
    """The package accepts the same lists of operands as the assembler of CUDA 13.5."""
    for opcode, answers in ANSWERS.items():
        for operands, taken in answers.items():
            with nullcontext() if taken else pytest.raises(InstructionError):
                roles(pasted(f"{opcode} {operands};"))


#: By family: function that yields valid lines, and number of different lists of operand roles in these lines.
FORMS: dict[str, tuple[Callable[[], list[Line]], int]] = {
    "mma": (lambda: [*dict(mma_lines()).items()], 4),
    "wgmma": (lambda: [line for line in dict(wgmma_lines()).items() if ".m64n8k" in line[0]], 6),
    "tcgen05": (lambda: [line for line in tcgen05_lines(1) if "collector" not in line[0]], 6),
}


@pytest.mark.regression
@pytest.mark.parametrize("family", FORMS)
def test_lines_of_the_assembler(family: str) -> None:
    """Each valid line is accepted, and is rejected if its last operand is missing."""
    lines, seen = FORMS[family][0](), set()
    for opcode, operands in lines:
        try:
            forms_named(opcode)
        except InstructionError:
            continue
        line = pasted(f"{opcode} {operands};")
        seen.add(tuple(roles(line)))
        with pytest.raises(InstructionError, match=r"missing|must be"):
            roles(replace(line, operands=line.operands[:-1]))
    assert len(seen) == FORMS[family][1], seen


def test_missing_qualifiers() -> None:
    for text, whole in (
        ("mma.m16n8k16.f32.f16.f16.f32", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        ("mma.sync.m16n8k16.row.col.f32.f16.f16.f32", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
        ("wgmma.mma_async.sp.m64n8k32.f32.f16.f16", "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"),
        ("mma.m16n8k16.row.row.f32.f16.f16.f32", "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32"),
        ("tcgen05.mma.cta_group::1.kind::f16", "tcgen05.mma.cta_group::1.kind::f16"),
        (SPARSE, SPARSE),
    ):
        assert completed(text)[0] == whole
        assert bool(completed(text)[1]) == (text != whole)


def test_constants() -> None:
    texts = {"0x1F": 31, "-1": -1, "0b101": 5, "017": 15, "3U": 3, "%r1": None, "0x": None, "1.0": None, "09": None}
    assert {text: constant(text) for text in texts} == texts

"""Every opcode of ``tcgen05.mma`` in the manual is accepted, with the right shapes; other opcodes are rejected."""

import contextlib
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from sptc import evidence
from sptc.errors import InstructionError, OperandError
from sptc.isa import instruction_descriptor as idesc
from sptc.isa.tcgen05 import KINDS, every_opcode, instructions_of, parse_opcode

PLAIN = ("tf32", "f16", "f8f6f4", "i8")
OPERATIONS = ("fill", "use", "lastuse", "discard")
#: Qualifiers of each block-scaled kind, with the number of scales. An empty qualifier is the default.
SCALES = {
    "mxf8f6f4": {"": 1, ".scale_vec::1X": 1, ".block32": 1},
    "mxf4": {"": 2, ".scale_vec::2X": 2, ".block32": 2},
    "mxf4nvf4": {".scale_vec::2X": 2, ".block32": 2, ".scale_vec::4X": 4, ".block16": 4},
}


def _forms() -> dict[str, tuple[str, int, bool, int | None]]:
    """Return kind, CTA group, presence of ``.ws`` and number of scales for every opcode of the manual's syntax."""
    forms = {}
    usage_a = ["", *(f".collector::a::{operation}" for operation in OPERATIONS)]
    usage_b = ["", *(f".collector::b{i}::{operation}" for i, operation in product(range(4), OPERATIONS))]
    for group, collector in product((1, 2), usage_a):
        for kind in PLAIN:
            forms[f"tcgen05.mma.sp.cta_group::{group}.kind::{kind}{collector}"] = (kind, group, False, None)
        for kind, words in SCALES.items():
            for word, size in words.items():
                text = f"tcgen05.mma.sp.cta_group::{group}.kind::{kind}.block_scale{word}{collector}"
                forms[text] = (kind, group, False, size)
    for kind, collector in product(PLAIN, usage_b):
        forms[f"tcgen05.mma.ws.sp.cta_group::1.kind::{kind}{collector}"] = (kind, 1, True, None)
    return forms


FORMS = _forms()


def test_every_form_parses_and_prints_back(rng: np.random.Generator) -> None:
    assert len(FORMS) == 2 * 5 * (4 + 3 + 3 + 4) + 4 * 17
    for text, told in FORMS.items():
        opcode = parse_opcode(text)
        assert (opcode.kind, opcode.cta_group, opcode.weight_stationary, opcode.scale_size) == told, text
        fixed = 3 if ".ws." in text else 2
        words = text.split(".")
        shuffled = words[:fixed] + [words[fixed:][i] for i in rng.permutation(len(words) - fixed)]
        assert str(opcode) == str(parse_opcode(f" {'.'.join(shuffled)};\n")) == text, shuffled
    assert len({parse_opcode(text) for text in FORMS}) == len(FORMS)


SP = "tcgen05.mma.sp.cta_group::1"
WS = "tcgen05.mma.ws.sp.cta_group::1"

MALFORMED: list[tuple[object, str]] = [
    (3, r"^an instruction must be a string, not int$"),
    ("", r"^'' in '' is no known opcode; expected tcgen05\.mma$"),
    ("tcgen05.commit.cta_group::1", r"^'tcgen05\.commit' in .* is no known opcode"),
    ("tcgen05.mma.sp.kind::f16", r"^'\.cta_group' is missing .*'\.cta_group::1'$"),
    ("tcgen05.mma.sp.cta_group::1", r"^'\.kind' is missing .*'\.kind::f16'$"),
    ("tcgen05.mma.sp.cta_group::4.kind::f16", r"^'\.cta_group::4' in .* expected 1 or 2 CTAs$"),
    (f"{SP}.kind::f4", r"^'\.kind::f4' in .* expected '\.kind::tf32', .* or '\.kind::mxf4nvf4'$"),
    (f"{SP}.kind::f16.sp", r"has both '\.sp' and '\.sp'; only one of them is allowed$"),
    ("tcgen05.mma.sp::ordered_metadata.cta_group::1.kind::f16", r"^'\.sp::ordered_metadata' in .* is no part of"),
    (f"{WS}.kind::f16.ashift", r"^'\.ashift' in .* is not accepted; '\.ws' does not shift A$"),
    (f"{SP}.kind::mxf4.block_scale.ashift", r"^'\.ashift' in .* belongs to '\.kind::tf32', .* or '\.kind::i8'$"),
    (f"{SP}.kind::f16.ashift.collector::a::use",
     r"^'\.collector::a::use' in .* it must be '\.collector::a::lastuse' or"),
    (f"{SP}.kind::f16.block_scale", r"^'\.block_scale' in .* to '\.kind::mxf8f6f4', .* or '\.kind::mxf4nvf4'$"),
    (f"{SP}.kind::mxf4", r"^'\.block_scale' is missing .*'\.kind::mxf4' requires it$"),
    (f"{SP}.kind::mxf4.block_scale.scale_vec::4X", r"^'\.scale_vec::4X' .* '\.scale_vec::2X' or '\.block32'$"),
    (f"{SP}.kind::mxf4nvf4.block_scale", r"^'\.scale_vec' is missing .* takes '\.scale_vec::2X', .* or '\.block16'$"),
    (f"{WS}.kind::f16.collector::a::use",
     r"^'\.collector::a::use' in .* with '\.ws' the collector is '\.collector::b0' to"),
    ("tcgen05.mma.ws.sp.cta_group::2.kind::f16", r"^'\.cta_group::2' in .* '\.ws' takes '\.cta_group::1'$"),
    (f"{WS}.kind::mxf4.block_scale", r"^'\.kind::mxf4' in .* '\.ws' takes no block-scaled kind$"),
]  # fmt: skip


def test_malformed() -> None:
    for text, message in MALFORMED:
        with pytest.raises(InstructionError, match=message):
            parse_opcode(text)  # type: ignore[arg-type]
    with pytest.raises(InstructionError, match=r"^'\.kind' is missing"):
        evidence("tcgen05.mma.sp.cta_group::1", "sm_100")


#: Values of M by number of CTAs. Block scales and '.ashift' need all lanes, so M then depends on sparsity too.
ROWS = {1: (64, 128), 2: (128, 256)}
ROWS_OF_ALL_LANES = {(1, True): (128,), (1, False): (128,), (2, True): (256,), (2, False): (128, 256)}
#: Values of N by number of CTAs.
COLUMNS = {1: tuple(range(8, 257, 8)), 2: tuple(range(16, 257, 16))}
INTEGER_COLUMNS = {1: (8, 16, 24, *range(32, 257, 16)), 2: tuple(range(32, 257, 32))}


def test_shapes() -> None:
    """M and N equal the manual's, with and without ``.ashift``. Descriptors with another M are rejected."""
    for opcode in every_opcode():
        plain = opcode.kind in PLAIN
        for shifts in (False, True) if plain and not opcode.weight_stationary else (False,):
            form = parse_opcode(f"{opcode}{'.ashift' * shifts}")
            assert (form, form.shifts_a) == (replace(opcode, shifts_a=shifts), shifts)
            rows = ROWS[form.cta_group] if plain and not shifts else ROWS_OF_ALL_LANES[form.cta_group, form.sparse]
            columns = (INTEGER_COLUMNS if form.kind == "i8" else COLUMNS)[form.cta_group]
            if form.weight_stationary:
                rows, columns = (32, 64, 128), (64, 128) if form.sparse else (64, 128, 256)
            assert (form.rows, form.columns) == (rows, columns), str(form)
            instructions = list(instructions_of(form))
            assert {(i.m, i.n) for i in instructions} == set(product(rows, columns)), str(form)
            value = idesc.encode_instruction_descriptor(form, idesc.InstructionDescriptor(instruction=instructions[0]))
            unit, low, width = (16, 24, 5) if plain else (128, 27, 2)
            taken = set()
            for code in range(1 << width):
                with contextlib.suppress(OperandError):
                    field = (1 << width) - 1 << low
                    idesc.decode_instruction_descriptor(form, value & ~field | code << low)
                    taken.add(code * unit)
            assert taken == set(rows), str(form)


# By kind: number of combinations of types and saturation, K, chunks per row, selectors, granularity, container bits
TYPES = {
    "tf32": (1, 16, 8, 2, "1:2", 32), "f16": (3, 32, 8, 2, "2:4", 16), "f8f6f4": (50, 64, 16, 1, "2:4", 8),
    "i8": (8, 64, 16, 1, "2:4", 8), "mxf8f6f4": (25, 64, 16, 1, "2:4", 8), "mxf4": (1, 128, 16, 1, "4:8", 4),
    "mxf4nvf4": (1, 128, 16, 1, "4:8", 4),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_instructions_of_a_kind(kind: str) -> None:
    opcode = next(parse_opcode(text) for text, told in FORMS.items() if told[0] == kind)
    result = list(instructions_of(opcode))
    types, k, chunks, selectors, granularity, container = TYPES[kind]
    assert len(result) == len(set(result)) == types * len(opcode.rows) * len(opcode.columns)
    for i in result:
        assert (i.family, i.sparse, i.kind, i.k, i.stored_k, i.chunks) == ("tcgen05", "sp", kind, k, k // 2, chunks)
        assert (i.sparsity_selectors, i.container_bits, i.threads, i.c) == (selectors, container, 0, i.d)
        assert i.granularity.name == granularity
        assert i.rule.name == ("tf32" if kind == "tf32" else "tcgen05")
        assert i.architectures == ("sm_100",)
        for fmt in (i.a, i.b):
            lone = fmt.name == "e2m1" and kind in ("f8f6f4", "mxf8f6f4")
            assert i.low_bit(fmt) == (2 if lone else 13 if fmt.name == "tf32" else 0)


def test_every_opcode() -> None:
    """Each combination of '.sp', kind, CTA group, '.ws' and number of scales occurs once among all opcodes."""
    result = list(every_opcode())
    assert all(parse_opcode(str(opcode)) == opcode for opcode in result)
    told = {(o.sparse, o.kind, o.cta_group, o.weight_stationary, o.scale_size) for o in result}
    assert len(told) == len(result) == 2 * (2 * (len(KINDS) + 1) + sum(not kind.scales for kind in KINDS.values()))
    assert {opcode.scale_word for opcode in result} == {"", "scale_vec::2X", "scale_vec::4X"}

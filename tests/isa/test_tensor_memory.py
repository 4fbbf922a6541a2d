"""Tensor memory: every map equals the manual's formulas, and invalid addresses are rejected."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from sptc.errors import OperandError
from sptc.isa.instruction_descriptor import InstructionDescriptor
from sptc.isa.instructions import Instruction
from sptc.isa.tcgen05 import Opcode, every_opcode, instructions_of, parse_opcode
from sptc.isa.tensor_memory import LAYOUTS, a_map, accumulator_map, decode_address, layout_for, metadata_map, scale_map
from sptc.tests.api.tcgen05_case import Manual


def assert_same(found: Any, expected: Any, what: str) -> None:
    for name in ("lanes", "columns", "low_bits"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), f"{name} of {what}")
    assert (found.element_bits, found.copies) == (expected.element_bits, expected.copies), what


def forms() -> Iterator[tuple[Opcode, Instruction]]:
    """Yield each opcode with instructions of every M, of three values of N, and of all widths of A and D."""
    for opcode in every_opcode():
        found: dict[tuple[int, ...], Instruction] = {}
        columns = {opcode.columns[0], opcode.columns[len(opcode.columns) // 2], opcode.columns[-1]}
        for i in instructions_of(opcode):
            if i.n in columns:
                found.setdefault((i.m, i.n, i.a.bits, i.d.bits), i)
        yield from ((opcode, i) for i in found.values())


def test_every_map_equals_the_manual() -> None:
    """Maps equal the manual's at nonzero addresses, with each selector and scale ID, in both halves of the lanes."""
    for opcode, i in forms():
        layout, ids = layout_for(opcode, i.m), range(0, 4, i.scale_size or 4)
        assert layout.rows * layout.cta_group == i.m
        for number in range(max(i.sparsity_selectors, len(ids))):
            scale_ids = {"scale_id_a": ids[number % len(ids)], "scale_id_b": ids[(number + 1) % len(ids)]}
            selector = number % i.sparsity_selectors
            descriptor = InstructionDescriptor(instruction=i, sparsity_selector=selector, **scale_ids)
            for lane in (0, 16) if layout.half_lanes else (0,):
                manual, at = Manual(opcode, descriptor, lane), lane << 16
                assert layout is LAYOUTS[manual.layout]
                what = f"{opcode} {i}, {descriptor}, lane {lane}"
                assert_same(accumulator_map(layout, i.n, i.d.bits, at | 100), manual.d(100), f"d of {what}")
                widest = layout.rows == 128 or not opcode.weight_stationary or (layout.rows, i.a.bits) == (64, 16)
                if widest and (i.a.bits >= 8 or i.container_bits == 4):
                    assert_same(a_map(layout, i, at | 7), manual.a(7), f"a of {what}")
                if i.sparse:
                    assert_same(metadata_map(layout, i, selector, at | 20), manual.metadata(20), f"e of {what}")
                if i.scale_size and (layout.column_parts == 1 or i.n % 64 == 0):
                    for name, lines, parts in (("a", layout.rows, 1), ("b", i.n, layout.column_parts)):
                        result = scale_map(name, lines, i.scale_size, scale_ids[f"scale_id_{name}"], 30, parts)
                        assert_same(result, manual.scales(name, 30), f"scales of {name} of {what}")


def instruction(kind: str, a: str = "") -> Instruction:
    return next(i for i in instructions_of(parse_opcode(f"{SP}.kind::{kind}")) if a in ("", i.a.name))


SP = "tcgen05.mma.sp.cta_group::1"
D, E, F, G = (LAYOUTS[name] for name in "DEFG")
I8 = instruction("i8")
F16 = instruction("f16")

REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: decode_address(1 << 32, "d"), r"^d must be a 32-bit address of tensor memory, not 4294967296$"),
    (lambda: decode_address(512, "d"), r"not of lane 0 and column 512$"),
    (lambda: accumulator_map(D, 256, 32, 257), r"^d at column 257 .* reaches column 512, beyond the last column, 511$"),
    (lambda: accumulator_map(D, 8, 32, 16 << 16), r"^d must start at lane 0 .* in layout D, not 16$"),
    (lambda: accumulator_map(F, 8, 32, 8 << 16), r"^d must start at lane 0 or 16 .* in layout F, not 8$"),
    (lambda: a_map(E, I8, 0), r"^operand A of .* no public source .* of 8-bit elements .* '\.ws' with M = 64$"),
    (lambda: a_map(G, F16, 0), r"^operand A of .* no public source .* of 16-bit elements .* '\.ws' with M = 32$"),
    (lambda: a_map(D, instruction("f8f6f4", "e2m1"), 0), r"^operand A of .* no public source .* of a 4-bit element"),
    (lambda: a_map(D, instruction("mxf8f6f4.block_scale", "e3m2"), 0), r"^operand A of .* source .* a 6-bit element"),
    (lambda: metadata_map(F, F16, 0, 8 << 16), r"^e must start at lane 0 or 16 .* in layout F, not 8$"),
    (lambda: scale_map("scale_b", 96, 1, 0, 0, 2), r"^scale_b must be for a multiple of 64 columns of B, not for 96"),
    (
        lambda: metadata_map(D, F16, 2, 0),
        r"^the selector of .* must be 0 or 1: no public .* columns selector 2 selects$",
    ),
    (lambda: metadata_map(D, F16, 0, 5), r"^metadata of .* must start at an even column of tensor memory, not 5$"),
    (lambda: metadata_map(D, F16, 0, 1 << 16), r"^e must start at lane 0 "),
    (lambda: scale_map("scale_a", 128, 1, 0, 509), r"^scale_a at column 509 .* reaches column 512"),
]


def test_refused_and_the_last_column() -> None:
    for m, group in ((32, 1), (256, 1), (64, 2)):
        with pytest.raises(ValueError, match=f"no layout of D in tensor memory has {m} rows"):
            layout_for(parse_opcode(f"tcgen05.mma.sp.cta_group::{group}.kind::f16"), m)
    for call, message in REFUSED:
        with pytest.raises(OperandError, match=message):
            call()
    assert accumulator_map(D, 256, 32, 256).columns.max() == 511
    assert metadata_map(D, I8, 0, 510).columns.max() == 511
    assert scale_map("scale_a", 128, 1, 0, 508).columns.max() == 511

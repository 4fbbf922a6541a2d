"""The header that is generated from `isa`."""

import re
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
from sptc.errors import InstructionError
from sptc.isa.architectures import TARGETS
from sptc.isa.fragments import metadata_map
from sptc.isa.instructions import every_instruction, parse
from sptc.isa.tcgen05 import every_opcode, instructions_of, parse_opcode
from sptc.native.tables import forms, header

from .held import RefusedError, opened, refuses


def test_places_of_metadata() -> None:
    """Added up bit by bit of row and chunk, the rows of the header give lane and bit of every nibble."""
    table = re.search(r"PLACES\[\] = \{\n(.*?)\n\};", header(), re.DOTALL)
    assert table
    places = [np.array(re.findall(r"\d+", row), int).reshape(4, 8) for row in table[1].splitlines()]
    for i in (i for i in every_instruction() if i.sparse):
        where = metadata_map(i, 0)
        row, chunk = np.indices(where.lanes.shape)
        bits = [coordinate[..., None] >> np.arange(8) & 1 for coordinate in (row, chunk)]
        maps = [(bits[0] @ a + bits[1] @ b, bits[0] @ c + bits[1] @ d) for a, b, c, d in places]
        assert any((lanes == where.lanes).all() and (low == where.low_bits).all() for lanes, low in maps), i


def test_every_instruction_is_of_a_form() -> None:
    """Of one, and of its own: all but M and N are equal."""
    held = {}
    for form in forms():
        for m in form.rows:
            for n in form.columns:
                instruction = replace(form.instruction, m=m, n=n)
                assert instruction not in held
                held[instruction] = form
    every = [*every_instruction(), *(i for opcode in every_opcode() for i in instructions_of(opcode))]
    assert set(every) <= set(held)
    # Forms of tcgen05 hold every M beside every N, of which an opcode may refuse some pairs.
    assert {i for i in held if i.family != "tcgen05"} == set(every_instruction())


def test_what_must_be_written_of_block_scales() -> None:
    """Without its number of scales, a text is refused or means the same instruction as to the parser."""
    for instruction in (i for i in every_instruction() if i.scale_size):
        text = str(instruction).replace(f".scale_vec::{instruction.scale_size}X", "")
        try:
            wanted = str(parse(text))
        except InstructionError:
            wanted = ""
        try:
            with opened(text, instruction.architectures[0]) as handle:
                found = handle.text
        except RefusedError:
            found = ""
        assert found == wanted, text
        assert bool(found) == (instruction.kind != "mxf4nvf4")


def test_targets_of_the_assembler() -> None:
    """Each has what the architecture has whose numerics it has, but for the kinds that it lacks."""
    for name, target in TARGETS.items():
        for opcode in (parse_opcode(f"tcgen05.mma.sp.cta_group::1.kind::{kind}") for kind in ("f16", "i8")):
            accepted = target.arch == "sm_100" and opcode.kind not in target.lacks
            with nullcontext() if accepted else refuses(f"{name} does not have"), opened(str(opcode), name):
                pass
        instruction = next(i for i in every_instruction("mma") if target.arch in i.architectures)
        with opened(str(instruction), name) as handle:
            assert handle.text == str(instruction)

"""The header that is written from `isa`."""

import numpy as np
import pytest
from sptc.isa.instructions import every_instruction
from sptc.isa.tcgen05 import every_opcode, instructions_of
from sptc.native.tables import HEADER, forms, header, linear_map


def test_the_header_is_what_isa_says() -> None:
    assert HEADER.read_text(encoding="utf-8") == header(), "write it anew with `python -m sptc.native.tables`"


def test_every_instruction_is_of_a_form() -> None:
    held = {
        (form.instruction.family, str(form.instruction), m, n)
        for form in forms()
        for m in form.rows
        for n in form.columns
    }
    assert len(held) == sum(len(form.rows) * len(form.columns) for form in forms())
    every = [*every_instruction(), *(i for opcode in every_opcode() for i in instructions_of(opcode))]
    assert len({str(i) for i in every}) <= len(held)


def test_a_linear_map_is_taken_apart() -> None:
    rows, columns = np.indices((8, 4))
    assert linear_map(3 * (rows & 1) + 5 * (rows >> 1 & 1) + 16 * (columns >> 1) + 7 * (rows >> 2)) == (
        [3, 5, 7],
        [0, 16],
    )


def test_a_map_that_is_none_is_refused() -> None:
    rows, columns = np.indices((4, 4))
    with pytest.raises(AssertionError, match="no sum over the bits"):
        linear_map(rows * columns)

"""One of the sixteen nibbles in otherwise legal metadata is accepted exactly if the instruction's rule defines it."""

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.metadata import Rule
from sptc.native.library import Output
from sptc.operands.registers import pack_nibbles, random_nibbles
from sptc.sim.benches.random_operands import distributions
from sptc.verify.register_file import RegisterFile
from sptc.verify.stimulus import random_register_file

from .held import RefusedError, given, opened, run_file

Random = np.random.Generator

#: One sparse instruction for each metadata rule and each layout of metadata in registers.
SPARSE = {(i.family, i.rule, i.container_bits, i.k): i for i in every_instruction() if i.sparse and i.n < 16}.values()


def metadata(i: Instruction, rng: Random) -> Iterator[tuple[NDArray[np.uint8], int, int]]:
    """Yield metadata with each of the sixteen nibbles in one chunk, and the row and number of that chunk.

    The chunk is the first, one of two random ones, or the last. All other nibbles are legal and, except around the
    second random chunk, equal, so that an error at this nibble cannot be hidden by an error at another nibble.
    """
    alike = np.full((1, i.m, i.chunks), 0b0100, np.uint8)
    for row, chunk, legal in (
        (0, 0, alike),
        (int(rng.integers(i.m)), i.chunks // 2, np.full_like(alike, rng.choice(sorted(i.rule.legal)))),
        (int(rng.integers(i.m)), int(rng.integers(i.chunks)), random_nibbles(i, 1, rng)),
        (i.m - 1, i.chunks - 1, alike),
    ):
        for nibble in range(16):
            nibbles = legal.copy()
            nibbles[0, row, chunk] = nibble
            yield nibbles, row, chunk


def refusal(file: RegisterFile) -> tuple[str, str]:
    """Return position and rule of the nibble that is rejected; two empty texts if the call succeeds."""
    try:
        run_file(file)
    except RefusedError as error:
        place = re.search(r"(row \d+, chunk \d+) .*: nibble 0b(\d{4} breaks the \w+) rule", str(error))
        return (place[1], place[2]) if place and error.status == 11 else (str(error), "")
    return "", ""


def expected(rule: Rule, row: int, chunk: int, nibble: int, *also: int) -> tuple[str, str]:
    if nibble in rule.legal or nibble in also:
        return "", ""
    return f"row {row}, chunk {chunk}", f"{nibble:04b} breaks the {rule.name}"


def random_file(i: Instruction, selector: int, rng: Random) -> RegisterFile:
    """Return a register file of one tile with A in registers and with the metadata policy "strict"."""
    while True:
        file = random_register_file(i, i.architectures[-1], distributions(i)[0], 1, rng, sparsity_selector=selector)
        if file.a is not None:
            return replace(file, metadata="strict")


@pytest.mark.parametrize("i", SPARSE, ids=str)
def test_a_nibble_in_registers(i: Instruction, rng: Random) -> None:
    """An error names row and chunk of an undefined nibble. Policy "software" accepts nibble zero for zero elements."""
    for number, (nibbles, row, chunk) in enumerate(metadata(i, rng)):
        selector, nibble = number // 16 % i.sparsity_selectors, number % 16
        if number % 16 == 0:
            file = random_file(i, selector, rng)
        e = pack_nibbles(nibbles, i, selector, rng.integers(0, 1 << 32, (1, i.threads), dtype=np.uint32))
        part = replace(file, e=e)
        place = f"{i}, selector {selector}, row {row}, chunk {chunk}, {nibble:04b}"
        assert refusal(part) == expected(i.rule, row, chunk, nibble), place
        decoded, defined = np.empty_like(nibbles), np.empty_like(nibbles)
        with opened(str(i), i.architectures[0]) as handle:
            handle.call("metadata", 1, given(e), selector, given(decoded, Output), given(defined, Output))
        np.testing.assert_array_equal(decoded, nibbles)
        np.testing.assert_array_equal(defined, np.isin(nibbles, [*i.rule.legal]))
        software = replace(part, a=np.zeros_like(part.a), metadata="software")
        assert refusal(software) == expected(i.rule, row, chunk, nibble, 0), f"{i}, {nibble:04b}"

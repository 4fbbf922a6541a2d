"""Every word of the registers of ``mma`` reaches D, and block scales come from where their own byte and thread say."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from sptc.golden.registers import pack_nibbles
from sptc.isa.instructions import Instruction, every_instruction
from sptc.sim.benches.random_operands import distributions
from sptc.verify.register_file import RegisterFile
from sptc.verify.stimulus import random_register_file

from .held import run_file

Random = np.random.Generator

MMA = list(every_instruction("mma"))
#: One of every place of operands in registers.
SHAPES = {(i.m, i.k, i.container_bits, i.d.bits, bool(i.sparse), i.scale_size): i for i in MMA}
SCALED = {(i.k, i.kind, i.scale_size, i.scale_format, bool(i.sparse)): i for i in MMA if i.scale_size}


def with_every_index(file: RegisterFile, rng: Random) -> RegisterFile:
    """Return a file whose metadata has every legal nibble at each chunk of A, in some of the rows."""
    i = file.instruction
    if i.rule is None:
        return file
    legal = np.array(sorted(i.rule.legal), np.uint8)
    row, chunk = np.indices((i.m, i.chunks))
    others = rng.integers(0, 1 << 32, (file.cases, i.threads), dtype=np.uint32)
    nibbles = np.broadcast_to(legal[(row + chunk) % len(legal)], (file.cases, i.m, i.chunks))
    return replace(file, e=pack_nibbles(nibbles, i, file.sparsity_selector, others))


def word_by_word(file: RegisterFile, name: str) -> RegisterFile:
    """Return as many cases as an operand has words, each with one of them and zeros in place of all others."""
    words = getattr(file, name)[0]
    many = file.take(np.zeros(words.size, np.intp))
    alone = np.zeros((words.size, words.size), np.uint32)
    np.fill_diagonal(alone, words)
    return replace(many, **{name: alone.reshape(-1, *words.shape)})


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_every_word_of_an_operand(name: str, rng: Random) -> None:
    """Alone beside zeros it gives the golden model's D, which is not zero."""
    for i in SHAPES.values():
        selector = int(rng.integers(i.sparsity_selectors))
        file = random_register_file(
            i, i.architectures[-1], "uniform" if i.a.is_integer else "mid", 1, rng, sparsity_selector=selector
        )
        file = with_every_index(file, rng)
        file = replace(file, c=np.zeros_like(file.c)) if name != "c" else replace(file, a=np.zeros_like(file.a))
        many = word_by_word(file, name)
        expected = many.run("golden")
        visible = expected.any(axis=(1, 2)) | ~getattr(many, name).any(axis=(1, 2))
        assert np.mean(visible) > 0.9, f"{name} of {i}: only {np.mean(visible):.0%} of its words reach D"
        np.testing.assert_array_equal(run_file(many), expected, f"{name} of {i}, selector {selector}")


@pytest.mark.parametrize("i", SCALED.values(), ids=str)
def test_scales_come_from_their_own_byte_and_thread(i: Instruction, rng: Random) -> None:
    """A and B name unequal bytes and threads, where there is a choice; all give different results."""
    size = i.scale_size
    numbers = range(0, 4, size)
    ids = [
        (byte_a, thread_a, byte_b, thread_b)
        for byte_a, thread_a, byte_b, thread_b in product(numbers, range(2), numbers, range(4))
        if (byte_a != byte_b or len(numbers) == 1) and thread_a != thread_b
    ]
    file = random_register_file(i, i.architectures[-1], distributions(i)[0], 1, rng)
    # Bytes that differ a little, so that all scales keep D in range: a NaN would hide the others.
    low, high = (120, 134) if i.scale_format and i.scale_format.name == "ue8m0" else (0x28, 0x48)
    data = [rng.integers(low, high, (1, 32, 4), dtype=np.uint8).view(np.uint32)[..., 0] for _ in "ab"]
    results = []
    for chosen in ids:
        part = replace(file, scale_a=data[0], scale_b=data[1], scale_ids=chosen)
        results.append(run_file(part))
        np.testing.assert_array_equal(results[-1], part.run("golden"), f"{i}, bytes and threads {chosen}")
    assert len({d.tobytes() for d in results}) == len(ids)

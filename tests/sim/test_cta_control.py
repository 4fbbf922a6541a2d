"""The real control, fetch and accumulators of CTAs around arrays that echo: every word of tensor memory is compared.

It takes half a minute to build. The quick tier has a smaller CTA, in `tests/rtl/test_tcgen05_operands.py`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.isa.tcgen05 import Opcode, every_opcode
from sptc.rtl.placement import placement_layout
from sptc.sim.engine.echo import EchoBackend
from sptc.sim.engine.tcgen05_commands import COMMIT, CtaCommand
from sptc.tests.sim.small_cta import LANES, SmallCta
from sptc.verify.bench_jobs import CtaInstruction, random_instruction, random_memories

pytestmark = pytest.mark.regression
Random = np.random.Generator
OPCODES = [opcode for opcode in every_opcode() if not opcode.weight_stationary]
CYCLES = 997


@dataclass
class Program:
    """Instructions behind each other, and tensor memory as they must leave it."""

    commands: list[CtaCommand]
    tmem: NDArray[np.uint32]  # before
    smem: NDArray[np.uint8]
    expected: NDArray[np.uint32]
    echo: EchoBackend

    @classmethod
    def empty(cls, small_cta: SmallCta, ctas: int, rng: Random) -> "Program":
        tmem, smem = random_memories(ctas, rng)
        return cls([], tmem, smem, tmem, EchoBackend(small_cta.config))

    def add(self, instruction: CtaInstruction) -> None:
        """Add an instruction, whose columns of D may lie anywhere among those of the ones before."""
        memories = (self.expected, self.smem) if len(self.tmem) == 2 else (self.expected[0], self.smem[0])
        self.expected = instruction.run(*memories, self.echo).reshape(self.tmem.shape)
        self.commands.append(instruction.command)

    def check(self, small_cta: SmallCta, pattern: NDArray[np.uint8] | None = None) -> None:
        """Run it, and compare all lanes of tensor memory, the flags beside every panel, and what arrives."""
        run = small_cta.run(self.commands, self.tmem, self.smem, pattern)
        multiplied = [number for number, command in enumerate(self.commands) if command.n]
        names = [str(self.commands[number].fields) for number in multiplied]
        for number, flags, name in zip(multiplied, self.echo.flags, names, strict=True):
            panels = run.illegal[number]
            if self.commands[number].fields["pair"]:  # the panels of a pair are written in turn, one of each half
                flags = flags[:, in_turn(flags.shape[1])]
            np.testing.assert_array_equal(panels, flags[:, :, :LANES], err_msg=f"flags of {name}")
        np.testing.assert_array_equal(run.tmem, self.expected[:, :LANES], err_msg="; ".join(names))
        assert run.arrivals.tolist() == [self.commands.count(COMMIT)] * len(self.tmem)
        assert not run.undefined.any()
        assert (np.diff(run.taken, axis=0) > 0).all(), "commands are taken in order"


def in_turn(panels: int) -> list[int]:
    return [place // 2 + place % 2 * (panels // 2) for place in range(panels)]


def draw(small_cta: SmallCta, opcodes: list[Opcode], rng: Random, widest: int = 64) -> CtaInstruction:
    return random_instruction(small_cta.config, opcodes[int(rng.integers(len(opcodes)))], rng, widest)


@pytest.mark.parametrize("ctas", [1, 2])
def test_every_word_behind_instructions_of_all_kinds(small_cta: SmallCta, ctas: int, rng: Random) -> None:
    """Sparse behind dense, scaled behind not, A in either place, all orders and swizzles, offered with gaps or none.

    Each CTA of a pair is offered its commands by itself, so that it waits for the other one.
    """
    opcodes = [opcode for opcode in OPCODES if opcode.cta_group == ctas]
    for gaps in (False, True):
        program = Program.empty(small_cta, ctas, rng)
        for _ in range(16):
            program.add(draw(small_cta, opcodes, rng))
            program.commands += [COMMIT] * int(rng.integers(3))
        program.check(small_cta, rng.integers(0, 4, CYCLES, np.uint8) if gaps else None)


@pytest.mark.parametrize("kind", ["mxf8f6f4", "kind::mxf4nvf4", "kind::i8", "kind::f16"])
def test_what_lies_in_tensor_memory(small_cta: SmallCta, kind: str, rng: Random) -> None:
    """Both columns of narrow metadata, either one of wide metadata, columns and bytes of block scales of A and B."""
    opcodes = [opcode for opcode in OPCODES if opcode.cta_group == 1 and kind in str(opcode)]
    program = Program.empty(small_cta, 1, rng)
    for _ in range(10):
        program.add(draw(small_cta, opcodes, rng, widest=128))
    program.check(small_cta)


@pytest.mark.parametrize("ctas", [1, 2])
def test_accumulators_that_share_columns_with_those_before(small_cta: SmallCta, ctas: int, rng: Random) -> None:
    """One instruction on the columns of another one, or a few columns beside them: each is read when it is written."""
    opcodes = [opcode for opcode in OPCODES if opcode.cta_group == ctas]
    program, start = Program.empty(small_cta, ctas, rng), 64
    for distance in (0, 0, -7, 7, 8, -8, 1, -1, *rng.integers(-9, 10, 8).tolist()):
        told = draw(small_cta, opcodes, rng, widest=32)
        start = int(np.clip(start + distance, 8, 200))
        fields = told.command.fields | {"d_column": start, "add": 1}
        arguments: dict[str, Any] = told.arguments | {"d": start, "enable_input_d": True}
        program.add(CtaInstruction(told.opcode, told.descriptor, arguments, CtaCommand(fields, told.command.n)))
    program.check(small_cta)


def test_columns_that_overlap_are_flagged(small_cta: SmallCta, rng: Random) -> None:
    """D beside the metadata, and on its first column and its last, from either side."""
    opcodes = [opcode for opcode in OPCODES if str(opcode) == "tcgen05.mma.sp.cta_group::1.kind::i8"]
    told = draw(small_cta, opcodes, rng, widest=32)
    n, fields = told.command.n, told.command.fields | {"a_shared": 1, "metadata_column": 100}
    tmem, smem = random_memories(1, rng)
    # Narrow metadata takes two columns.
    places = {100 - n: False, 101 - n: True, 100: True, 101: True, 102: False}
    commands = [CtaCommand(fields | {"d_column": column}, n) for column in places]
    undefined = small_cta.run(commands, tmem, smem).undefined[:, 0]
    overlap = placement_layout()["overlap"].offset
    assert [bool(word >> overlap & 1) for word in undefined.tolist()] == [*places.values()]

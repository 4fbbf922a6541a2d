"""The real control, fetch and accumulators of a warpgroup around arrays that echo: all operands of all panels show."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.golden.matrix import multiply
from sptc.isa.fragments import accumulator_fragment
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.operands import MatrixOperands
from sptc.operands.registers import gather_warp, to_registers
from sptc.rtl.config import CoreConfig
from sptc.rtl.tensor_core import TENSOR_CORE
from sptc.rtl.tensor_cores import WARPS
from sptc.sim.benches.random_operands import distributions, random_operands
from sptc.sim.engine.compiled_warpgroup import CompiledWarpgroup
from sptc.sim.engine.echo import EchoBackend
from sptc.sim.engine.warpgroup_commands import (
    COMMIT,
    Command,
    Completion,
    WarpInstruction,
    is_executed,
    multiplication,
    wait,
    warp_instruction,
)
from sptc.tests.sim.warpgroup_cycles import check_row, rows_of_wgmma
from sptc.tests.sim.warpgroup_operands import drawn, held, stalls
from sptc.verify.register_file import RegisterFile

Random = np.random.Generator
WGMMA = [i for i in every_instruction("wgmma") if i.n <= 32]
#: Those whose operands may be transposed.
MOVED = [i for i in WGMMA if i.container_bits == 16]
MMA = [i for i in every_instruction("mma") if is_executed(i)]
#: Cycles from the last result of a group until a wait for it is taken.
SEEN = 2


@dataclass(frozen=True, eq=False)
class Work:
    """A multiplication, and what must come of it."""

    command: Command
    d: NDArray[np.uint32]
    flags: NDArray[np.bool_]
    file: RegisterFile


def work(config: CoreConfig, instruction: Instruction, rng: Random) -> Work:
    file, echo = drawn(instruction, rng, 1), EchoBackend(config)
    (d,) = file.run(echo)
    return Work(multiplication(config, instruction, held(file), 0), d, echo.flags[0][0], file)


def some(config: CoreConfig, count: int, rng: Random) -> list[Work]:
    """Half of them of elements of 16 bits, all of whose operands may lie in either order."""
    sources = [(WGMMA, MOVED)[number % 2] for number in range(count)]
    return [work(config, source[int(rng.integers(len(source)))], rng) for source in sources]


def assert_results(work_items: Sequence[Work], completions: Sequence[Completion]) -> None:
    for number, (one, completion) in enumerate(zip(work_items, completions, strict=True)):
        what = f"multiplication {number}, {one.file.instruction}, {one.command.fields}"
        np.testing.assert_array_equal(completion.d, one.d, err_msg=f"D of {what}")
        np.testing.assert_array_equal(completion.illegal, one.flags, err_msg=f"flags of {what}")


def test_the_draws_differ_in_all_that_can_be_exchanged(echoing_warpgroup: CompiledWarpgroup, rng: Random) -> None:
    """Among so many, A and B have unequal descriptors, orders and swizzles, and A lies in registers and in memory."""
    fields = [one.command.fields for one in some(echoing_warpgroup.config, 60, rng)]
    in_memory = [of for of in fields if of["a_shared"]]
    assert 5 < len(in_memory) < 55
    assert all(of["a_descriptor"].as_bits() != of["b_descriptor"].as_bits() for of in in_memory)
    assert any(of["a_transposed"] != of["b_transposed"] for of in in_memory)
    assert {bool(of["negated"]) for of in fields} == {bool(of["add"]) for of in fields} == {False, True}
    assert {int(of["sparsity_selector"]) for of in fields} >= {0, 1}


def test_every_panel_gets_its_operands(echoing_warpgroup: CompiledWarpgroup, rng: Random) -> None:
    """Different instructions behind each other, with commits and waits between them, gaps and stalls."""
    for pattern in (None, stalls(rng), stalls(rng)):
        work_items = some(echoing_warpgroup.config, 24, rng)
        commands: list[Command] = []
        for one in work_items:
            commands += [one.command, *[COMMIT, wait(int(rng.integers(3)))][: rng.integers(3)]]
        completions = echoing_warpgroup.run(commands, pattern)
        multiplied = [of for of, command in zip(completions, commands, strict=True) if command.n]
        assert_results(work_items, multiplied)


def test_accumulators_go_on(echoing_warpgroup: CompiledWarpgroup, rng: Random) -> None:
    """Multiplications without accumulators of their own add to the results of the one before."""
    for pattern in (None, stalls(rng)):
        (first,) = some(echoing_warpgroup.config, 1, rng)
        added = replace(first.command, fields=first.command.fields | {"add": 1}, c=None)
        expected, echo = first.d, EchoBackend(echoing_warpgroup.config)
        results = [of.d for of in echoing_warpgroup.run([first.command, *[added] * 3], pattern)]
        for number, d in enumerate(results):
            np.testing.assert_array_equal(d, expected, err_msg=f"multiplication {number} of {first.file.instruction}")
            (expected,) = replace(first.file, c=expected[None], d=None, scale_d=True).run(echo)


def test_a_wait_is_taken_in_the_cycle_after_its_groups_are_done(
    echoing_warpgroup: CompiledWarpgroup, rng: Random
) -> None:
    """Waits for any number of groups that are pending, groups of some multiplications and of none."""
    for _ in range(4):
        commands: list[Command] = []
        for one in some(echoing_warpgroup.config, 8, rng):
            commits, pending, waits = rng.integers((3, 4, 2)).tolist()
            commands += [one.command, *[COMMIT] * commits, *[wait(pending)] * waits]
        commands += [COMMIT, wait(2), wait(1), wait(0), COMMIT, wait(0)]
        completions = echoing_warpgroup.run(commands)
        groups, last, taken_before = [], -1, -1
        for number, (command, completion) in enumerate(zip(commands, completions, strict=True)):
            if command.n:
                last = completion.done
            elif command is COMMIT:
                groups.append(max([last + SEEN, completion.taken + SEEN, *(done + 1 for done in groups[-1:])]))
            else:
                awaited = groups[: max(0, len(groups) - command.fields["pending"])]
                assert completion.taken == max([taken_before + 1, *awaited]), f"wait {number} of {len(commands)}"
            taken_before = completion.taken


def test_a_commit_in_any_cycle_around_the_last_result(echoing_warpgroup: CompiledWarpgroup, rng: Random) -> None:
    """A multiplication that ends in the cycle of its commit is none that the group waits for."""
    (one,) = some(echoing_warpgroup.config, 1, rng)
    (alone,) = echoing_warpgroup.run([one.command])
    for cycle in range(alone.done - 3, alone.done + 4):
        pattern = np.full(cycle + 1000, 31, np.uint8)
        pattern[1:cycle] = 30
        done, commit, waited = echoing_warpgroup.run([one.command, COMMIT, wait(0)], pattern)
        assert (done.done, commit.taken) == (alone.done, cycle)
        assert waited.taken == max(done.done, cycle) + SEEN, f"committed in cycle {cycle}, done in {done.done}"


def instructions_of_a_warp(
    config: CoreConfig, count: int, rng: Random
) -> list[tuple[WarpInstruction, NDArray[np.uint32]]]:
    drawn_ones = []
    for place in rng.permutation(len(MMA))[:count]:
        i = MMA[place]
        kind, selector = str(rng.choice(distributions(i))), int(rng.integers(i.sparsity_selectors))
        operands = random_operands(i, kind, 1, rng, sparsity_selector=selector, any_nibble=bool(i.rule))
        d = EchoBackend(config).multiply(i, "sm_90", gather_warp(i, operands.held)).d
        drawn_ones.append((warp_instruction(config, i, operands.held, 0), to_registers(d, accumulator_fragment(i))[0]))
    return drawn_ones


def test_instructions_of_warps_between_panels(echoing_warpgroup: CompiledWarpgroup, rng: Random) -> None:
    """Each array gives ``mma`` of other warps and panels of ``wgmma`` back to those whose they are."""
    config = echoing_warpgroup.config
    of_arrays = [instructions_of_a_warp(config, 12, rng) for _ in range(WARPS)]
    instructions = [[one for one, _ in of_array] for of_array in of_arrays]
    work_items = some(config, 10, rng)
    gaps = rng.random((len(stalls(rng)), 2)) < rng.choice([0.3, 0.6, 1.0], 2)
    for pattern in (None, stalls(rng) | (gaps @ [8, 16]).astype(np.uint8)):
        completions, answers = echoing_warpgroup.run_beside([one.command for one in work_items], instructions, pattern)
        assert_results(work_items, completions)
        for array, (of_array, of_answers) in enumerate(zip(of_arrays, answers, strict=True)):
            for number, ((_, d), completion) in enumerate(zip(of_array, of_answers, strict=True)):
                np.testing.assert_array_equal(completion.d, d, err_msg=f"instruction {number} of array {array}")


def test_the_cycles_of_an_h200(echoing_warpgroup: CompiledWarpgroup, rng: Random) -> None:
    """Of some of what was measured, with A from registers and from memory; the regression takes all of it."""
    short = [row for row in rows_of_wgmma() if int(row["n"]) <= 64]
    for a_from in ("registers", "shared"):
        rows = [row for row in short if row["a_from"] == a_from]
        for place in rng.choice(len(rows), 3, replace=False):
            check_row(echoing_warpgroup, rows[place])


def test_what_never_moves_is_given_up(echoing_warpgroup: CompiledWarpgroup) -> None:
    with pytest.raises(AssertionError, match="does not end"):
        echoing_warpgroup.run([COMMIT], np.zeros(1, np.uint8))


def test_accumulators_need_a_multiplication_of_as_many_columns(
    echoing_warpgroup: CompiledWarpgroup, rng: Random
) -> None:
    first, second = (work(echoing_warpgroup.config, next(i for i in WGMMA if i.n == n), rng).command for n in (16, 32))
    for commands in ([replace(first, c=None)], [first, replace(second, c=None)]):
        with pytest.raises(AssertionError, match="as many columns"):
            echoing_warpgroup.run(commands)


def test_the_echo_is_of_every_operand(rng: Random) -> None:
    """The hash is no constant: of each instruction, a bit of each operand changes D of its row or column alone."""
    i = next(i for i in MMA if i.sparse)
    operands = gather_warp(i, random_operands(i, distributions(i)[0], 1, rng).held)

    def echo(matrices: MatrixOperands) -> NDArray:
        return EchoBackend(TENSOR_CORE).multiply(i, "sm_90", matrices).d[0]

    d = echo(operands)
    assert d.shape == multiply(i, "sm_90", operands)[0].shape
    for name, place, changed in (
        ("a", (0, 3, 1), np.s_[3, :]),
        ("b", (0, 2, 5), np.s_[:, 5]),
        ("c", (0, 4, 6), np.s_[4, 6]),
        ("nibbles", (0, 7, 1), np.s_[7, :]),
    ):
        values = getattr(operands, name).copy()
        values[place] ^= 1
        expected = np.zeros(d.shape, bool)
        expected[changed] = True
        np.testing.assert_array_equal(echo(replace(operands, **{name: values})) != d, expected, err_msg=name)

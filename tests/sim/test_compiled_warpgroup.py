"""The warpgroup compiled with its units: the bits of the golden model and of the recordings, and the cycles of an H200.

What needs no units is tested around arrays that echo. Operands of each array: ``rtl/test_warpgroup_operands.py``.
"""

from dataclasses import replace

import numpy as np
import pytest
from sptc.isa.instructions import every_instruction
from sptc.sim.engine import libraries
from sptc.sim.engine.compiled_warpgroup import CompiledWarpgroup
from sptc.sim.engine.libraries import can_be_specialised
from sptc.sim.engine.warpgroup_commands import COMMIT, Command, is_executed, multiplication, wait
from sptc.tests.sim.warpgroup import check_row, drawn, held, rows_of_wgmma, stalls
from sptc.verify.register_file import RegisterFile, read, shipped
from sptc.verify.replay import replay

pytestmark = pytest.mark.regression
Random = np.random.Generator
WGMMA = [*every_instruction("wgmma")]
SHORT = [i for i in WGMMA if i.n <= 32]
MANY = 12
#: Cycles from the last result of a group until a wait for it is taken.
SEEN = 2
needs_yosys = pytest.mark.skipif(not can_be_specialised(), reason="Yosys is not installed")


@pytest.fixture(scope="module")
def hardware() -> CompiledWarpgroup:
    return CompiledWarpgroup()


def test_every_instruction(rng: Random) -> None:
    words = 0
    for i in WGMMA:
        file = drawn(i, rng)
        expected = file.run("golden")
        np.testing.assert_array_equal(file.run("warpgroup"), expected, err_msg=str(i))
        words += expected.size
    assert words > 5_000_000


@needs_yosys
def test_many_multiplications_of_one_kind(rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Units are computed many at a time, in one thread or two, and stand still as the array does: the same results."""
    types = str(rng.choice(["f32.f16.f16", "f16.e4m3.e5m2", "s32.u8.s8"]))
    (i,) = (i for i in WGMMA if i.n == 24 and i.rule and f"n24k{i.k}.{types}" in str(i))
    file, pattern = drawn(i, rng, MANY), stalls(rng)
    results = {}
    for worth, threads in ((libraries.WORTH, 1), (1, 1), (1, 2)):
        monkeypatch.setattr(libraries, "WORTH", worth)
        hardware = CompiledWarpgroup(threads=threads)
        told = [multiplication(hardware.config, i, held(file), case) for case in range(MANY)]
        results[worth, threads] = hardware.run(told, pattern)
    one, *others = results.values()
    for other in others:
        for of_one, of_other, expected in zip(one, other, file.run("golden"), strict=True):
            assert (of_one.taken, of_one.done) == (of_other.taken, of_other.done)
            np.testing.assert_array_equal(of_other.illegal, of_one.illegal, err_msg=str(i))
            np.testing.assert_array_equal(of_other.d, expected, err_msg=str(i))


@pytest.mark.parametrize("family", ["mma", "wgmma"])
def test_recordings(family: str) -> None:
    """D of an H200, and the flags of every panel or instruction against the rule."""
    paths = [path for path in shipped() if path.name.startswith(family)]
    paths = [path for path in paths if family == "wgmma" or is_executed(read(path).instruction)]
    assert len(paths) > 50, "an empty list would compare nothing"
    for path in paths:
        for outcome in replay(path, arch="sm_90", backend="warpgroup"):
            assert not outcome.mismatches, (path.name, outcome.first)
            assert outcome.outputs, path.name
            assert outcome.flags or not outcome.instruction.rule, path.name


def test_gaps_and_stalls_change_no_bit(hardware: CompiledWarpgroup, rng: Random) -> None:
    """Units stand still as their array does, whatever waits."""
    commands: list[Command] = []
    expected: list[np.ndarray] = []
    for place in rng.integers(len(SHORT), size=24):
        file = drawn(SHORT[place], rng)
        for case, d in enumerate(file.run()):
            commands.append(multiplication(hardware.config, file.instruction, held(file), case))
            expected.append(d)
        commands += [COMMIT, wait(int(rng.integers(3)))][: rng.integers(3)]
    for pattern in (None, stalls(rng), stalls(rng)):
        done = [of for of in hardware.run(commands, pattern) if of.done >= 0]
        for number, (of, d) in enumerate(zip(done, expected, strict=True)):
            np.testing.assert_array_equal(of.d, d, err_msg=f"multiplication {number}")


def test_the_cycles_of_an_h200(hardware: CompiledWarpgroup, echoing_warpgroup: CompiledWarpgroup, rng: Random) -> None:
    """Of every row around arrays that echo; of some of them with the units, whose latency is that of the echo."""
    rows = rows_of_wgmma()
    for row in rows:
        check_row(echoing_warpgroup, row)
    for place in rng.choice(len(rows), 8, replace=False):
        check_row(hardware, rows[place])


def one_of(hardware: CompiledWarpgroup, rng: Random, n: int = 0) -> tuple[Command, RegisterFile]:
    """Return a multiplication of any kind, or of so many columns, and its operands."""
    kinds = [i for i in SHORT if n in (0, i.n)]
    file = drawn(kinds[int(rng.integers(len(kinds)))], rng, 1)
    return multiplication(hardware.config, file.instruction, held(file), 0), file


def test_accumulators_go_on(hardware: CompiledWarpgroup, rng: Random) -> None:
    """Multiplications without accumulators of their own add to the results of the one before."""
    for pattern in (None, stalls(rng)):
        first, file = one_of(hardware, rng)
        added = replace(first, fields=first.fields | {"add": 1}, c=None)
        (expected,) = file.run()
        for number, of in enumerate(hardware.run([first, *[added] * 3], pattern)):
            np.testing.assert_array_equal(of.d, expected, err_msg=f"multiplication {number} of {file.instruction}")
            (expected,) = replace(file, c=expected[None], d=None, scale_d=True).run()


def test_a_wait_is_taken_in_the_cycle_after_its_groups_are_done(
    echoing_warpgroup: CompiledWarpgroup, rng: Random
) -> None:
    """Waits for any number of groups that are pending, groups of some multiplications and of none."""
    for _ in range(4):
        commands: list[Command] = []
        for _ in range(8):
            commits, pending, waits = rng.integers((3, 4, 2)).tolist()
            commands += [one_of(echoing_warpgroup, rng)[0], *[COMMIT] * commits, *[wait(pending)] * waits]
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
    command, _ = one_of(echoing_warpgroup, rng)
    (alone,) = echoing_warpgroup.run([command])
    for cycle in range(alone.done - 3, alone.done + 4):
        pattern = np.full(cycle + 1000, 31, np.uint8)
        pattern[1:cycle] = 30
        done, commit, waited = echoing_warpgroup.run([command, COMMIT, wait(0)], pattern)
        assert (done.done, commit.taken) == (alone.done, cycle)
        assert waited.taken == max(done.done, cycle) + SEEN, f"committed in cycle {cycle}, done in {done.done}"


def test_what_no_run_can_end(echoing_warpgroup: CompiledWarpgroup, rng: Random) -> None:
    """One that never moves, and accumulators without a multiplication of as many columns before them."""
    with pytest.raises(AssertionError, match="does not end"):
        echoing_warpgroup.run([COMMIT], np.zeros(1, np.uint8))
    first, second = (one_of(echoing_warpgroup, rng, n)[0] for n in (16, 32))
    for commands in ([replace(first, c=None)], [first, replace(second, c=None)]):
        with pytest.raises(AssertionError, match="as many columns"):
            echoing_warpgroup.run(commands)

"""The compiled warpgroup has the results of the golden model and of recordings, and the cycles of an H200."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sptc.api.backends import backend
from sptc.api.recorder import Recorder
from sptc.golden.matrix import multiply
from sptc.isa.fragments import accumulator_fragment
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.isa.operands import HeldOperands, Immediates
from sptc.isa.timing import timing
from sptc.operands.registers import gather_warp, to_registers
from sptc.rtl.tensor_core import TENSOR_CORE
from sptc.rtl.tensor_cores import WARPS
from sptc.sim.benches.random_operands import distributions, random_operands
from sptc.sim.engine import libraries
from sptc.sim.engine.compiled_warpgroup import CompiledWarpgroup
from sptc.sim.engine.echo import echoing_arrays
from sptc.sim.engine.libraries import can_be_specialised
from sptc.sim.engine.warpgroup_commands import COMMIT, Command, is_executed, multiplication, wait, warp_instruction
from sptc.tests.isa.test_timing import rows as recorded_cycles
from sptc.verify.register_file import RegisterFile, read, shipped
from sptc.verify.replay import replay
from sptc.verify.stimulus import random_register_file
from sptc.verify.timing import modelled

pytestmark = pytest.mark.regression
Random = np.random.Generator
WGMMA = [*every_instruction("wgmma")]
SHORT = [i for i in WGMMA if i.n <= 32]
MANY = 12
#: Number of cycles from the last result of a group until the hardware accepts a wait for the group.
SEEN = 2
#: Number of instructions in a timed group, and number of groups. The first group is not timed.
GROUP, GROUPS = 8, 6
needs_yosys = pytest.mark.skipif(not can_be_specialised(), reason="Yosys is not installed")
MMA = [i for i in every_instruction("mma") if is_executed(i)]
OF_64_COLUMNS = "wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16"


def drawn(instruction: Instruction, rng: Random, cases: int = 2) -> RegisterFile:
    """Return random operands of an instruction. Distribution, nibbles, selector, locations and majors are random."""
    kind, selector = str(rng.choice(distributions(instruction))), int(rng.integers(instruction.sparsity_selectors))
    options = {"sparsity_selector": selector, "any_nibble": bool(rng.integers(2))}
    return random_register_file(instruction, "sm_90", kind, cases, rng, **options)


def held(file: RegisterFile) -> HeldOperands:
    recorder = Recorder(backend("golden"))
    file.run(recorder)
    (operands,) = recorder.operands
    return operands.held


def stalls(rng: Random) -> np.ndarray:
    """Return random valid and ready bits of each cycle. The probability of a one changes every 17 cycles."""
    shares = rng.choice([0.1, 0.5, 0.9, 1.0], (60, 3))
    return ((rng.random((60, 17, 3)) < shares[:, None]).reshape(-1, 3) @ [1, 2, 4]).astype(np.uint8)


def check_row(hardware: CompiledWarpgroup, row: dict[str, str]) -> None:
    """Check that a simulated interval is within 0.2 cycles of a measurement, and within 1/8 cycle of the timing law."""
    expected = (row["sparse"] == "1", row["element"], row["element"], int(row["n"]), row["accumulate"], False)
    forms = {(bool(i.sparse), i.a.name, i.b.name, i.n, i.d.name, i.satfinite): i for i in every_instruction("wgmma")}
    instruction = forms[expected]
    law = timing(instruction, "sm_90", row["a_from"])
    registers, in_registers = instruction.n * instruction.d.bits // 64, row["a_from"] == "registers"
    zeros = {"b": np.zeros((1, 1 << 16), np.uint8), "c": np.zeros((1, 128, registers), np.uint32)}
    zeros |= {"a": np.zeros((1, 128, 4), np.uint32)} if in_registers else {}
    one = multiplication(hardware.config, instruction, HeldOperands(zeros, Immediates(a_in_registers=in_registers)), 0)
    # As in the measurement, groups of eight instructions add to the same accumulators.
    group = [replace(one, c=None)] * GROUP + [COMMIT, wait(1)]
    done = [each for each in hardware.run([one, *group * GROUPS]) if each.done >= 0]
    interval = (done[-1].done - done[GROUP].done) / (len(done) - 1 - GROUP)
    assert interval == pytest.approx(float(row["interval"]), abs=0.2), row
    assert interval == pytest.approx(law.interval, abs=1 / GROUP), row
    cycles = modelled(hardware.config, instruction, "sm_90", row["a_from"])
    assert cycles
    (alone,) = hardware.run([one])
    assert (alone.done - alone.taken, law.interval) == (cycles.latency, cycles.interval), row


@pytest.fixture(scope="module")
def hardware() -> CompiledWarpgroup:
    return CompiledWarpgroup()


@pytest.fixture(scope="module")
def echoing_warpgroup() -> CompiledWarpgroup:
    return CompiledWarpgroup(stand_in=echoing_arrays(TENSOR_CORE))


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
    """Results and cycles do not change if the steps of units are computed in batches, also with stalls."""
    types = str(rng.choice(["f32.f16.f16", "f16.e4m3.e5m2", "s32.u8.s8"]))
    (i,) = (i for i in WGMMA if i.n == 24 and i.rule and f"n24k{i.k}.{types}" in str(i))
    file, pattern = drawn(i, rng, MANY), stalls(rng)
    results = {}
    for worth in (libraries.WORTH, 1):
        monkeypatch.setattr(libraries, "WORTH", worth)
        hardware = CompiledWarpgroup()
        commands = [multiplication(hardware.config, i, held(file), case) for case in range(MANY)]
        results[worth] = hardware.run(commands, pattern)
    one, *others = results.values()
    for other in others:
        for of_one, of_other, expected in zip(one, other, file.run("golden"), strict=True):
            assert (of_one.taken, of_one.done) == (of_other.taken, of_other.done)
            np.testing.assert_array_equal(of_other.illegal, of_one.illegal, err_msg=str(i))
            np.testing.assert_array_equal(of_other.d, expected, err_msg=str(i))


@pytest.mark.parametrize("family", ["mma", "wgmma"])
def test_recordings(family: str) -> None:
    paths = [path for path in shipped() if path.name.startswith(family)]
    paths = [path for path in paths if family == "wgmma" or is_executed(read(path).instruction)]
    assert len(paths) > 50, "there are too few recordings to compare"
    for path in paths:
        for outcome in replay(path, arch="sm_90", backend="warpgroup"):
            assert not outcome.mismatches, (path.name, outcome.first)
            assert outcome.outputs, path.name
            assert outcome.flags or not outcome.instruction.rule, path.name


def test_the_cycles_of_an_h200(hardware: CompiledWarpgroup, echoing_warpgroup: CompiledWarpgroup, rng: Random) -> None:
    """Arrays that return hashes have all measured intervals; arrays with dot-product units have a few of them."""
    rows = recorded_cycles("wgmma-h200-2026-11-22.csv")
    for row in rows:
        check_row(echoing_warpgroup, row)
    for place in rng.choice(len(rows), 8, replace=False):
        check_row(hardware, rows[place])


def one_of(hardware: CompiledWarpgroup, rng: Random, n: int = 0) -> tuple[Command, RegisterFile]:
    """Return a random multiplication and its operands. If `n` is not zero, D has `n` columns."""
    kinds = [i for i in SHORT if n in (0, i.n)]
    file = drawn(kinds[int(rng.integers(len(kinds)))], rng, 1)
    return multiplication(hardware.config, file.instruction, held(file), 0), file


def test_accumulators_of_an_earlier_multiplication(hardware: CompiledWarpgroup, rng: Random) -> None:
    """A multiplication without given accumulators adds to the result of the previous multiplication."""
    for pattern in (None, stalls(rng)):
        first, file = one_of(hardware, rng)
        added = replace(first, fields=first.fields | {"add": 1}, c=None)
        (expected,) = file.run()
        for number, of in enumerate(hardware.run([first, *[added] * 3], pattern)):
            np.testing.assert_array_equal(of.d, expected, err_msg=f"multiplication {number} of {file.instruction}")
            (expected,) = replace(file, c=expected[None], d=None, scale_d=True).run()


def test_a_wait_is_accepted_after_its_groups_are_complete(echoing_warpgroup: CompiledWarpgroup, rng: Random) -> None:
    """A wait is accepted at the right time, for any number of groups and of groups that may stay pending."""
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
    """A commit around the last result of a multiplication forms a group that is complete at the right time."""
    command, _ = one_of(echoing_warpgroup, rng)
    (alone,) = echoing_warpgroup.run([command])
    for cycle in range(alone.done - 3, alone.done + 4):
        pattern = np.full(cycle + 1000, 255, np.uint8)
        pattern[1:cycle] = 254
        done, commit, waited = echoing_warpgroup.run([command, COMMIT, wait(0)], pattern)
        assert (done.done, commit.taken) == (alone.done, cycle)
        assert waited.taken == max(done.done, cycle) + SEEN, f"committed in cycle {cycle}, done in {done.done}"


def test_runs_that_cannot_end(echoing_warpgroup: CompiledWarpgroup, rng: Random) -> None:
    """A run that stalls forever raises an error, as does a run that adds to missing or narrower accumulators."""
    with pytest.raises(AssertionError, match="does not end"):
        echoing_warpgroup.run([COMMIT], np.zeros(1, np.uint8))
    first, second = (one_of(echoing_warpgroup, rng, n)[0] for n in (16, 32))
    for commands in ([replace(first, c=None)], [first, replace(second, c=None)]):
        with pytest.raises(AssertionError, match="as many columns"):
            echoing_warpgroup.run(commands)


def operands_of(instruction: Instruction, rng: Random) -> HeldOperands:
    """Return random operand registers of an instruction, with a random selector and random nibbles."""
    kind, selector = str(rng.choice(distributions(instruction))), int(rng.integers(instruction.sparsity_selectors))
    any_nibble = bool(instruction.rule and rng.integers(2))
    return random_operands(instruction, kind, 1, rng, sparsity_selector=selector, any_nibble=any_nibble)


def with_result(instruction: Instruction, rng: Random) -> tuple[Any, np.ndarray]:
    """Return an instruction with random operands, and the registers of D that the golden model computes for them."""
    operands = operands_of(instruction, rng)
    codes = multiply(instruction, "sm_90", gather_warp(instruction, operands))
    d = to_registers(codes, accumulator_fragment(instruction))
    return warp_instruction(TENSOR_CORE, instruction, operands, 0), d[0]


def test_every_instruction_between_panels(hardware: CompiledWarpgroup, rng: Random) -> None:
    """``mma`` on all four arrays and ``wgmma`` at the same time give right results, also with stalls."""
    of_arrays = [[with_result(MMA[place], rng) for place in rng.permutation(len(MMA))] for _ in range(WARPS)]
    told = [[one for one, _ in of_array] for of_array in of_arrays]
    files = [drawn(SHORT[place], rng, 1) for place in rng.integers(len(SHORT), size=12)]
    commands = [multiplication(hardware.config, file.instruction, held(file), 0) for file in files]
    gaps = rng.random((len(stalls(rng)), 2)) < rng.choice([0.1, 0.5, 1.0], 2)
    for pattern in (None, stalls(rng) | (gaps @ [8, 240]).astype(np.uint8)):
        panels, answers = hardware.run_beside(commands, told, pattern)
        for file, of in zip(files, panels, strict=True):
            np.testing.assert_array_equal(of.d, file.run()[0], err_msg=str(file.instruction))
        for of_array, of_answers in zip(of_arrays, answers, strict=True):
            for (_, d), of in zip(of_array, of_answers, strict=True):
                np.testing.assert_array_equal(of.d, d)


def measured_mma() -> dict[str, dict[tuple[int, int], float]]:
    """Return measured cycles of ``mma`` on an otherwise idle SM, by numbers of warps and of accumulators per warp."""
    found: dict[str, dict[tuple[int, int], float]] = {}
    for row in recorded_cycles("h200-2026-11-24.csv"):
        if row["instruction"].startswith("mma") and not row["beside"] and row["operands"] == "1":
            of = found.setdefault(row["instruction"], {})
            of[int(row["warps"]), int(row["accumulators"])] = float(row["cycles"])
    return {text: of for text, of in found.items() if parse(text) in MMA}


ROWS = measured_mma()


@pytest.mark.parametrize("top", ["echoing_warpgroup", "hardware"])
def test_the_cycles_of_mma_on_an_h200(top: str, request: pytest.FixtureRequest, rng: Random) -> None:
    """Dependent ``mma`` have the measured latency, and independent ``mma`` the measured interval of an H200."""
    hardware = request.getfixturevalue(top)
    assert len(ROWS) >= 10
    assert {parse(text).a.name for text in ROWS} == {"f16", "bf16", "tf32", "s8"}
    for text, measured in ROWS.items():
        instruction = parse(text)
        operands, law = operands_of(instruction, rng), timing(instruction, "sm_90")
        cases = (False, measured[8, 8], law.interval, 0.2), (True, measured[1, 1], law.latency, 1)
        for after, expected, figure, tolerance in cases:
            commands = [
                warp_instruction(TENSOR_CORE, instruction, operands, 0, number - 1 if after and number else None)
                for number in range(40)
            ]
            _, answers = hardware.run_beside([], [commands] * WARPS)
            for of_array in answers:
                assert (of_array[-1].taken - of_array[7].taken) / 32 == figure, text
                assert figure == pytest.approx(expected, abs=tolerance)


def test_wgmma_has_priority_over_mma(echoing_warpgroup: CompiledWarpgroup, rng: Random) -> None:
    """A ``wgmma`` with A in registers leaves the arrays no free cycle, so ``mma`` waits, as on an H200."""
    files = (drawn(parse(OF_64_COLUMNS), rng, 1) for _ in range(50))
    file = next(file for file in files if file.a is not None)
    hardware = echoing_warpgroup
    commands = [multiplication(hardware.config, file.instruction, held(file), 0)] * 24
    told = [[with_result(parse(text), rng)[0]] * 200 for text in list(ROWS)[:WARPS]]
    panels, answers = hardware.run_beside(commands, told)
    assert [of.done for of in panels] == pytest.approx([of.done for of in hardware.run(commands)], abs=8)
    assert len([of for of_array in answers for of in of_array if panels[0].done < of.taken < panels[-2].done]) <= 4
    assert all(of.done > panels[-1].done for of_array in answers for of in of_array[-100:])


def test_accumulators_of_an_earlier_mma(echoing_warpgroup: CompiledWarpgroup, rng: Random) -> None:
    hardware = echoing_warpgroup
    instruction = MMA[int(rng.integers(len(MMA)))]
    operands = operands_of(instruction, rng)
    first = warp_instruction(TENSOR_CORE, instruction, operands, 0)
    second = warp_instruction(TENSOR_CORE, instruction, operands, 0, 0)
    _, ((one, two), *_) = hardware.run_beside([], [[first, second], [], [], []])
    operands.arrays["c"][0] = one.d
    _, ((again,), *_) = hardware.run_beside([], [[warp_instruction(TENSOR_CORE, instruction, operands, 0)], [], [], []])
    np.testing.assert_array_equal(two.d, again.d)

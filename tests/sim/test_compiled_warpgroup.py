"""The warpgroup compiled: the bits of the golden model and of the recordings, and the cycles of an H200."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sptc
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.isa.operands import HeldOperands, Immediates
from sptc.isa.timing import timing
from sptc.sim.engine import libraries
from sptc.sim.engine.compiled_warpgroup import CompiledWarpgroup
from sptc.sim.engine.libraries import can_be_specialised
from sptc.sim.engine.warpgroup_commands import COMMIT, Command, Completion, multiplication, wait
from sptc.tests.sim.warpgroup_operands import drawn, held, stalls
from sptc.verify.register_file import read, shipped
from sptc.verify.replay import replay
from sptc.verify.timing import of_warpgroup

Random = np.random.Generator
WGMMA = [*every_instruction("wgmma")]
F16 = "wgmma.mma_async.sp.sync.aligned.m64n32k32.f32.f16.f16"
RECORDINGS = Path(sptc.__file__).parent / "recordings"
GROUP, GROUPS = 8, 6
MANY = 12
needs_yosys = pytest.mark.skipif(not can_be_specialised(), reason="Yosys is not installed")


@pytest.fixture(scope="module")
def hardware() -> CompiledWarpgroup:
    return CompiledWarpgroup()


def compared(instructions: list[Instruction], rng: Random) -> int:
    """Hold the hardware against the golden model; return how many words of results were compared."""
    words = 0
    for i in instructions:
        file = drawn(i, rng)
        wanted = file.run("golden")
        np.testing.assert_array_equal(file.run("warpgroup"), wanted, err_msg=str(i))
        words += wanted.size
    return words


def test_the_bits_of_the_golden_model(rng: Random) -> None:
    short = [i for i in WGMMA if i.n <= 64]
    assert compared([short[place] for place in rng.integers(len(short), size=40)], rng) > 100_000


@needs_yosys
@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("types", ["f32.f16.f16", "f16.e4m3.e5m2", "s32.u8.s8"])
def test_many_multiplications_of_one_kind(types: str, rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Units are computed many at a time, in one thread or two, and stand still as the array does: the same results."""
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
        for of_one, of_other, wanted in zip(one, other, file.run("golden"), strict=True):
            assert (of_one.taken, of_one.done) == (of_other.taken, of_other.done)
            np.testing.assert_array_equal(of_other.illegal, of_one.illegal)
            np.testing.assert_array_equal(of_other.d, wanted)


@pytest.mark.regression
def test_every_instruction(rng: Random) -> None:
    assert compared([*WGMMA, *WGMMA], rng) > 10_000_000


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("path", [p for p in shipped() if p.name.startswith("wgmma")], ids=lambda path: path.stem)
def test_recordings(path: Path) -> None:
    """D of an H200, and the flags of every panel against the rule."""
    for outcome in replay(path, backend="warpgroup"):
        assert not outcome.mismatches, outcome.first
        assert outcome.outputs
        assert outcome.flags or not outcome.instruction.rule


def test_gaps_and_stalls_change_no_bit(hardware: CompiledWarpgroup, rng: Random) -> None:
    """Different instructions behind each other, with commits and waits between them, and no pause where none is due."""
    short = [i for i in WGMMA if i.n <= 32]
    for _ in range(4):
        commands: list[Command] = []
        wanted: list[np.ndarray] = []
        for place in rng.integers(len(short), size=12):
            file = drawn(short[place], rng)
            for case, d in enumerate(file.run()):
                commands.append(multiplication(hardware.config, file.instruction, held(file), case))
                wanted.append(d)
            commands += [COMMIT, wait(int(rng.integers(3)))][: rng.integers(3)]
        for pattern in (None, stalls(rng), stalls(rng)):
            done = [of for of in hardware.run(commands, pattern) if of.done >= 0]
            for number, (of, d) in enumerate(zip(done, wanted, strict=True)):
                np.testing.assert_array_equal(of.d, d, err_msg=f"multiplication {number}")


def test_accumulators_go_on(hardware: CompiledWarpgroup, rng: Random) -> None:
    """A multiplication without accumulators of its own adds to the results of the one before."""
    file = drawn(parse(F16), rng, 1)
    one = multiplication(hardware.config, file.instruction, held(file), 0)
    first, second = hardware.run([one, replace(one, c=None)])
    (again,) = hardware.run([replace(one, c=first.d)])
    np.testing.assert_array_equal(second.d, again.d)
    assert second.done - first.done <= 32 * 1.2


def test_a_wait_is_taken_when_its_groups_are_done(hardware: CompiledWarpgroup, rng: Random) -> None:
    file = drawn(parse(F16), rng, 1)
    one = multiplication(hardware.config, file.instruction, held(file), 0)
    commands = [one, one, COMMIT, one, COMMIT, wait(1), wait(0), COMMIT, wait(0)]
    done = hardware.run(commands)
    assert done[5].taken == done[1].done + 2  # the group is seen to be done in the cycle behind its last result
    assert done[6].taken == done[3].done + 2
    assert done[8].taken - done[7].taken <= 2  # of a group of nothing
    assert [of.taken for of in done] == sorted(of.taken for of in done)


def test_what_never_moves_is_given_up(hardware: CompiledWarpgroup) -> None:
    with pytest.raises(AssertionError, match="does not end"):
        hardware.run([COMMIT], np.zeros(1, np.uint8))


def test_accumulators_need_a_multiplication_of_as_many_columns(hardware: CompiledWarpgroup, rng: Random) -> None:
    files = [drawn(parse(F16.replace("n32", f"n{n}")), rng, 1) for n in (16, 32)]
    first, second = (multiplication(hardware.config, file.instruction, held(file), 0) for file in files)
    for commands in ([replace(first, c=None)], [first, replace(second, c=None)]):
        with pytest.raises(AssertionError, match="as many columns"):
            hardware.run(commands)


def what_was_measured() -> list[dict[str, str]]:
    with (RECORDINGS / "cycles" / "wgmma-h200-2026-11-22.csv").open(encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def multiplied(hardware: CompiledWarpgroup, instruction: Instruction, a_from: str) -> Command:
    """Return an instruction on zeros."""
    registers = instruction.n * instruction.d.bits // 64
    arrays = {"b": np.zeros((1, 1 << 16), np.uint8), "c": np.zeros((1, 128, registers), np.uint32)}
    if a_from == "registers":
        arrays["a"] = np.zeros((1, 128, 4), np.uint32)
    operands = HeldOperands(arrays, Immediates(a_in_registers=a_from == "registers"))
    return multiplication(hardware.config, instruction, operands, 0)


def latency(hardware: CompiledWarpgroup, instruction: Instruction, a_from: str) -> int:
    """Cycles of an instruction alone."""
    [found] = hardware.run([multiplied(hardware, instruction, a_from)])
    return found.done - found.taken


def timed(hardware: CompiledWarpgroup, instruction: Instruction, a_from: str) -> float:
    """Interval of one instruction behind the other in groups of eight, as it was measured: on the same accumulators."""
    one = multiplied(hardware, instruction, a_from)
    group = [replace(one, c=None)] * GROUP + [COMMIT, wait(1)]
    done: list[Completion] = [of for of in hardware.run([one, *group * GROUPS]) if of.done >= 0]
    return (done[-1].done - done[GROUP].done) / (len(done) - 1 - GROUP)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    "row", what_was_measured(), ids=lambda row: f"{row['element']}-{row['sparse']}-n{row['n']}-{row['a_from']}"
)
def test_the_cycles_of_an_h200(hardware: CompiledWarpgroup, row: dict[str, str]) -> None:
    """Within 0.2 of each interval measured, and the law's exactly but for the start."""
    (instruction,) = (
        i
        for i in WGMMA
        if (bool(i.sparse), i.a.name, i.b.name, i.n, i.d.name, i.satfinite)
        == (row["sparse"] == "1", row["element"], row["element"], int(row["n"]), row["accumulate"], False)
    )
    law = timing(instruction, "sm_90", row["a_from"])
    assert law is not None
    found = timed(hardware, instruction, row["a_from"])
    assert found == pytest.approx(float(row["interval"]), abs=0.2)
    assert found == pytest.approx(law.interval, abs=1 / GROUP)
    cycles = of_warpgroup(instruction, row["a_from"])
    assert (latency(hardware, instruction, row["a_from"]), law.interval) == (cycles.latency, cycles.interval)


def test_a_recorded_file_is_read_as_it_is() -> None:
    """The recordings are found: an empty list of them would compare nothing."""
    files = [read(path) for path in shipped() if path.name.startswith("wgmma")]
    assert len(files) > 50

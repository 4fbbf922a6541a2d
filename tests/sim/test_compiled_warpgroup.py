"""The warpgroup compiled with its units: the bits of the golden model and of the recordings, and the cycles of an H200.

What needs no units is tested around arrays that echo, in ``test_warpgroup_control.py``.
"""

import numpy as np
import pytest
from sptc.isa.instructions import every_instruction
from sptc.sim.engine import libraries
from sptc.sim.engine.compiled_warpgroup import CompiledWarpgroup
from sptc.sim.engine.libraries import can_be_specialised
from sptc.sim.engine.warpgroup_commands import COMMIT, Command, is_executed, multiplication, wait
from sptc.tests.sim.warpgroup_cycles import check_row, rows_of_wgmma
from sptc.tests.sim.warpgroup_operands import drawn, held, stalls
from sptc.verify.register_file import read, shipped
from sptc.verify.replay import replay

pytestmark = pytest.mark.regression
Random = np.random.Generator
WGMMA = [*every_instruction("wgmma")]
MANY = 12
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
    short = [i for i in WGMMA if i.n <= 32]
    commands: list[Command] = []
    expected: list[np.ndarray] = []
    for place in rng.integers(len(short), size=24):
        file = drawn(short[place], rng)
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

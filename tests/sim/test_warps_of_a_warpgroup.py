"""``mma`` on the tensor cores of a warpgroup: its bits, its pace on an H200, and how it fares beside ``wgmma``."""

import csv
from pathlib import Path

import numpy as np
import pytest
import sptc
from sptc.errors import BackendError
from sptc.golden.matrix import multiply
from sptc.isa.fragments import accumulator_fragment
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.isa.timing import timing
from sptc.operands.registers import gather_warp, to_registers
from sptc.rtl.tensor_core import TENSOR_CORE
from sptc.rtl.tensor_cores import WARPS
from sptc.sim.benches.random_operands import Operands, distributions, random_operands
from sptc.sim.engine.compiled_warpgroup import CompiledWarpgroup
from sptc.sim.engine.warpgroup_commands import WarpInstruction, is_executed, multiplication, warp_instruction
from sptc.tests.sim.warpgroup import drawn, held, stalls

Random = np.random.Generator
MMA = [i for i in every_instruction("mma") if is_executed(i)]
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16"
CYCLES = Path(sptc.__file__).parent / "recordings" / "cycles" / "h200-2026-11-24.csv"


@pytest.fixture(scope="module")
def hardware() -> CompiledWarpgroup:
    return CompiledWarpgroup()


def operands_of(instruction: Instruction, rng: Random) -> Operands:
    """Random registers of one instruction, with any nibble and selector."""
    kind, selector = str(rng.choice(distributions(instruction))), int(rng.integers(instruction.sparsity_selectors))
    return random_operands(
        instruction, kind, 1, rng, sparsity_selector=selector, any_nibble=bool(instruction.rule and rng.integers(2))
    )


def with_result(instruction: Instruction, rng: Random) -> tuple[WarpInstruction, np.ndarray]:
    """An instruction, and the registers of D that the golden model gives."""
    operands = operands_of(instruction, rng)
    d = to_registers(
        multiply(instruction, "sm_90", gather_warp(instruction, operands.held)), accumulator_fragment(instruction)
    )
    return warp_instruction(TENSOR_CORE, instruction, operands.held, 0), d[0]


@pytest.mark.regression
def test_every_instruction_between_panels(hardware: CompiledWarpgroup, rng: Random) -> None:
    """Instructions of all four arrays and ``wgmma`` at once, with stalls of everything: no bit of either changes."""
    of_arrays = [[with_result(MMA[place], rng) for place in rng.permutation(len(MMA))] for _ in range(WARPS)]
    told = [[one for one, _ in of_array] for of_array in of_arrays]
    short = [i for i in every_instruction("wgmma") if i.n <= 32]
    files = [drawn(short[place], rng, 1) for place in rng.integers(len(short), size=12)]
    commands = [multiplication(hardware.config, file.instruction, held(file), 0) for file in files]
    gaps = rng.random((len(stalls(rng)), 2)) < rng.choice([0.1, 0.5, 1.0], 2)
    for pattern in (None, stalls(rng) | (gaps @ [8, 16]).astype(np.uint8)):
        panels, answers = hardware.run_beside(commands, told, pattern)
        for file, of in zip(files, panels, strict=True):
            np.testing.assert_array_equal(of.d, file.run()[0], err_msg=str(file.instruction))
        for of_array, of_answers in zip(of_arrays, answers, strict=True):
            for (_, d), of in zip(of_array, of_answers, strict=True):
                np.testing.assert_array_equal(of.d, d)


def measured() -> dict[str, dict[tuple[int, int], float]]:
    """Cycles of an instruction alone on an SM, by warps and accumulators of each."""
    with CYCLES.open(encoding="utf-8") as file:
        rows = [*csv.DictReader(line for line in file if not line.startswith("#"))]
    found: dict[str, dict[tuple[int, int], float]] = {}
    for row in rows:
        if row["instruction"].startswith("mma") and not row["beside"] and row["operands"] == "1":
            of = found.setdefault(row["instruction"], {})
            of[int(row["warps"]), int(row["accumulators"])] = float(row["cycles"])
    return {text: of for text, of in found.items() if parse(text) in MMA}


ROWS = measured()


def test_the_rows_are_those_of_every_type() -> None:
    assert len(ROWS) >= 10
    assert {parse(text).a.name for text in ROWS} == {"f16", "bf16", "tf32", "s8"}


@pytest.mark.regression
@pytest.mark.parametrize("top", ["echoing_warpgroup", "hardware"])
def test_the_cycles_of_an_h200(top: str, request: pytest.FixtureRequest, rng: Random) -> None:
    hardware = request.getfixturevalue(top)
    for text in ROWS:
        check_cycles(text, hardware, rng)


def check_cycles(text: str, hardware: CompiledWarpgroup, rng: Random) -> None:
    """Independent instructions of one array, and each on the result of the one before; eight warps fill an SM."""
    instruction = parse(text)
    operands = operands_of(instruction, rng).held
    law = timing(instruction, "sm_90")
    assert law
    for after, wanted, figure, tolerance in (
        (False, ROWS[text][8, 8], law.interval, 0.2),
        (True, ROWS[text][1, 1], law.latency, 1),
    ):
        told = [
            warp_instruction(TENSOR_CORE, instruction, operands, 0, number - 1 if after and number else None)
            for number in range(40)
        ]
        _, answers = hardware.run_beside([], [told] * WARPS)
        for of_array in answers:
            assert (of_array[-1].taken - of_array[7].taken) / 32 == figure, text
            assert figure == pytest.approx(wanted, abs=tolerance)


@pytest.mark.regression
def test_wgmma_goes_first(echoing_warpgroup: CompiledWarpgroup, rng: Random) -> None:
    """With A in registers it leaves the arrays no cycle, and ``mma`` starves beside it, as on an H200."""
    files = (drawn(parse(WGMMA), rng, 1) for _ in range(50))
    file = next(file for file in files if file.a is not None)
    hardware = echoing_warpgroup
    commands = [multiplication(hardware.config, file.instruction, held(file), 0)] * 24
    told = [[with_result(parse(text), rng)[0]] * 200 for text in list(ROWS)[:WARPS]]
    panels, answers = hardware.run_beside(commands, told)
    alone = hardware.run(commands)
    assert [of.done for of in panels] == pytest.approx([of.done for of in alone], abs=8)
    meanwhile = [of for of_array in answers for of in of_array if panels[0].done < of.taken < panels[-2].done]
    assert len(meanwhile) <= 4
    assert all(of.done > panels[-1].done for of_array in answers for of in of_array[-100:])


@pytest.mark.regression
def test_an_instruction_goes_on_from_an_earlier_one(echoing_warpgroup: CompiledWarpgroup, rng: Random) -> None:
    hardware = echoing_warpgroup
    instruction = MMA[int(rng.integers(len(MMA)))]
    operands = operands_of(instruction, rng).held
    first = warp_instruction(TENSOR_CORE, instruction, operands, 0)
    _, ((one, two), *_) = hardware.run_beside(
        [], [[first, warp_instruction(TENSOR_CORE, instruction, operands, 0, 0)], [], [], []]
    )
    operands.arrays["c"][0] = one.d
    _, ((again,), *_) = hardware.run_beside([], [[warp_instruction(TENSOR_CORE, instruction, operands, 0)], [], [], []])
    np.testing.assert_array_equal(two.d, again.d)


def test_what_it_does_not_execute() -> None:
    for text in (
        "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32",
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32",
    ):
        i = parse(text)
        operands = random_operands(i, distributions(i)[0], 1, np.random.default_rng(0))
        with pytest.raises(BackendError, match="no top does, and back end 'rtl' computes it on a row"):
            sptc.mma(text, operands.a, operands.b, operands.c, operands.e, 0, arch="sm_90", backend="warpgroup")

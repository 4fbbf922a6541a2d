"""Random instructions and stalls for a compiled warpgroup, and the cycles of ``wgmma`` measured on an H200."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sptc
from sptc.api.backends import backend
from sptc.api.recorder import Recorder
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.operands import HeldOperands, Immediates
from sptc.isa.timing import timing
from sptc.sim.benches.random_operands import distributions
from sptc.sim.engine.compiled_warpgroup import CompiledWarpgroup
from sptc.sim.engine.warpgroup_commands import COMMIT, Command, multiplication, wait
from sptc.verify.register_file import RegisterFile
from sptc.verify.stimulus import random_register_file
from sptc.verify.timing import of_warpgroup

__all__ = ["check_row", "drawn", "held", "rows_of_wgmma", "stalls"]

Random = np.random.Generator
_FILE = Path(sptc.__file__).parent / "recordings" / "cycles" / "wgmma-h200-2026-11-22.csv"
#: Number of instructions per group, and number of groups. The first group is not timed.
_GROUP, _GROUPS = 8, 6


def drawn(instruction: Instruction, rng: Random, cases: int = 2) -> RegisterFile:
    """Return random operands of any distribution, with any nibbles and selector, and A and B in any location and
    order.
    """
    kind, selector = str(rng.choice(distributions(instruction))), int(rng.integers(instruction.sparsity_selectors))
    return random_register_file(
        instruction, "sm_90", kind, cases, rng, sparsity_selector=selector, any_nibble=bool(rng.integers(2))
    )


def held(file: RegisterFile) -> HeldOperands:
    recorder = Recorder(backend("golden"))
    file.run(recorder)
    (operands,) = recorder.operands
    assert operands.held
    return operands.held


def stalls(rng: Random) -> np.ndarray:
    """Return valid and ready of each cycle, which are mostly set or mostly clear for some cycles each."""
    shares = rng.choice([0.1, 0.5, 0.9, 1.0], (60, 3))
    bits = rng.random((60, 17, 3)) < shares[:, None]
    return (bits.reshape(-1, 3) @ [1, 2, 4]).astype(np.uint8)


def rows_of_wgmma() -> list[dict[str, str]]:
    with _FILE.open(encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def _on_zeros(hardware: CompiledWarpgroup, instruction: Instruction, a_from: str) -> Command:
    registers = instruction.n * instruction.d.bits // 64
    arrays = {"b": np.zeros((1, 1 << 16), np.uint8), "c": np.zeros((1, 128, registers), np.uint32)}
    if a_from == "registers":
        arrays["a"] = np.zeros((1, 128, 4), np.uint32)
    operands = HeldOperands(arrays, Immediates(a_in_registers=a_from == "registers"))
    return multiplication(hardware.config, instruction, operands, 0)


def _interval(hardware: CompiledWarpgroup, one: Command) -> float:
    """Return the cycles per instruction in groups of eight on the same accumulators, as in the measurement."""
    group = [replace(one, c=None)] * _GROUP + [COMMIT, wait(1)]
    done = [of for of in hardware.run([one, *group * _GROUPS]) if of.done >= 0]
    return (done[-1].done - done[_GROUP].done) / (len(done) - 1 - _GROUP)


def check_row(hardware: CompiledWarpgroup, row: dict[str, str]) -> None:
    """Check that an interval agrees with the measurement within 0.2 of a cycle, and with the model except for the
    start.
    """
    (instruction,) = (
        i
        for i in every_instruction("wgmma")
        if (bool(i.sparse), i.a.name, i.b.name, i.n, i.d.name, i.satfinite)
        == (row["sparse"] == "1", row["element"], row["element"], int(row["n"]), row["accumulate"], False)
    )
    law = timing(instruction, "sm_90", row["a_from"])
    assert law is not None
    one = _on_zeros(hardware, instruction, row["a_from"])
    interval = _interval(hardware, one)
    assert interval == pytest.approx(float(row["interval"]), abs=0.2), row
    assert interval == pytest.approx(law.interval, abs=1 / _GROUP), row
    cycles = of_warpgroup(instruction, row["a_from"])
    (alone,) = hardware.run([one])
    assert (alone.done - alone.taken, law.interval) == (cycles.latency, cycles.interval), row

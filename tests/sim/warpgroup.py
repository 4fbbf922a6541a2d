"""Random instructions and stalls for a compiled warpgroup, and the cycles of ``wgmma`` measured on an H200."""

from dataclasses import replace

import numpy as np
import pytest
from sptc.api.backends import backend
from sptc.api.recorder import Recorder
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.operands import HeldOperands, Immediates
from sptc.isa.timing import timing
from sptc.sim.benches.random_operands import distributions
from sptc.sim.engine.compiled_warpgroup import CompiledWarpgroup
from sptc.sim.engine.warpgroup_commands import COMMIT, multiplication, wait
from sptc.verify.register_file import RegisterFile
from sptc.verify.stimulus import random_register_file
from sptc.verify.timing import of_warpgroup

Random = np.random.Generator
#: Instructions in a group, and number of groups. The first group is not timed.
_GROUP, _GROUPS = 8, 6


def drawn(instruction: Instruction, rng: Random, cases: int = 2) -> RegisterFile:
    """Return random operands of any distribution, with any nibbles and selector, and A and B in any location and
    order.
    """
    kind, selector = str(rng.choice(distributions(instruction))), int(rng.integers(instruction.sparsity_selectors))
    options = {"sparsity_selector": selector, "any_nibble": bool(rng.integers(2))}
    return random_register_file(instruction, "sm_90", kind, cases, rng, **options)


def held(file: RegisterFile) -> HeldOperands:
    recorder = Recorder(backend("golden"))
    file.run(recorder)
    (operands,) = recorder.operands
    return operands.held


def stalls(rng: Random) -> np.ndarray:
    """Return valid and ready bits of each cycle. The share of ones is random, and changes every 17 cycles."""
    shares = rng.choice([0.1, 0.5, 0.9, 1.0], (60, 3))
    bits = rng.random((60, 17, 3)) < shares[:, None]
    return (bits.reshape(-1, 3) @ [1, 2, 4]).astype(np.uint8)


def check_row(hardware: CompiledWarpgroup, row: dict[str, str]) -> None:
    """Check that the simulated interval is within 0.2 cycles of a measurement, and within 1/8 cycle of the timing
    law.
    """
    expected = (row["sparse"] == "1", row["element"], row["element"], int(row["n"]), row["accumulate"], False)
    forms = {(bool(i.sparse), i.a.name, i.b.name, i.n, i.d.name, i.satfinite): i for i in every_instruction("wgmma")}
    instruction = forms[expected]
    law = timing(instruction, "sm_90", row["a_from"])
    registers, in_registers = instruction.n * instruction.d.bits // 64, row["a_from"] == "registers"
    zeros = {"b": np.zeros((1, 1 << 16), np.uint8), "c": np.zeros((1, 128, registers), np.uint32)}
    zeros |= {"a": np.zeros((1, 128, 4), np.uint32)} if in_registers else {}
    operands = HeldOperands(zeros, Immediates(a_in_registers=in_registers))
    one = multiplication(hardware.config, instruction, operands, 0)
    # As in the measurement, groups of eight instructions add to the same accumulators.
    group = [replace(one, c=None)] * _GROUP + [COMMIT, wait(1)]
    done = [of for of in hardware.run([one, *group * _GROUPS]) if of.done >= 0]
    interval = (done[-1].done - done[_GROUP].done) / (len(done) - 1 - _GROUP)
    assert interval == pytest.approx(float(row["interval"]), abs=0.2), row
    assert interval == pytest.approx(law.interval, abs=1 / _GROUP), row
    cycles = of_warpgroup(instruction, row["a_from"])
    (alone,) = hardware.run([one])
    assert (alone.done - alone.taken, law.interval) == (cycles.latency, cycles.interval), row

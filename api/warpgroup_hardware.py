"""Back end ``warpgroup``: ``wgmma`` and ``mma`` on the compiled hardware of an SM's four tensor cores."""

from functools import lru_cache

import numpy as np

from ..errors import BackendError
from ..golden.registers import unpack, unpack_nibbles
from ..isa.fragments import accumulator_fragment
from ..isa.instructions import Instruction
from ..isa.operands import HeldOperands, MatrixOperands, Product, StepFlags
from ..isa.timing import ARCHITECTURE
from ..sim.engine.compiled_warpgroup import CompiledWarpgroup
from ..sim.engine.warpgroup_commands import is_executed, multiplication, warp_instruction
from .tiles import multiply_held

__all__ = ["WarpgroupBackend"]


@lru_cache(maxsize=1)
def _hardware() -> CompiledWarpgroup:
    return CompiledWarpgroup()


class WarpgroupBackend:
    """The hardware as a back end; see :class:`sptc.api.backends.Backend`."""

    def make_ready(self, arch: str) -> None:
        """Build the warpgroup.

        Raises
        ------
        BackendError
            The simulator or a compiler is missing.
        """
        _hardware()

    def multiply(self, instruction: Instruction, arch: str, operands: MatrixOperands) -> Product:
        """Compute D by as many instructions as the matrices take, one after the other without a gap."""
        if arch != ARCHITECTURE or not is_executed(instruction):
            raise BackendError(
                f"back end 'warpgroup' executes wgmma, and mma of 16 rows that nothing emulates, of {ARCHITECTURE}, "
                f"not {instruction} of {arch}"
            )
        return multiply_held("warpgroup", _execute, instruction, arch, operands)


def _execute(instruction: Instruction, arch: str, operands: HeldOperands) -> Product:
    hardware, cases = _hardware(), range(len(operands.arrays["c"]))
    if instruction.family == "mma":
        completions = hardware.run_on_all(
            [warp_instruction(hardware.config, instruction, operands, case) for case in cases]
        )
    else:
        completions = hardware.run([multiplication(hardware.config, instruction, operands, case) for case in cases])
    d = unpack(np.stack([one.d for one in completions]), accumulator_fragment(instruction))
    if not instruction.rule:
        return Product(d, ())
    nibbles = unpack_nibbles(operands.arrays["e"], instruction, operands.immediates.sparsity_selector)
    illegal = np.stack([one.illegal for one in completions])[..., : instruction.chunks]
    # Every panel of columns has flags of its own.
    return Product(d, tuple(StepFlags(instruction, nibbles, illegal[:, panel]) for panel in range(illegal.shape[1])))

"""Back end ``warpgroup``: ``wgmma`` and ``mma`` on the compiled hardware of an SM's four tensor cores."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..errors import BackendError
from ..golden.registers import unpack_nibbles
from ..isa.instructions import Instruction
from ..isa.operands import HeldOperands, MatrixOperands
from ..isa.timing import ARCHITECTURE
from ..sim.engine.compiled_warpgroup import CompiledWarpgroup
from ..sim.engine.engine import FlaggedStep, flags_are_watched, tell_flags
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

    def multiply(self, instruction: Instruction, arch: str, operands: MatrixOperands) -> NDArray:
        """Compute D by as many instructions as the matrices take, one after the other without a gap."""
        if arch != ARCHITECTURE or not is_executed(instruction):
            raise BackendError(
                f"back end 'warpgroup' executes wgmma, and mma of 16 rows that nothing emulates, of {ARCHITECTURE}, "
                f"not {instruction} of {arch}"
            )
        return multiply_held("warpgroup", _execute, instruction, arch, operands)


def _execute(instruction: Instruction, arch: str, held: HeldOperands) -> NDArray[np.uint32]:
    hardware, cases = _hardware(), range(len(held.arrays["c"]))
    if instruction.family == "mma":
        done = hardware.run_on_all([warp_instruction(hardware.config, instruction, held, case) for case in cases])
    else:
        done = hardware.run([multiplication(hardware.config, instruction, held, case) for case in cases])
    if instruction.rule and flags_are_watched():
        nibbles = unpack_nibbles(held.arrays["e"], instruction, held.immediates.sparsity_selector)
        illegal = np.stack([of.illegal for of in done])[..., : instruction.chunks]
        # Every panel of columns has flags of its own.
        tell_flags([FlaggedStep(instruction, nibbles, illegal[:, panel]) for panel in range(illegal.shape[1])])
    return np.stack([of.d for of in done])

"""Back end ``warpgroup``: ``wgmma`` on the compiled hardware of an SM's four tensor cores, shared memory included."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..errors import BackendError
from ..golden.registers import unpack_nibbles
from ..isa.instructions import Instruction
from ..isa.operands import HeldOperands, MatrixOperands
from ..sim.engine.compiled_warpgroup import Command, CompiledWarpgroup, multiplication
from ..sim.engine.engine import FlaggedStep, flags_are_watched, tell_flags
from .tiles import multiply_held

__all__ = ["WarpgroupBackend"]

_ARCH = "sm_90"


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
        if instruction.family != "wgmma" or arch != _ARCH:
            raise BackendError(f"back end 'warpgroup' executes wgmma of {_ARCH}, not {instruction} of {arch}")
        return multiply_held("warpgroup", _execute, instruction, arch, operands)


def _execute(instruction: Instruction, arch: str, held: HeldOperands) -> NDArray[np.uint32]:
    hardware, cases = _hardware(), len(held.arrays["c"])
    commands: list[Command] = [multiplication(hardware.config, instruction, held, case) for case in range(cases)]
    done = hardware.run(commands)
    if instruction.rule and flags_are_watched():
        nibbles = unpack_nibbles(held.arrays["e"], instruction, held.immediates.sparsity_selector)
        illegal = np.stack([of.illegal for of in done])[..., : instruction.chunks]
        # Every panel of columns has flags of its own.
        tell_flags([FlaggedStep(instruction, nibbles, illegal[:, panel]) for panel in range(illegal.shape[1])])
    return np.stack([of.d for of in done])

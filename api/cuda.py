"""Back end ``cuda``: the instruction itself, on the GPU of this machine, given registers and shared memory."""

from ..errors import BackendError
from ..golden.registers import unpack
from ..gpu import device
from ..isa.fragments import accumulator_fragment
from ..isa.instructions import Instruction
from ..isa.operands import HeldOperands, MatrixOperands, Product
from .tiles import multiply_held

__all__ = ["CudaBackend"]


class CudaBackend:
    """The GPU as a back end; see :class:`sptc.api.backends.Backend`."""

    def make_ready(self, arch: str) -> None:
        """Do nothing: a kernel is loaded soon, and the process that forks workers must not touch the GPU."""

    def multiply(self, instruction: Instruction, arch: str, operands: MatrixOperands) -> Product:
        """Compute D by as many instructions as the matrices take."""
        if instruction.family == "tcgen05":
            raise BackendError("back end 'cuda' executes mma and wgmma, not tcgen05.mma")
        return multiply_held(_execute, instruction, arch, operands)


def _execute(instruction: Instruction, arch: str, operands: HeldOperands) -> Product:
    return Product(unpack(device.execute(instruction, arch, operands), accumulator_fragment(instruction)))

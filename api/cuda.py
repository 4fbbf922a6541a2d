"""Back end ``cuda``: executes instructions on this machine's GPU, with operands in registers and shared memory."""

from ..errors import BackendError
from ..gpu import device
from ..isa.fragments import accumulator_fragment
from ..isa.instructions import Instruction
from ..isa.operands import HeldOperands, MatrixOperands, Product
from ..operands.registers import from_registers
from .tiles import multiply_held

__all__ = ["CudaBackend"]


class CudaBackend:
    """Back end that executes instructions on the GPU. See :class:`sptc.api.backends.Backend`."""

    def make_ready(self, arch: str) -> None:
        """Load nothing in advance: GPU kernels load fast, and a process that forks workers must not use the GPU."""

    def multiply(self, instruction: Instruction, arch: str, operands: MatrixOperands) -> Product:
        """Compute D on the GPU, instruction by instruction: for each tile of D, successive instructions along K."""
        if instruction.family == "tcgen05":
            raise BackendError("back end 'cuda' executes mma and wgmma, not tcgen05.mma")
        return multiply_held(_execute, instruction, arch, operands)


def _execute(instruction: Instruction, arch: str, operands: HeldOperands) -> Product:
    return Product(from_registers(device.execute(instruction, arch, operands), accumulator_fragment(instruction)))

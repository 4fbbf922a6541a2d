"""Back end that passes operands to another back end, and records these operands and the matrix products."""

from ..isa.instructions import Instruction
from ..isa.operands import MatrixOperands, Product
from .backends import Backend

__all__ = ["Recorder"]


class Recorder:
    """Back end that records operands and passes them to another back end. See :class:`sptc.api.backends.Backend`.

    Parameters
    ----------
    computes : Backend
        Back end that computes the products.

    Attributes
    ----------
    operands : list of MatrixOperands
        Operands of each call, in order.
    products : list of Product
        Product of each call.
    """

    def __init__(self, computes: Backend) -> None:
        self.computes = computes
        self.operands: list[MatrixOperands] = []
        self.products: list[Product] = []

    def make_ready(self, arch: str) -> None:
        """Prepare the back end that computes the matrix products: compile or load it in advance."""
        self.computes.make_ready(arch)

    def multiply(self, instruction: Instruction, arch: str, operands: MatrixOperands) -> Product:
        """Compute a matrix product with the wrapped back end. Record the operands and the product."""
        product = self.computes.multiply(instruction, arch, operands)
        self.operands.append(operands)
        self.products.append(product)
        return product

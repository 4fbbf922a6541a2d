"""Back end that records the operands and products of another back end."""

from dataclasses import dataclass, field

from ..isa.instructions import Instruction
from ..isa.operands import MatrixOperands, Product
from .backends import Backend

__all__ = ["Recorder"]


@dataclass(eq=False)
class Recorder:
    """Back end that records operands and passes them to another back end. See :class:`sptc.api.backends.Backend`."""

    computes: Backend  #: Back end that computes the products.
    #: Operands and product of each call, in order.
    operands: list[MatrixOperands] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)

    def make_ready(self, arch: str) -> None:
        """Prepare the recorded back end: compile or load this back end before it computes."""
        self.computes.make_ready(arch)

    def multiply(self, instruction: Instruction, arch: str, operands: MatrixOperands) -> Product:
        """Compute a product with the back end `computes`. Record the operands and the product."""
        product = self.computes.multiply(instruction, arch, operands)
        self.operands.append(operands)
        self.products.append(product)
        return product

"""Differences between a way of summation and a result, with the operands of the first output that differs."""

from dataclasses import dataclass, field

from numpy.typing import NDArray

from .epilogue import Epilogue
from .matrices import Factors
from .sums import stored
from .ways import Way

__all__ = ["Miss", "Output"]


@dataclass(frozen=True, eq=False)
class Output:
    """One output of a product, with everything needed to compute it."""

    way: Way  #: Way of summation. Stream-K is replaced by the slices of this output.
    factors: Factors  #: Operands of one row and one column of the product as it is computed
    epilogue: Epilogue  #: Epilogue of this output

    def stored(self, total: NDArray) -> int:
        """Apply the epilogue to a float32 or int32 sum of shape (1, 1); return the code that is stored."""
        return int(stored(self.way, self.epilogue, total)[0, 0])


@dataclass(frozen=True)
class Miss:
    """Differences between a way and a given result."""

    way: Way
    differing: int  #: Number of outputs that differ
    #: Row and column of the first output that differs.
    row: int
    column: int
    #: Code of this output in the given result, and the code that the way computes.
    wanted: int
    got: int
    output: Output = field(repr=False, compare=False)  #: The first output that differs, with its operands

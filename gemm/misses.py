"""How a way to sum differs from a result, and what the first output that differs is made of."""

from dataclasses import dataclass, field

from numpy.typing import NDArray

from .epilogue import Epilogue, to_codes
from .matrices import Factors
from .ways import Way

__all__ = ["Miss", "Output"]


@dataclass(frozen=True, eq=False)
class Output:
    """One output of a product, and all that it is computed from.

    Attributes
    ----------
    way : Way
        How it is summed; not of stream-K, but by its own cut.
    factors : Factors
        Of one row and one column, of the product as it is computed.
    epilogue : Epilogue
        What is done to its sum.
    """

    way: Way
    factors: Factors
    epilogue: Epilogue

    def stored(self, total: NDArray) -> int:
        """Return the code that is stored of a sum, float32 or int32, shape (1, 1)."""
        return int(to_codes(self.epilogue.apply(total), self.way.result, self.way.rounding)[0, 0])


@dataclass(frozen=True)
class Miss:
    """How a way differs.

    Attributes
    ----------
    way : Way
        Which.
    differing : int
        Outputs that differ.
    row, column : int
        The first of them.
    wanted, got : int
        Its code in the given result, and what the way gives.
    output : Output
        What it is made of.
    """

    way: Way
    differing: int
    row: int
    column: int
    wanted: int
    got: int
    output: Output = field(repr=False, compare=False)

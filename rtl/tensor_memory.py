"""Port for reading operands of ``tcgen05.mma`` from tensor memory."""

from amaranth.lib.wiring import In, Out

from .cells.described import DescribedSignature
from .warp import WORD_BITS

__all__ = ["COLUMN_BITS", "TENSOR_LANES", "tensor_memory_signature"]

TENSOR_LANES = 128
COLUMN_BITS = 9


def tensor_memory_signature(lanes: int = TENSOR_LANES) -> DescribedSignature:
    """Return the signature of a tensor-memory port that reads one column of all lanes in each cycle."""
    data = "Word of the column in the lane with the number of this port, valid in the cycle after read."
    return DescribedSignature(
        {
            "read": (Out(1), "A column of tensor memory is read in this cycle."),
            "column": (Out(COLUMN_BITS), "Number of the column that is read, 0 to 511."),
            "data": (In(WORD_BITS).array(lanes), data),
        }
    )

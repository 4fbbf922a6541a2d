"""Port for reading operands of ``tcgen05.mma`` from tensor memory."""

from amaranth.lib.wiring import In, Out

from .cells.described import DescribedSignature
from .warp import WORD_BITS

__all__ = ["COLUMN_BITS", "TENSOR_LANES", "tensor_memory_signature"]

TENSOR_LANES = 128
COLUMN_BITS = 9


def tensor_memory_signature(lanes: int = TENSOR_LANES) -> DescribedSignature:
    """Return the signature of a tensor-memory port that reads one column of all lanes in each cycle."""
    return DescribedSignature(
        {
            "read": (Out(1), "The column is read."),
            "column": (Out(COLUMN_BITS), "Number of the column."),
            "data": (In(WORD_BITS).array(lanes), "Word of the column in each lane, one cycle later."),
        }
    )

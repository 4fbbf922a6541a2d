"""The zero-column mask descriptor of ``tcgen05.mma.ws``: a shift of the columns of B, and columns set to zero."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError, shown
from .tensor_memory import LANES

__all__ = ["FIELDS", "ColumnMask", "decode_column_mask", "largest_shift"]

#: For each field of a zero-column mask descriptor, its lowest bit and its width in bits. The N columns of B are divided
#: into 128 / M parts. For each part, field `starts` has 8 bits, and field `skip_first` has one bit.
FIELDS = {"starts": (0, 32), "skip_first": (32, 4), "generated": (39, 1), "skip_span": (40, 8), "use_span": (48, 8),
          "shift": (56, 6)}  # fmt: skip
_START_BITS = 8


@dataclass(frozen=True, eq=False)
class ColumnMask:
    """A decoded zero-column mask descriptor of ``tcgen05.mma.ws``."""

    shift: int  #: Index of the column of B that is used as column 0
    zero: NDArray[np.bool_]  #: Mask of the columns of B that are set to zero, shape (n,)


def largest_shift(m: int) -> int:
    """Return the largest shift of B in columns for M = `m`. The instruction descriptor may set a smaller limit."""
    return 16 if m == 32 else 32


def decode_column_mask(value: int, m: int, n: int, max_shift: int, where: str) -> ColumnMask:
    """Decode a zero-column mask descriptor of 64 bits for D of `m` rows and `n` columns. `where` names the instruction.

    N is cut into 128 / m parts, each with a sub-mask of its own. `max_shift` is from the instruction descriptor. Raise
    an `OperandError` if the value has more than 64 bits, sets a reserved bit, or shifts too far.

    Source: PTX ISA, zero-column mask descriptor. The table of PTX contradicts the examples of PTX: the meanings of use
    span and skip span are exchanged. As in the examples, the use span counts columns of B, the skip span zero columns.
    A start count beyond the first span is clamped to the last column of that span. PTX does not define this case; the
    public interpreter numsim states that an SM100 clamps. Modelled, not measured here.
    """
    if not 0 <= value < 1 << 64:
        raise OperandError(f"zero_column_mask of {where} must be a 64-bit number, not {shown(value)}")
    used_bits = sum(((1 << width) - 1) << low for low, width in FIELDS.values())
    if reserved := value & ~used_bits:
        raise OperandError(f"zero_column_mask of {where} sets the reserved bits {reserved:#x}, which must be 0")
    fields = {name: value >> low & (1 << width) - 1 for name, (low, width) in FIELDS.items()}
    shift, most = fields["shift"], largest_shift(m)
    if shift > min(max_shift, most):
        allowed = f"the instruction descriptor allows {max_shift}" if max_shift <= most else f"M = 32 allows {most}"
        raise OperandError(f"zero_column_mask of {where} shifts by {shift} columns, but {allowed}")
    parts = LANES // m
    if not fields["generated"]:
        return ColumnMask(shift, np.zeros(n, np.bool_))
    used, skipped = fields["use_span"] + 1, fields["skip_span"] + 1
    masks = []
    for part in range(parts):
        skips_first = bool(fields["skip_first"] >> part & 1)
        start = fields["starts"] >> _START_BITS * part & (1 << _START_BITS) - 1
        start = min(start, (skipped if skips_first else used) - 1)
        place = (np.arange(n // parts) + start) % (used + skipped)
        masks.append(place < skipped if skips_first else place >= used)
    return ColumnMask(shift, np.concatenate(masks))

"""Test program for the bench of a CTA's tensor cores: commands, initial memory contents, and expected writes.

The module does not depend on a simulator. :mod:`sptc.verify.bench_jobs` draws random test programs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...rtl.fetch import ADDRESS_BITS
from ...rtl.tensor_memory import COLUMN_BITS, TENSOR_LANES
from ...rtl.warp import COLUMNS
from ..engine.ports import words_of

__all__ = ["CtaPanel", "CtaTask", "CtaWork", "columns_from", "write_panel"]


@dataclass(frozen=True)
class CtaPanel:
    """One panel (eight columns of D) of a command's result, with the expected write to tensor memory."""

    column: int  #: First tensor-memory column of the panel (eight columns of D)
    half: bool  #: Whether only the lower half of each 32-bit word of tensor memory is written
    words: int  #: Expected write data, as bits of the write port; with `half`, the upper halves of words are zero
    illegal: int  #: Expected flags of undefined metadata nibbles of all rows, packed into one integer
    of_pair: bool  #: Whether the other CTA of the pair multiplies the same eight columns of B
    other: int | None  #: Bits of eight columns of B that the other CTA sends; None if this CTA's memory has them


@dataclass(frozen=True)
class CtaTask:
    """Command of the bench's test program (a multiplication or a commit) with its expected effects."""

    name: str  #: Name of the command in messages
    payload: int  #: Payload of the command in the CTA's command stream, as an integer
    panels: list[CtaPanel]  #: Panels (eight columns) of D in the order of computation; a commit has no panels
    #: `reads`: expected number of cycles in which shared memory is read. `columns`: expected number of tensor-memory
    #: columns that are read for operands other than D.
    reads: int = 0
    columns: int = 0


@dataclass(frozen=True, eq=False)
class CtaWork:
    """Test program of a bench: commands in order, and the memory contents of the CTA before the first command."""

    tensor: NDArray[np.uint32]  #: Initial contents of tensor memory, shape (128, 512)
    shared: list[int]  #: Contents of shared memory, one integer per 16 bytes
    tasks: list[CtaTask]

    def __post_init__(self) -> None:
        assert len(self.shared) == 1 << ADDRESS_BITS, "the contents of the whole shared memory are required"

    def tensor_after(self, tasks: int) -> NDArray[np.uint32]:
        """Return the expected contents of tensor memory after the first `tasks` commands of the program."""
        tensor = self.tensor.copy()
        for task in self.tasks[:tasks]:
            for panel in task.panels:
                write_panel(tensor, panel)
        return tensor


def columns_from(column: int) -> NDArray[np.intp]:
    """Return the indices of eight tensor-memory columns from `column` on, with wrap-around after the last column."""
    return (column + np.arange(COLUMNS)) % (1 << COLUMN_BITS)


def write_panel(tensor: NDArray[np.uint32], panel: CtaPanel) -> None:
    """Write one panel (eight columns of D) into an image of tensor memory."""
    words = words_of(panel.words, 32 * TENSOR_LANES * COLUMNS).reshape(TENSOR_LANES, COLUMNS)
    where = columns_from(panel.column)
    tensor[:, where] = (tensor[:, where] & 0xFFFF0000 if panel.half else 0) | words

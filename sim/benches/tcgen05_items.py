"""Work for the bench of the tensor cores of a CTA: tasks, initial memory contents, and expected writes.

It is independent of any simulator. :mod:`sptc.verify.bench_jobs` draws random work.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...rtl.fetch import ADDRESS_BITS
from ...rtl.tensor_memory import COLUMN_BITS, TENSOR_LANES
from ...rtl.warp import COLUMNS
from ..engine.ports import words_of
from .items import json_line, parsed_line

__all__ = ["CtaPanel", "CtaTask", "CtaWork", "columns_from", "write_panel"]


@dataclass(frozen=True)
class CtaPanel:
    """A panel of eight columns of D, with the write that the bench expects."""

    column: int  #: First column of the panel in tensor memory
    half: bool  #: Whether only the lower halves of the 32-bit words are written
    words: int  #: Expected write data, as bits of the port; with `half`, the upper halves of words are zero
    illegal: int  #: Expected undefined-nibble flags of each row, as bits of the port
    of_pair: bool  #: Whether the other CTA of the pair also multiplies this panel of B
    other: int | None  #: Panel of B that the other CTA sends; None if B is in this CTA


@dataclass(frozen=True)
class CtaTask:
    """A task of the bench: a multiplication or a commit."""

    name: str  #: For messages
    payload: int  #: Bits of the command's payload
    panels: list[CtaPanel]  #: Panels in order of multiplication; empty for a commit
    #: Number of cycles with reads of shared memory, and number of tensor-memory columns read for operands other than D.
    reads: int = 0
    columns: int = 0


@dataclass(frozen=True, eq=False)
class CtaWork:
    """Consecutive tasks, and the memory contents of the CTA before the first task."""

    tensor: NDArray[np.uint32]  #: Contents of tensor memory, shape (128, 512)
    shared: list[int]  #: Contents of shared memory, in units of 16 bytes
    tasks: list[CtaTask]

    def __post_init__(self) -> None:
        assert len(self.shared) == 1 << ADDRESS_BITS, "shared memory is complete"

    def tensor_after(self, tasks: int) -> NDArray[np.uint32]:
        """Return the contents of tensor memory after the first `tasks` tasks."""
        tensor = self.tensor.copy()
        for task in self.tasks[:tasks]:
            for panel in task.panels:
                write_panel(tensor, panel)
        return tensor

    def write(self, path: Path) -> None:
        """Write the work to a file: one line with the memory contents, then one line per task."""
        memories = {"tensor": self.tensor.tobytes().hex(), "shared": self.shared}
        with path.open("w", encoding="utf-8") as file:
            file.writelines(map(json_line, [memories, *map(asdict, self.tasks)]))

    @classmethod
    def read(cls, path: Path) -> "CtaWork":
        """Read the work from a file that :meth:`write` wrote."""
        with path.open(encoding="utf-8") as file:
            memories, *tasks = map(parsed_line, file)
        tensor = np.frombuffer(bytes.fromhex(memories["tensor"]), np.uint32).reshape(TENSOR_LANES, -1)
        read = [CtaTask(**task | {"panels": [CtaPanel(**panel) for panel in task["panels"]]}) for task in tasks]
        return cls(tensor, memories["shared"], read)


def columns_from(column: int) -> NDArray[np.intp]:
    """Return the indices of eight columns of tensor memory, starting at `column`, with wrap-around."""
    return (column + np.arange(COLUMNS)) % (1 << COLUMN_BITS)


def write_panel(tensor: NDArray[np.uint32], panel: CtaPanel) -> None:
    """Write eight columns of D into tensor memory."""
    words = words_of(panel.words, 32 * TENSOR_LANES * COLUMNS).reshape(TENSOR_LANES, COLUMNS)
    where = columns_from(panel.column)
    tensor[:, where] = (tensor[:, where] & 0xFFFF0000 if panel.half else 0) | words

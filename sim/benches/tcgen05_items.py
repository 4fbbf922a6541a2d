"""Work of the tensor cores of a CTA in hardware: tasks, memories, and expected writes.

It is independent of any simulator. :mod:`sptc.verify.bench_jobs` draws random work.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...rtl.fetch import ADDRESS_BITS
from ...rtl.tensor_memory import COLUMN_BITS, TENSOR_LANES
from ...rtl.warp import COLUMNS

__all__ = ["CtaPanel", "CtaTask", "CtaWork", "columns_from", "joined_words", "units_of", "write_panel"]

_UNIT_BYTES = 16


@dataclass(frozen=True)
class CtaPanel:
    """Eight columns of D."""

    column: int  #: First column in tensor memory
    half: bool  #: Whether only the lower halves of words are written
    words: int  #: Expected write data, as bits of the port; with `half`, upper halves are zero
    illegal: int  #: Expected flags of undefined nibbles of each row, as bits of the port
    of_pair: bool  #: Whether the other CTA multiplies this panel too
    other: int | None  #: Panel of B, if it comes from the other CTA


@dataclass(frozen=True)
class CtaTask:
    """An instruction, or a commit."""

    name: str  #: For messages
    payload: int  #: Bits of the payload
    panels: list[CtaPanel]  #: Panels in order of multiplication; empty for a commit
    #: Number of cycles with a read of shared memory, and of columns read from tensor memory beside D.
    reads: int = 0
    columns: int = 0


@dataclass(frozen=True, eq=False)
class CtaWork:
    """Consecutive tasks, and the memories of the CTA before them."""

    tensor: NDArray[np.uint32]  #: Tensor memory, shape (128, 512)
    shared: list[int]  #: Shared memory in units of 16 bytes
    tasks: list[CtaTask]

    def tensor_after(self, tasks: int) -> NDArray[np.uint32]:
        """Return tensor memory after a number of tasks."""
        found = self.tensor.copy()
        for task in self.tasks[:tasks]:
            for panel in task.panels:
                write_panel(found, panel)
        return found

    def write(self, path: Path) -> None:
        """Write the work for a bench: memories, then one task on each line."""
        with path.open("w", encoding="utf-8") as file:
            shared = b"".join(unit.to_bytes(_UNIT_BYTES, "little") for unit in self.shared)
            file.write(json.dumps({"tensor": self.tensor.tobytes().hex(), "shared": shared.hex()}) + "\n")
            for task in self.tasks:
                panels = [_with(hex, asdict(panel)) for panel in task.panels]
                file.write(json.dumps(asdict(task) | {"payload": hex(task.payload), "panels": panels}) + "\n")

    @classmethod
    def read(cls, path: Path) -> "CtaWork":
        """Read the work in a file of :meth:`write`."""
        with path.open(encoding="utf-8") as file:
            memories = json.loads(next(file))
            lines = [json.loads(line) for line in file]
        tensor = np.frombuffer(bytes.fromhex(memories["tensor"]), np.uint32).reshape(TENSOR_LANES, -1)
        tasks = []
        for fields in lines:
            panels = [CtaPanel(**_with(lambda text: int(text, 16), panel)) for panel in fields.pop("panels")]
            tasks.append(CtaTask(payload=int(fields.pop("payload"), 16), panels=panels, **fields))
        return cls(tensor, units_of(bytes.fromhex(memories["shared"])), tasks)


def _with(change: Callable[[Any], Any], panel: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a panel; `change` is applied to wide ones."""
    of_many_bits = {name: panel[name] for name in ("words", "illegal", "other") if panel[name] is not None}
    return panel | {name: change(value) for name, value in of_many_bits.items()}


def units_of(shared: bytes) -> list[int]:
    """Return shared memory as units of 16 bytes."""
    size = _UNIT_BYTES << ADDRESS_BITS
    assert len(shared) == size, f"a shared memory has {size} bytes"
    return [int.from_bytes(shared[place : place + _UNIT_BYTES], "little") for place in range(0, size, _UNIT_BYTES)]


def columns_from(column: int) -> NDArray[np.intp]:
    """Return eight columns from the given one on, with wrap-around."""
    return (column + np.arange(COLUMNS)) % (1 << COLUMN_BITS)


def write_panel(tensor: NDArray[np.uint32], panel: CtaPanel) -> None:
    """Write eight columns of D into tensor memory."""
    size = 4 * TENSOR_LANES * COLUMNS
    words = np.frombuffer(panel.words.to_bytes(size, "little"), np.uint32).reshape(TENSOR_LANES, COLUMNS)
    where = columns_from(panel.column)
    tensor[:, where] = (tensor[:, where] & 0xFFFF0000 if panel.half else 0) | words


def joined_words(words: NDArray[np.uint32]) -> int:
    """Concatenate 32-bit words; the first is lowest."""
    return int.from_bytes(np.ascontiguousarray(words, np.uint32).tobytes(), "little")

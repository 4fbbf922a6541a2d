"""Models of shared memory and tensor memory for cocotb benches; read data arrive one cycle after the read."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...rtl.fetch import PANEL_ROWS, UNIT_BITS
from ...rtl.tensor_memory import TENSOR_LANES

__all__ = ["ColumnMemory", "SharedMemory"]


class SharedMemory:
    """Shared memory model: read data arrive in the next cycle; without a read, the data ports are random."""

    def __init__(self, top: Any, rng: np.random.Generator) -> None:
        self._data = [getattr(top, f"memory__data__{row}") for row in range(PANEL_ROWS)]
        self._addresses = [getattr(top, f"memory__address__{row}") for row in range(PANEL_ROWS)]
        self._read, self._rng = top.memory__read, rng
        self._answers: list[int] | None = None

    def sample(self, read: Callable[[int], int] | None) -> bool:
        """Get the data of this cycle's reads from function `read`, None in a reset; return whether there was a read."""
        reads = bool(int(self._read.value))
        self._answers = [read(int(address.value)) for address in self._addresses] if read and reads else None
        return reads and read is not None

    def drive(self) -> None:
        """Drive the data of the previous cycle's reads; without a read, drive random data on one of the data ports."""
        if self._answers:
            for data, answer in zip(self._data, self._answers, strict=True):
                data.value = answer
        else:
            noise = self._rng.bytes(UNIT_BITS // 8)
            self._data[self._rng.integers(PANEL_ROWS)].value = int.from_bytes(noise, "little")


class ColumnMemory:
    """Tensor memory model: read data arrive in the next cycle; without a read, the data ports are random."""

    def __init__(self, top: Any, rng: np.random.Generator, port: str) -> None:
        self._data = [getattr(top, f"{port}__data__{lane}") for lane in range(TENSOR_LANES)]
        self._column, self._read = getattr(top, f"{port}__column"), getattr(top, f"{port}__read")
        self._rng = rng
        self._answer: list[int] | None = None

    def sample(self, memory: NDArray[np.uint32] | None) -> bool:
        """Get the column read in this cycle from `memory`, None in a reset; return whether there was a read."""
        reads = memory is not None and bool(int(self._read.value))
        self._answer = memory[:, int(self._column.value)].tolist() if memory is not None and reads else None
        return reads

    def drive(self) -> None:
        """Drive the data of the previous cycle's read; without a read, drive random data on one lane in eight."""
        if self._answer:
            for data, word in zip(self._data, self._answer, strict=True):
                data.value = word
            return
        for lane in self._rng.integers(0, TENSOR_LANES, TENSOR_LANES // 8).tolist():
            self._data[lane].value = int(self._rng.integers(1 << 32))

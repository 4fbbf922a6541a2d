"""Model of memory ports for cocotb benches; read data arrive one cycle after the read."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...rtl.fetch import PANEL_ROWS, UNIT_BITS

__all__ = ["MemoryPort", "shared_memory"]


class MemoryPort:
    """Read port of a memory: read data arrive in the next cycle; without a read, the data ports are random.

    `read` is the port that requests a read, `addresses` are the address ports, and `data` the data ports, each of
    `bits` bits. The function `contents` takes the addresses of a read and returns the value of each data port.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        read: Any,
        addresses: Sequence[Any],
        data: Sequence[Any],
        bits: int,
        contents: Callable[..., list[int]],
    ) -> None:
        self._rng, self._read, self._addresses, self._data = rng, read, addresses, data
        self._bytes, self._contents = bits // 8, contents
        self._answers: list[int] = []

    def sample(self, reset: bool) -> bool:
        """Get the data of a read in this cycle, unless there is a reset; return whether there was a read."""
        reads = not reset and bool(int(self._read.value))
        self._answers = self._contents(*(int(address.value) for address in self._addresses)) if reads else []
        return reads

    def drive(self) -> None:
        """Drive the data of the previous cycle's read; without a read, drive random data on one data port in eight."""
        if self._answers:
            for port, answer in zip(self._data, self._answers, strict=True):
                port.value = answer
            return
        for place in np.flatnonzero(self._rng.random(len(self._data)) < 1 / 8).tolist():
            self._data[place].value = int.from_bytes(self._rng.bytes(self._bytes), "little")


def shared_memory(top: Any, rng: np.random.Generator, read: Callable[[int], int]) -> MemoryPort:
    """Return the shared-memory port of a top module; `read` returns the 16 bytes at an address as an integer."""
    addresses, data = (
        [getattr(top, f"memory__{name}__{row}") for row in range(PANEL_ROWS)] for name in ("address", "data")
    )
    return MemoryPort(rng, top.memory__read, addresses, data, UNIT_BITS, lambda *units: [*map(read, units)])

"""Memory models of benches, without a simulator: data appear in the cycle after a read, and noise without a read."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sptc.rtl.fetch import PANEL_ROWS
from sptc.rtl.tensor_memory import TENSOR_LANES
from sptc.sim.benches.memories import ColumnMemory, SharedMemory

#: Number of cycles without a read. In each, a memory model drives random data on some ports, so all ports get some.
MANY = 300


def values(top: Any, name: str, count: int) -> list[int]:
    return [getattr(top, f"{name}__{number}").value for number in range(count)]


@pytest.mark.parametrize("kind", [SharedMemory, ColumnMemory])
def test_what_is_read(kind: type, rng: np.random.Generator) -> None:
    """Data of a read appear in one cycle only, and never if a reset coincides with the read."""
    shared = kind is SharedMemory
    count = PANEL_ROWS if shared else TENSOR_LANES
    names = [f"memory__data__{number}" for number in range(count)] + ["memory__read", "memory__column"]
    names += [f"memory__address__{number}" for number in range(PANEL_ROWS)]
    top: Any = SimpleNamespace(**{name: SimpleNamespace(value=0) for name in names})
    tensor = rng.integers(0, 1 << 32, (TENSOR_LANES, 512), np.uint32)
    memory: Any = SharedMemory(top, rng) if shared else ColumnMemory(top, rng, "memory")
    contents: Any = (lambda unit: 3 * unit + 1) if shared else tensor
    for reset in (False, True):
        top.memory__read.value, top.memory__column.value = 1, 77
        for number in range(PANEL_ROWS):
            getattr(top, f"memory__address__{number}").value = 500 + number
        expected = [3 * (500 + number) + 1 for number in range(count)] if shared else tensor[:, 77].tolist()
        assert memory.sample(None if reset else contents) == (not reset)
        memory.drive()
        assert (values(top, "memory__data", count) == expected) == (not reset)
        top.memory__read.value = 0
        for _ in range(MANY):
            assert not memory.sample(contents)
            memory.drive()
        assert not {*values(top, "memory__data", count)} & {*expected}

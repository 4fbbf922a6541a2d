"""Memory model of benches, without a simulator: data appear in the cycle after a read, and noise without a read."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from sptc.rtl.fetch import PANEL_ROWS
from sptc.sim.benches.memories import shared_memory

#: Number of cycles without a read. In each, a memory model drives random data on some ports, so all ports get some.
MANY = 300


def test_what_is_read(rng: np.random.Generator) -> None:
    """Data of a read appear in one cycle only, and never if a reset coincides with the read."""
    addresses, data = ([f"memory__{name}__{row}" for row in range(PANEL_ROWS)] for name in ("address", "data"))
    top: Any = SimpleNamespace(**{name: SimpleNamespace(value=0) for name in (*addresses, *data, "memory__read")})
    memory = shared_memory(top, rng, lambda unit: 3 * unit + 1)

    def values() -> list[int]:
        return [getattr(top, name).value for name in data]

    for reset in (False, True):
        top.memory__read.value = 1
        for row, name in enumerate(addresses):
            getattr(top, name).value = 500 + row
        expected = [3 * (500 + row) + 1 for row in range(PANEL_ROWS)]
        assert memory.sample(reset) == (not reset)
        memory.drive()
        assert (values() == expected) == (not reset)
        top.memory__read.value = 0
        for _ in range(MANY):
            assert not memory.sample(reset=False)
            memory.drive()
        assert not {*values()} & {*expected}

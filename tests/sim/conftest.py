"""A fault of the hardware, for tests of what is to find it."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.sim.engine import Engine
from sptc.sim.steps import step_words


@pytest.fixture
def faulty_push() -> Callable[[Engine, NDArray], NDArray]:
    """Hardware that flips a bit where the first element of A is negative and the accumulator ends in 101."""
    push = Engine.push

    def pushed(engine: Engine, steps: NDArray) -> NDArray:
        words = step_words(engine.config)
        hit = (steps[:, words.a.start] & 0x8000 != 0) & (steps[:, words.c.start] & 7 == 5)
        return push(engine, steps) ^ hit.astype(np.uint64) << np.uint64(4)

    return pushed

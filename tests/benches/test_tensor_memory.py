"""The reader of tensor memory on its bench: random tiles of every kind, placed by the index maps."""

from collections.abc import Callable

import pytest
from sptc.sim.benches.settings import Settings
from sptc.sim.benches.tensor_memory_items import instructions

TILES = 400


def test_what_the_bench_draws_from() -> None:
    """Every kind and number of block scales, with as few columns of B as there may be and as many."""
    drawn = instructions()
    assert {(i.kind, i.scale_size) for i in drawn} == {
        *((kind, None) for kind in ("tf32", "f16", "f8f6f4", "i8")),
        *(("mxf8f6f4", 1), ("mxf4", 2), ("mxf4nvf4", 2), ("mxf4nvf4", 4)),
    }
    assert (min(i.n for i in drawn), max(i.n for i in drawn)) == (8, 256)


@pytest.mark.regression
def test_on_verilator(bench: Callable, seed: int) -> None:
    assert bench("tiny", "tensor_memory", TILES).run(seed) == []


@pytest.mark.regression
def test_at_length(bench: Callable, seed: int) -> None:
    built = bench("tiny", "tensor_memory", TILES)
    assert built.run(seed, settings=Settings("tiny", "tensor_memory", 10 * TILES)) == []

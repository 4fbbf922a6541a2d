"""The unit that is simulated, of single operators, computes what the unit that is emitted as Verilog does."""

from collections.abc import Callable
from functools import partial
from itertools import islice

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.rtl.cells.platforms import OPERATORS
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.rtl.emit import emit
from sptc.rtl.step import row_result_layout
from sptc.sim.benches.blocks import ARCHITECTURE_OF_PRESET, random_blocks
from sptc.sim.engine import libraries
from sptc.sim.engine.compiled_row import CompiledRow
from sptc.sim.engine.steps import step_words
from sptc.verify.directed_steps import directed_steps

Random = np.random.Generator
Units = tuple[CoreConfig, Callable[[NDArray[np.uint32]], NDArray[np.uint64]], Callable[..., NDArray[np.uint64]]]


@pytest.fixture(scope="module", params=["tiny", pytest.param("hopper", marks=pytest.mark.regression)])
def units(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Units:
    """Compile both as the back end compiles the one that it runs."""
    config = PRESETS[request.param]
    words = step_words(config).total
    simulated = CompiledRow(config, words)
    texts: list[str] = []

    def emitted(*what: object, platform: object) -> str:
        assert platform == OPERATORS
        texts.append(emit(*what))
        assert texts[-1] != emit(*what, platform=platform)
        return texts[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPTC_CACHE", str(tmp_path_factory.mktemp("emitted")))
        patch.setattr("sptc.rtl.emit.emit", emitted)
        patch.setattr(libraries, "compile_library", partial(libraries.compile_library, optimisation=("-O0",)))
        structure = CompiledRow(config, words)
    assert len(texts) == 1
    return config, simulated.run, structure.run


def compared(units: Units, steps: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return the results of steps, the same of both units: value, overflow and illegal chunks."""
    config, simulated, structure = units
    mask = np.uint64((1 << row_result_layout(config).size) - 1)
    steps = np.ascontiguousarray(steps)
    results = simulated(steps) & mask
    np.testing.assert_array_equal(structure(steps) & mask, results)
    return results


@pytest.mark.regression
def test_steps_of_instructions(units: Units, rng: Random) -> None:
    """Of every format and result, with everything extraordinary that the benches draw; and both are right."""
    config = units[0]
    blocks = [*islice(random_blocks(config, ARCHITECTURE_OF_PRESET[config.name], rng, 8, 8), 120)]
    steps = np.concatenate([block.steps.reshape(-1, step_words(config).total) for block in blocks])
    results = compared(units, steps)
    value = np.uint64((1 << row_result_layout(config)["d"].width) - 1)
    wanted = np.concatenate([block.results.ravel() for block in blocks])
    np.testing.assert_array_equal(results & value, wanted & value)
    assert len(results) == 120 * 64
    assert len(np.unique(results)) > 3000


@pytest.mark.regression
def test_directed_steps(units: Units, rng: Random) -> None:
    """Random bits under every operation and rule, beyond what an instruction asks for."""
    results = compared(units, directed_steps(units[0], rng, 30_000))
    assert len(np.unique(results)) > 10_000


@pytest.mark.regression
def test_ends_of_the_range(units: Units, rng: Random) -> None:
    """Bytes and words of nothing but zeros, ones and lone bits, in every combination of operands."""
    config, words = units[0], step_words(units[0])
    steps = directed_steps(config, rng, 20_000)
    octets = np.array([0x00, 0x00, 0xFF, 0x80, 0x7F, 0x01, 0x7C, 0x3C], np.uint8)
    operands = slice(words.a.start, words.b.stop)
    size = 4 * (operands.stop - operands.start)
    drawn = octets[rng.integers(0, len(octets), (len(steps), size))]
    drawn[::3] = drawn[::3, :4].repeat(size // 4, axis=1)  # all alike: sums of the largest magnitude
    steps[:, operands] = drawn.view("<u4")
    steps[:, words.c] = rng.choice(np.array([0, 0x80000000, 0x7FFFFFFF, 0xFFFFFFFF, 1], np.uint32), (len(steps), 1))
    assert len(np.unique(compared(units, steps))) > 500

"""The cocotb benches: every component, the unit, the core and the warp against the golden model."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from sptc.errors import BackendError
from sptc.rtl.config import PRESETS
from sptc.sim.benches.settings import Settings

#: Vectors of each component, steps, tiles and instructions of each test.
ITEMS = {"components": 500, "row": 2000, "core": 600, "warp": 40}
TINY_COMPONENTS = {
    *("metadata", "mux8", "mux16", "select"),
    *("unpack_a0", "unpack_b0", "multiply0", "unpack_a15", "unpack_b15", "multiply15", "accumulator", "offset"),
    *("e_max", "largest_of_products", "align0", "align_c", "sum_tree", "adder", "accumulate", "leading_zeros", "round"),
}
#: One preset for each datapath.
DATAPATHS = [*{replace(config, name=""): name for name, config in reversed(PRESETS.items())}.values()]
#: Vectors of each component in the quick tier.
QUICK_ITEMS = 200


def test_on_verilator(bench: Callable, seed: int) -> None:
    """One test case of JUnit XML for each component, which a continuous-integration server can read."""
    built = bench("tiny", "components", QUICK_ITEMS)
    assert built.run(seed) == []
    names = {case.get("name") for case in ElementTree.parse(built.results).iter("testcase")}
    assert names == TINY_COMPONENTS


@pytest.mark.skipif(not shutil.which("iverilog"), reason="Icarus Verilog is not on this machine: apt install iverilog")
def test_on_icarus(bench: Callable, seed: int) -> None:
    for preset, top in (("tiny", "components"), ("tiny", "row"), ("tiny", "core"), ("hopper", "components")):
        assert bench(preset, top, ITEMS[top] // 5, "icarus").run(seed) == [], (preset, top)


@pytest.mark.regression
@pytest.mark.parametrize("top", ITEMS)
def test_a_datapath(bench: Callable, seed: int, rng: np.random.Generator, top: str) -> None:
    """Drawn anew in every run; what holds many units differs in the bytes of a step and little else."""
    presets = DATAPATHS if top in ("components", "row") else ["tiny", "rtx-blackwell"]
    for preset in rng.choice(presets, len(presets) // 2, replace=False).tolist():
        assert bench(preset, top, ITEMS[top]).run(seed) == [], preset


def test_one_test_of_a_bench(bench: Callable, seed: int) -> None:
    built = bench("tiny", "components", QUICK_ITEMS)
    built.run(seed, settings=Settings("tiny", "components", 10), test="round")
    assert [case.get("name") for case in ElementTree.parse(built.results).iter("testcase")] == ["round"]


@pytest.mark.regression
def test_no_test_of_that_name_is_no_success(bench: Callable, seed: int) -> None:
    built = bench("tiny", "components", QUICK_ITEMS)
    with pytest.raises(BackendError):
        built.run(seed, settings=Settings("tiny", "components", 10), test="nothing like it")

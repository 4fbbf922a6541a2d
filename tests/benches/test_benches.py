"""The cocotb benches: every component, the unit, the core and the warp against the golden model."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

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
#: How much longer the regression is; and its presets, one for each datapath.
LONGER = 2
DATAPATHS = [*{replace(config, name=""): name for name, config in reversed(PRESETS.items())}.values()]

#: Components and rows of every datapath; what holds many units differs in the bytes of a step and little else.
AT_LENGTH = [(preset, top) for preset in DATAPATHS for top in ("components", "row")]
AT_LENGTH += [(preset, top) for preset in ("tiny", "rtx-blackwell") for top in ("core", "warp")]
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
@pytest.mark.parametrize(("preset", "top"), AT_LENGTH)
def test_at_length(bench: Callable, seed: int, preset: str, top: str) -> None:
    built = bench(preset, top, ITEMS[top])
    assert built.run(seed, settings=Settings(preset, top, LONGER * ITEMS[top])) == []


def test_one_test_of_a_bench(bench: Callable, seed: int) -> None:
    built = bench("tiny", "components", QUICK_ITEMS)
    built.run(seed, settings=Settings("tiny", "components", 10), test="round")
    assert [case.get("name") for case in ElementTree.parse(built.results).iter("testcase")] == ["round"]


@pytest.mark.regression
def test_no_test_of_that_name_is_no_success(bench: Callable, seed: int) -> None:
    built = bench("tiny", "components", QUICK_ITEMS)
    with pytest.raises(BackendError):
        built.run(seed, settings=Settings("tiny", "components", 10), test="nothing like it")

"""A warp of ``wgmma`` behind descriptors: random forms, and every recorded tile at the addresses it computes."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Module
from sptc.rtl.convert import to_verilog
from sptc.rtl.fetch import CoreMatrixAddress, PanelFetcher
from sptc.rtl.wgmma import WgmmaWarp
from sptc.sim.benches.runner import build
from sptc.sim.benches.settings import Settings
from sptc.sim.register_file import RegisterFile, shipped, write

#: A panel every sixteen cycles.
ARRAY = (2, 4)
ITEMS = 60


@pytest.fixture(scope="module")
def wgmma(bench: Callable) -> Callable:
    return lambda seed, **options: bench("hopper", "wgmma", ITEMS, array=ARRAY).run(
        seed, settings=Settings("hopper", "wgmma", **{"items": ITEMS, "array": ARRAY} | options)
    )


def test_every_form(wgmma: Callable, seed: int) -> None:
    assert wgmma(seed) == []


@pytest.mark.regression
def test_every_form_at_length(wgmma: Callable, seed: int) -> None:
    assert wgmma(seed, items=30 * ITEMS) == []


def test_recorded_tiles(wgmma: Callable, seed: int) -> None:
    """Every recording of wgmma that ships, from descriptors and registers to registers."""
    files = tuple(str(path) for path in shipped() if path.name.startswith("wgmma"))
    assert len(files) > 150
    assert wgmma(seed, files=files) == []


def test_a_wrong_output_in_a_recording_is_seen(wgmma: Callable, seed: int, tmp_path: Path) -> None:
    source = next(path for path in shipped() if "m64n64k32.f32.f16" in path.name and "descriptor-a" in path.name)
    contents = dict(np.load(source))
    contents["D"][1, 77, 5] ^= 1 << 9
    np.savez(tmp_path / "wrong.npz", **contents)
    (failure,) = wgmma(seed, files=(str(tmp_path / "wrong.npz"),))
    assert re.search("case 1, warp 2, columns 8 to 15: 1 bits differ from the golden model", failure.message)


def test_every_recorded_set(
    wgmma: Callable, seed: int, tmp_path: Path, recorded_sets: Iterator[tuple[str, RegisterFile]]
) -> None:
    """All 77 sets, where the complete recordings are present."""
    files = []
    for key, file in recorded_sets:
        if key.startswith("wg_"):
            files.append(str(tmp_path / f"{len(files)}.npz"))
            write(files[-1], file)
    assert len(files) == 77
    assert wgmma(seed, files=tuple(files)) == []


class _WithoutBaseOffset(CoreMatrixAddress):
    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.right = right = CoreMatrixAddress()
        m.d.comb += [right.request.eq(self.request), right.request.descriptor.base_offset.eq(0)]
        m.d.comb += [right.segment.eq(self.segment), *(self.address[i].eq(right.address[i]) for i in range(8))]
        return m


@pytest.mark.regression
def test_the_bench_sees_a_planted_fault(seed: int, tmp_path: Path) -> None:
    settings = Settings("hopper", "wgmma", ITEMS, array=ARRAY)
    wrong = WgmmaWarp(settings.config, fetcher_class=lambda: PanelFetcher(_WithoutBaseOffset))
    text = to_verilog(wrong, "bench")
    failures = build(settings, tmp_path, verilog_text=text).run(seed)
    assert failures
    assert all("differ from the golden model" in failure.message for failure in failures)

"""A warp of ``wgmma`` behind descriptors: random forms, and every recorded tile at the addresses it computes."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pytest
from sptc.rtl.convert import to_verilog
from sptc.rtl.fetch import PanelFetcher
from sptc.rtl.wgmma import WgmmaWarp
from sptc.sim.benches.runner import Failure, build
from sptc.sim.benches.settings import Settings
from sptc.sim.benches.wgmma_items import write_jobs
from sptc.tests.benches.wrong_addresses import WithoutBaseOffset
from sptc.verify.archive import Replayable
from sptc.verify.register_file import RegisterFile, read, shipped
from sptc.verify.wgmma_jobs import jobs_of, random_jobs

#: A panel every sixteen cycles.
ARRAY = (2, 4)
ITEMS = 60


Run = Callable[..., list[Failure]]


@pytest.fixture
def wgmma(bench: Callable, seed: int, tmp_path: Path) -> Run:
    """Run jobs on the bench: random ones, or those of register files back to back."""

    def run(items: int = ITEMS, files: Iterable[Replayable] = ()) -> list[Failure]:
        built, rng = bench("hopper", "wgmma", ITEMS, array=ARRAY), np.random.default_rng(seed)
        config = built.settings.config
        recorded = list(files)
        jobs = chain.from_iterable(jobs_of(file, config, rng) for file in recorded)
        write_jobs(tmp_path / "jobs", jobs if recorded else islice(random_jobs(config, rng), items))
        settings = replace(built.settings, jobs=str(tmp_path / "jobs"), back_to_back=bool(recorded))
        return built.run(seed, settings=settings)

    return run


@pytest.mark.regression
def test_every_form(wgmma: Run) -> None:
    assert wgmma() == []


@pytest.mark.regression
def test_every_form_at_length(wgmma: Run) -> None:
    assert wgmma(4 * ITEMS) == []


@pytest.mark.regression
def test_recorded_tiles(wgmma: Run) -> None:
    """Every recording of wgmma that ships, from descriptors and registers to registers."""
    files = [read(path) for path in shipped() if path.name.startswith("wgmma")]
    assert len(files) > 150
    assert wgmma(files=files) == []


@pytest.mark.regression
def test_a_wrong_output_in_a_recording_is_seen(wgmma: Run) -> None:
    source = next(path for path in shipped() if "m64n64k32.f32.f16" in path.name and "descriptor-a" in path.name)
    file = read(source)
    assert file.d is not None
    file.d[1, 77, 5] ^= 1 << 9
    (failure,) = wgmma(files=[file])
    assert re.search("case 1, warp 2, columns 8 to 15: 1 bits differ from the golden model", failure.message)


@pytest.mark.regression
def test_every_recorded_set(wgmma: Run, recorded_sets: Iterator[tuple[str, RegisterFile]]) -> None:
    """All 77 sets, where the complete recordings are present."""
    files = [file for key, file in recorded_sets if key.startswith("wg_")]
    assert len(files) == 77
    assert wgmma(files=files) == []


@pytest.mark.regression
def test_the_bench_sees_a_planted_fault(seed: int, tmp_path: Path) -> None:
    settings = Settings("hopper", "wgmma", ITEMS, jobs=str(tmp_path / "jobs"), array=ARRAY)
    write_jobs(tmp_path / "jobs", islice(random_jobs(settings.config, np.random.default_rng(seed)), ITEMS))
    wrong = WgmmaWarp(settings.config, fetcher_class=lambda: PanelFetcher(WithoutBaseOffset))
    text = to_verilog(wrong, "bench")
    failures = build(settings, tmp_path, verilog_text=text).run(seed)
    assert failures
    assert all("differ from the golden model" in failure.message for failure in failures)

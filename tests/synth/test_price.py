"""A netlist is measured once per recipe. Results are cached completely or not at all. Sweeps keep their point order."""

import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median

import pytest
import sptc
from sptc.errors import BackendError
from sptc.rtl.config import CoreConfig
from sptc.synth import price
from sptc.synth.liberty import Library
from sptc.synth.netlist import Netlist, unit
from sptc.synth.price import measure, measure_all, versions
from sptc.synth.recipe import Recipe
from sptc.synth.sweep import Place, point_at, sweep
from sptc.synth.sweep_report import plot_sweep, sweep_as_dict, sweep_table
from sptc.tests.synth.netlists import nands


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SPTC_CACHE", str(tmp_path / "own"))
    return tmp_path / "own" / "synth"


def test_a_cached_measurement_is_not_repeated(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = measure(nands(3), Recipe())
    assert not first.cached
    assert len(list(own_cache.iterdir())) == 1
    monkeypatch.setattr(price, "run_yosys", None)
    assert measure(nands(3), Recipe()) == replace(first, cached=True)
    assert measure(replace(nands(3), name="other"), Recipe()) == replace(first, cached=True)
    with pytest.raises(TypeError):
        measure(nands(4), Recipe())


def test_what_a_measurement_depends_on(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """A measurement depends on netlist, recipe, tool versions and library content, not on the library's file name."""
    recipe = Recipe(library=library)
    measure(nands(2), recipe)
    assert measure(nands(2), Recipe(library=Library("other.lib", library.text))).cached
    changed = Recipe(library=Library(library.name, library.text.replace("area : 4;", "area : 6;")))
    assert measure(nands(2), changed).amounts["area"] == 12
    assert not measure(nands(2), Recipe(library=library, combinational=True)).cached
    monkeypatch.setattr(price, "yosys_version", lambda: "0.0")
    assert not measure(nands(2), recipe).cached


def test_a_damaged_cache_entry_is_replaced(own_cache: Path) -> None:
    first = measure(nands(2), Recipe())
    (path,) = own_cache.iterdir()
    no_amounts = '{"amounts": 1, "longest": 1, "cells": {}, "seconds": 1}'
    for text in ("", "{", "null", "[1]", '{"amounts": {}}', no_amounts):
        path.write_text(text)
        again = measure(nands(2), Recipe())
        assert (again.cached, again.amounts) == (False, first.amounts), text
        assert json.loads(path.read_text())["amounts"] == first.amounts, text


def test_an_interruption_leaves_nothing(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(folder: Path, script: str) -> str:
        assert (folder / "netlist.il").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(price, "run_yosys", interrupt)
    (tmp_path / "scratch").mkdir()
    with pytest.raises(KeyboardInterrupt):
        measure(nands(2), Recipe(), tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []
    assert not own_cache.exists()


def test_many_at_once_and_one_that_fails(own_cache: Path) -> None:
    requests = {f"{n} {name}": (replace(nands(n), name=name), Recipe()) for n in (1, 2) for name in "ab"}
    told: list[tuple[int, int]] = []
    found = measure_all(requests, 2, lambda done, total: told.append((done, total)))
    gates = {name: measurement.amounts["gates"] for name, measurement in found.items()}
    assert gates == {"1 a": 1.0, "1 b": 1.0, "2 a": 2.0, "2 b": 2.0}
    assert told == [(0, 2), (1, 2), (2, 2)]
    assert len(list(own_cache.iterdir())) == 2
    wrong = Netlist("wrong", "nonsense\n")
    with pytest.raises(BackendError, match=r"^Yosys failed: "):
        measure_all({"good": (nands(1), Recipe()), "bad": (wrong, Recipe())}, 2)


def test_versions() -> None:
    found = versions()
    assert found["sptc"] == sptc.__version__
    assert found.keys() == {"sptc", "amaranth", "pyosys", "abc"}
    assert re.match(r"\d+\.\d+", found["abc"])


GRID_CONFIG = CoreConfig(
    name="s8", formats=("s8",), step_bytes=8, alignment_bits=12, fp8_alignment_bits=12, rows=1, columns=1, cuts=()
)
AXES = ((("s8",), ("f16",)), (12,), (4, 8), ("mux4",), ((), ("multiply", "reduce")))
GRID = [Place(*values) for values in product(*AXES)]


def test_points() -> None:
    """A point with packed e2m1 gets the scale formats that it needs."""
    axes = ((("s8",), ("e2m1/4",)), (8, 36), (8,), ("mux4", "mux3"), ((),), (False,))
    points = [point_at(Place(*values)) for values in product(*axes)]
    assert [str(point) for point in points[:3]] == [
        f"{words} dense" for words in ("s8 F=8 8 B mux4 none", "s8 F=8 8 B mux3 none", "s8 F=36 8 B mux4 none")
    ]
    assert len(points) == 8
    packed = points[-1].config
    assert (packed.scales, packed.block_alignment_bits) == (("ue8m0", "ue4m3"), 36)
    assert (packed.alignment_bits, packed.fp8_alignment_bits) == (36, 36)
    assert not any(point.config and point.config.sparse for point in points)
    point = point_at(Place(("f16", "s8"), 24, 16, "mux4", ()))
    assert point.products == {"f16": 8, "s8": 16}
    assert "8-16" in sweep_table([point], Recipe())


@pytest.mark.regression
def test_a_sweep_and_its_reports(library: Library) -> None:
    recipe = Recipe(library=library)
    found = sweep(GRID, recipe, jobs=2)
    assert [point.place for point in found] == GRID
    small, cut, large, _ = found[:4]
    assert small.products == {"s8": 4}
    assert large.products == {"s8": 8}
    assert large.measurement.amounts["area"] > 1.5 * small.measurement.amounts["area"]
    assert cut.measurement.longest < small.measurement.longest
    assert cut.products_per_ns["s8"] == pytest.approx(4000 / cut.measurement.longest)
    for point in found[4:]:
        assert (point.config, point.measurement, point.products) == (None, None, {})
        assert point.refusal.startswith("alignment_bits must be at least 20")
    lines = sweep_table(found, recipe).splitlines()
    header = next(place for place, line in enumerate(lines) if line.startswith("formats"))
    assert lines[header].split()[:6] == ["formats", "A", "mux", "cuts", "F", "step"]
    rows = lines[header + 1 :]
    assert len(rows) == 8
    assert rows[1].split()[:6] == ["s8", "sparse", "mux4", "multiply,reduce", "12", "4"]
    reason = "alignment_bits must be at least 20, the fraction bits of a product of these formats, not 12"
    assert rows[5].endswith(reason)
    values = json.loads(json.dumps(sweep_as_dict(found, recipe)))
    assert values["points"][0]["configuration"]["step_bytes"] == 4
    assert values["points"][0]["products_per_cycle"] == {"s8": 4}
    assert values["points"][0]["unit"]["delay"] == found[0].measurement.longest
    assert (values["points"][4]["configuration"], values["points"][4]["unit"]) == (None, None)


@pytest.mark.regression
def test_orders_of_the_ports(library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Area and delay are medians over several orders of the ports. The scatter is the range of these measurements."""
    grid = [Place(("s8",), 12, 8, "mux4", (), sparse) for sparse in (True, False)]
    recipe = Recipe(library=library, orders=3)
    sparse, dense = (point.measurement for point in sweep(grid, recipe))
    netlists = {kind: unit(replace(GRID_CONFIG, sparse=kind)) for kind in (True, False)}
    monkeypatch.setenv("SPTC_CACHE", str(tmp_path / "cache"))  # an empty cache
    for kind, found in ((True, sparse), (False, dense)):
        runs = [measure(netlists[kind], Recipe(library=library, seed=seed)) for seed in (1, 2, 3)]
        assert [one.figures for one in found.orders] == [run.figures for run in runs]
        areas, delays = zip(*((run.amounts["area"], run.longest) for run in runs), strict=True)
        assert (found.amounts["area"], found.longest) == (median(areas), median(delays))
        assert len(set(areas)) > 1
        assert found.scatter["area"] == pytest.approx([100 * (end(areas) / median(areas) - 1) for end in (min, max)])
    points_of_grid = sweep(grid, recipe)
    table = sweep_table(points_of_grid, recipe)
    assert "medians over 3 orders of the ports" in table
    assert "{:+.1f} to {:+.1f} %".format(*sparse.scatter["area"]) in table
    values = sweep_as_dict(points_of_grid, recipe)
    assert values["points"][1]["unit"]["scatter_percent"]["area"] == [*dense.scatter["area"]]
    plot_sweep(points_of_grid, recipe, tmp_path / "sweep.svg")
    text = (tmp_path / "sweep.svg").read_text()
    assert all(word in text for word in ("s8, sparse", "s8, dense", "medians and ranges of 3 port orders"))

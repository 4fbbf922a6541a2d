"""Measurements: made once for each content, and kept whole."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import sptc
from sptc.errors import BackendError
from sptc.synth import price
from sptc.synth.liberty import Library
from sptc.synth.netlist import Netlist
from sptc.synth.price import Request, measure, measure_all, versions
from sptc.synth.recipe import Recipe
from sptc.tests.synth.netlists import nands

# Workers are forked on purpose, from a process whose numerical library has threads; newer Pythons warn of any fork.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SPTC_CACHE", str(tmp_path / "own"))
    return tmp_path / "own" / "synth"


def refuse(*_: object) -> str:
    raise AssertionError("Yosys was called")


def test_what_is_kept_is_not_measured_again(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = measure(nands(3), Recipe())
    assert not first.cached
    assert len(list(own_cache.iterdir())) == 1
    monkeypatch.setattr(price, "run_yosys", refuse)
    assert measure(nands(3), Recipe()) == replace(first, cached=True)
    assert measure(replace(nands(3), name="other"), Recipe()) == replace(first, cached=True)
    with pytest.raises(AssertionError):
        measure(nands(4), Recipe())


def test_what_a_measurement_depends_on(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """Netlist, recipe, what a library holds and the tools' versions; not what a file is called."""
    recipe = Recipe(library=library)
    measure(nands(2), recipe)
    renamed = Recipe(library=Library("other.lib", library.text))
    assert measure(nands(2), renamed).cached
    changed = Recipe(library=Library(library.name, library.text.replace("area : 4;", "area : 6;")))
    assert measure(nands(2), changed).amounts["area"] == 12
    assert not measure(nands(2), Recipe(library=library, combinational=True)).cached
    monkeypatch.setattr(price, "_tools", lambda: {"pyosys": "0.0"})
    assert not measure(nands(2), recipe).cached


def test_a_spoilt_entry_is_made_anew(own_cache: Path) -> None:
    first = measure(nands(2), Recipe())
    (path,) = own_cache.iterdir()
    no_amounts = '{"amounts": 1, "longest": 1, "cells": {}, "seconds": 1}'
    for text in ("", "{", "null", "[1]", '{"amounts": {}}', no_amounts):
        path.write_text(text)
        again = measure(nands(2), Recipe())
        assert (again.cached, again.amounts) == (False, first.amounts), text
        assert json.loads(path.read_text())["amounts"] == first.amounts, text


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPTC_CACHE", str(tmp_path / "file"))
    assert measure(nands(2), Recipe()).amounts == {"gates": 2.0}


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


def test_many_at_once(own_cache: Path) -> None:
    """Those with the same content are measured once, under each of their names."""
    wanted: dict[str, Request] = {
        f"{n} {name}": (replace(nands(n), name=name), Recipe()) for n in (1, 2) for name in "ab"
    }
    told: list[tuple[int, int]] = []
    found = measure_all(wanted, 2, lambda done, total: told.append((done, total)))
    gates = {name: measurement.amounts["gates"] for name, measurement in found.items()}
    assert gates == {"1 a": 1.0, "1 b": 1.0, "2 a": 2.0, "2 b": 2.0}
    assert told == [(0, 2), (1, 2), (2, 2)]
    assert len(list(own_cache.iterdir())) == 2


def test_one_that_fails_ends_all() -> None:
    wrong = Netlist("wrong", "nonsense\n")
    with pytest.raises(BackendError, match=r"^Yosys failed: "):
        measure_all({"good": (nands(1), Recipe()), "bad": (wrong, Recipe())}, 2)


def test_versions() -> None:
    found = versions()
    assert found["sptc"] == sptc.__version__
    assert found.keys() == {"sptc", "amaranth", "pyosys", "abc"}
    assert re.match(r"\d+\.\d+", found["abc"])

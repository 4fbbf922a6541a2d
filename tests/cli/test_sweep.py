"""``sptc sweep``: the grid in its order, here or on a cluster, and one line for whatever is wrong."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sptc.cli import main

# Workers are forked on purpose, from a process whose numerical library has threads; newer Pythons warn of any fork.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

SMALL = ["--formats", "s8", "f16", "--alignment", "12", "--step-bytes", "4", "--cuts", "none", "reduce,multiply"]


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _cache(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPTC_CACHE", str(shared_cache))


def exit_status(*words: object) -> object:
    """Return the status of a call that may end inside the parser."""
    try:
        return main(["sweep", *map(str, words)])
    except SystemExit as end:
        return end.code


def swept(capsys: pytest.CaptureFixture[str], *words: object) -> list[dict[str, Any]]:
    assert exit_status(*words, "--json") == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    return list(json.loads(output)["points"])


def test_the_table(liberty: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "sweep.svg"
    assert exit_status(*SMALL, "--liberty", liberty, "--plot", picture) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    lines = output.splitlines()
    header = lines.index("") + 1
    assert lines[header].split() == [
        *("formats", "mux", "cuts", "F", "step", "[B]", "area", "gates", "delay", "[ps]"),
        *("products/cycle", "products/ns", "seconds"),
    ]
    places = [line.split()[:5] for line in lines[header + 1 :]]
    assert places == [
        [formats, "mux4", cuts, "12", "4"] for formats in ("s8", "f16") for cuts in ("none", "multiply,reduce")
    ]
    assert "alignment_bits must be at least 20" in lines[-1]
    assert "unit: area against throughput" in picture.read_text()


@pytest.mark.regression
def test_the_same_on_a_cluster(
    tmp_path: Path, liberty: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library goes there with the work: its workers cannot see the file."""
    here = swept(capsys, *SMALL, "--liberty", liberty)
    monkeypatch.setenv("SPTC_CACHE", str(tmp_path / "cache of the cluster"))
    for address in cluster(tmp_path):
        hidden = tmp_path / "hidden.lib"
        hidden.write_bytes(liberty.read_bytes())
        there = swept(capsys, *SMALL, "--liberty", hidden, "--scheduler", address)
    for a, b in zip(here, there, strict=True):
        for point in (a, b):
            if point["unit"]:
                del point["unit"]["seconds"], point["unit"]["cached"]
    assert here == there


def cluster(folder: Path) -> Iterator[str]:
    """Give the address of a scheduler with a worker, both processes of this machine."""
    dask, where = [sys.executable, "-m", "dask"], folder / "scheduler.json"
    local: list[str] = ["--host", "127.0.0.1", "--no-dashboard"]
    quiet: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [subprocess.Popen([*dask, "scheduler", *local, "--port", "0", "--scheduler-file", str(where)], **quiet)]
    one = ["--scheduler-file", str(where), "--no-nanny", "--nthreads", "1"]
    started.append(subprocess.Popen([*dask, "worker", *local, *one], **quiet))
    try:
        deadline = time.monotonic() + 30
        while not where.exists() or not where.read_text():
            assert time.monotonic() < deadline, "the scheduler does not start"
            time.sleep(0.1)
        yield json.loads(where.read_text())["address"]
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


@pytest.mark.regression
def test_dense_units(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--formats", "s8", "--step-bytes", "4", "--cuts", "none")
    (sparse,), (dense,) = swept(capsys, *words), swept(capsys, *words, "--dense")
    assert (sparse["configuration"]["sparse"], dense["configuration"]["sparse"]) == (True, False)
    assert sparse["unit"]["cells"] != dense["unit"]["cells"]
    assert "products_per_ns" not in sparse


@pytest.mark.regression
def test_registers_that_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--formats", "s8", "--step-bytes", "4", "--cuts", "none", "reduce,multiply")
    bare, cut = swept(capsys, *words, "--combinational")
    assert (bare["cuts"], cut["cuts"]) == ([], ["multiply", "reduce"])
    registers = [sum("DFF" in cell for cell in point["unit"]["cells"]) for point in (bare, cut, *swept(capsys, *words))]
    assert registers[:3] == [0, 0, 0]
    assert registers[3] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--formats", "s9"], "no point of the grid is a configuration; of s9 F=25 32 B mux4 select,"),
        (
            ["--cuts", "add"],
            "argument --cuts: must be 'none' or among select, product, multiply, align, tree, reduce, count, normalise,"
            " round, with commas",
        ),
        (["--mux", "mux5"], "argument --mux: invalid choice: 'mux5'"),
        (["--step-bytes", "0"], "argument --step-bytes: must be an integer of 1 or more, not '0'"),
        (["--alignment", "F"], "argument --alignment: must be an integer of 0 or more, not 'F'"),
        (["--liberty", "missing.lib"], "missing.lib cannot be read (No such file or directory)"),
        (["--jobs", "1", "--scheduler", "x"], "argument --scheduler: not allowed with argument --jobs"),
        (["--scheduler", "nowhere"], "no scheduler answers at nowhere ("),
    ],
)
def test_bad_words(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert exit_status(*words) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith(f"sptc sweep: {message}")
    assert errors.count("\n") == 1

"""``sptc sweep`` prints results in the order of the grid, also from a cluster, and rejects invalid input."""

from itertools import product
from pathlib import Path

import pytest
from sptc.tests.cli.command_line import CommandLine, cluster

pytestmark = pytest.mark.usefixtures("cache_of_netlists")
COMMAND = "sweep"
SMALL = ["--formats", "s8", "f16", "--alignment", "12", "--step-bytes", "4", "--cuts", "none", "reduce,multiply"]


@pytest.mark.regression
def test_the_table(liberty: Path, cli: CommandLine) -> None:
    lines = cli.text(*SMALL, "--liberty", liberty, "--plot", "sweep.svg").splitlines()
    places = [line.split()[:6] for line in lines[lines.index("") + 2 :]]
    grid = product(("s8", "f16"), ("none", "multiply,reduce"))
    assert places == [[formats, "sparse", "mux4", cuts, "12", "4"] for formats, cuts in grid]
    assert "unit: area against throughput" in Path("sweep.svg").read_text()


@pytest.mark.regression
def test_a_cluster(tmp_path: Path, liberty: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The liberty file is sent with the work, because workers on other machines cannot read it."""
    here = cli.json(*SMALL, "--liberty", liberty)["points"]
    monkeypatch.setenv("SPTC_CACHE", str(tmp_path / "cache of the cluster"))
    hidden = tmp_path / "hidden.lib"
    hidden.write_bytes(liberty.read_bytes())
    with cluster(tmp_path, workers=1) as (address, _):
        there = cli.json(*SMALL, "--liberty", hidden, "--scheduler", address)["points"]
    for point in (*here, *there):
        if point["unit"]:
            del point["unit"]["seconds"], point["unit"]["cached"]
    assert here == there


@pytest.mark.regression
def test_dense_units_and_units_without_registers(cli: CommandLine) -> None:
    words = ("--formats", "s8", "--step-bytes", "4", "--cuts", "none")
    (sparse,), (dense,) = (cli.json(*words, *more)["points"] for more in ([], ["--dense"]))
    assert [point["unit"]["cells"] for point in cli.json(*words, "--compare-dense")["points"]] == [
        point["unit"]["cells"] for point in (sparse, dense)
    ]
    assert (sparse["configuration"]["sparse"], dense["configuration"]["sparse"]) == (True, False)
    assert sparse["unit"]["cells"] != dense["unit"]["cells"]
    assert "products_per_ns" not in sparse
    words = (*words, "reduce,multiply")
    bare, cut = cli.json(*words, "--combinational")["points"]
    assert (bare["cuts"], cut["cuts"]) == ([], ["multiply", "reduce"])
    points = (bare, cut, *cli.json(*words)["points"])
    registers = [sum("DFF" in cell for cell in point["unit"]["cells"]) for point in points]
    assert registers[:3] == [0, 0, 0]
    assert registers[3] > 0


def test_bad_words(cli: CommandLine) -> None:
    cuts = "select, product, multiply, align, tree, reduce, count, normalise, round"
    cli.refuses_each(
        (["--formats", "s9"], "no point of the grid is a valid configuration; first point, s9 F=25 32 B mux4 select,"),
        (["--orders", "2"], "--orders permutes the ports before mapping to a cell library: add --liberty FILE"),
        (["--cuts", "add"], f"argument --cuts: the value must be 'none' or comma-separated words among {cuts}"),
        (["--formats", "s8", "s4", "--alignment", "30"], "--alignment has no effect, because no format is a float"),
        (["--step-bytes", "0"], "argument --step-bytes: the value must be an integer of 1 or more, not '0'"),
        (["--formats", "s8", "--step-bytes", "4", "--scheduler", ""], "Dask"),
    )

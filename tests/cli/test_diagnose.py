"""``sptc diagnose`` prints the error of a kernel, and exits with status 1 if wrong outputs remain unexplained."""

from xml.etree import ElementTree

import numpy as np
import pytest
import sptc
from sptc.gemm.ways import instruction_named
from sptc.isa.numerics import numerics
from sptc.show.difference_map import DifferenceMap
from sptc.tests.cli.command_line import CommandLine, saved
from sptc.tests.gemm.sparse_factors import Random, drawn

COMMAND = "diagnose"
WORDS = ("--a", "a.npy", "--b", "b.npy", "--y", "y.npy", "--format", "f16", "--result", "f32")


def test_the_verdict_and_its_status(rng: Random, cli: CommandLine) -> None:
    a, b = drawn(rng, (64, 16, 32))
    y = sptc.gemm(a, b, format="f16", backend="native")
    saved(a=a, b=b, y=y)
    assert cli.text(*WORDS).startswith("correct: all 1024 outputs")
    cli.refuses(*WORDS, "--alignment", 9, message="--alignment changes the numerics of one instruction: add --instr")
    i = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
    own = numerics(instruction_named(i, "sm_90"), "sm_90").replace(alignment_bits=10)
    saved(y=sptc.gemm(a, b, instruction=i, backend="native", numerics=own))
    assert cli.text(*WORDS, "--instruction", i, "--alignment", 10).startswith("correct: all 1024 outputs")
    saved(y=np.vstack([y[16:32], y[:16], y[32:]]))
    record = cli.json(*WORDS)
    assert (record["explained"], record["differing"], record["remaining"]) == (True, 512, 0)
    assert record["rows"] == [*range(32)]
    assert "outputs in other places: rows 0 to 31" in record["text"]
    cli.refuses("--format", "f16", "--result", "f32", message="name the files of A, B and their product")
    tile = sptc.pack("mma.sp m16n8k32 f16 f32", a[:16, :32], b[:32, :8]) | {"arch": "sm_80"}
    sptc.save("tile.npz", **tile, D=sptc.mma(**tile))
    of_tile = [word for name in "aby" for word in (f"--{name}", "tile.npz")]
    assert cli.text(*of_tile, "--result", "f32").startswith("correct: all 128 outputs")
    saved(y=np.ones((16, 8), np.float32))
    text = cli.text(*of_tile, "--y", "y.npy", "--result", "f32", "--instruction", tile["instruction"], status=1)
    assert "nearest way of summation: the only instruction of this output:\n" in text
    cli.refuses(*of_tile, "--result", "f32", "--arch", "sm_90", message="--arch names sm_90, but tile.npz names sm_80")
    of_tile = [tile["instruction"], *of_tile[:4], "--arch", "sm_90"]
    CommandLine(cli.capsys, "trace").refuses(*of_tile, message="--arch names sm_90, but tile.npz names sm_80")


@pytest.mark.regression
def test_an_output_that_remains(rng: Random, cli: CommandLine) -> None:
    a, b = drawn(rng, (64, 16, 32))
    y = sptc.gemm(a, b, format="f16", backend="native")
    y[3, 4] += 1
    saved(a=a, b=b, y=y)
    text = cli.text(*WORDS, status=1)
    assert "first unexplained output: row 3, column 4: y holds 0x" in text
    assert "exact sum of all products" in text


@pytest.mark.regression
def test_the_map_of_differing_outputs() -> None:
    pytest.importorskip("matplotlib")
    differing = np.zeros((256, 100), bool)
    differing[64:128, 30:50] = differing[200, 99] = True
    lines = str(DifferenceMap(differing)).splitlines()
    assert lines[0].startswith("each letter is 8 rows x 2 columns")
    assert lines[2 + 64 // 8] == f" 64  {'.' * 15}{'#' * 10}{'.' * 25}"
    assert lines[2 + 200 // 8] == f"200  {'.' * 49}-"
    root = ElementTree.fromstring(DifferenceMap(differing).svg("a title that is drawn"))
    assert "a title that is drawn" in " ".join(root.itertext())

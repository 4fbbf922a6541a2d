"""``sptc scales`` and ``sptc compress`` convert block scales from each layout to the other."""

import json
from pathlib import Path

import numpy as np
from sptc.tensors.files import open_tensors
from sptc.tensors.scales import to_scale_blocks
from sptc.tests.cli.command_line import CommandLine

COMMAND = "scales"
NVFP4 = ("--prune", "--granularity", "4:8", "--format", "e2m1", "--recipe", "nvfp4")


def test_there_and_back(cli: CommandLine, rng: np.random.Generator) -> None:
    scales = rng.integers(0, 256, (130, 6)).astype(np.uint8)
    np.save("scales.npy", scales)
    report = cli.json("scales.npy", "--to", "128x4", "--output", "blocks.npz")
    assert report == {"file": "scales.npy", "rows": 130, "scales": 6, "bytes": 2048, "to": "128x4"}
    np.testing.assert_array_equal(open_tensors(Path("blocks.npz")).get("scales"), to_scale_blocks(scales))
    text = cli.text("blocks.npz", "--to", "rows", "--shape", 130, 6, "--output", "back.npz")
    assert text == "blocks.npz: 130 rows of 6 scales, 780 bytes row by row, written to back.npz\n"
    np.testing.assert_array_equal(open_tensors(Path("back.npz")).get("scales"), scales)
    cli.refuses("scales.npy", "--to", "rows", message="--to rows needs --shape")
    cli.refuses("scales.npy", "--to", "128x4", "--shape", 1, 1, message="--to 128x4 cannot be combined with --shape")


def test_of_a_compressed_matrix(cli: CommandLine, rng: np.random.Generator) -> None:
    np.save("w.npy", rng.standard_normal((144, 320)).astype(np.float32))
    cli.command = "compress"
    for name, words in (
        ("rows", ()),
        ("kernel", ("--to", "cutlass3-sm100")),
        ("other", ("--to", "cutlass3-sm100", "--scale-layout", "rows")),
    ):
        cli.text("w.npy", *NVFP4, *words, "--output", f"{name}.npz")
    cli.text("kernel.npz", "--from", "cutlass3-sm100", "--scale-layout", "128x4", "--output", "moved.npz")
    cli.text("moved.npz", "--from", "natural", "--output", "again.npz")
    scales = {name: np.load(f"{name}.npz")["scales"] for name in ("rows", "kernel", "other", "moved", "again")}
    for name in ("other", "again"):
        np.testing.assert_array_equal(scales[name], scales["rows"])
    for name in ("kernel", "moved"):
        np.testing.assert_array_equal(scales[name], to_scale_blocks(scales["rows"]))
    for name, form in (("kernel", "cutlass3-sm100"), ("rows", "natural")):
        cli.text(f"{name}.npz", "--from", form, "--expand", "--output", f"{name}-dense.npz")
    np.testing.assert_array_equal(*(np.load(f"{name}-dense.npz")["matrix"] for name in ("kernel", "rows")))
    assert json.loads(str(np.load("kernel.npz")["__metadata__"]))["scale_layout"] == "128x4"
    plain = ("w.npy", "--prune", "--format", "e4m3", "--scale-layout", "128x4")
    message = "a layout of block scales is given, but the matrix has no block scales"
    cli.refuses(*plain, "--output", "x.npz", message=message)
    cli.refuses(*plain, message="--scale-layout needs --output or --to")

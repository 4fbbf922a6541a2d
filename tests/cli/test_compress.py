"""``sptc compress`` converts matrices to each format and back, and rejects invalid input with one line."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import sptc
from numpy.typing import NDArray
from sptc.tensors.files import open_tensors, read_matrix, write_tensors
from sptc.tensors.quantise import quantise
from sptc.tensors.sparsify import expand, sparsify
from sptc.tests.cli.command_line import CommandLine

COMMAND = "compress"
FORMATS = ("natural", "ptx", "cutlass2", "cutlass3-sm90", "cutlass3-sm100", "bitmask", "tilelang")


@pytest.fixture
def dense(cli: CommandLine, rng: np.random.Generator) -> NDArray[np.float16]:
    """Save a random matrix to ``dense.npy``, and together with other tensors to ``model.safetensors``."""
    matrix = rng.normal(size=(64, 256)).astype(np.float16)
    np.save("dense.npy", matrix)
    tensors = {"a.weight": matrix.astype(ml_dtypes.bfloat16), "b.weight": matrix[:32], "bias": matrix[0]}
    write_tensors(Path("model.safetensors"), tensors, {})
    return matrix


@pytest.mark.parametrize("name", FORMATS)
def test_there_and_back(name: str, dense: NDArray, cli: CommandLine) -> None:
    packed, back = Path("packed.safetensors"), Path("back.npz")
    report = cli.json("model.safetensors", "--tensor", "a.weight", "--prune", "--to", name, "--output", packed)
    assert (report["rows"], report["columns"], report["stored"], report["chunks"]) == (64, 256, 8192, 4096)
    assert report["producer"] == {"bitmask": "bitmask"}.get(name, "cutlass3" if "cutlass3" in name else "pytorch")
    assert report["undefined"] == {"plain": 0, "ordered": 0, "tcgen05": 0}
    assert all(one.startswith("a.weight.") for one in open_tensors(packed).names)
    expanded = cli.json(packed, "--from", name, "--expand", "--output", back)
    assert expanded["elements"] == "bfloat16"
    expected = expand(sparsify(dense.astype(ml_dtypes.bfloat16), "2:4", prune=True))
    np.testing.assert_array_equal(read_matrix(back).astype(np.float32), expected.astype(np.float32))
    # The expanded matrix is still 2:4 sparse.
    assert cli.json(back, "--check")["stored_nonzero"] == expanded["stored_nonzero"]


def test_conversions(dense: NDArray, cli: CommandLine) -> None:
    """`pytorch` is another name of format `cutlass2`."""
    for name in ("pytorch", "cutlass2"):
        report = cli.json("dense.npy", "--prune", "--to", name, "--output", f"{name}.npz")
        assert (report["written"], report["producer"]) == ("cutlass2", "pytorch")
    with np.load("pytorch.npz") as one, np.load("cutlass2.npz") as other:
        assert all(np.array_equal(one[key], other[key]) for key in (*one.files, *other.files))
    report = cli.json("pytorch.npz", "--from", "pytorch")
    assert (report["rows"], report["columns"]) == dense.shape


@pytest.mark.usefixtures("dense")
def test_options_of_the_output_do_not_change_how_a_file_is_read(cli: CommandLine) -> None:
    k16, k32 = (f"mma.sp.sync.aligned.m16n8{k}.row.col.f32.f16.f16.f32" for k in ("k16", "k32"))
    for name, words in (("ptx", ("--instruction", k16, "--selector", "1")), ("cutlass3-sm90", ("--tile-k", "64"))):
        cli.text("dense.npy", "--prune", "--to", name, *words, "--output", f"{name}.npz")
    for source, words in (
        ("cutlass3-sm90", ("--to", "ptx", "--selector", "0")),
        ("cutlass3-sm90", ("--to", "cutlass3-sm90", "--tile-k", "128")),
        ("ptx", ("--to", "cutlass3-sm90", "--tile-k", "128")),
        ("ptx", ("--to", "ptx", "--selector", "0")),
    ):
        cli.text(f"{source}.npz", "--from", source, *words, "--output", "back.npz")
        assert CommandLine(cli.capsys, "compare").text(f"{source}.npz", "back.npz").startswith("all 16,384 elements")
    cli.refuses_each(
        (["ptx.npz", "--from", "ptx", "--selector", "0"], "the metadata of ptx.npz states the selector 1, not 0"),
        (["ptx.npz", "--from", "ptx", "--instruction", k32], f"states the instruction {k16}, not"),
        (["ptx.npz", "--from", "ptx", "--granularity", "1:2"], "states the granularity 2:4, not 1:2"),
        (["cutlass3-sm90.npz", "--from", "cutlass3-sm90", "--tile-k", "128"], "states the tile_k 64, not 128"),
    )


def test_quantised(dense: NDArray, cli: CommandLine) -> None:
    packed, back = "packed.safetensors", Path("back.safetensors")
    words = ("--granularity", "4:8", "--prune", "--format", "e2m1", "--recipe", "nvfp4")
    report = cli.json("dense.npy", *words, "--to", "ptx", "--output", packed)
    assert (report["granularity"], report["elements"]) == ("4:8", "e2m1")
    cli.text(packed, "--from", "ptx", "--expand", "--output", back)
    pruned = sparsify(dense, "4:8", prune=True)
    values = quantise(pruned.stored, "e2m1", recipe="nvfp4").dequantise()
    np.testing.assert_array_equal(read_matrix(back), expand(type(pruned)(values, pruned.nibbles, pruned.granularity)))


def test_the_summary(cli: CommandLine) -> None:
    matrix = np.zeros((3, 8), np.float16)
    matrix[0, :2] = matrix[1, 5] = 1
    np.save("x.npy", matrix)
    text = cli.text("x.npy", "--producer", "cutlass3", "--output", "y.npz")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0].endswith(" 3 rows, 8 columns, 2:4, float16")
    assert lines[1:5] == [
        "stored elements 12, 3 of them not zero (3 elements of the matrix are not zero)",
        "chunks 6",
        "chunks that store zero units 5",
        "empty chunks with nibble 0x0 4",
    ]
    assert lines[6:9] == ["plain 4", "ordered 4", "tcgen05 4"]
    assert lines[9].endswith("y.npz (natural)")


def test_metadata_that_a_rule_does_not_define(cli: CommandLine) -> None:
    np.savez("x.npz", values=np.ones((1, 4), np.float16), metadata=np.array([[0b0100, 0b0001]], np.uint8))
    assert cli.json("x.npz", "--from", "natural")["undefined"] == {"plain": 0, "ordered": 1, "tcgen05": 1}
    message = "row 0, chunk 1: nibble 0b0001 breaks the ordered rule"
    cli.refuses("x.npz", "--from", "natural", "--rule", "ordered", message=message)


@pytest.mark.usefixtures("dense")
def test_bad_words(cli: CommandLine) -> None:
    cli.refuses_each(
        (["dense.npy"], "not 2:4 sparse: 40"),
        (["dense.npy", "--prune", "--check"], "argument --check: not allowed with argument --prune"),
        (["dense.npy", "--prune", "--recipe", "mx"], "--recipe needs --format"),
        (["dense.npy", "--prune", "--no-saturate"], "--saturate needs --format"),
        (["dense.npy", "--prune", "--tile-k", "64"], "--tile-k needs --from cutlass3-sm90 or --to cutlass3-sm90"),
        (["dense.npy", "--prune", "--to", "ptx", "--instruction", "mma.what"], ""),
        (["dense.npy", "--prune", "--to", "marlin_24", "--output", "x.npz"], "marlin_24 needs s4 or s8 with f16"),
        (["dense.npy", "--prune", "--expand"], "--expand needs --output"),
        (["dense.npy", "--from", "ptx", "--prune"], "--prune cannot be combined with --from"),
    )


def test_registers_are_operands_of_a_tile(dense: NDArray, cli: CommandLine, rng: np.random.Generator) -> None:
    """``sptc.load`` reads a file of format ``ptx``. With B and C added, the tile is computed."""
    cli.text("dense.npy", "--prune", "--to", "ptx", "--output", "a.npz")
    tile = sptc.load("a.npz")
    assert tile.keys() == {"instruction", "a", "e", "selector"}
    b = rng.standard_normal((32, 8)).astype(np.float16)
    packed = sptc.pack(tile["instruction"], np.zeros((16, 32), np.float16), b)
    d = sptc.mma(**tile, b=packed["b"], c=packed["c"])
    assert d.shape == (4, 8, 32, 4)
    pruned = expand(sparsify(dense, "2:4", prune=True))
    np.testing.assert_array_equal(d[2, 2], sptc.mma(**sptc.pack(tile["instruction"], pruned[32:48, 64:96], b)))

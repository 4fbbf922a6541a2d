"""``sptc compress``: matrices there and back, the summary, and one line for whatever is wrong."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.cli import main
from sptc.tensors.files import open_tensors, read_matrix, write_tensors
from sptc.tensors.quantise import quantise
from sptc.tensors.sparsify import expand, sparsify

FORMATS = ("natural", "ptx", "cutlass2", "cutlass3-sm90", "cutlass3-sm100", "bitmask", "tilelang")


def exit_status(*words: object) -> object:
    """Return the status of a call that may end inside the parser."""
    try:
        return main(["compress", *map(str, words)])
    except SystemExit as end:
        return end.code


def compressed(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    assert exit_status(*words, "--json") == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    return dict(json.loads(output))


@pytest.fixture
def dense(tmp_path: Path, rng: np.random.Generator) -> NDArray[np.float16]:
    """A matrix in ``dense.npy`` and, with another, in ``model.safetensors``."""
    matrix = rng.normal(size=(64, 256)).astype(np.float16)
    np.save(tmp_path / "dense.npy", matrix)
    tensors = {"a.weight": matrix.astype(ml_dtypes.bfloat16), "b.weight": matrix[:32], "bias": matrix[0]}
    write_tensors(tmp_path / "model.safetensors", tensors, {})
    return matrix


@pytest.mark.parametrize("name", FORMATS)
def test_there_and_back(name: str, dense: NDArray, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed, back = tmp_path / "packed.safetensors", tmp_path / "back.npz"
    words = ("--tensor", "a.weight", "--prune", "--to", name, "--output", packed)
    said = compressed(capsys, tmp_path / "model.safetensors", *words)
    assert (said["rows"], said["columns"], said["stored"], said["chunks"]) == (64, 256, 8192, 4096)
    assert said["producer"] == {"bitmask": "bitmask"}.get(name, "cutlass3" if "cutlass3" in name else "pytorch")
    assert said["undefined"] == {"plain": 0, "ordered": 0, "tcgen05": 0}
    assert all(one.startswith("a.weight.") for one in open_tensors(packed).names)
    said = compressed(capsys, packed, "--from", name, "--expand", "--output", back)
    assert said["elements"] == "bfloat16"
    expected = expand(sparsify(dense.astype(ml_dtypes.bfloat16), "2:4", prune=True))
    np.testing.assert_array_equal(read_matrix(back).astype(np.float32), expected.astype(np.float32))
    # What was pruned is sparse.
    assert compressed(capsys, back, "--check")["stored_nonzero"] == said["stored_nonzero"]


def test_pytorch_is_another_name(dense: NDArray, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the format that it shares with CUTLASS 2.x, to write and to read."""
    for name in ("pytorch", "cutlass2"):
        packed = tmp_path / f"{name}.npz"
        said = compressed(capsys, tmp_path / "dense.npy", "--prune", "--to", name, "--output", packed)
        assert (said["written"], said["producer"]) == ("cutlass2", "pytorch")
    with np.load(tmp_path / "pytorch.npz") as one, np.load(tmp_path / "cutlass2.npz") as other:
        assert all(np.array_equal(one[key], other[key]) for key in (*one.files, *other.files))
    said = compressed(capsys, tmp_path / "pytorch.npz", "--from", "pytorch")
    assert (said["rows"], said["columns"]) == dense.shape


def test_conversion(dense: NDArray, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / f"{number}.npz" for number in range(len(FORMATS))]
    compressed(capsys, tmp_path / "dense.npy", "--prune", "--to", FORMATS[0], "--output", paths[0])
    for number in range(1, len(FORMATS)):
        words = ("--from", FORMATS[number - 1], "--to", FORMATS[number], "--output", paths[number])
        compressed(capsys, paths[number - 1], *words)
    compressed(capsys, paths[-1], "--from", FORMATS[-1], "--expand", "--output", tmp_path / "back.npz")
    expected = expand(sparsify(dense, "2:4", prune=True))
    np.testing.assert_array_equal(read_matrix(tmp_path / "back.npz"), expected)


@pytest.mark.parametrize(
    ("granularity", "fmt", "recipe"),
    [("1:2", "tf32", "plain"), ("2:4", "e4m3", "mx"), ("4:8", "e2m1", "nvfp4"), ("4:8", "s4", "plain")],
)
def test_quantised(
    granularity: str, fmt: str, recipe: str, dense: NDArray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed, back = tmp_path / "packed.safetensors", tmp_path / "back.safetensors"
    words = ("--granularity", granularity, "--prune", "--format", fmt, "--recipe", recipe)
    said = compressed(capsys, tmp_path / "dense.npy", *words, "--to", "ptx", "--output", packed)
    assert (said["granularity"], said["elements"]) == (granularity, fmt)
    compressed(capsys, packed, "--from", "ptx", "--expand", "--output", back)
    pruned = sparsify(dense, granularity, prune=True)
    values = quantise(pruned.stored, fmt, recipe=recipe).dequantise()
    expected = expand(type(pruned)(values, pruned.nibbles, pruned.granularity))
    np.testing.assert_array_equal(read_matrix(back), expected)


def test_the_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matrix = np.zeros((3, 8), np.float16)
    matrix[0, :2] = matrix[1, 5] = 1
    np.save(tmp_path / "x.npy", matrix)
    assert exit_status(tmp_path / "x.npy", "--producer", "cutlass3", "--output", tmp_path / "y.npz") == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    lines = [line.split() for line in output.splitlines()]
    assert lines[0][1:] == ["3", "rows,", "8", "columns,", "2:4,", "float16"]
    assert " ".join(lines[1]) == "stored elements 12, 3 of them not zero (of 3 in the matrix)"
    assert lines[2:5] == [
        ["chunks", "6"],
        ["chunks", "with", "fewer", "non-zeros", "5"],
        ["chunks", "with", "nothing,", "nibble", "0x0", "4"],
    ]
    assert lines[6:9] == [["plain", "4"], ["ordered", "4"], ["tcgen05", "4"]]
    assert lines[9][-2:] == [str(tmp_path / "y.npz"), "(natural)"]


def test_metadata_that_a_rule_does_not_define(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, values=np.ones((1, 4), np.float16), metadata=np.array([[0b0100, 0b0001]], np.uint8))
    assert compressed(capsys, path, "--from", "natural")["undefined"] == {"plain": 0, "ordered": 1, "tcgen05": 1}
    assert exit_status(path, "--from", "natural", "--rule", "ordered") == 2
    assert "row 0, chunk 1: nibble 0b0001 breaks the ordered rule" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.npy"], "none.npy cannot be read (No such file or directory)"),
        (["dense.npy"], "not 2:4 sparse: 40"),
        (["model.safetensors"], "model.safetensors holds 'a.weight', 'b.weight', 'bias': a name must say which one"),
        (
            ["model.safetensors", "--tensor", "a.wieght"],
            "model.safetensors has no tensor 'a.wieght'; it has 'a.weight'",
        ),
        (["model.safetensors", "--tensor", "bias"], "model.safetensors: 'bias' must have two axes, not shape (256,)"),
        (["dense.npy", "--prune", "--check"], "argument --check: not allowed with argument --prune"),
        (["dense.npy", "--granularity", "3:4"], "argument --granularity: invalid choice: '3:4'"),
        (["dense.npy", "--format", "f9"], "argument --format: invalid choice: 'f9'"),
        (["dense.npy", "--prune", "--recipe", "mx"], "--recipe needs --format"),
        (["dense.npy", "--prune", "--no-saturate"], "--saturate needs --format"),
        (["dense.npy", "--prune", "--format", "f16", "--recipe", "mx"], "the recipe mx is for e4m3"),
        (["dense.npy", "--prune", "--tile-k", "64"], "--tile-k is for the format cutlass3-sm90"),
        (["dense.npy", "--prune", "--to", "ptx", "--selector", "2"], "the selector of mma.sp"),
        (["dense.npy", "--prune", "--to", "ptx", "--instruction", "mma.what"], ""),
        (["dense.npy", "--prune", "--granularity", "1:2", "--to", "cutlass2"], "1:2 is for elements of 32 bits, not"),
        (["dense.npy", "--prune", "--expand"], "--expand needs --output"),
        (["dense.npy", "--prune", "--output", "x.pt"], "x.pt must end in .safetensors or .npz"),
        (["dense.npy", "--prune", "--output", "none/x.npz"], "none/x.npz cannot be written (none is no folder)"),
        (["dense.npy", "--from", "ptx", "--prune"], "--prune is for a dense matrix, not with --from"),
        (["model.safetensors", "--from", "cutlass2"], "model.safetensors holds 0 matrices with a tensor 'values'"),
        (["model.safetensors", "--from", "what"], "argument --from: invalid choice: 'what'"),
    ],
)
@pytest.mark.usefixtures("dense")
def test_bad_words(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    assert exit_status(*words) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith(f"sptc compress: {message}")
    assert errors.count("\n") == 1
    assert set(tmp_path.iterdir()) == before

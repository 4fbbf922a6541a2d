"""``sptc compare`` finds equal values in files of every format, and reports the first difference."""

from pathlib import Path

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from sptc.tensors.files import write_tensors
from sptc.tensors.sparsify import sparsify
from sptc.tests.cli.command_line import CommandLine, saved

COMMAND = "compare"


def bitmask(name: str, dense: NDArray) -> dict[str, NDArray]:
    """Return the arrays of a matrix in the format ``sparse-bitmask`` of compressed-tensors."""
    kept = dense.astype(np.float32) != 0
    counts = kept.sum(1)
    return {
        f"{name}.shape": np.array(dense.shape),
        f"{name}.compressed": dense[kept],
        f"{name}.bitmask": np.packbits(kept, axis=1, bitorder="little"),
        f"{name}.row_offsets": np.cumsum(counts) - counts,
    }


def test_one_matrix_in_every_format(cli: CommandLine, rng: np.random.Generator) -> None:
    dense = rng.integers(-7, 8, (64, 128)).astype(np.float32)
    dense[:, 1::2] = 0
    dense[0, 1] = -0.0
    halves = dense.astype(ml_dtypes.bfloat16)
    bias = np.ones(64, np.float32)
    write_tensors(Path("dense.safetensors"), {"a.weight": dense, "a.bias": bias}, {})
    write_tensors(Path("unstructured.safetensors"), {**bitmask("a.weight", halves), "a.bias": bias}, {})
    cli.command = "compress"
    for to, words in (("bitmask", ()), ("ptx", ()), ("marlin_24", ("--format", "s4", "--recipe", "channel"))):
        source = np.where(dense == 0, 0, np.sign(dense) * 7.5) if to == "marlin_24" else halves
        write_tensors(Path("x.safetensors"), {"a": source}, {})
        cli.text("x.safetensors", "--tensor", "a", *words, "--to", to, "--output", f"{to}.safetensors")
    cli.command = COMMAND
    for name in ("unstructured", "dense"):
        for other in ("unstructured", "dense"):
            verdict, *lines = cli.text(f"{name}.safetensors", f"{other}.safetensors", "--verbose").splitlines()
            assert verdict == "all 8,256 elements of 2 tensors equal"
            assert sorted(lines) == ["a.bias: 64, all 64 elements equal", "a.weight: 64 x 128, all 8192 elements equal"]
    output = cli.text("dense.safetensors", "ptx.safetensors", status=1)
    assert output == "all 8,192 elements of 1 tensor equal; only in one file: 1 tensor\na.bias: only in one file\n"
    report = cli.json("dense.safetensors", "ptx.safetensors", status=1)
    assert (report["equal"], report["only_in_one"], report["tensors"][0]["differ"]) == (False, ["a.bias"], 0)
    for name in ("bitmask", "ptx"):
        text = cli.text("dense.safetensors", f"{name}.safetensors", "--tensor", "a.weight")
        assert text == "all 8,192 elements of 1 tensor equal\n"
    # The extreme codes of s4 are -8 and 7: 7.5 is divided by the scale 1, rounded to 8, and saturates at 7.
    write_tensors(Path("seven.npz"), {"w": np.where(dense > 0, 7, np.where(dense < 0, -8, 0))}, {})
    assert cli.text("marlin_24.safetensors", "seven.npz") == "all 8,192 elements of 1 tensor equal\n"


def test_values_that_differ(cli: CommandLine, rng: np.random.Generator) -> None:
    dense = np.where(rng.random((20, 12)) < 0.3, rng.standard_normal((20, 12)), 0).astype(np.float16)
    dense[3, 4:6] = np.nan, 1
    write_tensors(Path("a.npz"), {**bitmask("w", dense), "v": np.ones(3)}, {})
    np.savez("b.npz", w=dense, v=np.ones(3))
    assert len(cli.text("a.npz", "b.npz", "--verbose").splitlines()) == 3
    dense[3, 5] = dense[17, 11] = 2.5
    np.savez("b.npz", w=dense, v=np.ones(4))
    rows = {row["tensor"]: row for row in cli.json("a.npz", "b.npz", status=1)["tensors"]}
    assert rows["w"] == {
        "tensor": "w", "shape": [20, 12], "elements": 240, "differ": 2, "first": [3, 5], "values": [1.0, 2.5],
    }  # fmt: skip
    assert rows["v"]["other_shape"] == [4]
    assert cli.text("a.npz", "b.npz", "--tensor", "w", status=1) == (
        "2 of 240 elements differ, in 1 of 1 tensor\n"
        "w: 20 x 12, 2 of 240 elements differ, the first at (3, 5): 1.0 and 2.5\n"
    )
    assert cli.text("a.npz", "b.npz", status=1).splitlines()[0] == "5 of 243 elements differ, in 2 of 2 tensors"
    cli.refuses("a.npz", "b.npz", "--tensor", "x", message="a.npz has no tensor 'x'; it has 'v', 'w'")
    message = "a.npz holds 'v', 'w': --tensor must select one of them"
    cli.refuses("a.npz", "b.npz", "--other-tensor", "v", message=message)


def test_values_that_float64_does_not_tell_apart_or_json_lacks(cli: CommandLine) -> None:
    for left, right, place, values in (
        (np.array([[5, 2**53]]), np.array([[5, 2**53 + 1]]), "0, 1", [2**53, 2**53 + 1]),
        (np.array([2**63], np.uint64), np.array([2**63 - 1]), "0", [2**63, 2**63 - 1]),
        (np.array([2**60 + 1]), np.array([0]), "0", [2**60 + 1, 0]),
        (np.array([np.nan, 1]), np.array([np.inf, 1]), "0", ["nan", "inf"]),
        (np.array([np.nan, 2]), np.array([-np.inf, 2]), "0", ["nan", "-inf"]),
    ):
        saved(a=left, b=right)
        (row,) = cli.json("a.npy", "b.npy", status=1)["tensors"]
        assert (row["differ"], row["first"], row["values"]) == (1, [*map(int, place.split(", "))], values)
        assert cli.text("a.npy", "b.npy", status=1).endswith("the first at ({}): {} and {}\n".format(place, *values))
    if np.finfo(np.longdouble).nmant > 60:
        saved(a=np.array([2**63 - 1]), b=np.array([2.0**63]))
        assert cli.json("a.npy", "b.npy", status=1)["tensors"][0]["differ"] == 1


def test_tensors_that_are_empty_or_not_real(cli: CommandLine) -> None:
    saved(none=np.zeros(0), rows=np.zeros((0, 3)), one=np.ones(1), four=np.arange(4.0))
    assert cli.text("rows.npy", "rows.npy") == "all 0 elements of 1 tensor equal\n"
    np.savez("no.npz")
    assert cli.text("no.npz", "no.npz") == "all 0 elements of 0 tensors equal\n"
    for words in (("none.npy", "four.npy"), ("four.npy", "none.npy"), ("rows.npy", "one.npy"), ("one.npy", "rows.npy")):
        assert cli.text(*words, status=1).splitlines()[-1].startswith("shapes ")
        assert not cli.json(*words, status=1)["equal"]
    for dtype in ("complex64", "U1", "M8[s]"):
        np.save("other.npy", np.zeros(1, dtype))
        cli.refuses("one.npy", "other.npy", message="other.npy: the tensor must hold real numbers, not ")


def test_bitmasks_are_read_as_dense_matrices(cli: CommandLine, rng: np.random.Generator) -> None:
    dense = rng.integers(1, 5, (8, 24)).astype(np.float16)
    dense[:, ::2] = 0
    write_tensors(Path("x.safetensors"), bitmask("w", dense), {})
    cli.command = "compress"
    for words in (("--tensor", "w"), (), ("--from", "bitmask")):
        report = cli.json("x.safetensors", *words, "--output", "y.npz")
        assert (report["rows"], report["columns"], report["stored_nonzero"]) == (8, 24, 96)
        values = next(array for name, array in np.load("y.npz").items() if name.endswith("values"))
        np.testing.assert_array_equal(values, sparsify(dense, "2:4").stored)
    dense[0, :4] = 1
    good = bitmask("w", dense)
    for part, wrong, message in (
        ("bitmask", good["w.bitmask"][:, :2], "a uint8 bitmask of shape (8, 2) does not fit a matrix (8, 24)"),
        ("compressed", good["w.compressed"][1:],
         "the bitmask marks 98 elements, but there are 97 values of shape (97,)"),
        ("row_offsets", good["w.row_offsets"] + 1, "the row offsets do not match the bitmask"),
        ("shape", np.array([8, 23]), "the bitmask marks elements beyond column 22"),
    ):  # fmt: skip
        write_tensors(Path("x.safetensors"), {**good, f"w.{part}": wrong}, {})
        cli.refuses("x.safetensors", "--tensor", "w", message=f"x.safetensors: 'w': {message}")

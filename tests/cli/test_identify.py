"""``sptc identify`` prints the method of summation, or the nearest method, and rejects invalid input with one line."""

from itertools import pairwise
from math import fsum
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import sptc
from sptc.gemm.stream_k import StreamK
from sptc.gemm.ways import Way
from sptc.tensors.files import write_tensors
from sptc.tests.cli.command_line import CommandLine, saved
from sptc.tests.gemm.sparse_factors import Random, sparse

COMMAND = "identify"


@pytest.fixture
def product(cli: CommandLine, rng: Random) -> dict[str, np.ndarray]:
    """Return A, B and y of an e4m3 product that is summed in two slices of K. Save each to a file."""
    a, b = sparse(rng, 32, 512, np.float32), rng.standard_normal((512, 16)).astype(np.float32)
    arrays = {name: array.astype(ml_dtypes.float8_e4m3fn).view(np.uint8) for name, array in (("a", a), ("b", b))}
    arrays["y"] = sptc.gemm(*arrays.values(), format="e4m3", split_k=2)
    saved(**arrays)
    return arrays


def words(*more: object, fmt: str = "e4m3", result: str = "f32", **files: str) -> list[object]:
    named = {name: f"{name}.npy" for name in "aby"} | files
    given = [word for name, path in named.items() for word in (f"--{name}", path)]
    return [*given, "--format", fmt, "--result", result, *more]


def test_searches_with_a_match_and_without(product: dict[str, np.ndarray], cli: CommandLine) -> None:
    said = cli.json(*words())
    assert (said["exact"], said["compared"], said["way"]["split_k"], said["way"]["order"]) == (True, 512, 2, "in order")
    assert said["nearest"]["differing"] > 0
    saved(y=product["y"].view(np.uint32))
    named = words("--instruction", said["way"]["instruction"])  # searching all instructions takes 2 s
    text = cli.text(*named)
    way = "  wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3 on sm_90; 2 sl"
    assert text.startswith(f"exact: all 512 outputs\n{way}")
    assert "next best way of summation, which " in text
    y = product["y"].view(np.uint32)
    y[3, 4] ^= 1 << 30
    saved(y=y)
    text = cli.text(*named, status=1)
    assert "ways of summation that were tried gives all 512 outputs" in text
    assert f"nearest way of summation, 1 output differs, the first in row 3, column 4: y holds 0x{y[3, 4]:x}, " in text
    said = cli.json(*named, status=1)
    assert (said["exact"], said["way"], said["nearest"]["row"], said["nearest"]["column"]) == (False, None, 3, 4)


@pytest.mark.regression
def test_other_numerics(product: dict[str, np.ndarray], cli: CommandLine) -> None:
    i = "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3"
    changed = sptc.numerics("sm_90", i).replace(alignment_bits=8)
    saved(y=sptc.gemm(product["a"], product["b"], instruction=i, split_k=2, numerics=changed))
    more = ["--a", "a.npy", "--b", "b.npy", "--y", "y.npy", "--instruction", i, "--result", "f32"]
    assert cli.json(*more, "--fp8-alignment", 8)["way"]["split_k"] == 2
    assert not cli.json(*more, status=1)["exact"]
    cli.refuses(*words("--fp8-alignment", 8), message="changes the numerics of one instruction: add --instruction")


def chain(cli: CommandLine, *more: object) -> tuple[str, dict[str, Any]]:
    return cli.text(*words(*more), status=1), cli.json(*words(*more), status=1)["chain"]


@pytest.mark.regression
def test_the_chain_of_the_first_output_that_differs(product: dict[str, np.ndarray], cli: CommandLine) -> None:
    """Each instruction starts from the previous result in its slice of K. The sum of all slices is the output."""
    a, b, y = product.values()
    wrong = y.view(np.uint32).copy()
    wrong[3, 4] ^= 1
    saved(y=wrong)
    text, found = chain(cli)
    assert "nearest way of summation: the last 8 of the 8 instructions of this output:\n" in text
    assert f"the nearest way of summation computes 0x{y.view(np.uint32)[3, 4]:x} (" in text
    assert f"y holds 0x{wrong[3, 4]:x} (" in text
    assert [link["instruction"] for link in found["shown"]] == [*range(8)]
    for before, link in pairwise(found["shown"]):
        assert link["c"] == ("0x00000000" if link["slice"] != before["slice"] else before["d"])
        assert not link["wanted"]
    values = [array.view(ml_dtypes.float8_e4m3fn).astype(np.float64) for array in (a, b)]
    products = values[0][3] * values[1][:, 4]
    for link in found["shown"]:
        k = slice(64 * link["instruction"], 64 * link["instruction"] + 64)
        assert link["products"] == fsum(products[k])
    assert found["exact"] == fsum(products)
    assert np.float32(found["slices"][0]) + np.float32(found["slices"][1]) == y[3, 4]
    assert np.array([int(found["shown"][-1]["d"], 16)], np.uint32).view(np.float32) == found["slices"][1]


@pytest.mark.regression
def test_where_the_wanted_value_would_come_from(product: dict[str, np.ndarray], cli: CommandLine) -> None:
    """If a kernel omits the end of K in one row, the last instruction that contributed is marked."""
    a, b = product["a"], product["b"]
    y = sptc.gemm(a, b, format="e4m3", alpha=2.0)
    y[5] = sptc.gemm(a[5:6, :320], b[:320], format="e4m3", alpha=2.0)
    saved(y=y)
    text, found = chain(cli, "--alpha", 2)
    assert "5 of the 8 instructions, up to the one that gives the value in y:\n" in text
    assert found["shown"][-1]["instruction"] == 4
    assert found["shown"][-1]["wanted"]
    assert text.count(" <- the value in y\n") == sum(link["wanted"] for link in found["shown"])
    assert ", before the epilogue" in text


def test_the_chain_of_stream_k_and_of_integers(cli: CommandLine, rng: Random) -> None:
    a, b = sparse(rng, 32, 512), rng.standard_normal((512, 48)).astype(np.float16)
    instruction = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
    way = Way(instruction=instruction, cut="balanced", stream_k=StreamK(workers=5, rows=64, columns=64))
    y = sptc.gemm(a, b, way=way).view(np.uint32)
    y[31, 47] ^= 2
    saved(a=a, b=b, y=y)
    report = cli.json(*words("--instruction", instruction, "--workers", 5, fmt="f16"), status=1)
    assert (report["nearest"]["differing"], len(report["chain"]["slices"])) == (1, 5)
    saved(a=(4 * a).astype(np.int8), b=(4 * b).astype(np.int8), y=np.full((32, 48), 28, np.int32))
    assert "exact sum of all products " in cli.text(*words(fmt="s8", result="s32"), status=1)


@pytest.mark.parametrize("scale", ["float8_e8m0fnu", "float8_e4m3fn"])
def test_block_scales(scale: str, cli: CommandLine, rng: Random) -> None:
    k, span = 512, 32
    low, high = (110, 145) if scale == "float8_e8m0fnu" else (1, 0x7F)
    a = rng.integers(0, 16, (9, k)).astype(np.uint8)
    a.reshape(9, -1, 4, 2)[:, :, rng.permutation(4)[:2]] = 0
    b = rng.integers(0, 16, (k, 5)).astype(np.uint8)
    codes = [rng.integers(low, high, (lines, k // span)).astype(np.uint8) for lines in (9, 5)]
    scales = {name: each.view(getattr(ml_dtypes, scale)) for name, each in zip("ab", codes, strict=True)}
    blocks = {f"block_scale_{name}": each for name, each in scales.items()}
    y = sptc.gemm(a, b, format="e2m1", split_k=2, arch="sm_120", **blocks)
    for name, each in scales.items():
        write_tensors(Path(f"{name}.safetensors"), {name: each}, {})
    saved(a=a, b=b, y=y)
    options = [word for name in "ab" for word in (f"--block-scale-{name}", f"{name}.safetensors")]
    both = words("--arch", "sm_120", *options, fmt="e2m1")
    assert cli.json(*both)["way"]["split_k"] == 2
    options += ["--arch", "sm_120", "--format", "e2m1", "--split-k", 2, "--backend", "golden", "--jobs", 1]
    CommandLine(cli.capsys, "gemm").text("--a", "a.npy", "--b", "b.npy", *options, "--output", "again.npy")
    np.testing.assert_array_equal(np.load("again.npy"), y)
    y.view(np.uint32)[2, 3] ^= 1 << 30
    saved(y=y)
    report = cli.json(*both, status=1)["chain"]
    left, right = (array.view(ml_dtypes.float4_e2m1fn).astype(float) for array in (a[2], b[:, 3].copy()))
    factor = (scales["a"][2].astype(float) * scales["b"][3].astype(float)).repeat(span)
    assert report["exact"] == fsum(left * right * factor)


def test_a_probe(cli: CommandLine) -> None:
    given = ["--probe", "p", "--format", "f16", "--result", "f16", "--shape", 16, 32, 512]
    assert "different results; the two most similar differ in " in cli.text(*given)
    a, b = np.load("p/a.npy"), np.load("p/b.npy")
    assert (a.shape, b.shape, a.dtype) == ((16, 512), (512, 32), np.float16)
    saved(y=sptc.gemm(a, b, split_k=4, order="tree", result="f16"))
    assert cli.json(*words(fmt="f16", result="f16", a="p/a.npy", b="p/b.npy"))["way"]["order"] == "tree"
    assert cli.json(*given, "--seed", 1)["dtype"] == "float16"
    assert (np.load("p/a.npy") != a).any()


@pytest.mark.usefixtures("product")
def test_bad_input(cli: CommandLine) -> None:
    saved(text=np.array(["x", "y"]))
    for more, message in (
        (["--y", "text.npy"], "must hold floats, integers or codes, not <U1 of shape (2,)"),
        (["--seed", "3"], "--seed needs --probe"),
        (["--probe", "p"], "--a cannot be combined with --probe"),
    ):
        cli.refuses(*words(*more), message=message)
    message = "name the files of A, B and their product with --a, --b and --y"
    cli.refuses("--format", "f16", "--result", "f16", message=message)
    cli.refuses("--probe", "p", "--result", "f16", message="--probe needs --format")
    probe = ("--probe", "p", "--result", "f16", "--format", "f16")
    for more in (("--alignment", 3), ("--promote", 0), ("--alpha", 2), ("--dense",), ("--bias", "none.npy")):
        cli.refuses(*probe, *more, message=f"{more[0]} cannot be combined with --probe")
    cli.refuses("--probe", "-", *probe[2:], message="a folder cannot be written to standard output")


def test_options_of_both_commands(cli: CommandLine, rng: Random) -> None:
    a, w = rng.standard_normal((8, 256)).astype(np.float32), rng.standard_normal((6, 256)).astype(np.float32)
    a[:, ::2] = 0
    a, w = (array.astype(ml_dtypes.float8_e4m3fn).view(np.uint8) for array in (a, w))
    files = {
        "group_scale_a": rng.uniform(0.5, 2, (8, 2)), "group_scale_b": rng.uniform(0.5, 2, (2, 6)),
        "scale_a": rng.uniform(0.5, 2, (8, 1)), "scale_b": rng.uniform(0.5, 2, 6), "c": rng.standard_normal((8, 6)),
        "bias": rng.standard_normal(6),
    }  # fmt: skip
    files = {name: array.astype(np.float32) for name, array in files.items()}
    saved(a=a, b=w, **files)
    options = ["--transpose-b", "--alpha", 0.7, "--beta", -0.3]
    options += [word for name in files for word in (f"--{name.replace('_', '-')}", f"{name}.npy")]
    way = {"group_scaling": "a then b, rounded", "scale_order": "product", "result": "f32"}
    y = sptc.gemm(a, w.T, format="e4m3", alpha=0.7, beta=-0.3, promote=2, **files, **way)
    saved(y=y)
    expected = {"promote": 2, "group_scaling": "a then b, rounded", "scale_order": "product"}
    assert cli.json(*words(*options))["way"].items() >= expected.items()
    Path("way.json").write_text(cli.text(*words("--json", *options)), encoding="utf-8")
    gemm = CommandLine(cli.capsys, "gemm")
    given = ["--a", "a.npy", "--b", "b.npy", "--backend", "golden", "--jobs", 1, "--output", "again.npy", *options]
    report = gemm.json(*given, "--way", "way.json")
    np.testing.assert_array_equal(np.load("again.npy"), y)
    assert report["errors"]["arithmetic"]["largest"] == report["errors"]["whole"]["largest"] < 0.05
    Path("again.npy").unlink()
    gemm.json(*given, "--format", "e4m3", *[f"--{name.replace('_', '-')}={word}" for name, word in way.items()])
    np.testing.assert_array_equal(np.load("again.npy"), y)

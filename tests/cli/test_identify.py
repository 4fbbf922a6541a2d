"""``sptc identify``: what it prints, its exit status, and one line for whatever is wrong."""

import json
from itertools import pairwise
from math import fsum
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import sptc
from sptc.cli import main
from sptc.gemm.stream_k import StreamK
from sptc.gemm.ways import Way
from sptc.tensors.files import write_tensors

Random = np.random.Generator


@pytest.fixture
def product(tmp_path: Path, rng: Random) -> dict[str, Path]:
    """Write a product of e4m3, summed in two slices, as codes."""
    a = rng.standard_normal((32, 512)).astype(np.float32)
    a[:, rng.integers(0, 2, 256) + np.arange(0, 512, 2)] = 0
    b = rng.standard_normal((512, 16)).astype(np.float32)
    arrays = {name: array.astype(ml_dtypes.float8_e4m3fn).view(np.uint8) for name, array in (("a", a), ("b", b))}
    arrays["y"] = sptc.gemm(*arrays.values(), format="e4m3", split_k=2)
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    return {name: tmp_path / f"{name}.npy" for name in arrays}


def identify(files: dict[str, Path], *words: object) -> int:
    named = [word for name, path in files.items() for word in (f"--{name}", path)]
    return main(["identify", *map(str, [*named, "--format", "e4m3", "--result", "f32", *words])])


def test_the_way_is_found(product: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert identify(product, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["exact"], said["compared"], said["way"]["split_k"], said["way"]["order"]) == (True, 512, 2, "in order")
    assert said["nearest"]["differing"] > 0
    np.save(product["y"], np.load(product["y"]).view(np.uint32))
    assert identify(product) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        "exact: all 512 outputs\n  wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3 on sm_90; 2 sl"
    )
    assert "next best, which " in text


def test_a_search_without_a_match(product: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    y = np.load(product["y"]).view(np.uint32)
    y[3, 4] ^= 1 << 30
    np.save(product["y"], y)
    assert identify(product) == 1
    text = capsys.readouterr().out
    assert "ways that were tried gives all 512 outputs" in text
    assert f"nearest, 1 outputs differ, the first in row 3, column 4: 0x{y[3, 4]:x} wanted" in text
    assert identify(product, "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["exact"], said["way"], said["nearest"]["row"], said["nearest"]["column"]) == (False, None, 3, 4)


def chain(files: dict[str, Path], capsys: pytest.CaptureFixture[str], *words: object) -> tuple[str, dict[str, Any]]:
    """Return the chain of the first output that differs, as text and as JSON."""
    assert identify(files, *words) == 1
    text = capsys.readouterr().out
    assert identify(files, *words, "--json") == 1
    return text, json.loads(capsys.readouterr().out)["chain"]


def test_the_chain_of_the_first_output_that_differs(
    product: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each instruction takes the result of the one before; slices add up to what the way gives."""
    a, b, y = (np.load(path) for path in product.values())
    wrong = y.view(np.uint32).copy()
    wrong[3, 4] ^= 1
    np.save(product["y"], wrong)
    text, found = chain(product, capsys)
    assert "the last 8 of its 8 instructions:\n" in text
    assert f"stored 0x{y.view(np.uint32)[3, 4]:x} (" in text
    assert f"wanted 0x{wrong[3, 4]:x} (" in text
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
    last = np.array([int(found["shown"][-1]["d"], 16)], np.uint32).view(np.float32)
    assert last == found["slices"][1]


def test_where_the_wanted_value_would_come_from(product: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Of a kernel that forgets the end of K in one row, the instruction is marked after which it stopped."""
    a, b, _ = (np.load(path) for path in product.values())
    y = sptc.gemm(a, b, format="e4m3", alpha=2.0)
    y[5] = sptc.gemm(a[5:6, :320], b[:320], format="e4m3", alpha=2.0)
    np.save(product["y"], y)
    text, found = chain(product, capsys, "--alpha", 2)
    assert "instructions of its 8, up to where the wanted value would come from:\n" in text
    assert found["shown"][-1]["instruction"] == 4
    assert found["shown"][-1]["wanted"]
    assert text.count(" <- wanted\n") == sum(link["wanted"] for link in found["shown"])
    assert ", before what is done to it" in text


def test_the_chain_of_stream_k_and_of_integers(tmp_path: Path, capsys: pytest.CaptureFixture[str], rng: Random) -> None:
    files = {name: tmp_path / f"{name}.npy" for name in "aby"}
    a = rng.standard_normal((32, 512)).astype(np.float16)
    a[:, rng.integers(0, 2, 256) + np.arange(0, 512, 2)] = 0
    b = rng.standard_normal((512, 48)).astype(np.float16)
    instruction = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
    way = Way(instruction=instruction, cut="balanced", stream_k=StreamK(workers=5, rows=64, columns=64))
    y = sptc.gemm(a, b, way=way).view(np.uint32)
    y[31, 47] ^= 2
    for name, array in zip("aby", (a, b, y), strict=True):
        np.save(files[name], array)
    words = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    words += ["--format", "f16", "--result", "f32", "--instruction", instruction, "--workers", "5", "--json"]
    assert main(["identify", *words]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["nearest"]["differing"], len(said["chain"]["slices"])) == (1, 5)
    for name, array in zip("aby", (a, b, np.full((32, 48), 7)), strict=True):
        np.save(files[name], (4 * array).astype(np.int32 if name == "y" else np.int8))
    assert main(["identify", *words[:6], "--format", "s8", "--result", "s32"]) == 1
    assert "exact sum of all products " in capsys.readouterr().out


@pytest.mark.parametrize("scale", ["float8_e8m0fnu", "float8_e4m3fn"])
def test_block_scales(scale: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], rng: Random) -> None:
    """The way is found; without one, the chain has the scales in its products."""
    k, span = 512, 32
    low, high = (110, 145) if scale == "float8_e8m0fnu" else (1, 0x7F)
    a = rng.integers(0, 16, (9, k)).astype(np.uint8)
    a.reshape(9, -1, 4, 2)[:, :, rng.permutation(4)[:2]] = 0
    b = rng.integers(0, 16, (k, 5)).astype(np.uint8)
    codes = [rng.integers(low, high, (lines, k // span)).astype(np.uint8) for lines in (9, 5)]
    scales = [of_one.view(getattr(ml_dtypes, scale)) for of_one in codes]
    words = {"block_scale_a": scales[0], "block_scale_b": scales[1], "arch": "sm_120"}
    y = sptc.gemm(a, b, format="e2m1", split_k=2, **words)
    write_tensors(tmp_path / "s.safetensors", {"a": scales[0]}, {})
    write_tensors(tmp_path / "t.safetensors", {"b": scales[1]}, {})
    files = {name: tmp_path / f"{name}.npy" for name in "aby"}
    for name, array in zip("aby", (a, b, y), strict=True):
        np.save(files[name], array)
    given = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    given += ["--format", "e2m1", "--result", "f32", "--arch", "sm_120", "--json", "--block-scale-a"]
    given += [str(tmp_path / "s.safetensors"), "--block-scale-b", str(tmp_path / "t.safetensors")]
    assert main(["identify", *given]) == 0
    assert json.loads(capsys.readouterr().out)["way"]["split_k"] == 2
    y.view(np.uint32)[2, 3] ^= 1 << 30
    np.save(files["y"], y)
    assert main(["identify", *given]) == 1
    found = json.loads(capsys.readouterr().out)["chain"]
    left, right = (array.view(ml_dtypes.float4_e2m1fn).astype(float) for array in (a[2], b[:, 3].copy()))
    factor = (scales[0][2].astype(float) * scales[1][3].astype(float)).repeat(span)
    assert found["exact"] == fsum(left * right * factor)
    assert main(["identify", *given[:-2]]) == 2
    assert capsys.readouterr().err.endswith("block_scale_b is missing: both factors have block scales, or none\n")


def test_files_of_pytorch(product: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    tensors = {name: torch.from_numpy(np.load(path)) for name, path in product.items()}
    torch.save({"layer": {"a": tensors["a"], "b": tensors["b"]}}, tmp_path / "state.pt")
    torch.save(tensors["y"], tmp_path / "y.pt")
    files = {"a": tmp_path / "state.pt", "b": tmp_path / "state.pt", "y": tmp_path / "y.pt"}
    assert identify(files, "--a-tensor", "layer.a", "--b-tensor", "layer.b") == 0
    assert "exact: all 512 outputs" in capsys.readouterr().out
    assert identify(files, "--a-tensor", "layer.a") == 2
    message = "state.pt holds 'layer.a', 'layer.b': --b-tensor must say which one\n"
    assert capsys.readouterr().err.endswith(message)


def test_a_probe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "identify",
        "--probe",
        str(tmp_path / "p"),
        "--format",
        "f16",
        "--result",
        "f16",
        "--shape",
        "16",
        "32",
        "512",
    ]
    assert main(words) == 0
    assert "different results; the nearest two that differ are told apart by " in capsys.readouterr().out
    a, b = np.load(tmp_path / "p" / "a.npy"), np.load(tmp_path / "p" / "b.npy")
    assert (a.shape, b.shape, a.dtype) == ((16, 512), (512, 32), np.float16)
    np.save(tmp_path / "y.npy", sptc.gemm(a, b, split_k=4, order="tree", result="f16"))
    files = {"a": tmp_path / "p" / "a.npy", "b": tmp_path / "p" / "b.npy", "y": tmp_path / "y.npy"}
    named = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    assert main(["identify", *named, "--format", "f16", "--result", "f16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["way"]["order"] == "tree"
    assert main([*words, "--json", "--seed", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["dtype"] == "float16"
    assert (np.load(tmp_path / "p" / "a.npy") != a).any()


def test_what_sptc_compress_wrote(product: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And a vector, and a bias from a file."""
    a, b = np.load(product["a"]), np.load(product["b"])
    numbers = a.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.save(tmp_path / "numbers.npy", numbers)
    packed = tmp_path / "packed.safetensors"
    assert main(["compress", str(tmp_path / "numbers.npy"), "--format", "e4m3", "--output", str(packed)]) == 0
    capsys.readouterr()
    bias = np.arange(32, dtype=np.float32)[:, None]
    np.save(product["b"], b[:, 0])
    np.save(tmp_path / "bias.npy", bias)
    np.save(product["y"], sptc.gemm(a, b[:, :1], format="e4m3", bias=bias)[:, 0])
    assert identify({**product, "a": packed}, "--bias", tmp_path / "bias.npy", "--json") == 0
    assert json.loads(capsys.readouterr().out)["compared"] == 32


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--y", "missing.npy"], r"missing.npy cannot be read (No such file or directory)"),
        (["--a", "{b}"], "A has 16 columns and B 512 rows: they have no common K"),
        (["--a", "{dense}"], "not 2:4 sparse: 4096 of 4096 chunks have more than 2 of 4 elements"),
        (["--y", "{b}"], "y must be a matrix of f32, as float32 or codes in uint32, not uint8 of shape (512, 16)"),
        (["--y", "{text}"], "must hold floats, integers or codes, not <U1 of shape (2,)"),
        (["--seed", "3"], "--shape and --seed need --probe"),
        (["--probe", "p"], "--probe draws A and B, and takes no --a, --b and --y"),
    ],
)
def test_bad_input(
    product: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    np.save(tmp_path / "text.npy", np.array(["x", "y"]))
    np.save(tmp_path / "dense.npy", np.full((32, 512), 0x38, np.uint8))
    places = {name: str(tmp_path / f"{name}.npy") for name in ("b", "dense", "text")}
    assert identify(product, *(word.format(**places) for word in words)) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("sptc identify: ")
    assert message in output.err
    assert output.err.count("\n") == 1


def test_words_that_are_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["identify", "--format", "f16", "--result", "f16"]) == 2
    assert "give A, B and what was computed of them with --a, --b and --y" in capsys.readouterr().err
    assert main(["identify", "--probe", "p", "--result", "f16"]) == 2
    assert "--probe needs --format" in capsys.readouterr().err

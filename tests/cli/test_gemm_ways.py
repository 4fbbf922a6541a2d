"""``sptc gemm`` by ways to sum: its bits are those of the function, and of chains that are added by hand."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import sptc
from sptc.cli import main
from sptc.errors import FileError
from sptc.gemm.options import read_way
from sptc.gemm.stream_k import RASTERS, StreamK
from sptc.gemm.ways import Way
from sptc.golden.matrix import multiply
from sptc.isa.instructions import parse
from sptc.isa.operands import MatrixOperands
from sptc.tensors.checkpoints import read_compressed
from sptc.tensors.files import write_tensors
from sptc.tensors.sparsify import expand, sparsify

from .test_gemm import blocks

Random = np.random.Generator
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
K = 8 * 32


def sparse(rng: Random, rows: int, k: int = K) -> np.ndarray:
    a = rng.standard_normal((rows, k)).astype(np.float16)
    a[:, rng.integers(0, 2, k // 2) + np.arange(0, k, 2)] = 0
    return a


@pytest.fixture
def matrices(tmp_path: Path, rng: Random) -> dict[str, np.ndarray]:
    """Matrices of some blocks, in files of their names."""
    m, n = 150, 530
    found = {
        "a": sparse(rng, m),
        "b": rng.standard_normal((K, n)).astype(np.float16),
        "c": rng.standard_normal((m, n)).astype(np.float32),
        "bias": rng.standard_normal(n).astype(np.float32),
        "scale_a": rng.standard_normal((m, 1)).astype(np.float32),
        "scale_b": rng.standard_normal(n).astype(np.float32),
    }
    for name, array in found.items():
        np.save(tmp_path / f"{name}.npy", array)
    return found


def gemm(folder: Path, *words: object, a: str = "a.npy", b: str = "b.npy") -> np.ndarray:
    """Return the product that the command writes."""
    given = ["--a", folder / a, "--b", folder / b, "--output", folder / "d.npy", "--backend", "native", "--jobs", 1]
    assert main(["gemm", *map(str, [*given, *words])]) == 0
    return np.load(folder / "d.npy")


def command_words(words: dict[str, Any], folder: Path) -> list[object]:
    """Return the words of the function as the command has them."""
    found: list[object] = []
    for name, value in words.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            found.append(option)
        elif isinstance(value, np.ndarray):
            found += [option, folder / f"{name}.npy"]
        else:
            found += [option, ",".join(map(str, value)) if isinstance(value, tuple) else value]
    return found


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"split_k": 3, "order": "reverse", "cut": "balanced"},
        {"split_k": (1, 5, 2), "order": "halves", "workspace": "f16", "running": "bf16", "result": "bf16"},
        {"split_k": 2, "tile": 2, "cut": "in turn", "k_order": "descending", "result": "f16", "rounding": "RZ"},
        {"promote": 3, "accumulate": "f16", "result": "e4m3"},
        {"arch": "sm_80", "split_k": 2, "result": "e5m2"},
        {"instruction": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "promote": 4},
    ],
    ids=str,
)
def test_ways_are_those_of_the_function(
    words: dict[str, Any], matrices: dict[str, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = sptc.gemm(matrices["a"], matrices["b"], backend="native", **words)
    found = gemm(tmp_path, *command_words(words, tmp_path), "--json")
    report = json.loads(capsys.readouterr().out)
    of_numpy = expected.dtype.isbuiltin == 1
    assert found.dtype == (expected.dtype if of_numpy else np.dtype(f"u{expected.dtype.itemsize}"))
    np.testing.assert_array_equal(found.view(f"u{found.itemsize}"), expected.view(f"u{found.itemsize}"))
    said = report["way"]
    assert {name: said[name] for name in words if name in said} == {
        name: list(value) if isinstance(value, tuple) else value for name, value in words.items() if name in said
    }
    # Errors are those of the last rounding: half a unit of the last place, or a whole one.
    last_bit = {"f32": 2.0**-16, "f16": 2.0**-9, "bf16": 2.0**-6, "e4m3": 2.0**-3, "e5m2": 2.0**-2}[said["result"]]
    assert 0 < report["errors"]["arithmetic"]["total"] < last_bit * report["errors"]["arithmetic"]["total_reference"]


@pytest.mark.parametrize("names", [("c", "bias"), ("scale_a", "scale_b"), ("c", "bias", "scale_a", "scale_b")])
@pytest.mark.parametrize("swapped", [False, True])
def test_epilogues_are_those_of_the_function(
    names: tuple[str, ...],
    swapped: bool,
    matrices: dict[str, np.ndarray],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also of the first rows, and of exchanged factors; errors are those of the whole expression."""
    words: dict[str, Any] = {name: matrices[name] for name in names} | {"alpha": 0.75, "relu": True, "split_k": 2}
    if "c" in names:
        words["beta"] = -1.25
    a, b = matrices["a"], matrices["b"]
    if swapped:
        words["swapped"] = True
        a, b = np.resize(b.T, (150, K)), np.resize(a, (530, K)).T
        np.save(tmp_path / "a.npy", a)
        np.save(tmp_path / "b.npy", b)
    expected = sptc.gemm(a, b, backend="native", **words)[:140]
    found = gemm(tmp_path, *command_words(words, tmp_path), "--rows", 140, "--json")
    np.testing.assert_array_equal(found, expected)
    assert (found == 0).any()
    report = json.loads(capsys.readouterr().out)
    exact = a[:140].astype(float) @ b.astype(float)
    for name in ("scale_a", "scale_b"):
        if name in names:
            exact = exact * np.broadcast_to(matrices[name], (150, 530))[:140]
    exact = 0.75 * exact
    if "c" in names:
        exact = exact - 1.25 * matrices["c"][:140].astype(float) + matrices["bias"]
    exact = np.maximum(exact, 0)
    for errors in report["errors"].values():
        assert errors["total_reference"] == pytest.approx(exact.sum(), rel=1e-6)
        assert errors["total"] == pytest.approx(np.abs(found - exact).sum(), rel=1e-6)


def chain(a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
    """Return what one chain of instructions gives, by the golden model alone."""
    i = parse(WGMMA)
    compressed = sparsify(a, i.granularity)
    codes = np.zeros((len(a), b.shape[1]), np.uint32) if c is None else c.view(np.uint32)
    operands = MatrixOperands(
        compressed.stored.view(np.uint16)[None], b.view(np.uint16)[None], codes[None], compressed.nibbles[None]
    )
    return multiply(i, "sm_90", operands)[0].view(np.float32)


def test_sums_are_what_chains_add_up_to(rng: Random, tmp_path: Path) -> None:
    """Against chains of the golden model and additions of numpy, of every word that changes the sums."""
    a, b, c = sparse(rng, 9), rng.standard_normal((K, 6)).astype(np.float16), rng.standard_normal((9, 6))
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    np.save(tmp_path / "c.npy", c.astype(np.float32))
    parts = [chain(a[:, at : at + 32], b[at : at + 32]) for at in range(0, K, 32)]
    halves = [chain(a[:, at : at + 128], b[at : at + 128]) for at in (0, 128)]
    whole = chain(a, b)

    def same(expected: np.ndarray, *words: object) -> None:
        found = gemm(tmp_path, *words)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)

    same(whole)
    same(halves[0] + halves[1], "--split-k", 2)
    same((halves[0].astype(np.float16) + halves[1].astype(np.float16).astype(np.float32)).astype(np.float16),
         "--split-k", 2, "--workspace", "f16", "--result", "f16")  # fmt: skip
    promoted = np.zeros((9, 6), np.float32)
    for part in parts:
        promoted += part
    same(promoted, "--promote", 1)
    tree = [one + other for one, other in zip(parts[::2], parts[1::2], strict=True)]
    same((tree[0] + tree[1]) + (tree[2] + tree[3]), "--split-k", 8, "--order", "tree")
    same(chain(a, b, c.astype(np.float32)), "--c", tmp_path / "c.npy")
    exact = c.astype(np.float32).astype(float) * 0.5 + whole.astype(float)
    same(exact.astype(np.float32), "--c", tmp_path / "c.npy", "--beta", 0.5)
    np.save(tmp_path / "a.npy", b.T)
    np.save(tmp_path / "b.npy", a.T)
    same(whole.T, "--swapped")


def test_a_way_from_a_file(matrices: dict[str, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As ``sptc identify --json`` prints it, whole and alone."""
    np.save(tmp_path / "a.npy", matrices["a"][:16])
    np.save(tmp_path / "b.npy", matrices["b"][:, :24])
    y = sptc.gemm(matrices["a"][:16], matrices["b"][:, :24], split_k=(3, 5), backend="native", result="f16")
    np.save(tmp_path / "y.npy", y)
    files = [word for name in "aby" for word in (f"--{name}", str(tmp_path / f"{name}.npy"))]
    assert main(["identify", *files, "--format", "f16", "--result", "f16", "--json"]) == 0
    said = capsys.readouterr().out
    for text in (said, json.dumps(json.loads(said)["way"])):
        (tmp_path / "way.json").write_text(text, encoding="utf-8")
        np.testing.assert_array_equal(gemm(tmp_path, "--way", tmp_path / "way.json"), y)
    found = gemm(tmp_path, "--way", tmp_path / "way.json", "--result", "f32")
    np.testing.assert_array_equal(found.astype(np.float16), y)
    way = Way(instruction=WGMMA, split_k=(3, 5), workspace="f16", rounding="RZ")
    (tmp_path / "way.json").write_text(json.dumps(asdict(way)), encoding="utf-8")
    assert read_way(tmp_path / "way.json") == way


@pytest.mark.parametrize("swapped", [False, True])
def test_stream_k_over_blocks(
    swapped: bool,
    matrices: dict[str, np.ndarray],
    tmp_path: Path,
    rng: Random,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Output tiles lie across the blocks in which the command computes."""
    dealing = StreamK(workers=11, rows=96, columns=80, raster=str(rng.choice(RASTERS)))
    way = Way(instruction=WGMMA, cut="balanced", swapped=swapped, stream_k=dealing)
    (tmp_path / "way.json").write_text(json.dumps(asdict(way)), encoding="utf-8")
    a, b = matrices["a"], matrices["b"]
    if swapped:
        a, b = b.T.copy(), a.T.copy()
        np.save(tmp_path / "a.npy", a)
        np.save(tmp_path / "b.npy", b)
    expected = sptc.gemm(a, b, way=way, backend="native")
    assert (expected != sptc.gemm(a, b, way=replace(way, stream_k=None), backend="native")).mean() > 0.2
    words = ("--way", tmp_path / "way.json", "--json")
    np.testing.assert_array_equal(gemm(tmp_path, *words), expected)
    assert Way.of_record(json.loads(capsys.readouterr().out)["way"]) == way
    np.testing.assert_array_equal(gemm(tmp_path, *words, "--rows", 140), expected[:140])
    (tmp_path / "way.json").write_text(json.dumps(asdict(replace(way, order="any"))), encoding="utf-8")
    assert main(["gemm", "--a", str(tmp_path / "a.npy"), "--b", str(tmp_path / "b.npy"), *map(str, words)]) == 2
    assert capsys.readouterr().err.endswith("added in any order have many results; name an order\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", r"way\.json: the record of a way must have words, not be \[1\]$"),
        ('{"way": null}', r"way\.json holds no way: none gave every bit$"),
        ('{"split_k": 2}', r"way\.json: the record of a way lacks the word 'instruction'$"),
        ('{"instruction": "x", "slices": 2}', r"way\.json: the record of a way has no word 'slices'$"),
        ('{"instruction": ["x"]}', r"way\.json: instruction must be a text, not \['x'\]$"),
        ('{"instruction": "x", "split_k": [1, [2]]}', r"way\.json: split_k must be an integer of 1 or more, not \(1"),
        ('{"instruction": "x", "swapped": 1}', r"way\.json: swapped must be True or False, not 1$"),
        ("{", r"way\.json is not JSON$"),
    ],
)
def test_what_is_no_way(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "way.json").write_text(content, encoding="utf-8")
    with pytest.raises(FileError, match=message):
        read_way(tmp_path / "way.json")


def test_what_matrices_may_be(matrices: dict[str, np.ndarray], tmp_path: Path) -> None:
    """Compressed, as either factor; a vector; codes; the format is that of the types."""
    a, b = matrices["a"][:32], matrices["b"][:, :24]
    expected = sptc.gemm(a, b)
    for name, array in (("a", a), ("b", b), ("x", b[:, 3]), ("a_of_b", np.ascontiguousarray(b.T)), ("b_t", b.T)):
        np.save(tmp_path / f"{name}.npy", array)
    for layout in ("natural", "pytorch"):
        packed = str(tmp_path / "packed.safetensors")
        assert main(["compress", str(tmp_path / "a.npy"), "--to", layout, "--output", packed]) == 0
        np.testing.assert_array_equal(gemm(tmp_path, a="packed.safetensors"), expected)
        np.testing.assert_array_equal(gemm(tmp_path, "--rows", 5, a="packed.safetensors"), expected[:5])
        swapped = gemm(tmp_path, "--swapped", a="a_of_b.npy", b="packed.safetensors")
        np.testing.assert_array_equal(swapped, expected.T)
    np.testing.assert_array_equal(gemm(tmp_path, "--transpose-b", b="b_t.npy"), expected)
    column = gemm(tmp_path, b="x.npy")
    np.testing.assert_array_equal(column, expected[:, 3])
    bits = a.astype(ml_dtypes.bfloat16).view(np.uint16), b.astype(ml_dtypes.bfloat16).view(np.uint16)
    np.save(tmp_path / "a.npy", bits[0])
    np.save(tmp_path / "b.npy", bits[1])
    np.testing.assert_array_equal(gemm(tmp_path, "--format", "bf16"), sptc.gemm(*bits, format="bf16"))


def test_files_of_pytorch(
    matrices: dict[str, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.from_numpy(matrices[name]).bfloat16() for name in "ab")
    torch.save({"w": a, "epoch": 3, "other": {"w": b}}, tmp_path / "state.pt")
    torch.save(b.T, tmp_path / "b.pt")  # with strides
    words = ("--a-tensor", "w", "--transpose-b", "--json")
    found = gemm(tmp_path, *words, a="state.pt", b="b.pt")
    np.testing.assert_array_equal(found, sptc.gemm(a, b, backend="native"))
    errors = json.loads(capsys.readouterr().out)["errors"]
    assert errors["whole"] == errors["arithmetic"]
    monkeypatch.chdir(tmp_path)
    for given, message in (
        ([], "state.pt holds 'w', 'other.w': --a-tensor must say which one\n"),
        (["--a-tensor", "v"], "state.pt has no tensor 'v'; it has 'w', 'other.w'\n"),
    ):
        assert main(["gemm", "--a", "state.pt", "--b", "b.pt", *given]) == 2
        assert capsys.readouterr().err.endswith(message)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["gemm", "--a", "state.pt", "--b", "b.pt"]) == 2
    assert "this file needs the package torch: install it with `" in capsys.readouterr().err


def test_scales_of_a_compressed_file(tmp_path: Path, rng: Random, capsys: pytest.CaptureFixture[str]) -> None:
    """Block scales go to an instruction that takes them; others multiply the numbers that they stand for."""
    a, b = sparse(rng, 32).astype(np.float32), rng.standard_normal((K, 9)).astype(np.float32)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    packed = tmp_path / "packed.safetensors"
    words = ["compress", str(tmp_path / "a.npy"), "--format", "e4m3", "--recipe", "mx", "--output", str(packed)]
    assert main(words) == 0
    scaled = ("--format", "e4m3", "--scales", "ue8m0", "--arch", "sm_120")
    expected = gemm(tmp_path, *scaled, "--split-k", 2)
    np.testing.assert_array_equal(gemm(tmp_path, *scaled, "--split-k", 2, a=packed.name), expected)
    np.testing.assert_array_equal(gemm(tmp_path, *scaled, "--split-k", 2, "--rows", 5, a=packed.name), expected[:5])
    numbers = expand(read_compressed(packed, "natural").values())
    np.testing.assert_array_equal(gemm(tmp_path, "--format", "f16", a=packed.name), sptc.gemm(numbers, b, format="f16"))
    capsys.readouterr()
    assert main(["identify", "--a", str(packed), "--b", "b", "--y", "y", "--format", "e4m3", "--result", "f32"]) == 2
    assert capsys.readouterr().err.endswith("holds block scales, which only `sptc gemm` multiplies with\n")


def test_integers_take_scales_where_they_must(tmp_path: Path, rng: Random, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = rng.integers(-128, 128, (8, 64)).astype(np.float64), rng.integers(-128, 128, (64, 5)).astype(np.float64)
    a[:, ::2] = 0
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    np.testing.assert_array_equal(gemm(tmp_path, "--format", "s8"), a @ b)
    np.save(tmp_path / "a.npy", a / 3)
    capsys.readouterr()
    found = gemm(tmp_path, "--format", "s8", "--json")
    report = json.loads(capsys.readouterr().out)
    scale = np.abs(a).max() / 3 / 127
    assert report["scale"] == pytest.approx(scale, rel=1e-6)
    np.testing.assert_allclose(found * scale, a / 3 @ b, atol=64 * 128 * scale)
    assert report["errors"]["arithmetic"]["largest"] == 0


def test_a_way_resumes(tmp_path: Path, matrices: dict[str, np.ndarray], capsys: pytest.CaptureFixture[str]) -> None:
    """Killed at some block, it gives the bytes of a run that nothing disturbed; another way is refused meanwhile."""
    a, b = np.tile(matrices["a"], (5, 8)), np.tile(matrices["b"], (8, 2))
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    output, partial = tmp_path / "d.npy", tmp_path / "d.npy.partial"
    way = ["--split-k", "2,6", "--tile", "8", "--promote", "8", "--scale-b", "s.npy", "--relu", "--result", "bf16"]
    np.save(tmp_path / "s.npy", np.resize(matrices["scale_b"], b.shape[1]))
    words = ["gemm", "--a", "a.npy", "--b", "b.npy", "--output", "d.npy", "--backend", "golden", "--jobs", "1"]
    process = subprocess.Popen([sys.executable, "-m", "sptc", *words, *way], cwd=tmp_path, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not blocks(partial):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 0 < blocks(partial) < 18
    assert not output.exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        for other, message in (
            (["--split-k", "3,5"], "split_k [2, 6], not [3, 5]"),
            (["--promote", "4"], "promote 8, not 4"),
            (["--result", "f16"], "result bf16, not f16"),
            (["--alpha", "2"], "alpha 1.0, not 2.0"),
            (["--bias", "s.npy"], "bias None, not "),
        ):
            assert main([*words, *way, *other]) == 2
            said = capsys.readouterr().err
            assert f"d.npy.partial holds another product: {message}" in said
            assert said.count("\n") == 1
        assert main([*words, *way]) == 0
    expected = sptc.gemm(
        a, b, split_k=(2, 6), tile=8, promote=8, scale_b=np.load(tmp_path / "s.npy"), relu=True, result="bf16",
        backend="native",
    )  # fmt: skip
    np.testing.assert_array_equal(np.load(output), expected.view(np.uint16))
    assert not partial.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--split-k", "9"], "K has 8 tiles of 1 instructions, too few for 9 slices"),
        (["--split-k", "1,2"], "slices of (1, 2) K tiles do not make up K, which has 8"),
        (["--split-k", "2,x"], "argument --split-k: must be an integer of 1 or more, not 'x'"),
        (["--order", "any"], "argument --order: invalid choice: 'any'"),
        (["--result", "s32"], f"the result of {WGMMA} must be f32 or f16 or bf16 or e4m3 or e5m2 or s8, not 's32'"),
        (["--way", "way.json", "--promote", "2"], "a way says how it is summed: give no other word for it"),
        (["--way", "way.json", "--instruction", WGMMA], "a way says how it is summed: give no other word for it"),
        (["--way", "way.json", "--arch", "sm_80"], "the way is of sm_90, not sm_80"),
        (["--way", "way.json", "--format", "e4m3"], f"{WGMMA} multiplies f16 with f16, not e4m3"),
        (["--beta", "2"], "--beta is a factor of C, which is missing"),
        (["--alpha", "inf"], "argument --alpha: must be a number, not 'inf'"),
        (["--bias", "a.npy"], "bias of shape (150, 256) does not broadcast to the product's, (150, 530)"),
        (["--c", "a.npy"], "c of shape (150, 256) does not broadcast to the product's, (150, 530)"),
        (["--c", "missing.npy", "--beta", "1"], "missing.npy cannot be read (No such file or directory)"),
        (["--swapped"], "not 2:4 sparse: "),
        (["--accumulate", "s32"], "sm_90 has no sparse instruction for f16 that accumulates in s32"),
        (["--scales", "ue8m0", "--instruction", WGMMA], f"{WGMMA} has no block scales of ue8m0"),
        (["--a", "bias.npy"], "a must be a matrix with at least one element, not of shape (530,)"),
        (["--a", "packed.npz", "--dense"], "a is compressed: there is no dense product to compare with"),
        (["--b", "packed.npz"], "b is the dense factor and cannot be compressed"),
        (["--a", "strange.npz"], "strange.npz is in no known format, but 'x'"),
        (
            ["--dense", "--instruction", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"],
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 is dense: there is no other dense product to compare",
        ),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("matrices")
def test_bad_input(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "way.json").write_text(json.dumps({"instruction": WGMMA}), encoding="utf-8")
    assert main(["compress", "a.npy", "--output", "packed.npz"]) == 0
    write_tensors(tmp_path / "strange.npz", {"x": np.ones((2, 2))}, {"software_format": "x"})
    capsys.readouterr()
    try:
        status: object = main(["gemm", "--a", "a.npy", "--b", "b.npy", *words, "--jobs", "1", "--backend", "golden"])
    except SystemExit as end:  # of words that argparse refuses
        status = end.code
    assert status == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("sptc gemm: ")
    assert message in shown.err
    assert shown.err.count("\n") == 1

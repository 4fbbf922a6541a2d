"""``sptc gemm`` gives the results of :func:`sptc.gemm`, resumes after interruptions, and rejects invalid input."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import sptc
from sptc.errors import FileError
from sptc.gemm.folder import ProductFolder
from sptc.gemm.options import read_way
from sptc.gemm.product import Block
from sptc.gemm.stream_k import RASTERS, StreamK
from sptc.gemm.ways import Way
from sptc.tensors.checkpoints import read_compressed
from sptc.tensors.files import write_tensors
from sptc.tensors.sparsify import expand
from sptc.tests.cli.command_line import CommandLine, saved
from sptc.tests.gemm.sparse_factors import Random, sparse
from sptc.verify.register_file import read, write

COMMAND = "gemm"
RANDOM = ["--random", "150", "20", "64"]
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
K = 8 * 32


def test_random_matrices(cli: CommandLine) -> None:
    text = cli.text(*RANDOM, "--compare-dense", "--output", "d.npy", "--plot", "errors.svg", "--jobs", 1)
    assert text.startswith("all 3,000 outputs of golden and rtl equal\n")
    for words in (
        f"150 x 20 x 64: {WGMMA} on sm_90; one chain along K; result f32 (RNE)",
        "96000 of 192000 products kept, 18 instructions",
        "576 cycles of one array of the datapath hopper, multipliers 65.1 % used",
    ):
        assert words in text, words
    assert np.load("d.npy").shape == (150, 20)
    assert Path("errors.svg").read_text("utf-8").startswith("<?xml")
    assert sorted(Path().iterdir()) == [Path("d.npy"), Path("errors.svg")]
    dense = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    text = cli.text(*RANDOM, "--instruction", dense, "--backend", "golden", "--jobs", 1)
    assert "192000 of 192000 products kept" in text


def test_files_of_matrices_and_of_a_tile(rng: np.random.Generator, cli: CommandLine) -> None:
    """The file of a saved tile names the instruction and its architecture, so the product equals D of the tile."""
    a, b = rng.standard_normal((20, 40)), rng.standard_normal((12, 40))
    np.savez("both.npz", a=a, b=b)
    words = ["--a", "both.npz", "--a-tensor", "a", "--b", "both.npz", "--b-tensor", "b", "--transpose-b"]
    report = cli.json(*words, "--prune", "--rows", 7, "--output", "d.npy", "--jobs", 1)
    assert (report["shape"], report["mismatches"]) == ([7, 12, 40], 0)
    assert np.load("d.npy").shape == (7, 12)
    assert np.abs(np.load("d.npy") - (a @ b.T)[:7]).max() < 20
    cli.refuses(*words, message="not 2:4 sparse: ")
    of_tile = ["--a", "tile.npz", "--b", "tile.npz", "--backend", "golden", "--jobs", 1]
    of_tcgen05 = "tcgen05.mma.sp.cta_group::1.kind::f16 (m128n8k32.f32.f16.f16)"
    for instruction, m, arch in ((of_tcgen05, 128, None), ("mma.sp m16n8k32 bf16 f32", 16, "sm_80")):
        tile = sptc.pack(instruction, sparse(rng, m, 32, np.float32), rng.standard_normal((32, 8)).astype(np.float32))
        sptc.save("tile.npz", **tile, arch=arch)
        file = read("tile.npz")
        assert "products kept, 1 instruction\n" in cli.text(*of_tile, "--output", "d.npy")
        np.testing.assert_array_equal(np.load("d.npy").view(np.uint32), file.matrix(file.run())[0])
    write("other.npz", file.assuming("sm_90", None))
    message = "names sm_80, but other.npz names sm_90: both must name the same architecture"
    cli.refuses(*of_tile, "--b", "other.npz", message=f"tile.npz {message}")


def test_other_numerics(rng: np.random.Generator, cli: CommandLine) -> None:
    a, b = sparse(rng, 16, 128, np.float32), rng.standard_normal((128, 8)).astype(np.float32)
    saved(a=a, b=b)
    words = ["--a", "a.npy", "--b", "b.npy", "--jobs", 1]
    for fmt, option, instruction in (
        ("f16", "--alignment", "m16n8k32 f16 f32"),
        ("e4m3", "--fp8-alignment", "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3"),
    ):
        more = ["--instruction", instruction, option, 9, "--products", 8, "--output", f"{fmt}.npy", "--compare-dense"]
        report = cli.json(*words, *more)
        assert (report["numerics"], report["cycles"]) == ({"alignment_bits": 9, "products": 8}, None)
        own = sptc.numerics("sm_90", instruction)
        expected = sptc.gemm(a, b, instruction=instruction, numerics=own.replace(alignment_bits=9, products=8))
        np.testing.assert_array_equal(np.load(f"{fmt}.npy"), expected)
        assert (expected != sptc.gemm(a, b, instruction=instruction)).any()
    more = ["--format", "e4m3", "--products", 8, "--backend", "golden"]
    assert "other numerics: products 8, rounding of each step RZ-E8M13\n" in cli.text(*words, *more)
    rounded = cli.json(*words, *more, "--step-rounding", "RNE-f32", "--output", "nearest.npy")
    assert rounded["numerics"] == {"products": 8, "rounding": "RNE-f32"}
    own = sptc.numerics("sm_90", rounded["instruction"]).replace(products=8, rounding="RNE-f32")
    expected = sptc.gemm(a, b, instruction=rounded["instruction"], numerics=own)
    np.testing.assert_array_equal(np.load("nearest.npy"), expected)
    for more, message in (
        (["--format", "f16", "--step-rounding", "RZ-f16"], "f16.f16, which rounds its sums to f32 or E8M13"),
        (["--format", "e4m3", "--alignment", 9], "on sm_90, but --fp8-alignment does"),
        (["--format", "f16", "--fp8-alignment", 9], "on sm_90, but --alignment does"),
    ):
        cli.refuses(*words, *more, message=message)


@pytest.fixture
def matrices(cli: CommandLine, rng: Random) -> dict[str, np.ndarray]:
    m, n = 150, 530
    shapes = {"c": (m, n), "bias": n, "scale_a": (m, 1), "scale_b": n}
    arrays = {"a": sparse(rng, m, K), "b": rng.standard_normal((K, n)).astype(np.float16)}
    arrays |= {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    saved(**arrays)
    return arrays


def gemm(cli: CommandLine, *words: object, a: str = "a.npy", b: str = "b.npy") -> tuple[np.ndarray, dict[str, Any]]:
    report = cli.json("--a", a, "--b", b, "--output", "d.npy", "--backend", "native", "--jobs", 1, *words)
    return np.load("d.npy"), report


def check(cli: CommandLine, expected: np.ndarray, *words: object, **files: str) -> None:
    np.testing.assert_array_equal(gemm(cli, *words, **files)[0], expected)


def command_words(words: dict[str, Any]) -> list[object]:
    arguments: list[object] = []
    for name, value in words.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            arguments.append(option)
        elif isinstance(value, np.ndarray):
            arguments += [option, f"{name}.npy"]
        else:
            arguments += [option, ",".join(map(str, value)) if isinstance(value, tuple) else value]
    return arguments


WAYS: list[dict[str, Any]] = [
    {},
    {"split_k": 3, "order": "reverse", "cut": "balanced"},
    {"split_k": (1, 5, 2), "order": "halves", "workspace": "f16", "running": "bf16", "result": "bf16"},
    {"split_k": 2, "tile": 2, "cut": "in turn", "k_order": "descending", "result": "f16", "rounding": "RZ"},
    {"promote": 3, "accumulate": "f16", "result": "e4m3"},
    {"arch": "sm_80", "split_k": 2, "result": "e5m2"},
    {"instruction": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "promote": 4},
]


def test_ways_are_those_of_the_function(matrices: dict[str, np.ndarray], cli: CommandLine) -> None:
    for words in WAYS:
        expected = sptc.gemm(matrices["a"], matrices["b"], backend="native", **words)
        found, report = gemm(cli, *command_words(words))
        of_numpy = expected.dtype.isbuiltin == 1
        assert found.dtype == (expected.dtype if of_numpy else np.dtype(f"u{expected.dtype.itemsize}")), words
        bits = f"u{found.itemsize}"
        np.testing.assert_array_equal(found.view(bits), expected.view(bits), err_msg=str(words))
        said = report["way"]
        lists = {name: list(value) if isinstance(value, tuple) else value for name, value in words.items()}
        assert {name: said[name] for name in said.keys() & words} == {name: lists[name] for name in said.keys() & words}
        # Only the rounding of the result causes errors, of at most one unit in the last place.
        last_bit = {"f32": 2.0**-16, "f16": 2.0**-9, "bf16": 2.0**-6, "e4m3": 2.0**-3, "e5m2": 2.0**-2}[said["result"]]
        errors = report["errors"]["arithmetic"]
        assert 0 < errors["total"] < last_bit * errors["total_reference"], words
    a, b, c = (matrices[name] for name in ("a", "b", "c"))
    check(cli, sptc.gemm(a, b, c, backend="native"), "--c", "c.npy")  # C is the first accumulator of the chain


@pytest.mark.parametrize("names", [("c", "bias"), ("scale_a", "scale_b"), ("c", "bias", "scale_a", "scale_b")])
@pytest.mark.parametrize("swapped", [False, True])
def test_epilogues_are_those_of_the_function(
    names: tuple[str, ...], swapped: bool, matrices: dict[str, np.ndarray], cli: CommandLine
) -> None:
    words: dict[str, Any] = {name: matrices[name] for name in names} | {"alpha": 0.75, "relu": True, "split_k": 2}
    if "c" in names:
        words["beta"] = -1.25
    a, b = matrices["a"], matrices["b"]
    if swapped:
        words["swapped"] = True
        a, b = np.resize(b.T, (150, K)), np.resize(a, (530, K)).T
        saved(a=a, b=b)
    expected = sptc.gemm(a, b, backend="native", **words)[:140]
    found, report = gemm(cli, *command_words(words), "--rows", 140)
    np.testing.assert_array_equal(found, expected)
    assert (found == 0).any()
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


def test_ways_in_files(matrices: dict[str, np.ndarray], cli: CommandLine) -> None:
    """--way reads the output of ``sptc identify --json``, or its entry `way` alone. Other contents are rejected."""
    a, b, path = matrices["a"][:16], matrices["b"][:, :24], Path("way.json")
    y = sptc.gemm(a, b, split_k=(3, 5), backend="native", result="f16")
    saved(a=a, b=b, y=y)
    files = [word for name in "aby" for word in (f"--{name}", f"{name}.npy")]
    report = CommandLine(cli.capsys, "identify").json(*files, "--format", "f16", "--result", "f16")
    for record in (report, report["way"]):
        path.write_text(json.dumps(record), encoding="utf-8")
        check(cli, y, "--way", path)
    found, _ = gemm(cli, "--way", path, "--result", "f32")
    np.testing.assert_array_equal(found.astype(np.float16), y)
    way = Way(instruction=WGMMA, split_k=(3, 5), workspace="f16", rounding="RZ")
    path.write_text(json.dumps(asdict(way)), encoding="utf-8")
    assert read_way(path) == way
    for content, message in (
        ("[1]", ": a method of summation must be an object of attributes and values, not [1]"),
        ('{"way": null}', " holds no method of summation: no tried method gives all bits of the result"),
        ("{", " is not JSON"),
    ):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(FileError) as caught:
            read_way(path)
        assert str(caught.value).startswith(f"{path}{message}"), content


@pytest.mark.parametrize("swapped", [False, True])
def test_stream_k_over_blocks(swapped: bool, matrices: dict[str, np.ndarray], rng: Random, cli: CommandLine) -> None:
    dealing = StreamK(workers=11, rows=96, columns=80, raster=str(rng.choice(RASTERS)))
    way, path = Way(instruction=WGMMA, cut="balanced", swapped=swapped, stream_k=dealing), Path("way.json")
    path.write_text(json.dumps(asdict(way)), encoding="utf-8")
    a, b = matrices["a"], matrices["b"]
    if swapped:
        a, b = b.T.copy(), a.T.copy()
        saved(a=a, b=b)
    expected = sptc.gemm(a, b, way=way, backend="native")
    assert (expected != sptc.gemm(a, b, way=replace(way, stream_k=None), backend="native")).mean() > 0.2
    found, report = gemm(cli, "--way", path)
    np.testing.assert_array_equal(found, expected)
    assert Way.of_record(report["way"]) == way
    check(cli, expected[:140], "--way", path, "--rows", 140)
    path.write_text(json.dumps(asdict(replace(way, order="any"))), encoding="utf-8")
    message = "the sum of slices of K depends on their order: name an order other than 'any'"
    cli.refuses("--a", "a.npy", "--b", "b.npy", "--way", path, message=message)


def test_what_matrices_may_be(matrices: dict[str, np.ndarray], cli: CommandLine) -> None:
    a, b = matrices["a"][:32], matrices["b"][:, :24]
    expected = sptc.gemm(a, b)
    saved(a=a, b=b, x=b[:, 3], a_of_b=np.ascontiguousarray(b.T), b_t=b.T)
    for layout in ("natural", "pytorch"):
        packed = "packed.safetensors"
        CommandLine(cli.capsys, "compress").text("a.npy", "--to", layout, "--output", packed)
        check(cli, expected, a=packed)
        check(cli, expected[:5], "--rows", 5, a=packed)
        check(cli, expected.T, "--swapped", a="a_of_b.npy", b=packed)
    check(cli, expected, "--transpose-b", b="b_t.npy")
    check(cli, expected[:, 3], b="x.npy")
    bits = [array.astype(ml_dtypes.bfloat16).view(np.uint16) for array in (a, b)]
    saved(a=bits[0], b=bits[1])
    check(cli, sptc.gemm(*bits, format="bf16"), "--format", "bf16")


def test_files_of_pytorch(matrices: dict[str, np.ndarray], cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.from_numpy(matrices[name]).bfloat16() for name in "ab")
    torch.save({"w": a, "epoch": 3, "other": {"w": b}}, "state.pt")
    torch.save(b.T, "b.pt")  # a tensor that is not contiguous
    found, report = gemm(cli, "--a-tensor", "w", "--transpose-b", a="state.pt", b="b.pt")
    np.testing.assert_array_equal(found, sptc.gemm(a, b, backend="native"))
    assert report["errors"]["whole"] == report["errors"]["arithmetic"]
    files = ["--a", "state.pt", "--b", "b.pt"]
    cli.refuses(*files, message="state.pt holds 'w', 'other.w': --a-tensor must select one of them")
    cli.refuses(*files, "--a-tensor", "v", message="state.pt has no tensor 'v'; it has 'w', 'other.w'")
    monkeypatch.setitem(sys.modules, "torch", None)
    cli.refuses(*files, message="the file format needs the package torch: install it with `")


def test_scales_of_a_compressed_file(rng: Random, cli: CommandLine) -> None:
    """Block scales are passed to an instruction that has them. Other instructions multiply the dequantised numbers."""
    a, b = sparse(rng, 32, K).astype(np.float32), rng.standard_normal((K, 9)).astype(np.float32)
    saved(a=a, b=b)
    packed = "packed.safetensors"
    CommandLine(cli.capsys, "compress").text("a.npy", "--format", "e4m3", "--recipe", "mx", "--output", packed)
    scaled = ("--format", "e4m3", "--scales", "ue8m0", "--arch", "sm_120", "--split-k", 2)
    expected, _ = gemm(cli, *scaled)
    check(cli, expected, *scaled, a=packed)
    check(cli, expected[:5], *scaled, "--rows", 5, a=packed)
    numbers = expand(read_compressed(Path(packed), "natural").values())
    check(cli, sptc.gemm(numbers, b, format="f16"), "--format", "f16", a=packed)
    words = ["--a", packed, "--b", "b", "--y", "y", "--format", "e4m3", "--result", "f32"]
    CommandLine(cli.capsys, "identify").refuses(*words, message="holds block scales, which only `sptc gemm` accepts")


def test_integers_take_scales_where_they_must(rng: Random, cli: CommandLine) -> None:
    a, b = rng.integers(-128, 128, (8, 64)) / 3, rng.integers(-128, 128, (64, 5)).astype(np.float64)
    a[:, ::2] = 0
    saved(a=a, b=b)
    found, report = gemm(cli, "--format", "s8")
    scale = np.abs(a).max() / 127
    assert report["scale"] == pytest.approx(scale, rel=1e-6)
    np.testing.assert_allclose(found * scale, a @ b, atol=64 * 128 * scale)


def test_a_way_resumes(matrices: dict[str, np.ndarray], cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--a", "a.npy", "--b", "b.npy", "--output", "d.npy", "--backend", "golden", "--jobs", "1"]
    words += ["--split-k", "2,6", "--promote", "4", "--scale-b", "scale_b.npy", "--relu", "--result", "bf16"]
    add = ProductFolder.add

    def interrupted(folder: ProductFolder, block: Block) -> None:
        add(folder, block)
        raise KeyboardInterrupt

    kept = Path("d.npy.partial").absolute()
    with monkeypatch.context() as patch:
        patch.setattr(ProductFolder, "add", interrupted)
        _, errors = cli.streams(*words, status=130)
    assert errors == f"sptc gemm: interrupted; finished blocks are stored in {kept}\n"
    assert not Path("d.npy").exists()
    for other, message in (
        (["--split-k", "3,5"], "split_k is [2, 6], not [3, 5]"),
        (["--promote", "8"], "promote is 4, not 8"),
        (["--result", "f16"], "result is bf16, not f16"),
        (["--alpha", "2"], "alpha is 1.0, not 2.0"),
        (["--bias", "bias.npy"], "bias is None, not "),
    ):
        cli.refuses(*words, *other, message=f"d.npy.partial holds results of another matrix product: its {message}")
    computed: list[int] = []
    monkeypatch.setattr(ProductFolder, "add", lambda folder, block: (computed.append(block.index), add(folder, block)))
    assert cli.status(*words) == 0
    assert len(computed) == 3
    way: dict[str, Any] = {"split_k": (2, 6), "promote": 4, "relu": True, "result": "bf16"}
    expected = sptc.gemm(matrices["a"], matrices["b"], scale_b=matrices["scale_b"], backend="native", **way)
    np.testing.assert_array_equal(np.load("d.npy"), expected.view(np.uint16))
    assert not kept.exists()


@pytest.mark.usefixtures("matrices")
def test_bad_input(cli: CommandLine) -> None:
    Path("way.json").write_text(json.dumps({"instruction": WGMMA}), encoding="utf-8")
    CommandLine(cli.capsys, "compress").text("a.npy", "--output", "packed.npz")
    write_tensors(Path("strange.npz"), {"x": np.ones((2, 2))}, {"software_format": "x"})
    dense = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    saved(scalar=np.float16(1), scales=np.zeros((8, 1), np.uint8))
    for option, value in (("--check", ()), ("--transpose-b", ()), ("--a-tensor", ("x",))):
        cli.refuses(*RANDOM, option, *value, message=f"{option} cannot be combined with --random")
    scales = ("--block-scale-a", "scales.npy", "--block-scale-b", "scales.npy")
    cli.refuses_each(
        ([], "give the files of A and B with --a and --b"),
        (["--a", "x.npy"], "give the files of A and B with --a and --b"),
        ([*RANDOM, "--output", "d.npz"], "d.npz must end in .npy"),
        ([*RANDOM, "--output", "none/d.npy"], "none/d.npy cannot be written (No such file or directory)"),
        ([*RANDOM, "--instruction", "mma.sp.x"], "'.x' in 'mma.sp.x.sync.aligned.row.col' is no part of mma; "),
        (["--random", 1 << 62, 1, 1], "argument --random: the value must be an integer of at most 16777216"),
        (["--random", 8, 8, 64, *scales], "sm_90 has no sparse instruction for f16 with block scales"),
    )
    for words, message in (
        (["--seed", 0], "--seed needs --random"),
        (["--a", "scalar.npy"], "a must be a matrix with at least one element, not of shape ()"),
        (["--way", "way.json", "--split-k", 1], "--split-k cannot be combined with --way, which determines it"),
        (["--way", "way.json", "--rounding", "RNE"], "--rounding cannot be combined with --way"),
        (["--workspace", "f16"], "--workspace rounds sums of several slices of K: add --split-k"),
        (["--running", "bf16", "--split-k", 1], "--running rounds sums of several slices of K"),
        (["--way", "way.json", "--arch", "sm_80"], "--arch names sm_80, but --way names sm_90: both must name"),
        (["--beta", "2"], "--beta is the factor of C and needs --c"),
        (["--alpha", "inf"], "argument --alpha: the value must be a number, not 'inf'"),
        (["--swapped"], "not 2:4 sparse: "),
        (["--scales", "ue8m0", "--instruction", WGMMA], f"{WGMMA} does not accept block scales of format ue8m0"),
        (["--a", "packed.npz", "--compare-dense"], "a is compressed, so no dense product can be computed for a comp"),
        (["--a", "strange.npz"], "strange.npz is in an unknown format, 'x'"),
        (["--prune", "--instruction", dense], f"prune needs a sparse instruction, but {dense} is dense"),
        (["--check", "--instruction", dense], f"--check needs a sparse instruction, but {dense} is dense"),
        (["--compare-dense", "--instruction", dense], f"{dense} is already dense: a comparison with the dense prod"),
    ):  # fmt: skip
        cli.refuses("--a", "a.npy", "--b", "b.npy", *words, "--jobs", "1", "--backend", "golden", message=message)

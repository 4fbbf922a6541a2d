"""The back end "cuda" is tested on a fake GPU: its results, and its errors on machines that cannot run it."""

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sptc
from sptc.api.backends import backend
from sptc.golden.matrix import multiply
from sptc.isa.instructions import parse
from sptc.tests.cli.command_line import CommandLine
from sptc.tests.sim.matrices import matrices
from sptc.verify.register_file import read
from sptc.verify.stimulus import random_register_file

from .fake_cupy import H200

F16 = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
Random = np.random.Generator
DRIVER = "580.159.04"
A100, T4 = ({"name": b"NVIDIA A100", "major": 8, "minor": 0}, {"name": b"Tesla T4", "major": 7, "minor": 5})
#: An ``mma`` and a ``wgmma`` that are fast to compute.
TEXTS = [F16, "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"]
RTX = {"name": b"NVIDIA RTX 5080", "major": 12, "minor": 0}
BLOCK_SCALE = "kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"


def test_operands_reach_the_gpu(machine: Callable, rng: Random) -> None:
    for text, gpu, arch in (
        *((text, H200, "sm_90") for text in (*TEXTS, "mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.u8.s8.s32")),
        (f"mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.{BLOCK_SCALE}", RTX, "sm_120"),
    ):
        machine(gpu)
        i = parse(text)
        file = random_register_file(i, arch, "uniform" if i.a.is_integer else "mid", 9, rng, any_nibble=arch == "sm_90")
        np.testing.assert_array_equal(file.run("cuda"), file.run("golden"), text)


def run(metadata: int = 0x44444444) -> None:
    zeros = np.zeros((32, 4), np.uint32)
    sptc.mma(F16, zeros, zeros, zeros, np.full(32, metadata, np.uint32), arch="sm_90", backend="cuda")


def test_undefined_metadata_and_machines_that_cannot(machine: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    machine()
    with pytest.raises(sptc.MetadataError):
        run(metadata=0)
    for properties, refuses, message in (
        (None, "", r"^back end 'cuda' finds no NVIDIA GPU \(cudaErrorNoDevice: "),
        (T4, "", r"^the GPU, Tesla T4, is sm_75; back end 'cuda' runs on sm_80, "),
        (A100, "", r"^the requested architecture is sm_90, but the GPU, NVIDIA A100, is sm_80$"),
        (H200, "CUDA_ERROR_UNSUPPORTED_PTX", r"CUDA 13\.0, does not run mma\.sp.*\(CUDA_ERROR_UNSUPPORTED_PTX\)"),
    ):
        machine(properties).refuses = refuses
        with pytest.raises(sptc.BackendError, match=message):
            run()
    machine()
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(sptc.BackendError, match=r"^back end 'cuda' needs CuPy, which the extra 'cuda' of sptc "):
        run()


@pytest.mark.parametrize("text", TEXTS)
def test_products(machine: Callable, rng: Random, text: str) -> None:
    machine()
    i = parse(text)
    operands = matrices(i, (1, 70, 19), "mid", rng)
    np.testing.assert_array_equal(backend("cuda").multiply(i, "sm_90", operands).d, multiply(i, "sm_90", operands))


def test_info_with_a_gpu_and_without(machine: Callable, tmp_path: Path, cli: CommandLine) -> None:
    machine()
    counts = {"sparse_instructions": 616, "dense_instructions": 600}
    assert cli.json("info") == {"name": "NVIDIA H200", "arch": "sm_90", "cuda": "13.0", "driver": DRIVER, **counts}
    machine(None)
    for words in (["info"], ["verify", "--shards", 1], ["record", tmp_path / "none"]):
        _, error = cli.streams(*words, status=2)
        assert error.startswith(f"sptc gpu {words[0]}: back end 'cuda' finds no NVIDIA GPU (")
        assert error.count("\n") == 1
    assert not (tmp_path / "none").exists()


def test_verify(machine: Callable, tmp_path: Path, cli: CommandLine) -> None:
    """`sptc gpu verify` accepts right results, resumes a run, and writes a file that reproduces wrong bits."""
    cupy = machine()
    record, state = tmp_path / "record.json.gz", tmp_path / "state"
    words = ["verify", "--record", record, "--instruction", *TEXTS, "--seed", 3, "--tiles", 2, "--jobs", 1]
    assert cli.json(*words, "--state", state, "--shards", 3)["total"]["shards"] == 3
    total = cli.json(*words, "--state", state, "--shards", 6)["total"]
    assert (total["shards"], total["mismatches"]) == (6, 0)
    kept = json.loads(gzip.decompress(record.read_bytes()))
    assert kept["total"] == {"shards": 6, "outputs": total["outputs"], "mismatches": 0}
    assert (kept["gpu"], kept["arch"], kept["driver"]) == ("NVIDIA H200", "sm_90", DRIVER)
    assert (kept["seed"], kept["tiles"], sorted(kept["instructions"])) == (3, 2, sorted(TEXTS))
    counts = [form for places in kept["instructions"].values() for form in places.values()]
    assert sum(form["tiles"] for form in counts) == 12
    assert sum(form["outputs"] for form in counts) == total["outputs"]
    cupy.wrong = 4
    mismatch = cli.json(*words, "--state", tmp_path / "other", "--shards", 6, status=1)["mismatch"]
    counts = json.loads(gzip.decompress(record.read_bytes()))["instructions"].values()
    assert sum(form["mismatches"] for places in counts for form in places.values()) > 0
    assert mismatch["replay"] == f"sptc run {mismatch['file']} --backend cuda"
    assert mismatch["rerun"].startswith("sptc gpu verify --seed 3 --tiles 2 --instruction ")
    run_again = CommandLine(cli.capsys, "run")
    assert run_again.status(mismatch["file"], "--backend", "cuda") == 1
    cupy.wrong = 0
    assert run_again.status(mismatch["file"], "--backend", "cuda") == 0


def test_records(machine: Callable, tmp_path: Path, cli: CommandLine) -> None:
    machine()
    before, state = sorted(tmp_path.iterdir()), tmp_path / "state"
    for path, why in ((tmp_path / "none" / "record", "No such file or directory"), (tmp_path, "Is a directory")):
        _, errors = cli.streams("verify", "--record", path, "--shards", 1, "--state", state, status=2)
        assert errors == f"sptc gpu verify: {path} cannot be written ({why})\n"
    assert sorted(tmp_path.iterdir()) == before
    assert "2 register files" in cli.text("record", tmp_path / "new", "--instruction", *TEXTS, "--tiles", 3)
    files = [read(path) for path in sorted((tmp_path / "new").iterdir())]
    assert [str(file.instruction) for file in files] == TEXTS
    for file in files:
        assert file.recorded.startswith("NVIDIA H200, CUDA 13.0, 20")
        np.testing.assert_array_equal(file.d, file.run("golden"))
    integer = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
    words = ["record", tmp_path / "least", "--least", "--tiles", 10, "--instruction"]
    assert cli.status(*words, *TEXTS) == 0
    names = [path.name for path in (tmp_path / "least").iterdir()]
    assert len(names) == len(TEXTS)
    assert all(name.endswith(".least.npz") for name in names)
    message = f"--least needs an instruction that multiplies floats, not {integer}"
    assert cli.streams(*words, integer, status=2)[1] == f"sptc gpu record: {message}\n"

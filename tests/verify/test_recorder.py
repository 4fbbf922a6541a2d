"""The script that records GPU results runs on an emulated GPU, and the results reveal faults of the emulated GPU."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.cli import main
from sptc.errors import FileError, InstructionError
from sptc.gpu import recorder
from sptc.gpu.ptx import target
from sptc.isa.architectures import TARGETS, same_numerics
from sptc.isa.instructions import Instruction
from sptc.isa.numerics import numerics
from sptc.isa.operands import MatrixOperands, Product
from sptc.tests.isa.assembler import ptxas
from sptc.verify.candidates import draw_candidates
from sptc.verify.neighbours import neighbours_of
from sptc.verify.pack_files import file_of
from sptc.verify.recorder import _launch, judge_record, read_record, rows_of, rules_decided, script, subjects_of
from sptc.verify.stimulus import Given

Files = Callable[[str], ModuleType]
NVFP4 = "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X (m128n8k64.f32.e2m1.e2m1.ue4m3)"
BF16 = "tcgen05.mma.sp.cta_group::1.kind::f16 (m128n8k32.f32.bf16.bf16)"
FP8 = "tcgen05.mma.cta_group::1.kind::f8f6f4 (m128n8k32.f16.e4m3.e5m2)"
INTEGER = "tcgen05.mma.cta_group::1.kind::i8 (m128n8k32.satfinite.s32.s8.s8)"
WARP = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
PAIR = "tcgen05.mma.sp.cta_group::2.kind::mxf8f6f4.block_scale (m256n16k64.f32.e4m3.e4m3.ue8m0)"
STATIONARY = "tcgen05.mma.ws.sp.cta_group::1.kind::i8 (m128n64k64.s32.u8.s8)"
#: Twenty injected faults: an instruction, and the wrong model (neighbour) whose results the emulated GPU returns.
PLANTED = [
    *((NVFP4, name) for name in ("sums of four products truncated under ue4m3 scales", "F = 34", "F = 36", "L = 32",
                                 "rounding RNE-f32", "scales of A ignored", "scales of B ignored",
                                 "terms rounded down in the alignment")),
    *((BF16, name) for name in ("no floor of the largest exponent", "e_zero = -134", "e_zero = -132", "F = 24", "L = 8",
                                "metadata of the next chunk", "4:1 multiplexers")),
    *((FP8, name) for name in ("rounding RZ-f16", "fp8 emulated by steps of f16", "F = 26")),
    *((INTEGER, name) for name in ("sums wrapped", "sums clamped halfway too")),
]  # fmt: skip
assert len({*PLANTED}) == 20


def neighbour(name: str) -> SimpleNamespace:
    """Return a back end with the results of a named neighbour: the golden model with one changed parameter."""

    def multiply(instruction: Instruction, arch: str, operands: MatrixOperands) -> Product:
        [model] = [each for each in neighbours_of(instruction, arch) if each.name == name]
        return Product(model.multiply(Given(operands)))

    return SimpleNamespace(make_ready=lambda arch: None, multiply=multiply)


@dataclass
class Device:
    """Emulated GPU that executes the PTX kernels of the recording script with this package's interpreter."""

    backend: object
    arch: str = "sm_100"
    name: str = "emulated"
    driver: str = "1.2"
    cuda: str = "13.0"
    capability: str = "10.0"

    def run(self, row: dict[str, Any], text: str, operands: dict[str, Any]) -> np.ndarray:
        d = np.zeros(row["words"], np.uint32)
        pointers = [operands.get(name, 0) for name in ("a", "b", "c", "e", "scale_a", "scale_b")]
        arguments = [*pointers, d, *row["descriptors"], row["shared"], row["threads"]]
        shape = (row["ctas"], 1, 1), (row["cta_threads"], 1, 1)
        run = sptc.run_kernel(text, *shape, arguments, arch=self.arch, backend=self.backend, shared=row["shared"])
        assert {finding.kind for finding in run.findings} <= {"undefined metadata"}
        return run.after(d)


def written(folder: Path, instructions: list[str], name: str = "sm_100") -> ModuleType:
    rows = rows_of(name, instructions)
    path = folder / "record.py"
    path.write_text(script(name, 0, rows, (row.choose(name, 0) for row in rows)), encoding="ascii")
    spec = spec_from_file_location("record", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return cache(lambda instruction: written(tmp_path_factory.mktemp("record"), [instruction]))


def judged(path: Path, results: dict[str, Any]) -> list[Any]:
    path.write_text(json.dumps(results))
    return [*judge_record(path, read_record(path), lambda name, seed, rows: [row.choose(name, seed) for row in rows])]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("instruction", "name"), PLANTED)
def test_each_planted_neighbour_is_named(files: Files, tmp_path: Path, instruction: str, name: str) -> None:
    module = files(instruction)
    results = module.record(module.PACK, Device(neighbour(name)))
    assert results["as_expected"] < len(results["rows"])
    rows = judged(tmp_path / "results.json", results)
    assert all(name in row.explained_by and not row.as_modelled for row in rows)
    for row in rows:
        assert {*row.explained_by} in ([set(names) for names in row.pack.alike if name in names] or [{name}])


@pytest.mark.parametrize(
    ("instructions", "selectors"),
    [([BF16], [0, 1]), pytest.param([WARP, PAIR, STATIONARY, NVFP4], [0, 1, 0, 0, 0], marks=pytest.mark.regression)],
)
def test_a_device_that_follows_the_model(tmp_path: Path, instructions: list[str], selectors: list[int]) -> None:
    module = written(tmp_path, instructions)
    results = module.record(module.PACK, Device("golden"))
    assert {*results} == {"format", "target", "sptc", "seed", "pack", "gpu", "date", "as_expected", "rows"}
    assert {*results["gpu"]} == {"name", "capability", "driver", "cuda"}
    assert {key for row in results["rows"] for key in row} == {"name", "selector", "operands", "sha256", "d"}
    rows = judged(tmp_path / "results.json", results)
    assert [row.row.sparsity_selector for row in rows] == selectors
    assert all(row.as_modelled for row in rows)
    if instructions == [BF16]:
        assert rules_decided(rows) == {"floor": {"built": 2, "alternative": 0, "neither": 0}}
    assert main(["gpu", "judge", str(tmp_path / "results.json"), "--jobs", "1"]) == 0


def test_failing_kernels_and_invalid_records(files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, path = files(FP8), tmp_path / "results.json"

    class Refusing(Device):
        def run(self, row: dict[str, Any], text: str, operands: dict[str, Any]) -> np.ndarray:
            raise module.RecordError("cuModuleLoadData: no")

    [row] = judged(path, module.record(module.PACK, Refusing(None)))
    assert (row.error, row.as_modelled) == ("cuModuleLoadData: no", False)
    assert main(["gpu", "judge", str(path), "--jobs", "1"]) == 1
    output = capsys.readouterr().out
    assert output.startswith("0 of 1 row equal to the model\n")
    assert output.endswith("not run (cuModuleLoadData: no)\n")
    with pytest.raises(module.RecordError, match=r"compute capability 9\.0; the kernels to record need 10\.0"):
        module.record(module.PACK, Device(None, capability="9.0"))
    kept = path.read_bytes()
    with pytest.MonkeyPatch.context() as patch:  # a failed command leaves older results and no empty file
        patch.setattr(module, "Gpu", lambda: Device(None, capability="9.0"))
        assert [module.main(["-o", str(place)]) for place in (path, tmp_path / "new.json")] == [2, 2]
    assert ([*tmp_path.iterdir()], path.read_bytes()) == ([path], kept)
    results = module.record(module.PACK, Device("golden"))
    for change, message in (
        ({"format": "x"}, "is no record of GPU results"),
        ({"rows": 3}, "'rows' is missing or has the wrong type"),
        ({"target": "sm_75"}, "the PTX target 'sm_75' is unknown"),
        ({"rows": []}, "the list 'rows' is empty, or one of its entries lacks 'name' or 'selector'"),
        ({"seed": 1}, "come from another version of sptc"),
        *(({"rows": [results["rows"][0] | x]}, "results of .* are damaged") for x in ({"d": "AAAA"}, {"sha256": "0"})),
        ({"rows": [results["rows"][0] | {"selector": 2}]}, "has no sparsity selector 2"),
    ):
        with pytest.raises(FileError, match=message):
            judged(path, results | change)


def test_words_are_left_out_of_a_full_file(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = files(FP8)
    monkeypatch.setattr(module, "_MOST_BYTES", 1500)
    for backend, as_modelled in (("golden", True), (neighbour("F = 26"), False)):
        results = module.record(module.PACK, Device(backend))
        assert "d" not in results["rows"][0]
        [row] = judged(tmp_path / "results.json", results)
        assert (row.as_modelled, row.judgement) == (as_modelled, None)


def test_the_file_needs_python_and_numpy_alone() -> None:
    text = Path(recorder.__file__).read_text(encoding="utf-8")
    imported = {line.split()[1].split(".")[0] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert imported - {*sys.stdlib_module_names} == {"numpy"}


@pytest.mark.regression
@pytest.mark.parametrize("name", ["sm_100", "sm_103", "sm_110", "sm_121"])
def test_the_assembler_accepts_every_kernel(tmp_path: Path, name: str) -> None:
    """The assembler accepts all kernels for sm_100, and kernels with one pair of types of A and B for other targets."""
    rows = {replace(row.subject.instruction, a=None, b=None) if name != "sm_100" else row: row for row in rows_of(name)}
    for row in rows.values():
        subject, rng = row.subject, np.random.default_rng(0)
        i = subject.instruction
        operands = next(draw_candidates(i, numerics(i, same_numerics(name)), rng, 1))
        _, text, _ = _launch(file_of(subject, same_numerics(name), operands, rng, row.sparsity_selector), name)
        (tmp_path / "k.ptx").write_text(text)
        command = [ptxas(), f"-arch={target(name)}", "k.ptx", "-o", "k.cubin"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert not done.returncode, f"{subject.name}: {done.stderr}"


def test_rows_of_targets() -> None:
    subjects = {name: [*subjects_of(name)] for name in ("sm_100", "sm_103")}
    assert subjects["sm_103"] == [s for s in subjects["sm_100"] if s.instruction.kind != "i8"]
    assert [row.sparsity_selector for row in rows_of("sm_100", [BF16, BF16])] == [0, 1]
    every = {(s.instruction.kind, s.instruction.a, s.instruction.b, s.instruction.d) for s in subjects["sm_100"]}
    assert len([kind for kind, *_ in every if kind == "f8f6f4"]) == 50
    with pytest.raises(InstructionError, match="must be one chip such as sm_100a, not the family sm_100f"):
        rows_of("sm_100f", [BF16])
    assert {target(name) for name in TARGETS if name.startswith("sm_1") and name[-1].isdigit()} == {
        f"sm_{number}a" for number in (100, 101, 103, 110, 120, 121)
    }

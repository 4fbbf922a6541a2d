"""``sptc run`` on register files of tcgen05.mma.sp: statuses, table, JSON object, and one line for bad files."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sptc.cli import main
from sptc.rtl.config import PRESET_OF_ARCHITECTURE
from sptc.verify.register_file import shipped, write
from sptc.verify.tensor_memory_file import TensorMemoryFile

F16 = "tcgen05.mma.sp.cta_group::1.kind::f16"
PAIR = "tcgen05.mma.sp.cta_group::2.kind::f16"
NAME = f"{F16} (m128n16k32.f32.f16.f16)"
#: The hardware of sm_100 is compiled in the regression.
BACKENDS = ["golden", pytest.param("rtl", marks=pytest.mark.regression)]
MMA = next(iter(shipped()))

Make = Callable[..., TensorMemoryFile]
Random = np.random.Generator


def run(*words: object) -> int:
    return main(["run", *map(str, words)])


@pytest.fixture(autouse=True)
def one_datapath(monkeypatch: pytest.MonkeyPatch) -> None:
    """The datapaths of sm_100 and sm_120 differ in name alone; other tests build this one."""
    monkeypatch.setitem(PRESET_OF_ARCHITECTURE, "sm_100", "rtx-blackwell")


@pytest.fixture
def file(tensor_memory_file: Make, rng: Random) -> TensorMemoryFile:
    return tensor_memory_file(F16, rng, d="f32")


def flipped(file: TensorMemoryFile, case: int, lane: int, column: int, bit: int) -> TensorMemoryFile:
    assert file.d is not None
    d = file.d.copy()
    d[case, lane, column] ^= np.uint32(1 << bit)
    return replace(file, d=d)


@pytest.mark.parametrize("backend", BACKENDS)
def test_agreement(backend: str, file: TensorMemoryFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "file.npz", file)
    assert run(tmp_path / "file.npz", "--backend", backend) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    _, row, total = output.splitlines()
    assert row.startswith(f"{NAME}  ")
    assert row.removeprefix(NAME).split() == ["sm_100", "3", str(3 * 128 * 16), "0", "-", "-", "modelled"]
    assert total.split()[1:4] == ["3", str(3 * 128 * 16), "0"]


def test_beside_a_file_of_another_family(
    file: TensorMemoryFile, tensor_memory_file: Make, rng: Random, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "one.npz", file)
    write(tmp_path / "two.npz", tensor_memory_file(PAIR, rng, n=32, d="f32"))
    paths = [tmp_path / "one.npz", MMA, tmp_path / "two.npz", tmp_path / "one.npz"]
    assert run(*paths, "--json", "--limit", 2, "--backend", "golden") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["total"]["files"] == 4
    assert [row["tiles"] for row in found["instructions"]] == [4, 2, 2]
    assert found["instructions"][0] == {
        "instruction": NAME,
        "arch": "sm_100",
        "tiles": 4,
        "outputs": 4 * 128 * 16,
        "mismatches": 0,
        "flags": 0,
        "cycles": None,
        "silicon_cycles": None,
        "evidence": "modelled",
    }
    assert found["instructions"][2]["instruction"] == f"{PAIR} (m256n32k32.f32.f16.f16)"
    assert found["first_mismatch"] is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_wrong_output_is_printed(
    backend: str, file: TensorMemoryFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file.npz"
    write(path, flipped(file, 1, 77, 256 + 3, 4))
    assert run(path, "--backend", backend) == 1
    *_, total, last = capsys.readouterr().out.splitlines()
    assert total.split()[3] == "1"
    assert file.d is not None
    code = int(file.d[1, 77, 259])
    numbers = [float(np.uint32(word).view(np.float32)) for word in (code, code ^ 16)]
    assert last == (
        f"first mismatch: {NAME}, {path}, case 1, row 77, column 3: "
        f"computed 0x{code:08x} ({numbers[0]!r}), recorded 0x{code ^ 16:08x} ({numbers[1]!r})"
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_change_beside_d_is_printed(
    backend: str, tensor_memory_file: Make, rng: Random, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whole words, though D is f16."""
    file, path, word = tensor_memory_file(F16, rng, d="f16"), tmp_path / "file.npz", 0x1234
    name = NAME.replace("f32", "f16")
    assert file.d is not None
    file.tmem[2, 5, 17] = file.d[2, 5, 17] = word
    write(path, flipped(file, 2, 5, 17, 31))
    assert run(path, "--backend", backend) == 1
    other = word ^ 1 << 31
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"first mismatch: {name}, {path}, case 2, tensor memory of CTA 0, lane 5, column 17: "
        f"computed 0x{word:08x} ({word}), recorded 0x{other:08x} ({other})"
    )
    assert run(path, "--backend", backend, "--json") == 1
    assert json.loads(capsys.readouterr().out)["first_mismatch"] == {
        "file": str(path),
        "instruction": name,
        "case": 2,
        "cta": 0,
        "lane": 5,
        "column": 17,
        "reference": "recorded",
        "computed": f"0x{word:08x}",
        "expected": f"0x{other:08x}",
        "computed_number": str(word),
        "expected_number": str(other),
    }


def test_hardware_that_is_wrong(
    file: TensorMemoryFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a recorded D, the golden model says so."""
    compute = TensorMemoryFile.run

    def faulty(file: TensorMemoryFile, backend: str = "golden") -> np.ndarray:
        result = compute(file, "golden")
        if backend == "rtl":
            result[1, 0, 256] ^= np.uint32(1)
        return result

    monkeypatch.setattr(TensorMemoryFile, "run", faulty)
    write(tmp_path / "file.npz", replace(file, d=None))
    assert run(tmp_path / "file.npz") == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.search(r"case 1, row 0, column 0: computed 0x\w{8} \(.*\), golden model 0x\w{8} ", last), last


def with_waves(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run in a process of its own: a simulator that has run takes no waves."""
    command = [sys.executable, "-m", "sptc", "run", "file.npz", "--waves", "tile.vcd", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.regression
def test_waves_of_one_tile(tensor_memory_file: Make, rng: Random, tmp_path: Path) -> None:
    write(tmp_path / "file.npz", tensor_memory_file(F16, rng, n=8, d="f16"))
    done = with_waves(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].split()[1:4] == ["1", "1024", "0"]
    assert (tmp_path / "tile.vcd").stat().st_size > 100_000


BAD_FILES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown instruction": ({"instruction": "tcgen05.mma.sp"}, "'.cta_group' is missing in"),
    "dense descriptor": ({"idesc": 0}, "is of a dense instruction; bit 2 must be 1"),
    "descriptor of 33 bits": ({"idesc": 1 << 32}, "must be a 32-bit number"),
    "negative address": ({"d": -1}, "d must be a 32-bit address of tensor memory, not -1"),
    "misplaced metadata": ({"e": 9}, "must start at an even column of tensor memory, not 9"),
    "descriptor of B": ({"b": 0}, "must hold 0b001 in bits 48:46"),
    "small image": ({"smem": np.zeros((3, 64), np.uint8)}, "reaches byte 64, but smem has 64 bytes"),
    "superfluous scale": ({"scale_a": 60}, "takes no scale_a"),
    "large exponent": ({"scale_input_d": 16}, "must be 0 to 15, not 16"),
    "architecture without it": ({"arch": "sm_90"}, "sm_90 does not have tcgen05.mma.sp"),
    "unknown architecture": ({"arch": "sm_70"}, "'sm_70' is no known architecture"),
    "one case axis too few": ({"tmem": np.zeros((128, 512), np.uint32)}, "tmem must be a uint32 array of shape [case"),
    "undefined nibble": ({"tmem": np.zeros((3, 128, 512), np.uint32)}, "(lane 0, column 8, bits 3:0): nibble 0b0000"),
}


@pytest.mark.parametrize(("changes", "words"), BAD_FILES.values(), ids=BAD_FILES.keys())
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_a_bad_file_is_one_line(
    changes: dict[str, Any],
    words: str,
    options: list[str],
    file: TensorMemoryFile,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "file.npz"
    np.savez(path, **file.contents() | changes)
    assert run(path, *options) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert len(errors.splitlines()) == 1
    assert errors.startswith(f"sptc run: {path}: ")
    assert words in errors


def test_options(file: TensorMemoryFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.tmem[0, 0, 8] = 0
    write(tmp_path / "file.npz", replace(file, d=None))
    for options, status, words in (
        ([], 2, "nibble 0b0000 breaks the tcgen05 rule"),
        (["--metadata", "silicon"], 0, "modelled"),
        (["--metadata", "silicon", "--arch", "sm_120"], 2, "sm_120 does not have tcgen05.mma.sp"),
    ):
        assert run(tmp_path / "file.npz", "--backend", "golden", *options) == status
        output, errors = capsys.readouterr()
        assert words in (errors if status else output)
        assert len(errors.splitlines()) == (status == 2)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({"arch": "sm_70"}, [], "'sm_70' is no known architecture"),
        ({}, ["--arch", "sm_80"], "sm_80 does not have tcgen05.mma.sp"),
        ({"instruction": "tcgen05.mma.sp"}, [], "'.cta_group' is missing in"),
        ({"idesc": 0}, [], "is of a dense instruction"),
        ({"e": 9}, [], "must start at an even column of tensor memory, not 9"),
    ],
    ids=["unknown architecture", "another architecture", "instruction", "descriptor", "address"],
)
def test_waves_of_a_bad_file(
    changes: dict[str, Any], options: list[str], words: str, file: TensorMemoryFile, tmp_path: Path
) -> None:
    np.savez(tmp_path / "file.npz", **file.contents() | changes)
    done = with_waves(tmp_path, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("sptc run: file.npz: ")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_waves_that_cannot_be_written(file: TensorMemoryFile, tmp_path: Path) -> None:
    write(tmp_path / "file.npz", file)
    (tmp_path / "tile.vcd").mkdir()
    done = with_waves(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "sptc run: tile.vcd cannot be written (Is a directory)\n"

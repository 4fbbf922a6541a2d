"""``sptc run`` compares register files of tcgen05.mma.sp, and rejects bad files with one line."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sptc.rtl.config import PRESET_OF_ARCHITECTURE
from sptc.tests.cli.command_line import CommandLine
from sptc.verify.register_file import shipped, write
from sptc.verify.tensor_memory_file import TensorMemoryFile

COMMAND = "run"
F16 = "tcgen05.mma.sp.cta_group::1.kind::f16"
PAIR = "tcgen05.mma.sp.cta_group::2.kind::f16"
NAME = f"{F16} (m128n16k32.f32.f16.f16)"
#: Only the regression compiles the hardware of sm_100.
BACKENDS = ["golden", pytest.param("rtl", marks=pytest.mark.regression)]
MMA = next(iter(shipped()))

Make = Callable[..., TensorMemoryFile]
Random = np.random.Generator


@pytest.fixture(autouse=True)
def one_datapath(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the datapath of sm_120 for sm_100. The two differ only in name, and other tests build that of sm_120."""
    monkeypatch.setitem(PRESET_OF_ARCHITECTURE, "sm_100", "rtx-blackwell")


@pytest.fixture
def file(tensor_memory_file: Make, rng: Random) -> TensorMemoryFile:
    return tensor_memory_file(F16, rng, d="f32")


def test_beside_a_file_of_another_family(
    file: TensorMemoryFile, tensor_memory_file: Make, rng: Random, cli: CommandLine
) -> None:
    write(Path("one.npz"), file)
    write(Path("two.npz"), tensor_memory_file(PAIR, rng, n=32, d="f32"))
    report = cli.json("one.npz", MMA, "two.npz", "one.npz", "--limit", 2, "--backend", "golden")
    assert report["total"]["files"] == 4
    assert [row["tiles"] for row in report["instructions"]] == [4, 2, 2]
    expected = {"instruction": NAME, "arch": "sm_100", "tiles": 4, "outputs": 4 * 128 * 16, "evidence": "modelled"}
    expected |= {"mismatches": 0, "flags": 0, "cycles": None, "silicon_cycles": None}
    assert report["instructions"][0] == expected
    assert report["instructions"][2]["instruction"] == f"{PAIR} (m256n32k32.f32.f16.f16)"
    assert report["first_mismatch"] is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_change_beside_d_is_printed(backend: str, tensor_memory_file: Make, rng: Random, cli: CommandLine) -> None:
    """A change beside an f16 result in a word of D is reported, because whole words are compared."""
    file, word = tensor_memory_file(F16, rng, d="f16"), 0x1234
    other, name = word ^ 1 << 31, NAME.replace("f32", "f16")
    assert file.d is not None
    file.tmem[2, 5, 17], file.d[2, 5, 17] = word, other
    write(Path("file.npz"), file)
    assert cli.text("file.npz", "--backend", backend, status=1).splitlines()[1] == (
        f"first mismatch: {name}, file.npz, case 2, tensor memory of CTA 0, lane 5, column 17: "
        f"computed 0x{word:08x} ({word}), recorded 0x{other:08x} ({other})"
    )
    place = {"file": "file.npz", "instruction": name, "case": 2, "cta": 0, "lane": 5, "column": 17}
    assert cli.json("file.npz", "--backend", backend, status=1)["first_mismatch"] == place | {
        "reference": "recorded", "computed": f"0x{word:08x}", "expected": f"0x{other:08x}",
        "computed_number": str(word), "expected_number": str(other),
    }  # fmt: skip


@pytest.mark.regression
def test_waves_of_one_tile(tensor_memory_file: Make, rng: Random, tmp_path: Path) -> None:
    write(tmp_path / "file.npz", tensor_memory_file(F16, rng, n=8, d="f16"))
    command = [sys.executable, "-m", "sptc", "run", "file.npz", "--waves", "tile.vcd"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=1800)
    assert (done.returncode, done.stderr) == (0, "")
    compared = "all 1,024 outputs of 1 instruction equal, and all 1,024 metadata flags"
    assert done.stdout.splitlines()[0] == f"{compared}, at most 1 random tile of each file"
    assert (tmp_path / "tile.vcd").stat().st_size > 100_000


def test_options(file: TensorMemoryFile, cli: CommandLine) -> None:
    """An invalid file is reported before a simulator that writes waveforms is built."""
    np.savez("file.npz", **file.contents() | {"idesc": 0})
    message = "file.npz: ...describes a dense instruction; bit 2 must be 1"
    cli.refuses("file.npz", "--waves", "tile.vcd", message=message)
    write(Path("file.npz"), file)
    Path("tile.vcd").mkdir()
    cli.refuses("file.npz", "--waves", "tile.vcd", message="tile.vcd cannot be written (Is a directory)")
    file.tmem[0, 0, 8] = 0
    write(Path("file.npz"), replace(file, d=None))
    words = ["file.npz", "--backend", "golden"]
    cli.refuses(*words, message="nibble 0b0000 breaks the tcgen05 rule")
    assert "modelled" in cli.text(*words, "--metadata", "silicon", "--verbose")
    cli.refuses(*words, "--metadata", "silicon", "--arch", "sm_120", message="sm_120 does not have tcgen05.mma.sp")

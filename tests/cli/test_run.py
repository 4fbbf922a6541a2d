"""``sptc run``: exit statuses, the table, the JSON object, and one line for whatever is wrong."""

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sptc
from numpy.typing import NDArray
from sptc.cli import main
from sptc.sim.engine.engine import Engine
from sptc.verify.register_file import shipped

RECORDINGS = list(shipped())
#: Sets of dot products that ship beside them, and the other architectures that they are from.
SETS = 46
ELSEWHERE = ("sm_80", "sm_86", "sm_89", "sm_100")
SAMPLE = {path.stem: path for path in RECORDINGS}
F32 = SAMPLE["mma.sp-ordered.m16n8k32.f32.f16.f16.f32.selector0"]
F16 = SAMPLE["mma.sp-ordered.m16n8k32.f16.f16.f16.f16.selector0"]
S32 = SAMPLE["mma.m8n8k16.s32.s8.s8.s32"]
FP8 = SAMPLE["mma.m16n8k32.f32.e4m3.e4m3.f32"]
ANY_NIBBLE = SAMPLE["mma.sp-ordered.m16n8k32.f32.f16.f16.f32.selector0.every-nibble"]
TOTAL = re.compile(
    r"^total +(?P<tiles>\d+) +(?P<outputs>\d+) +(?P<mismatches>\d+)  (\d+) instructions, (\d+) files"
    r"(?:, \d+ flags of metadata)?$"
)


def run(*words: object) -> int:
    return main(["run", *map(str, words)])


def exit_status(*words: str) -> object:
    """Return the status of a call that may end inside the parser."""
    try:
        return main(words)
    except SystemExit as end:
        return end.code


def spawn(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line as a process, away from the sources."""
    command = [sys.executable, "-m", "sptc", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


def contents(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return {key: archive[key] for key in archive.files}


def changed(source: Path, target: Path, **changes: object) -> Path:
    np.savez(target, **contents(source) | changes)
    return target


def flipped(source: Path, target: Path, case: int, thread: int, register: int, bit: int) -> Path:
    d = contents(source)["D"]
    d[case, thread, register] ^= np.uint32(1 << bit)
    return changed(source, target, D=d)


def output_number(code: str, kind: str) -> float | int:
    octets = bytes.fromhex(code.removeprefix("0x"))
    number = np.frombuffer(octets, {"f32": ">f4", "f16": ">f2", "s32": ">i4"}[kind])[0]
    return int(number) if kind == "s32" else float(number)


def test_a_slice_of_every_shipped_recording_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--limit", "2", *RECORDINGS) == 0
    found = TOTAL.match(capsys.readouterr().out.splitlines()[-1])
    assert found
    assert found["mismatches"] == "0"
    assert int(found.groups()[-1]) == len(RECORDINGS)


@pytest.mark.regression
def test_every_shipped_recording_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    header, *rows, total = output.splitlines()
    assert header.split() == ["instruction", "arch", "tiles", "outputs", "mismatches", "cycles", "silicon", "evidence"]
    found = TOTAL.match(total)
    assert found, total
    assert found["mismatches"] == "0"
    assert [int(number) for number in found.groups()[3:]] == [len(rows), len(RECORDINGS) + 1]
    cells = [row.split() for row in rows]
    assert len({(row[0], row[1]) for row in cells}) == len(rows)
    assert {row[4] for row in cells} == {"0"}
    elsewhere = {(arch, "recorded elsewhere") for arch in ELSEWHERE}
    # Of both places of A the cycles are two words a column.
    evidence = {(row[1], "recorded elsewhere" if row[-1] == "elsewhere" else row[-1]) for row in cells}
    assert evidence == {("sm_90", "recorded")} | elsewhere
    sparse = next(row for row in cells if row[0] == "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    assert sparse[5:7] == ["8/14", "8/24"]
    for column, name in ((2, "tiles"), (3, "outputs")):
        assert sum(int(row[column]) for row in cells) == int(found[name])


def test_files_of_one_instruction_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(F32, F32, S32) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:-1]]
    cases = [len(contents(path)["C"]) for path in (F32, S32)]
    assert [(int(row[2]), int(row[3])) for row in rows] == [(2 * cases[0], 256 * cases[0]), (cases[1], 64 * cases[1])]


def test_an_architecture_of_the_users_choice(capsys: pytest.CaptureFixture[str]) -> None:
    run(S32, "--arch", "sm_80")
    row = capsys.readouterr().out.splitlines()[1].split()
    assert (row[1], row[4], row[7]) == ("sm_80", "0", "modelled")


# Lane 13 is thread 1 of group 3: row 3 or 11, columns 2 and 3.
MISMATCHES = {"f32": (F32, 2, 11, 2), "f16": (F16, 1, 11, 2), "s32": (S32, 1, 3, 3)}


@pytest.mark.parametrize(("source", "register", "row", "column"), MISMATCHES.values(), ids=MISMATCHES.keys())
def test_a_flipped_bit_is_printed(
    source: Path, register: int, row: int, column: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = flipped(source, tmp_path / "flipped.npz", 3, 13, register, 4)
    assert run(S32, path, F32) == 1
    output, errors = capsys.readouterr()
    assert errors == ""
    *_, total, last = output.splitlines()
    found = TOTAL.match(total)
    assert found
    assert found["mismatches"] == "1"
    instruction = str(contents(source)["instruction"])
    kind = instruction.split(".")[-4]
    code, number = rf"(0x[0-9a-f]{{{4 if kind == 'f16' else 8}}})", r"\(([^)]+)\)"
    place = re.escape(f"{instruction}, {path}, case 3, row {row}, column {column}")
    printed = re.fullmatch(f"first mismatch: {place}: computed {code} {number}, recorded {code} {number}", last)
    assert printed, last
    computed, computed_number, recorded, recorded_number = printed.groups()
    assert int(computed, 16) ^ int(recorded, 16) == 16
    word = int(contents(source)["D"][3, 13, register])
    assert int(computed, 16) == (word & 0xFFFF if kind == "f16" else word)
    for code, number in ((computed, computed_number), (recorded, recorded_number)):
        assert np.array_equal(float(number), float(output_number(code, kind)), equal_nan=True)
        assert ("." in number or "n" in number) == (kind != "s32")


def test_only_the_first_mismatch_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = flipped(F32, tmp_path / "first.npz", 4, 0, 0, 0)
    both = flipped(first, tmp_path / "both.npz", 2, 0, 0, 0)
    assert run(both, first) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert TOTAL.match(lines[2])["mismatches"] == "3"
    assert f"{both}, case 2, " in lines[3]


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(F32, S32, "--json") == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    cases = [len(contents(path)["C"]) for path in (F32, S32)]
    assert json.loads(output) == {
        "instructions": [
            {
                "instruction": str(contents(path)["instruction"]),
                "arch": "sm_90",
                "tiles": count,
                "outputs": count * size,
                "mismatches": 0,
                "flags": count * 16 * 8 if path == F32 else 0,
                "cycles": {"interval": 8, "latency": 14} if path == F32 else None,
                "silicon_cycles": {"interval": 8, "latency": 24} if path == F32 else {"interval": 4, "latency": 14},
                "evidence": "recorded",
            }
            for path, count, size in zip((F32, S32), cases, (128, 64), strict=True)
        ],
        "total": {
            "files": 2,
            "tiles": sum(cases),
            "outputs": cases[0] * 128 + cases[1] * 64,
            "mismatches": 0,
            "flags": cases[0] * 16 * 8,
        },
        "first_mismatch": None,
    }


def test_json_of_a_mismatch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = flipped(F16, tmp_path / "flipped.npz", 3, 13, 0, 20)
    assert run(path, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    first = found["first_mismatch"]
    assert found["total"]["mismatches"] == found["instructions"][0]["mismatches"] == 1
    assert (first["file"], first["case"], first["row"], first["column"]) == (str(path), 3, 3, 3)
    assert first["instruction"] == found["instructions"][0]["instruction"]
    assert first["reference"] == "recorded"
    assert int(first["computed"], 16) ^ int(first["expected"], 16) == 16
    for which in ("computed", "expected"):
        assert isinstance(first[f"{which}_number"], str)  # NaN is no JSON number
        number = float(first[f"{which}_number"])
        assert np.array_equal(number, output_number(first[which], "f16"), equal_nan=True)


def test_a_flag_of_the_hardware_is_compared(
    faulty_flags: Callable[..., NDArray[np.uint64]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not only its results: that of one chunk is wrong, and every output right."""
    monkeypatch.setattr(Engine, "push", faulty_flags)
    assert run(F32) == 1
    first = capsys.readouterr().out.splitlines()[-1]
    assert re.search(r", case \d+, row 5, flag of chunk 3: computed 0x1 \(1\), metadata rule 0x0 \(0\)$", first)
    assert run(F32, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["total"]["mismatches"] == found["instructions"][0]["tiles"]
    assert {name: found["first_mismatch"][name] for name in ("row", "chunk", "computed", "expected")} == {
        "row": 5,
        "chunk": 3,
        "computed": "0x1",
        "expected": "0x0",
    }
    assert run(F32, "--backend", "golden") == 0


def test_json_of_special_values_parses_strictly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """NaN and Infinity are no JSON."""
    d = contents(F32)["D"]
    d[:2] = [[[0x7FC00000]], [[0xFF800000]]]
    assert run(changed(F32, tmp_path / "special.npz", D=d), "--json") == 1

    def refuse(word: str) -> None:
        raise AssertionError(word)

    found = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert (found["first_mismatch"]["expected"], found["first_mismatch"]["expected_number"]) == ("0x7fc00000", "nan")


def test_limit_and_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Mismatches tell which tiles ran: tile i of the file has 2**i of them."""
    source, d = F32, contents(F32)["D"]
    for case in range(min(len(d), 7)):
        d[case].reshape(-1)[: 1 << case] ^= 1
    path = changed(source, tmp_path / "marked.npz", D=d)

    def drawn(*words: object) -> tuple[int, int]:
        run(path, "--json", *words)
        total = json.loads(capsys.readouterr().out)["total"]
        return total["tiles"], total["mismatches"]

    assert drawn() == (len(d), 2 ** min(len(d), 7) - 1)
    results = [drawn("--limit", 3, "--seed", seed) for seed in range(8)]
    assert results == [drawn("--limit", 3, "--seed", seed) for seed in range(8)]
    assert {tiles for tiles, _ in results} == {3}
    assert len(set(results)) > 1
    assert drawn("--limit", 3) == results[0]
    assert drawn("--limit", 10000) == drawn()


def test_metadata_policy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ANY_NIBBLE) == run(ANY_NIBBLE, "--metadata", "silicon") == 0
    capsys.readouterr()
    assert run(ANY_NIBBLE, "--metadata", "strict") == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert re.fullmatch(rf"sptc run: {re.escape(str(ANY_NIBBLE))}: undefined metadata at batch .*, row .*\n", errors)


def test_without_a_recorded_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = contents(F32)
    del whole["D"]
    np.savez(tmp_path / "file.npz", **whole)
    assert run(tmp_path / "file.npz") == 0
    assert TOTAL.match(capsys.readouterr().out.splitlines()[-1])["outputs"] == "2304"  # against the golden model


def planted(path: Path, kind: str) -> list[object]:
    """Words that ask for something wrong; `path` is where a file may be made."""
    a, e = (contents(F32)[key] for key in ("A", "E"))
    if kind == "a directory":
        path.mkdir()
    elif kind == "text":
        path.write_text("no archive\n")
    elif kind == "a single array":
        np.save(path.with_suffix(".npy"), a)
        shutil.move(path.with_suffix(".npy"), path)
    elif kind == "truncated":
        path.write_bytes(F32.read_bytes()[:3000])
    elif kind == "damaged":
        octets = bytearray(F32.read_bytes())
        octets[octets.index(b"instruction.npy") + 40] ^= 0xFF
        path.write_bytes(octets)
    elif kind != "missing":
        changes: dict[str, dict[str, object]] = {
            "unknown instruction": {"instruction": "mma.sync.aligned"},
            "instruction on two lines": {"instruction": "mma\nsync"},
            "unknown architecture": {"arch": "sm_70"},
            "wrong registers": {"A": a[..., :2]},
            "two case axes": {"A": a[:, None]},
            "selector": {"selector": 9},
            "superfluous scale": {"scale_a": e},
            "undefined nibble": {"E": np.zeros_like(e)},
        }
        changed(F32, path, **changes[kind])
    return [path]


BAD_FILES = {
    "missing": "does not exist",
    "a directory": "not a readable .npz register file",
    "text": "not a readable .npz register file",
    "a single array": "single array, not an .npz register file",
    "truncated": "not a readable .npz register file",
    "damaged": "not a readable .npz register file",
    "unknown instruction": "the layouts must be",
    "instruction on two lines": "an instruction is a line of printable characters",
    "unknown architecture": "'sm_70' is no known architecture",
    "wrong registers": "must be a uint32 array of shape (..., 32, 4), not uint32 of shape (",
    "two case axes": "A ",
    "selector": "must be 0 to 1, not 9",
    "superfluous scale": "takes no scale_a",
    "undefined nibble": "nibble 0b0000 breaks the ordered rule",
}


@pytest.mark.parametrize(("kind", "words"), BAD_FILES.items(), ids=BAD_FILES.keys())
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_a_bad_file_is_one_line(
    kind: str, words: str, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing on standard output, even if a good file came first."""
    path = tmp_path / "file.npz"
    assert run(S32, *planted(path, kind), *options) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert len(errors.splitlines()) == 1
    assert errors.startswith(f"sptc run: {path}")
    assert words in errors


def test_an_architecture_that_lacks_an_instruction(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(FP8, "--arch", "sm_86") == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert re.fullmatch(rf"sptc run: {re.escape(str(FP8))}: sm_86 does not have .*; sm_89, .* have it\.?\n", errors)


BAD_WORDS = {
    "unknown command": (["walk"], "'walk'"),
    "unknown option": (["run", "--nope"], "--nope"),
    "unknown backend": (["run", "--backend", "abacus"], "'abacus'"),
    "unknown architecture": (["run", "--arch", "sm_70"], "'sm_70'"),
    "unknown policy": (["run", "--metadata", "lax"], "'lax'"),
    "limit 0": (["run", "--limit", "0"], "--limit: must be an integer of 1 or more"),
    "limit below 0": (["run", "--limit", "-2"], "--limit: must be an integer of 1 or more"),
    "limit as text": (["run", "--limit", "few"], r"--limit: .* 'few'"),
    "seed as text": (["run", "--seed", "x"], "--seed: .* 'x'"),
    "seed below 0": (["run", "--limit", "1", "--seed", "-1"], "--seed: .*-1"),
}


@pytest.mark.parametrize(("words", "message"), BAD_WORDS.values(), ids=BAD_WORDS.keys())
def test_bad_words(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The last line on standard error says what is wrong, in words meant for users."""
    assert exit_status(*words) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    last = errors.splitlines()[-1]
    assert re.search(message, last), last
    assert not re.search(r"\b_\w+", last), last


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("--version") == 0
    assert capsys.readouterr().out == f"sptc {sptc.__version__}\n"
    assert exit_status("run", "--help") == 0
    text = capsys.readouterr().out
    assert all(
        word in text for word in ("--backend", "--arch", "--metadata", "--limit", "--seed", "--json", "FILE.npz")
    )


def test_the_process(tmp_path: Path) -> None:
    """Statuses and streams of the real command, from another directory, with no bytes of a progress bar."""
    good = spawn("run", "--limit", 1, "--json", "--backend", "golden", cwd=tmp_path)
    assert (good.returncode, good.stderr) == (0, "")
    total = json.loads(good.stdout)["total"]
    assert (total["files"], total["tiles"]) == (len(RECORDINGS) + 1, len(RECORDINGS) + SETS)
    bad = spawn("run", flipped(F32, tmp_path / "flipped.npz", 0, 0, 0, 0), cwd=tmp_path)
    assert (bad.returncode, bad.stderr) == (1, "")
    assert "first mismatch: " in bad.stdout
    missing = spawn("run", "missing.npz", cwd=tmp_path)
    assert (missing.returncode, missing.stdout, missing.stderr) == (2, "", "sptc run: missing.npz does not exist\n")


def test_a_progress_bar_on_a_terminal_leaves_standard_output_alone(tmp_path: Path) -> None:
    control, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    with (tmp_path / "output").open("wb") as output:
        command = [sys.executable, "-m", "sptc", "run", "--limit", "1", "--json", "--backend", "golden"]
        process = subprocess.Popen([*command, *map(str, RECORDINGS[:20])], stdout=output, stderr=terminal)
    os.close(terminal)
    drawn = b""
    try:
        while part := os.read(control, 1 << 16):
            drawn += part
    except OSError:  # how Linux reports that the other end is closed
        pass
    os.close(control)
    assert process.wait(60) == 0
    assert b"file/s" in drawn
    assert json.loads((tmp_path / "output").read_text())["total"]["mismatches"] == 0


def test_a_reader_that_leaves_early() -> None:
    """As `sptc run | head -1`: no traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, "-m", "sptc", "run", "--limit", "1", "--backend", "golden", *map(str, RECORDINGS[:20])],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert process.returncode != 2
    assert process.stderr == b""

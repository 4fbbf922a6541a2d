"""``sptc run`` prints a table or JSON, names the first mismatch, and rejects invalid input with one line."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.api.backends import backend
from sptc.api.tops import RegisterBackend
from sptc.isa.instructions import Instruction
from sptc.isa.operands import MatrixOperands, Product
from sptc.sim.engine.engine import Engine
from sptc.tests.cli.command_line import CommandLine
from sptc.tests.infra.test_tools import Terminal
from sptc.tests.verify.register_files import Random, contents, tensor_memory_file
from sptc.verify.register_file import shipped, write
from sptc.verify.replay import replay
from sptc.verify.tensor_memory_file import TensorMemoryFile

COMMAND = "run"
RECORDINGS = list(shipped())
#: Architectures other than sm_90 for which the package has recorded dot products.
ELSEWHERE = ("sm_80", "sm_86", "sm_89", "sm_100")
SAMPLE = {path.stem: path for path in RECORDINGS}
F32 = SAMPLE["mma.sp-ordered.m16n8k32.f32.f16.f16.f32.selector0"]
F16 = SAMPLE["mma.sp-ordered.m16n8k32.f16.f16.f16.f16.selector0"]
S32 = SAMPLE["mma.m8n8k16.s32.s8.s8.s32"]
FP8 = SAMPLE["mma.m16n8k32.f32.e4m3.e4m3.f32"]
ANY_NIBBLE = SAMPLE["mma.sp-ordered.m16n8k32.f32.f16.f16.f32.selector0.every-nibble"]
TOTAL = re.compile(
    r"^total +(?P<tiles>\d+) +(?P<outputs>\d+) +(?P<mismatches>\d+)  (\d+) instructions, (\d+) files"
    r"(?:, \d+ metadata flags)?$"
)
TCGEN05 = "tcgen05.mma.sp.cta_group::1.kind::f16"
PAIR = "tcgen05.mma.sp.cta_group::2.kind::f16"
NAME = f"{TCGEN05} (m128n16k32.f32.f16.f16)"
MMA = RECORDINGS[0]


def changed(source: Path, target: Path, **changes: object) -> Path:
    np.savez(target, **contents(source) | changes)
    return target


def flipped(source: Path, target: Path, case: int, thread: int, register: int, bit: int) -> Path:
    d = contents(source)["D"]
    d[case, thread, register] ^= np.uint32(1 << bit)
    return changed(source, target, D=d)


@pytest.mark.regression
def test_every_shipped_recording_agrees(cli: CommandLine) -> None:
    verdict, header, *rows, total = cli.text("--verbose").splitlines()
    assert header.split() == ["instruction", "arch", "tiles", "outputs", "mismatches", "cycles", "silicon", "evidence"]
    match = TOTAL.match(total)
    assert match, total
    assert match["mismatches"] == "0"
    equal = f"all {int(match['outputs']):,} outputs of {len(rows)} instructions equal"
    assert re.fullmatch(f"{equal}, and all [0-9,]+ metadata flags", verdict), verdict
    assert [int(number) for number in match.groups()[3:]] == [len(rows), len(RECORDINGS) + 2]
    cells = [row.replace(" (", "(").split() for row in rows]  # the name of a tcgen05 instruction has a space
    assert len({(row[0], row[1]) for row in cells}) == len(rows)
    assert {row[4] for row in cells} == {"0"}
    elsewhere = {(arch, "recorded elsewhere") for arch in ELSEWHERE}
    words = {("sm_100", "spot-checked elsewhere"), ("sm_100", "modelled")}
    # The last column, evidence, has one or two words. Count words from the end, since cycles may have two words, too.
    evidence = {(row[1], " ".join(row[-1 - (row[-1] == "elsewhere") :])) for row in cells}
    assert evidence == {("sm_90", "recorded")} | elsewhere | words
    sparse = next(row for row in cells if row[0] == "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    assert sparse[5:7] == ["8/14", "8/24"]
    for column, name in ((2, "tiles"), (3, "outputs")):
        assert sum(int(row[column]) for row in cells) == int(match[name])


def test_cycles_on_a_top(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cycles of a top-level module are summed over all files of an instruction. Other back ends report no cycles."""
    multiply = backend("golden").multiply

    def with_cycles(self: object, i: Instruction, arch: str, operands: MatrixOperands) -> Product:
        return replace(multiply(i, arch, operands), cycles=len(operands.c))

    monkeypatch.setattr(RegisterBackend, "multiply", with_cycles)
    report = cli.json(F32, F32, F16, "--limit", "3", "--backend", "warp")
    assert [row["simulated_cycles"] for row in report["instructions"]] == [6, 3]
    assert "simulated_cycles" not in cli.json(F32, "--limit", "3", "--backend", "golden")["instructions"][0]


def test_a_flipped_bit_is_reported(cli: CommandLine) -> None:
    """The position of a mismatch is printed. Lane 13 (thread 1 of group 3) has rows 3 and 11, and columns 2 and 3."""
    path = Path("flipped.npz")
    for kind, source, register, row, column in (("f32", F32, 2, 11, 2), ("f16", F16, 1, 11, 2), ("s32", S32, 1, 3, 3)):
        flipped(source, path, 3, 13, register, 4)
        report = cli.json(S32, path, F32, status=1)
        first, instruction = report["first_mismatch"], str(contents(source)["instruction"])
        assert report["total"]["mismatches"] == 1
        place = {"file": str(path), "instruction": instruction, "case": 3, "row": row, "column": column}
        assert first.items() >= (place | {"reference": "recorded"}).items()
        codes = np.uint32(contents(source)["D"][3, 13, register]) ^ np.uint32([0, 16])
        codes = codes.astype(np.uint16) if kind == "f16" else codes
        texts = [f"0x{code:0{2 * codes.itemsize}x}" for code in codes.tolist()]
        assert [first["computed"], first["expected"]] == texts
        numbers = [first["computed_number"], first["expected_number"]]  # numbers are strings, since JSON has no NaN
        values = codes.view({"f32": np.float32, "f16": np.float16, "s32": np.int32}[kind])
        assert np.array_equal([*map(float, numbers)], values, equal_nan=True)
        assert all(("." in number or "n" in number) == (kind != "s32") for number in numbers)
        verdict, last, *_ = cli.text(S32, path, F32, status=1).splitlines()
        assert verdict.startswith("1 difference among ")
        assert verdict.endswith(f", in 1 of {2 if source != F16 else 3} instructions: {instruction}")
        assert last == (
            f"first mismatch: {instruction}, {path}, case 3, row {row}, column {column}: "
            f"computed {texts[0]} ({numbers[0]}), recorded {texts[1]} ({numbers[1]})"
        )
    d = contents(F32)["D"]
    d[:2] = [[[0x7FC00000]], [[0xFF800000]]]
    first = cli.json(changed(F32, Path("special.npz"), D=d), status=1)["first_mismatch"]
    assert (first["expected"], first["expected_number"]) == ("0x7fc00000", "nan")


def test_json(cli: CommandLine) -> None:
    cases = [len(contents(path)["C"]) for path in (F32, S32)]
    flags = cases[0] * 16 * 8
    cycles = {"cycles": {"interval": 8, "latency": 14}, "silicon_cycles": {"interval": 8, "latency": 24}}
    of_s32 = {"cycles": None, "silicon_cycles": {"interval": 4, "latency": 14}}
    total = {"tiles": sum(cases), "outputs": cases[0] * 128 + cases[1] * 64, "mismatches": 0, "flags": flags}
    assert cli.json(F32, S32) == {
        "instructions": [
            {"instruction": str(contents(path)["instruction"]), "arch": "sm_90", "tiles": count, "mismatches": 0}
            | {"outputs": count * size, "evidence": "recorded"}
            | ({"flags": flags} | cycles if path == F32 else {"flags": 0} | of_s32)
            for path, count, size in zip((F32, S32), cases, (128, 64), strict=True)
        ],
        "total": {"files": 2} | total,
        "first_mismatch": None,
    }


def test_a_flag_of_the_hardware_is_compared(
    faulty_flags: Callable[..., NDArray[np.uint64]], monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    monkeypatch.setattr(Engine, "compute", faulty_flags)
    first = cli.text(F32, status=1).splitlines()[1]
    assert re.search(r", case \d+, row 5, flag of chunk 3: computed 0x1 \(1\), metadata rule 0x0 \(0\)$", first)
    report = cli.json(F32, status=1)
    assert report["total"]["mismatches"] == report["instructions"][0]["tiles"]
    assert report["first_mismatch"].items() >= {"row": 5, "chunk": 3, "computed": "0x1", "expected": "0x0"}.items()
    cli.text(F32, "--backend", "golden")


def test_limit_and_seed(cli: CommandLine) -> None:
    """--limit and --seed select tiles like `replay`. Tile i has 2**i mismatches, so the sum identifies the tiles."""
    d = contents(F32)["D"]
    for case, tile in enumerate(d[:7]):
        tile.reshape(-1)[: 1 << case] ^= 1
    path = changed(F32, Path("marked.npz"), D=d)
    drawn = []
    for words, seed in (([], 0), (["--seed", 1], 1), (["--seed", 2], 2)):
        cli.status(path, "--json", "--limit", 3, "--backend", "golden", *words)
        total = json.loads(cli.capsys.readouterr().out)["total"]
        (outcome,) = replay(path, limit=3, seed=seed)
        assert (total["tiles"], total["mismatches"]) == (3, outcome.mismatches)
        drawn.append(outcome.mismatches)
    assert len({*drawn}) > 1


def test_metadata_policy_and_a_file_without_d(cli: CommandLine) -> None:
    assert cli.text(ANY_NIBBLE) == cli.text(ANY_NIBBLE, "--metadata", "silicon")
    cli.refuses(ANY_NIBBLE, "--metadata", "strict", message=f"{ANY_NIBBLE}: undefined metadata at case ..., row ")
    e = contents(F32)["E"]
    e[-1] = 0
    words = [changed(F32, Path("last.npz"), E=e), "--backend", "golden", "--limit", len(e) - 1]
    cli.refuses(*words, message=f"last.npz: undefined metadata at case {len(e) - 1}, row 0, ")
    np.savez("file.npz", **{key: array for key, array in contents(F32).items() if key != "D"})
    equal = "all 2,304 outputs of 1 instruction equal, and all 2,304 metadata flags"
    assert cli.text("file.npz").splitlines()[0] == equal  # without a recorded D, the golden model's D is expected
    cli.refuses("file.npz", "--backend", "golden", message="no output was compared: no file holds a result D, and the")


def test_a_bad_file_is_one_line(cli: CommandLine) -> None:
    """An invalid file gives no output, even after a valid file. Errors in operands name the file, too."""
    Path("text").write_text("no archive\n")
    changed(F32, Path("undefined.npz"), E=np.zeros_like(contents(F32)["E"]))
    for name, words in (
        ("missing.npz", "does not exist"),
        ("text", "not a readable .npz register file"),
        ("undefined.npz", "nibble 0b0000 breaks the ordered rule"),
    ):
        for options in ([], ["--json"]):
            cli.refuses(S32, name, "--backend", "golden", *options, message=f"{name}...{words}")


def test_bad_words(cli: CommandLine) -> None:
    cli.refuses_each(
        ([FP8, "--arch", "sm_86"], f"{FP8}: sm_86 does not have ...; sm_89, ... have it"),
        (["--nope"], "--nope"),
        ([S32, "--seed", "0"], "--seed needs --limit or --waves"),
        ([S32, "--json", "--verbose"], "--verbose cannot be combined with --json, which prints every result"),
        (["--backend", "abacus"], "'abacus'"),
        (["--metadata", "lax"], "'lax'"),
        (["--limit", "0"], "--limit: the value must be an integer of 1 or more"),
    )
    CommandLine(cli.capsys).refuses("walk", message="'walk'")


def test_the_process(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a terminal shows a progress bar. A reader that exits early, such as `head -1`, causes no traceback."""
    flipped(F32, Path("flipped.npz"), 0, 0, 0, 0)
    for name, expected in (
        ("flipped.npz", (1, "", "first mismatch: ")),
        ("missing.npz", (2, "sptc run: missing.npz does not exist\n", "")),
    ):
        words = [sys.executable, "-m", "sptc", "run", name, "--backend", "golden"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
        shown = re.sub(r"(?s).*(first mismatch: ).*", r"\1", done.stdout)
        assert (done.returncode, done.stderr, shown) == expected, name
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", Terminal())
        assert cli.status("--limit", 1, "--backend", "golden", *RECORDINGS[:20]) == 0
        assert "file/s" in sys.stderr.getvalue()
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "sptc", "run", "--limit", "1", "--backend", "golden", *map(str, RECORDINGS[:20])]
    process = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert process.returncode != 2
    assert process.stderr == b""


@pytest.fixture
def file(rng: Random) -> TensorMemoryFile:
    return tensor_memory_file(TCGEN05, rng, d="f32")


def test_beside_a_file_of_another_family(file: TensorMemoryFile, rng: Random, cli: CommandLine) -> None:
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


def test_a_change_beside_d_is_printed(rng: Random, cli: CommandLine) -> None:
    """A change in the bits beside an f16 result in a word of D is reported, because whole words are compared."""
    file, word = tensor_memory_file(TCGEN05, rng, d="f16"), 0x1234
    other, name = word ^ 1 << 31, NAME.replace("f32", "f16")
    assert file.d is not None
    file.tmem[2, 5, 17], file.d[2, 5, 17] = word, other
    write(Path("file.npz"), file)
    assert cli.text("file.npz", "--backend", "golden", status=1).splitlines()[1] == (
        f"first mismatch: {name}, file.npz, case 2, tensor memory of CTA 0, lane 5, column 17: "
        f"computed 0x{word:08x} ({word}), recorded 0x{other:08x} ({other})"
    )
    place = {"file": "file.npz", "instruction": name, "case": 2, "cta": 0, "lane": 5, "column": 17}
    assert cli.json("file.npz", "--backend", "golden", status=1)["first_mismatch"] == place | {
        "reference": "recorded", "computed": f"0x{word:08x}", "expected": f"0x{other:08x}",
        "computed_number": str(word), "expected_number": str(other),
    }  # fmt: skip


@pytest.mark.regression
def test_waves_of_one_tile(rng: Random, tmp_path: Path) -> None:
    write(tmp_path / "file.npz", tensor_memory_file(TCGEN05, rng, n=8, d="f16"))
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
    for option, value in (("--backend", "golden"), ("--limit", 5)):
        refusal = f"{option} cannot be combined with --waves, which simulates one tile in pysim"
        cli.refuses("file.npz", "--waves", "tile.vcd", option, value, message=refusal)
    write(Path("file.npz"), file)
    Path("tile.vcd").mkdir()
    cli.refuses("file.npz", "--waves", "tile.vcd", message="tile.vcd cannot be written (Is a directory)")
    file.tmem[0, 0, 8] = 0
    write(Path("file.npz"), replace(file, d=replace(file, metadata="silicon").run()))
    words = ["file.npz", "--backend", "golden"]
    cli.refuses(*words, message="nibble 0b0000 breaks the tcgen05 rule")
    assert "modelled" in (text := cli.text(*words, "--metadata", "silicon", "--verbose"))
    assert text.endswith("  1 instruction, 1 file\n")
    cli.refuses(*words, "--metadata", "silicon", "--arch", "sm_120", message="sm_120 does not have tcgen05.mma.sp")

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
from sptc.tests.cli.command_line import CommandLine, on_a_terminal
from sptc.tests.verify.register_files import contents
from sptc.verify.register_file import shipped
from sptc.verify.replay import replay

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
    # Evidence, the last column, has one or two words. It is found from the end, since cycles may have two words, too.
    evidence = {(row[1], " ".join(row[-1 - (row[-1] == "elsewhere") :])) for row in cells}
    assert evidence == {("sm_90", "recorded")} | elsewhere | words
    sparse = next(row for row in cells if row[0] == "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    assert sparse[5:7] == ["8/14", "8/24"]
    for column, name in ((2, "tiles"), (3, "outputs")):
        assert sum(int(row[column]) for row in cells) == int(match[name])


def test_cycles_on_a_top(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cycles of a top-level module are summed over all files of an instruction. Other back ends report none."""
    multiply = backend("golden").multiply

    def with_cycles(self: object, i: Instruction, arch: str, operands: MatrixOperands) -> Product:
        return replace(multiply(i, arch, operands), cycles=len(operands.c))

    monkeypatch.setattr(RegisterBackend, "multiply", with_cycles)
    report = cli.json(F32, F32, F16, "--limit", "3", "--backend", "warp")
    assert [row["simulated_cycles"] for row in report["instructions"]] == [6, 3]
    assert "simulated_cycles" not in cli.json(F32, "--limit", "3", "--backend", "golden")["instructions"][0]


def test_a_flipped_bit_is_reported(cli: CommandLine) -> None:
    """The mismatch is located. Lane 13 (thread 1 of group 3) has rows 3 and 11, and columns 2 and 3."""
    path = Path("flipped.npz")
    for kind, source, register, row, column in (("f32", F32, 2, 11, 2), ("f16", F16, 1, 11, 2), ("s32", S32, 1, 3, 3)):
        flipped(source, path, 3, 13, register, 4)
        report = cli.json(S32, path, F32, status=1)
        first, instruction = report["first_mismatch"], str(contents(source)["instruction"])
        assert report["total"]["mismatches"] == 1
        place = {"file": str(path), "instruction": instruction, "case": 3, "row": row, "column": column}
        assert first.items() >= (place | {"reference": "recorded"}).items()
        codes, numbers = ([first[f"{which}{form}"] for which in ("computed", "expected")] for form in ("", "_number"))
        word = int(contents(source)["D"][3, 13, register])
        assert int(codes[0], 16) == int(codes[1], 16) ^ 16 == (word & 0xFFFF if kind == "f16" else word)
        assert {len(code) for code in codes} == {6 if kind == "f16" else 10}
        for code, number in zip(codes, numbers, strict=True):  # numbers are strings, because JSON has no NaN
            assert np.array_equal(float(number), float(output_number(code, kind)), equal_nan=True)
            assert ("." in number or "n" in number) == (kind != "s32")
        verdict, last, *_ = cli.text(S32, path, F32, status=1).splitlines()
        assert verdict.startswith("1 difference among ")
        assert verdict.endswith(f", in 1 of {2 if source != F16 else 3} instructions: {instruction}")
        assert last == (
            f"first mismatch: {instruction}, {path}, case 3, row {row}, column {column}: "
            f"computed {codes[0]} ({numbers[0]}), recorded {codes[1]} ({numbers[1]})"
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
    message = f"{ANY_NIBBLE}: undefined metadata at batch ..., row "
    cli.refuses(ANY_NIBBLE, "--metadata", "strict", message=message)
    np.savez("file.npz", **{key: array for key, array in contents(F32).items() if key != "D"})
    equal = "all 2,304 outputs of 1 instruction equal, and all 2,304 metadata flags"
    assert cli.text("file.npz").splitlines()[0] == equal  # without a recorded D, the golden model's D is expected
    assert cli.text("file.npz", "--backend", "golden").startswith("no output was compared: ")


def test_a_bad_file_is_one_line(cli: CommandLine) -> None:
    """An invalid file gives no output, even after a valid file. Errors in operands name the file, too."""
    Path("text").write_text("no archive\n")
    changed(F32, Path("undefined.npz"), E=np.zeros_like(contents(F32)["E"]))
    changed(F32, Path("selector.npz"), selector=9)
    for name, words in (
        ("missing.npz", "does not exist"),
        ("text", "not a readable .npz register file"),
        ("undefined.npz", "nibble 0b0000 breaks the ordered rule"),
        ("selector.npz", "must be 0 to 1, not 9"),
    ):
        for options in ([], ["--json"]):
            cli.refuses(S32, name, "--backend", "golden", *options, message=f"{name}...{words}")


def test_bad_words(cli: CommandLine) -> None:
    for words, message in (
        ([FP8, "--arch", "sm_86"], f"{FP8}: sm_86 does not have ...; sm_89, ... have it"),
        (["--nope"], "--nope"),
        (["--backend", "abacus"], "'abacus'"),
        (["--metadata", "lax"], "'lax'"),
        (["--limit", "0"], "--limit: must be an integer of 1 or more"),
    ):
        cli.refuses(*words, message=message)
    CommandLine(cli.capsys).refuses("walk", message="'walk'")


def test_the_process(cli: CommandLine) -> None:
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
    shown, output = on_a_terminal("run", "--limit", 1, "--json", "--backend", "golden", *RECORDINGS[:20])
    assert b"file/s" in shown
    assert json.loads(output)["total"]["mismatches"] == 0
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "sptc", "run", "--limit", "1", "--backend", "golden", *map(str, RECORDINGS[:20])]
    process = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert process.returncode != 2
    assert process.stderr == b""

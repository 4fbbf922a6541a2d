"""``sptc campaign``: statuses, what it prints, mismatches, coverage, and one line for whatever is wrong."""

import fcntl
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.cli import main
from sptc.sim.coverage.groups import Coverage
from sptc.sim.engine.engine import Engine
from sptc.sim.engine.steps import step_words
from sptc.verify import campaign
from sptc.verify.register_file import read
from sptc.verify.shards import Shard, ShardResult, run_shard

from .campaign_runs import PLAN, SMALL, command, records, run

pytestmark = [
    # Workers are forked on purpose, from a process whose numerical library has threads; newer Pythons warn of any fork.
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
    pytest.mark.usefixtures("compiled_engine"),
]

FP8 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
WIDE_WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.f16.f16"


def exit_status(*words: object) -> object:
    """Return the status of a call that may end inside the parser."""
    try:
        return run(*words)
    except SystemExit as end:
        return end.code


@pytest.fixture
def _faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardware that flips a bit where the first element of A is negative and the accumulator ends in 101."""
    push = Engine.push

    def pushed(engine: Engine, steps: NDArray) -> NDArray:
        words = step_words(engine.config)
        hit = (steps[:, words.a.start] & 0x8000 != 0) & (steps[:, words.c.start] & 7 == 5)
        return push(engine, steps) ^ hit.astype(np.uint64) << np.uint64(4)

    monkeypatch.setattr(Engine, "push", pushed)


SHARDS = 12


def test_a_preset_names_its_architectures(capsys: pytest.CaptureFixture[str]) -> None:
    """To the shard, and beside architectures that are named themselves."""
    words = ("--tiles", 1, "--seed", 11, "--shards", 4, "--json")
    totals = []
    for chosen in (("--preset", "ampere"), ("--arch", "sm_80", "sm_86"), ("--arch", "sm_80", "--preset", "ampere")):
        assert run(*words, *chosen) == 0
        found = json.loads(capsys.readouterr().out)
        totals.append(sorted((pair["preset"], pair["pair"], pair["outputs"]) for pair in found["pairs"]))
    assert totals[0] == totals[1] == totals[2]
    assert {preset for preset, *_ in totals[0]} == {"ampere"}
    assert exit_status("--preset", "tiny") == 2  # which has no architecture


def test_a_table_and_a_total(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*SMALL, "--shards", SHARDS) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    seed, header, *rows, total = output.splitlines()
    assert seed == "seed 11"
    assert header.split() == ["datapath:", "formats", "shards", "outputs", "mismatches"]
    shards = [PLAN.shard(index) for index in range(SHARDS)]
    wanted = {}
    for shard in shards:
        count, outputs = wanted.get(shard.pair, (0, 0))
        wanted[shard.pair] = (count + 1, outputs + shard.outputs)
    found = {}
    for row in rows:
        name, *counts = re.split(r"  +", row)
        found[name.removeprefix("ampere: ")] = tuple(map(int, counts))
    assert found == {pair: (*counts, 0) for pair, counts in wanted.items()}
    whole = f"total +{SHARDS} +{sum(shard.outputs for shard in shards)} +0  all in [0-9.]+ s, \\d+ outputs/s"
    assert re.fullmatch(whole, total), total


def test_json_and_as_many_outputs_as_asked(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [PLAN.shard(index).outputs for index in range(5)]
    assert run(*SMALL, "--outputs", sum(sizes[:3]) + 1, "--json") == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    found = json.loads(output)
    total = found["total"]
    assert (total["shards"], total["outputs"], total["mismatches"]) == (4, sum(sizes[:4]), 0)
    assert (found["seed"], found["mismatch"], found["interrupted"]) == (11, None, False)
    assert sum(pair["outputs"] for pair in found["pairs"]) == total["outputs"]
    assert {pair["preset"] for pair in found["pairs"]} == {"ampere"}


def test_a_seed_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    seeds = []
    for _ in range(2):
        assert run("--arch", "sm_80", "--tiles", 1, "--shards", 1) == 0
        seeds.append(capsys.readouterr().out.splitlines()[0])
    assert seeds[0] != seeds[1]
    assert all(re.fullmatch(r"seed \d+", seed) for seed in seeds)


def test_chosen_instructions_until_all_had_their_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [str(PLAN.shard(index).instruction) for index in (0, 3)]
    assert run("--instruction", *texts, "--arch", "sm_80", "--tiles", 1, "--state", tmp_path, "--json") == 0
    found = {(record["instruction"], record["distribution"]) for record in records(tmp_path)}
    assert {text for text, _ in found} == set(texts)
    assert json.loads(capsys.readouterr().out)["total"]["shards"] == len(records(tmp_path)) >= len(found) > 12


def test_time(capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    assert run(*SMALL, "--seconds", "0.2", "--json") == 0
    assert time.monotonic() - begun < 5
    assert json.loads(capsys.readouterr().out)["total"]["shards"] > 0


@pytest.mark.usefixtures("_faulty")
def test_a_mismatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with 1 and prints two commands; both show the mismatch as long as the fault is there."""
    monkeypatch.chdir(tmp_path)
    assert run(*SMALL, "--shards", 400) == 1
    output, errors = capsys.readouterr()
    assert errors == ""
    *_, where, replay, again = output.splitlines()
    printed = re.fullmatch(
        r"first mismatch: shard (\d+), sm_80, (\S+), (\w+) operands, row \d+, column \d+: "
        r"computed 0x(\w+) \(\S+\), golden model 0x(\w+) \(\S+\)",
        where,
    )
    assert printed, where
    shard = PLAN.shard(int(printed[1]))
    assert (str(shard.instruction), shard.distribution) == printed.groups()[1:3]
    assert int(printed[4], 16) ^ int(printed[5], 16) == 16
    (path,) = tmp_path.iterdir()
    assert path.name == f"campaign-11-shard-{shard.index}.npz"
    file = read(path)
    assert (file.cases, file.metadata) == (1, "silicon")
    assert np.count_nonzero(file.a) < 5

    words = [shlex.split(line.split(":", 1)[1]) for line in (replay, again)]
    assert words[0] == ["sptc", "run", path.name]
    assert main(words[0][1:]) == 1
    assert "mismatches" in capsys.readouterr().out
    assert main([*words[1][1:], "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["mismatch"]["shard"] == shard.index
    assert found["mismatch"]["replay"] == shlex.join(words[0])
    assert found["mismatch"]["rerun"] == shlex.join(words[1])
    assert found["total"]["shards"] == 1
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(words[0][1:]) == 0
    assert main(words[1][1:]) == 0


@pytest.mark.usefixtures("_faulty")
def test_a_mismatch_in_a_state_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is final: the same command says it again and runs nothing more."""
    assert run(*SMALL, "--state", tmp_path, "--json") == 1
    first = json.loads(capsys.readouterr().out)
    kept = records(tmp_path)
    assert first["mismatch"]["shard"] == min(record["shard"] for record in kept if record["mismatches"])
    path = Path(first["mismatch"]["file"])
    assert path.parent == tmp_path
    path.unlink()
    assert run(*SMALL, "--state", tmp_path, "--json") == 1
    assert json.loads(capsys.readouterr().out)["mismatch"] == first["mismatch"]
    assert path.exists()
    assert records(tmp_path) == kept


@pytest.mark.usefixtures("_faulty")
def test_a_reproducer_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir("/proc")
    assert run(*SMALL, "--shards", 400) == 1
    output, errors = capsys.readouterr()
    assert re.fullmatch(r"sptc campaign: campaign-11-shard-\d+\.npz cannot be written \(.*\)\n", errors)
    assert "run the shard again with: sptc campaign --seed 11" in output.splitlines()[-1]


@pytest.mark.usefixtures("_faulty")
def test_a_mismatch_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*SMALL, "--state", tmp_path) == 1
    monkeypatch.undo()
    capsys.readouterr()
    assert run(*SMALL, "--state", tmp_path) == 1
    assert "the shard agrees now" in capsys.readouterr().out


def _deadly(shard: Shard, sample: bool) -> ShardResult:
    if shard.index == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return run_shard(shard, sample)


def _broken(shard: Shard, sample: bool) -> ShardResult:
    raise ZeroDivisionError("on purpose")


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (_deadly, "shard 9 killed its worker three times"),
        (_broken, r"shard \d ended with ZeroDivisionError \(on purpose\)"),
    ],
)
def test_a_shard_that_cannot_be_run(
    work: Callable[..., Any],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(campaign, "run_shard", work)
    assert run(*SMALL, "--shards", 40, "--state", tmp_path, "--json") == 2
    output, errors = capsys.readouterr()
    assert output == ""
    again = r"`sptc campaign --seed 11 --tiles 2 --arch sm_80 --only \d+`"
    assert re.fullmatch(f"sptc campaign: {message}; run it again with {again}\n", errors), errors
    if work is _deadly:
        assert {*range(9)} <= {record["shard"] for record in records(tmp_path)}


def test_coverage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Merged over shards and runs: the same as in one run, and each bin was new once."""
    for folder, counts in (("parts", (4, 10)), ("whole", (10,))):
        for count in counts:
            words = (*SMALL, "--shards", count, "--coverage", "--state", tmp_path / folder, "--json", "--jobs", 1)
            assert run(*words) == 0
            found = json.loads(capsys.readouterr().out)["coverage"]
    parts, whole = (Coverage.read(tmp_path / name / "coverage.json") for name in ("parts", "whole"))
    for group in whole:
        assert np.array_equal(group.hits, parts[group.key].hits)
    new = sum(record["new_bins"] for record in records(tmp_path / "parts"))
    assert new == sum(group.reached for group in parts) == found["reached"]
    assert 0 < found["reached"] < found["reachable"] == sum(group.reachable for group in whole)


BAD_WORDS = {
    "unknown architecture": (["--arch", "sm_70"], "'sm_70'"),
    "no instruction": (["--instruction", "mma.sync.aligned"], "the layouts must be"),
    "an architecture lacks it": (
        ["--arch", "sm_80", "--instruction", FP8],
        "sm_80 does not have .*; sm_89, .* have it",
    ),
    "a wgmma not computed": (["--instruction", WIDE_WGMMA], "only n = 8"),
    "shards 0": (["--shards", "0"], "--shards: must be an integer of 1 or more, not '0'"),
    "outputs below 0": (["--outputs", "-5"], "--outputs: must be an integer of 1 or more, not '-5'"),
    "seconds below 0": (["--seconds", "-1"], "--seconds: must be a number above 0, not '-1'"),
    "seconds 0": (["--seconds", "0"], "--seconds: must be a number above 0, not '0'"),
    "seconds without end": (["--seconds", "inf"], "--seconds: must be a number above 0, not 'inf'"),
    "seconds that are none": (["--seconds", "nan"], "--seconds: must be a number above 0, not 'nan'"),
    "tiles 0": (["--tiles", "0"], "--tiles: must be"),
    "jobs as text": (["--jobs", "all"], "--jobs: must be .* 'all'"),
    "seed below 0": (["--seed", "-1"], "--seed: must be an integer of 0 or more, not '-1'"),
    "two limits": (["--shards", "1", "--seconds", "1"], "not allowed with"),
    "jobs of a scheduler": (["--jobs", "1", "--scheduler", "x"], "not allowed with"),
    "a state of one shard": (["--only", "1", "--state", "x"], "keeps no state"),
    "no scheduler": (["--scheduler", "tcp://127.0.0.1:1"], "no scheduler answers at tcp://127.0.0.1:1"),
    "no address": (["--scheduler", "nowhere"], "no scheduler answers at nowhere"),
}


@pytest.mark.parametrize(("words", "message"), BAD_WORDS.values(), ids=BAD_WORDS.keys())
def test_bad_words(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sptc.infra.pools._PATIENCE", 1)
    assert exit_status(*words, "--json") == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert len(errors.splitlines()) == 1
    assert re.search(message, errors), errors
    assert not list(tmp_path.iterdir())


def test_a_progress_bar_on_a_terminal_leaves_standard_output_alone(tmp_path: Path) -> None:
    control, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 120, 0, 0))
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(command(*SMALL, "--shards", 300, "--json"), stdout=output, stderr=terminal)
    os.close(terminal)
    drawn = b""
    try:
        while part := os.read(control, 1 << 16):
            drawn += part
    except OSError:  # how Linux reports that the other end is closed
        pass
    os.close(control)
    assert process.wait(60) == 0
    assert b"/300" in drawn
    assert b"outputs/s" in drawn
    assert json.loads((tmp_path / "output").read_text())["total"]["shards"] == 300

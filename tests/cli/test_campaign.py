"""``sptc campaign`` reports mismatches and coverage, resumes after interruptions, and rejects invalid input."""

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.cli import main
from sptc.sim.coverage.groups import Coverage
from sptc.sim.engine.engine import Engine
from sptc.tests.cli.command_line import CommandLine, cluster, complaints
from sptc.verify import campaign
from sptc.verify.register_file import read
from sptc.verify.shards import Plan, Shard, ShardResult, run_shard

pytestmark = pytest.mark.usefixtures("compiled_engine")
COMMAND = "campaign"
PLAN = Plan(seed=11, architectures=("sm_90",), tiles=2)
SMALL = ("--arch", "sm_90", "--tiles", "2", "--seed", "11")
SHARDS = 12


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "sptc", "campaign", *map(str, words)]


def records(folder: Path) -> list[dict[str, Any]]:
    """Return the entries of finished shards, in the order of shards. The campaign may still be running."""
    try:
        with closing(sqlite3.connect(f"file:{folder / 'campaign.db'}?mode=ro", uri=True)) as database:
            rows = database.execute("SELECT number, content FROM entries ORDER BY number").fetchall()
    except sqlite3.OperationalError:  # the campaign has not begun
        return []
    return [{"shard": number, **json.loads(content)} for number, content in rows]


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch, faulty_compute: Callable[..., NDArray[np.uint64]]) -> None:
    monkeypatch.setattr(Engine, "compute", faulty_compute)


def test_presets_and_chosen_instructions(cli: CommandLine, tmp_path: Path) -> None:
    """A preset selects its architectures. A campaign of chosen instructions ends when each instruction was computed."""
    totals = []
    for chosen in (("--preset", "ampere"), ("--arch", "sm_80", "sm_86"), ("--arch", "sm_80", "--preset", "ampere")):
        report = cli.json("--backend", "native", "--tiles", 1, "--seed", 11, "--shards", 4, *chosen)
        totals.append(sorted((pair["preset"], pair["pair"], pair["outputs"]) for pair in report["pairs"]))
    assert totals[0] == totals[1] == totals[2]
    assert {preset for preset, *_ in totals[0]} == {"ampere"}
    assert cli.status("--preset", "tiny") == 2  # no architecture has this preset
    texts = [str(PLAN.shard(index).instruction) for index in (0, 3)]
    total = cli.json("--instruction", *texts, "--arch", "sm_90", "--tiles", 1, "--state", tmp_path)["total"]
    actual = {(record["instruction"], record["distribution"]) for record in records(tmp_path)}
    assert {text for text, _ in actual} == set(texts)
    assert total["shards"] == len(records(tmp_path)) >= len(actual) > 12


def test_a_table_and_a_total(cli: CommandLine) -> None:
    seed, verdict, header, *rows, total = cli.text(*SMALL, "--shards", SHARDS, "--verbose").splitlines()
    assert seed == "seed 11"
    assert header.split() == ["datapath:", "formats", "shards", "outputs", "mismatches"]
    shards = [PLAN.shard(index) for index in range(SHARDS)]
    expected = {}
    for shard in shards:
        count, outputs = expected.get(shard.pair, (0, 0))
        expected[shard.pair] = (count + 1, outputs + shard.outputs)
    results = {}
    for row in rows:
        name, *counts = re.split(r"  +", row)
        results[name.removeprefix("hopper: ")] = tuple(map(int, counts))
    assert results == {pair: (*counts, 0) for pair, counts in expected.items()}
    outputs = sum(shard.outputs for shard in shards)
    assert re.fullmatch(f"total +{SHARDS} +{outputs} +0", total), total
    whole = f"all {outputs:,} outputs of {SHARDS} shards and {len(expected)} pairs of formats equal: "
    assert re.fullmatch(whole + r"[0-9.]+ s, [0-9,]+ outputs/s", verdict), verdict


def test_limit_of_outputs_and_a_new_seed_for_each_campaign(cli: CommandLine) -> None:
    sizes = [PLAN.shard(index).outputs for index in range(5)]
    report = cli.json(*SMALL, "--outputs", sum(sizes[:3]) + 1)
    total = report["total"]
    assert (total["shards"], total["outputs"], total["mismatches"]) == (4, sum(sizes[:4]), 0)
    assert (report["seed"], report["mismatch"], report["interrupted"]) == (11, None, False)
    assert sum(pair["outputs"] for pair in report["pairs"]) == total["outputs"]
    assert {pair["preset"] for pair in report["pairs"]} == {"hopper"}
    seeds = [cli.text("--arch", "sm_90", "--tiles", 1, "--shards", 1).splitlines()[0] for _ in range(2)]
    assert seeds[0] != seeds[1]
    assert all(re.fullmatch(r"seed \d+", seed) for seed in seeds)


@pytest.mark.usefixtures("faulty")
def test_a_mismatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine) -> None:
    """A mismatch gives exit status 1 and prints two commands, which reproduce the mismatch with the injected fault."""
    _, verdict, where, replay, again = cli.text(*SMALL, "--shards", 400, status=1).splitlines()
    assert re.match(r"\d+ of [0-9,]+ outputs of \d+ shards and \d+ pairs of formats differ, in hopper: ", verdict)
    printed = re.fullmatch(
        r"first mismatch: shard (\d+), sm_90, (\S+), (\w+) operands, row \d+, column \d+: "
        r"computed 0x(\w+) \(\S+\), golden model 0x(\w+) \(\S+\)",
        where,
    )
    assert printed, where
    shard = PLAN.shard(int(printed[1]))
    assert (str(shard.instruction), shard.distribution) == printed.groups()[1:3]
    assert int(printed[4], 16) ^ int(printed[5], 16) == 16
    (path,) = tmp_path.glob(f"campaign-11-shard-{shard.index}.npz")
    assert [*tmp_path.iterdir()] == [path]
    file = read(path)
    assert (file.cases, file.metadata) == (1, "silicon")
    assert np.count_nonzero(file.a) < 5

    words = [shlex.split(line.split(":", 1)[1]) for line in (replay, again)]
    assert words[0] == ["sptc", "run", path.name]
    whole = CommandLine(cli.capsys)
    assert "first mismatch: " in whole.text(*words[0][1:], status=1)
    report = whole.json(*words[1][1:], status=1)
    assert report["mismatch"]["shard"] == shard.index
    assert report["mismatch"]["replay"] == shlex.join(words[0])
    assert report["mismatch"]["rerun"] == shlex.join(words[1])
    assert report["total"]["shards"] == 1
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    for each in words:
        assert whole.status(*each[1:]) == 0


@pytest.mark.usefixtures("faulty")
def test_a_mismatch_in_a_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine) -> None:
    """The same command reports a stored mismatch again and runs no further shard, even without the injected fault."""
    first = cli.json(*SMALL, "--jobs", 2, "--state", tmp_path, status=1)
    kept = records(tmp_path)
    assert first["mismatch"]["shard"] == min(record["shard"] for record in kept if record["mismatches"])
    assert len(kept) < first["mismatch"]["shard"] + 10
    path = Path(first["mismatch"]["file"])
    assert path.parent == tmp_path
    path.unlink()
    assert cli.json(*SMALL, "--state", tmp_path, status=1)["mismatch"] == first["mismatch"]
    assert path.exists()
    assert records(tmp_path) == kept
    monkeypatch.undo()
    assert "the shard has no mismatch when it is run again" in cli.text(*SMALL, "--state", tmp_path, status=1)


@pytest.mark.usefixtures("faulty")
def test_a_reproducer_that_cannot_be_written(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/proc")
    output, errors = cli.streams(*SMALL, "--shards", 400, status=1)
    assert re.fullmatch(r"sptc campaign: campaign-11-shard-\d+\.npz cannot be written \(.*\)\n", errors)
    assert "run the shard again with: sptc campaign --seed 11" in output.splitlines()[-1]


def _deadly(shard: Shard, sample: bool) -> ShardResult:
    if shard.index == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return run_shard(shard, sample)


def _broken(shard: Shard, sample: bool) -> ShardResult:
    raise ZeroDivisionError("on purpose")


def test_a_shard_that_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine) -> None:
    for work, message in (
        (_deadly, r"shard 9 \(group of tiles\) failed: it killed its worker three times"),
        (_broken, r"shard \d \(group of tiles\) failed: it ended with ZeroDivisionError \(on purpose\)"),
    ):
        monkeypatch.setattr(campaign, "run_shard", work)
        output, errors = cli.streams(*SMALL, "--shards", 40, "--state", tmp_path / work.__name__, "--json", status=2)
        assert output == ""
        again = r"`sptc campaign --seed 11 --tiles 2 --arch sm_90 --only \d+`"
        assert re.fullmatch(f"sptc campaign: {message}; repeat it with {again}\n", complaints(errors)), errors
    assert {*range(9)} <= {record["shard"] for record in records(tmp_path / "_deadly")}


def test_coverage(tmp_path: Path, cli: CommandLine) -> None:
    for folder, count in (("parts", 4), ("parts", 10), ("whole", 10)):
        words = (*SMALL, "--shards", count, "--coverage", "--state", tmp_path / folder, "--jobs", 1)
        report = cli.json(*words)["coverage"]
    parts, whole = (Coverage.read(tmp_path / name / "coverage.json") for name in ("parts", "whole"))
    for group in whole:
        assert np.array_equal(group.hits, parts[group.key].hits)
    new = sum(record["new_bins"] for record in records(tmp_path / "parts"))
    assert new == sum(group.reached for group in parts) == report["reached"]
    assert 0 < report["reached"] < report["reachable"] == sum(group.reachable for group in whole)


def test_bad_words(cli: CommandLine) -> None:
    for words, message in (
        (["--shards", "0"], "--shards: the value must be an integer of 1 or more, not '0'"),
        (["--seconds", "inf"], "--seconds: the value must be a number above 0 and at most 1,000,000, not 'inf'"),
        (["--shards", "1", "--seconds", "1"], "not allowed with"),
        (["--jobs", "1", "--scheduler", "x"], "not allowed with"),
        (["--seconds", "1e-9", "--backend", "native"], "no output was compared, because time was up before the first"),
        (["--only", "1", "--state", "x"], "--only cannot be combined with --state"),
        (["--state", "-", "--seconds", "1e-6", "--backend", "native"], "a folder cannot be written to standard output"),
    ):
        cli.refuses(*words, "--json", message=message)


def until(condition: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def alive(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("whole")
    assert main(["campaign", *SMALL, "--shards", "400", "--state", str(folder), "--jobs", "1", "--json"]) == 0
    return records(folder)


@pytest.mark.regression
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_campaign_resumes(
    sign: signal.Signals, whole: list[dict[str, Any]], tmp_path: Path, cli: CommandLine
) -> None:
    words = (*SMALL, "--shards", 400, "--state", tmp_path)
    for least in (30, 120):
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command(*words), start_new_session=True, **pipes)
        until(lambda least=least: len(records(tmp_path)) >= least)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        if sign == signal.SIGINT:  # send the signal to all processes of the command, as a terminal does
            os.killpg(process.pid, sign)
        else:
            process.send_signal(sign)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == (130 if sign == signal.SIGINT else -signal.SIGKILL)
        if sign == signal.SIGINT:
            assert complaints(errors) == f"sptc campaign: interrupted; finished shards are stored in {tmp_path}\n"
        assert children
        until(lambda children=children: not any(map(alive, children.split())), 5)
        assert len(records(tmp_path)) < 400
    assert cli.json("--arch", "sm_90", "--tiles", 2, "--shards", 400, "--state", tmp_path)["seed"] == 11
    assert records(tmp_path) == whole
    assert len(whole) == 400
    assert re.search(r"^all [0-9,]+ outputs of 400 shards ", cli.text(*words), re.MULTILINE)
    assert re.search(r"^total +400 ", cli.text(*words, "--verbose"), re.MULTILINE)
    assert len(records(tmp_path)) == 400


@pytest.mark.regression
def test_a_cluster(whole: list[dict[str, Any]], tmp_path: Path) -> None:
    state = tmp_path / "state"
    with cluster(tmp_path, workers=2) as (address, workers):
        words = command(*SMALL, "--shards", 400, "--state", state, "--scheduler", address, "--json")
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until(lambda: len(records(state)) >= 60)
        workers[0].kill()
        assert process.poll() is None
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, complaints(errors)) == (0, "")
    assert json.loads(output)["total"]["shards"] == 400
    assert len(records(state)) == 400
    assert records(state) == whole

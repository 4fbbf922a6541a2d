"""``sptc campaign --state``: what a campaign survives, here and on a cluster, and folders that will not do."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from .campaign_runs import SMALL, command, records, run

pytestmark = [
    # Workers are forked on purpose, from a process whose numerical library has threads; newer Pythons warn of any fork.
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
    pytest.mark.usefixtures("compiled_engine"),
]


def until(condition: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Records of the first 400 shards, never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    assert run(*SMALL, "--shards", 400, "--state", folder, "--jobs", 1, "--json") == 0
    return records(folder)


@pytest.mark.regression
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_campaign_resumes(
    sign: signal.Signals, whole: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twice, at any point; then the shards are those of a campaign that never was. No worker outlives its parent."""
    words = (*SMALL, "--shards", 400, "--state", tmp_path)
    for least in (30, 120):
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command(*words), start_new_session=True, **pipes)
        until(lambda least=least: len(records(tmp_path)) >= least)
        workers = children(process.pid)
        if sign == signal.SIGINT:  # as a terminal does: to all of them
            os.killpg(process.pid, sign)
        else:
            process.send_signal(sign)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == (130 if sign == signal.SIGINT else -signal.SIGKILL)
        if sign == signal.SIGINT:
            assert errors == f"sptc campaign: interrupted; what is done is kept in {tmp_path}\n"
        assert workers
        until(lambda workers=workers: not any(map(alive, workers)), 5)
        assert len(records(tmp_path)) < 400
    assert run("--arch", "sm_80", "--tiles", 2, "--shards", 400, "--state", tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["seed"] == 11
    assert records(tmp_path) == whole
    assert len(records(tmp_path)) == 400
    assert run(*words) == 0
    assert re.search(r"^total +400 ", capsys.readouterr().out, re.MULTILINE)
    assert len(records(tmp_path)) == 400


@pytest.mark.regression
def test_killed_workers(whole: list[dict[str, Any]], tmp_path: Path) -> None:
    words = command(*SMALL, "--shards", 400, "--state", tmp_path, "--jobs", 2, "--json")
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for least in (20, 100):
        until(lambda least=least: len(records(tmp_path)) >= least)
        os.kill(children(process.pid)[0], signal.SIGKILL)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert json.loads(output)["total"]["shards"] == 400
    assert len(records(tmp_path)) == 400
    assert records(tmp_path) == whole


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The address of a scheduler, and its two workers, all processes of this machine."""
    dask, where = [sys.executable, "-m", "dask"], tmp_path / "scheduler.json"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    local = ["--host", "127.0.0.1", "--no-dashboard"]
    started = [subprocess.Popen([*dask, "scheduler", *local, "--port", "0", "--scheduler-file", str(where)], **quiet)]
    until(lambda: where.exists() and where.read_text().endswith("}"))  # a worker that reads half of it gives up
    started += [
        subprocess.Popen(
            [*dask, "worker", *local, "--scheduler-file", str(where), "--no-nanny", "--nthreads", "2"], **quiet
        )
        for _ in range(2)
    ]
    yield json.loads(where.read_text())["address"], started[1:]
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.regression
def test_a_cluster(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], whole: list[dict[str, Any]], tmp_path: Path
) -> None:
    """The same shards as here, with one of two workers killed in the middle."""
    address, workers = cluster
    state = tmp_path / "state"
    words = command(*SMALL, "--shards", 400, "--state", state, "--scheduler", address, "--json")
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: len(records(state)) >= 60)
    workers[0].kill()
    assert process.poll() is None
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert json.loads(output)["total"]["shards"] == 400
    assert len(records(state)) == 400
    assert records(state) == whole


def planted(folder: Path, kind: str) -> list[object]:
    """Words that ask for something wrong about a state folder."""
    if kind == "a file":
        (folder / "state").write_text("")
    elif kind == "something else":
        (folder / "state").mkdir()
        (folder / "state" / "thesis.tex").write_text("")
    elif kind == "damaged":
        assert run(*SMALL, "--shards", 2, "--state", folder / "state") == 0
        with closing(sqlite3.connect(folder / "state" / "campaign.db")) as database, database:
            database.execute("UPDATE entries SET content = 'nonsense' WHERE number = 1")
    elif kind == "no database":
        (folder / "state").mkdir()
        (folder / "state" / "campaign.db").write_text("nonsense\n")
    elif kind == "of other parameters":
        assert run(*SMALL[:-1], 12, "--shards", 2, "--state", folder / "state") == 0
    return [*SMALL, "--shards", 2, "--state", "/proc/state" if kind == "where none can be" else folder / "state"]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("a file", "state cannot hold the state of a campaign"),
        ("something else", "holds something else than a campaign"),
        ("damaged", "entry 1 of .* is damaged"),
        ("no database", r"campaign\.db is damaged"),
        ("of other parameters", "holds a campaign of other parameters: seed 12, not 11"),
        ("where none can be", "/proc/state cannot hold the state of a campaign"),
    ],
)
def test_a_state_that_will_not_do(kind: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = planted(tmp_path, kind)
    capsys.readouterr()
    assert run(*wrong, "--json") == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert len(errors.splitlines()) == 1
    assert re.match(f"sptc campaign: .*{words}", errors), errors

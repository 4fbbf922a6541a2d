"""``sptc campaign --state``: what a campaign survives, here and on a cluster, and folders that will not do."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sptc.tests.cli.cluster import cluster
from sptc.tests.cli.command_line import CommandLine

from .campaign_runs import SMALL, command, records, run

COMMAND = "campaign"
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
    sign: signal.Signals, whole: list[dict[str, Any]], tmp_path: Path, cli: CommandLine
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
    assert cli.json("--arch", "sm_90", "--tiles", 2, "--shards", 400, "--state", tmp_path)["seed"] == 11
    assert records(tmp_path) == whole
    assert len(records(tmp_path)) == 400
    assert re.search(r"^total +400 ", cli.text(*words), re.MULTILINE)
    assert len(records(tmp_path)) == 400


@pytest.mark.regression
def test_a_cluster(whole: list[dict[str, Any]], tmp_path: Path) -> None:
    """The same shards as here, with one of two workers killed in the middle."""
    state = tmp_path / "state"
    with cluster(tmp_path, workers=2) as (address, workers):
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

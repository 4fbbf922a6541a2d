"""The record of a campaign: what it resumes from, and folders that will not do."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from sptc.errors import FileError
from sptc.infra.pools import local_pool
from sptc.verify import campaign
from sptc.verify.campaign_state import Record, StateFolder, Totals, parameters
from sptc.verify.shards import Plan, ShardResult

# Workers are forked on purpose, from a process whose numerical library has threads; newer Pythons warn of any fork.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

SMALL = Plan(seed=7, architectures=("sm_80",), tiles=2)


WANTED = parameters(SMALL, False, "1")


@contextmanager
def opened(path: Path, plan: Plan = SMALL) -> Iterator[Record]:
    with closing(StateFolder(path)) as folder:
        folder.begin(parameters(plan, False, "1"))
        yield Record(plan, folder, sample=False)


def filled(path: Path, indices: list[int]) -> None:
    with opened(path) as record:
        for index in indices:
            record.add(ShardResult(SMALL.shard(index), 0))


def test_a_record_resumes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder"
    filled(path, [0, 3, 1])
    with opened(path) as record:
        assert [index for index in range(6) if index in record] == [0, 1, 3]
        assert record.total == Totals(3, sum(SMALL.shard(index).outputs for index in (0, 1, 3)), 0)
        assert [shard.index for shard in campaign.unfinished(record, shards=6)] == [2, 4, 5]
        record.add(ShardResult(SMALL.shard(2), 0))
        assert [shard.index for shard in campaign.unfinished(record, shards=6)] == [4, 5]
    lines = (path / "shards.jsonl").read_text().splitlines()
    assert [json.loads(line)["shard"] for line in lines] == [0, 3, 1, 2]


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_ctrl_c_while_a_line_is_written(late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits until the line is there, once."""

    class Interrupted:
        def __init__(self, log: BinaryIO) -> None:
            self.log = log

        def __getattr__(self, name: str) -> Any:
            return getattr(self.log, name)

        def write(self, data: bytes) -> None:
            if not late:
                signal.raise_signal(signal.SIGINT)
            self.log.write(data)
            self.log.flush()
            if late:
                signal.raise_signal(signal.SIGINT)

    with opened(tmp_path) as record:
        assert record.folder
        monkeypatch.setattr(record.folder, "_log", Interrupted(record.folder._log))  # type: ignore[arg-type]
        with pytest.raises(KeyboardInterrupt):
            record.add(ShardResult(SMALL.shard(0), 0))
        monkeypatch.undo()
        record.flush()
        assert 0 in record
    assert [json.loads(line)["shard"] for line in (tmp_path / "shards.jsonl").read_text().splitlines()] == [0]


def test_a_mismatch_is_remembered(tmp_path: Path) -> None:
    with opened(tmp_path) as record:
        for index, mismatches in ((2, 7), (1, 3), (0, 0)):
            record.add(ShardResult(SMALL.shard(index), mismatches))
    with opened(tmp_path) as record:
        assert record.failed == SMALL.shard(1)
        assert record.total.mismatches == 10


def test_as_many_shards_as_the_outputs_take() -> None:
    record = Record(SMALL, None, sample=False)
    sizes = [SMALL.shard(index).outputs for index in range(4)]
    for wanted, count in ((1, 1), (sizes[0], 1), (sizes[0] + 1, 2), (sum(sizes[:3]), 3), (sum(sizes), 4)):
        assert [shard.index for shard in campaign.unfinished(record, outputs=wanted)] == [*range(count)]


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_truncated_line_is_overwritten(cut: int, tmp_path: Path) -> None:
    filled(tmp_path, [0, 1, 2])
    log = tmp_path / "shards.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole[:-cut])
    with opened(tmp_path) as record:
        assert [shard.index for shard in campaign.unfinished(record, shards=3)] == [2]
        record.add(ShardResult(SMALL.shard(2), 0))
    assert log.read_bytes() == whole


@pytest.mark.parametrize(
    "line",
    [
        "nothing",
        "[]",
        '{"shard": 2}',
        '{"shard": -1, "instruction": "x", "mismatches": 0}',
        '{"shard": 2, "instruction": "x", "mismatches": 0}',
        f'{{"shard": 0, "instruction": "{SMALL.shard(0).instruction}", "mismatches": 0}}',
        f'{{"shard": 2, "instruction": "{SMALL.shard(2).instruction}", "mismatches": null}}',
    ],
)
def test_a_damaged_line(line: str, tmp_path: Path) -> None:
    filled(tmp_path, [0, 1])
    with (tmp_path / "shards.jsonl").open("a") as log:
        log.write(f"{line}\n")
    with pytest.raises(FileError, match=r"^line 3 of .*shards\.jsonl is damaged$"), opened(tmp_path):
        pass


def test_other_parameters(tmp_path: Path) -> None:
    filled(tmp_path, [0])
    message = "of other parameters: seed 7, not 8; arch sm_80, not any; tiles 2, not 3$"
    with pytest.raises(FileError, match=message), opened(tmp_path, Plan(seed=8, tiles=3)):
        pass


def test_one_campaign_at_a_time(tmp_path: Path) -> None:
    """Also while workers of the first, which inherit its files, are alive."""
    program = "import sys, pathlib, sptc.verify.campaign_state as s; s.StateFolder(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", program, str(tmp_path)]
    with opened(tmp_path), local_pool(1) as pool:
        pool.submit(os.getpid)
        assert pool.collect()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stderr.splitlines()[-1].endswith(f"{tmp_path} is in use by another campaign")
    assert subprocess.run(command, check=False).returncode == 0


def test_folders_that_will_not_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "thesis.tex").write_text("")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "campaign.json").write_text("{")
    for name, message in (
        ("file", "cannot hold the state of a campaign"),
        ("file/below", "cannot hold the state of a campaign"),
        ("else", "holds something else than a campaign"),
        ("damaged", r"campaign\.json is damaged"),
    ):
        with pytest.raises(FileError, match=message):
            StateFolder(tmp_path / name)
    assert [path.name for path in (tmp_path / "else").iterdir()] == ["thesis.tex"]
    with pytest.raises(FileError, match="cannot hold the state"):
        StateFolder(Path("/proc/campaign"))


def test_a_campaign_that_hardly_began_can_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "shards.jsonl").write_text("")
    (tmp_path / "campaign.json.part").write_text('{"se')
    filled(tmp_path, [])
    assert json.loads((tmp_path / "campaign.json").read_text()) == WANTED

"""The record of a campaign: what it resumes from, and folders that will not do."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from sptc.errors import FileError
from sptc.infra.journal import Journal
from sptc.infra.pools import local_pool
from sptc.sim.coverage.groups import Axis, Coverage, Group
from sptc.verify import campaign, campaign_state
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


def kept(path: Path) -> list[int]:
    with closing(sqlite3.connect(path / "campaign.db")) as database:
        return [index for (index,) in database.execute("SELECT number FROM entries ORDER BY number")]


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
    assert kept(path) == [0, 1, 2, 3]


@pytest.mark.parametrize("sample", [False, True], ids=["plain", "coverage"])
def test_ctrl_c_while_a_shard_is_entered(sample: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits until the entry is there, once, and its hits with it; whether it comes before the entry or after."""
    write, key = Journal.write, ("ampere", "little")
    hits = {key: (np.array([1]), np.array([3]))}
    for late in (False, True):
        path = tmp_path / str(late)

        def interrupted(self: Journal, entries: Mapping[int, object], late: bool = late) -> None:
            if not late:
                signal.raise_signal(signal.SIGINT)
            write(self, entries)
            if late:
                signal.raise_signal(signal.SIGINT)

        with closing(StateFolder(path)) as folder:
            folder.begin(WANTED)
            record = Record(SMALL, folder, sample)
            if sample:
                record.expect(Coverage([Group(*key, "", (Axis("one", ("a", "b")),))]))
            record.add(ShardResult(SMALL.shard(1), 0, hits=hits))
            record.flush()
            with monkeypatch.context() as changed:
                changed.setattr(Journal, "write", interrupted)
                changed.setattr(campaign_state, "_INTERVAL", -1.0)
                with pytest.raises(KeyboardInterrupt):
                    record.add(ShardResult(SMALL.shard(0), 0, hits=hits))
            record.flush()
            assert 0 in record
        assert kept(path) == [0, 1]
        assert not sample or Coverage.read(path / "coverage.json")[key].hits.tolist() == [0, 6]


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
    for index in (0, 2):
        record.add(ShardResult(SMALL.shard(index), 0))
    for wanted, left in ((1, []), (sizes[0] + 1, [1]), (sum(sizes[:3]), [1]), (sum(sizes), [1, 3])):
        assert [shard.index for shard in campaign.unfinished(record, outputs=wanted)] == left


KILLED = """\
import os, pathlib, signal, sys
from sptc.verify.campaign_state import Record, StateFolder, parameters
from sptc.verify.shards import Plan, ShardResult
plan = Plan(seed=7, architectures=("sm_80",), tiles=2)
folder = StateFolder(pathlib.Path(sys.argv[1]))
folder.begin(parameters(plan, False, "1"))
record = Record(plan, folder, sample=False)
for index in range(3):
    record.add(ShardResult(plan.shard(index), 0))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_campaign_loses_nothing_and_a_truncated_entry_is_written_again(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "killed")], check=False)
    assert done.returncode == -signal.SIGKILL
    for cut in (0, 1, 10, 40):
        path = tmp_path / str(cut)
        shutil.copytree(tmp_path / "killed", path)
        log = path / "campaign.db-wal"
        log.write_bytes(log.read_bytes()[: -cut or None])
        with opened(path) as record:
            missing = [shard.index for shard in campaign.unfinished(record, shards=3)]
            assert missing == ([2] if cut else []), cut
            for index in missing:
                record.add(ShardResult(SMALL.shard(index), 0))
        assert kept(path) == [0, 1, 2], cut


def test_a_damaged_entry(tmp_path: Path) -> None:
    filled(tmp_path, [0, 1])
    right = SMALL.shard(2).instruction
    for index, content in (
        (2, "nothing"),
        (2, "[]"),
        (2, "{}"),
        (-1, '{"instruction": "x", "mismatches": 0}'),
        (2, '{"instruction": "x", "mismatches": 0}'),
        (3, f'{{"instruction": "{right}", "mismatches": 0}}'),
        (2, f'{{"instruction": "{right}", "mismatches": null}}'),
    ):
        with closing(sqlite3.connect(tmp_path / "campaign.db")) as database, database:
            database.execute("DELETE FROM entries WHERE number NOT IN (0, 1)")
            database.execute("INSERT INTO entries VALUES (?, ?)", (index, content))
        with pytest.raises(FileError, match=rf"^entry {index} of .*campaign\.db is damaged$"), opened(tmp_path):
            pytest.fail(content)


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
    (tmp_path / "damaged" / "campaign.db").write_text("{}")
    with closing(Journal(tmp_path / "another", "campaign")) as journal:
        journal.begin({"seed": "seven"})
    for name, message in (
        ("file", "cannot hold the state of a campaign"),
        ("file/below", "cannot hold the state of a campaign"),
        ("else", "holds something else than a campaign"),
        ("damaged", r"campaign\.db is damaged$"),
        ("another", r"campaign\.db is damaged$"),
    ):
        with pytest.raises(FileError, match=message):
            StateFolder(tmp_path / name)
    assert [path.name for path in (tmp_path / "else").iterdir()] == ["thesis.tex"]
    with pytest.raises(FileError, match="cannot hold the state"):
        StateFolder(Path("/proc/campaign"))


def test_a_campaign_that_hardly_began_can_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "campaign.lock").write_bytes(b"")
    (tmp_path / "campaign.db").write_bytes(b"")
    filled(tmp_path, [])
    with closing(StateFolder(tmp_path)) as folder:
        assert folder.parameters == WANTED

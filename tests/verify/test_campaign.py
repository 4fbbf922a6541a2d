"""Campaigns end at their limits, store their results, are resumed, and reject unsuitable state folders."""

import itertools
import signal
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sptc.errors import FileError
from sptc.infra.journal import Journal
from sptc.infra.pools import local_pool
from sptc.sim.coverage.groups import Axis, Coverage, Group
from sptc.verify import campaign
from sptc.verify.campaign import Record, StateFolder, Totals, parameters
from sptc.verify.shards import Plan, ShardResult

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
def test_ctrl_c_while_a_shard_is_stored(sample: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If Ctrl+C arrives while a shard is stored, its entry and its coverage are still written, exactly once."""
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
                changed.setattr(campaign, "_INTERVAL", -1.0)
                with pytest.raises(KeyboardInterrupt):
                    record.add(ShardResult(SMALL.shard(0), 0, hits=hits))
            record.flush()
            assert 0 in record
        assert kept(path) == [0, 1]
        assert not sample or Coverage.read(path / "coverage.json")[key].hits.tolist() == [0, 6]


def test_number_of_shards_for_a_number_of_outputs() -> None:
    record = Record(SMALL, None, sample=False)
    sizes = [SMALL.shard(index).outputs for index in range(4)]
    for expected, count in ((1, 1), (sizes[0], 1), (sizes[0] + 1, 2), (sum(sizes[:3]), 3), (sum(sizes), 4)):
        assert [shard.index for shard in campaign.unfinished(record, outputs=expected)] == [*range(count)]
    for index in (0, 2):
        record.add(ShardResult(SMALL.shard(index), 0))
    for expected, left in ((1, []), (sizes[0] + 1, [1]), (sum(sizes[:3]), [1]), (sum(sizes), [1, 3])):
        assert [shard.index for shard in campaign.unfinished(record, outputs=expected)] == left


def test_a_damaged_entry(tmp_path: Path) -> None:
    filled(tmp_path, [0, 1])
    right = SMALL.shard(2).instruction
    for index, content in (
        (2, "[]"),
        (-1, '{"instruction": "x", "mismatches": 0}'),
        (2, '{"instruction": "x", "mismatches": 0}'),
        (3, f'{{"instruction": "{right}", "mismatches": 0}}'),
        (2, f'{{"instruction": "{right}", "mismatches": null}}'),
        (2, f'{{"instruction": "{right}", "a_from": null, "mismatches": -1}}'),
        (2, f'{{"instruction": "{right}", "a_from": null, "mismatches": {10**9}}}'),
        (2, f'{{"instruction": "{right}", "a_from": [], "mismatches": 0}}'),
        (2, f'{{"instruction": "{right}", "a_from": "else", "mismatches": 0}}'),
        (2**63 - 1, f'{{"instruction": "no {right}", "a_from": null, "mismatches": 0}}'),
    ):
        with closing(sqlite3.connect(tmp_path / "campaign.db")) as database, database:
            database.execute("DELETE FROM entries WHERE number NOT IN (0, 1)")
            database.execute("INSERT INTO entries VALUES (?, ?)", (index, content))
        with pytest.raises(FileError, match=rf"^entry {index} of .*campaign\.db is damaged$"), opened(tmp_path):
            pytest.fail(content)


def test_journals_of_other_parameters_or_contents(tmp_path: Path) -> None:
    filled(tmp_path, [0])
    message = "with other parameters: seed 7, not 8; arch sm_80, not any; tiles 2, not 3$"
    with pytest.raises(FileError, match=message), opened(tmp_path, Plan(seed=8, tiles=3)):
        pass
    with closing(Journal(tmp_path, "campaign")) as journal:
        journal.begin({"seed": "seven"})
    with pytest.raises(FileError, match=r"campaign\.db is damaged$"):
        StateFolder(tmp_path)


def test_a_campaign_that_hardly_began_can_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "campaign.lock").write_bytes(b"")
    (tmp_path / "campaign.db").write_bytes(b"")
    filled(tmp_path, [])
    with closing(StateFolder(tmp_path)) as folder:
        assert folder.parameters == WANTED


def test_time_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign ends when its time is over. The test's clock advances by a second before every shard."""
    seconds = itertools.count()
    monkeypatch.setattr(campaign, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    record = Record(Plan(seed=7, architectures=("sm_90",), tiles=2), None, sample=False)
    with local_pool(1) as pool:
        campaign.prepare(record, pool, here=True)
        calls = []
        campaign.run(record, pool, campaign.unfinished(record), 6, lambda: calls.append(record.total.shards))
    assert calls == sorted(calls)
    assert 0 < record.total.shards == calls[-1] == record._first <= 5

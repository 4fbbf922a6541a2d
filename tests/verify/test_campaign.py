"""Campaigns: when they stop, and what they leave."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from numpy.typing import NDArray
from sptc.infra.pools import local_pool
from sptc.sim.engine.engine import Engine
from sptc.verify import campaign
from sptc.verify.campaign import Record
from sptc.verify.shards import Plan

# Workers are forked on purpose, from a process whose numerical library has threads; newer Pythons warn of any fork.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

SMALL = Plan(seed=7, architectures=("sm_90",), tiles=2)

Push = Callable[[Engine, NDArray], NDArray]


def test_a_run_stops_after_the_first_mismatch(monkeypatch: pytest.MonkeyPatch, faulty_push: Push) -> None:
    """What was under way is still counted; the mismatch with the lowest index is the one reported."""
    monkeypatch.setattr(Engine, "push", faulty_push)
    record = Record(SMALL, None, sample=False)
    with local_pool(2) as pool:
        campaign.prepare(record, pool, here=True)
        campaign.run(record, pool, campaign.unfinished(record, shards=500))
        assert record.failed
        assert not pool.busy
        assert record.total.shards < record.failed.index + 10
        found = campaign.reproducer(record.failed, pool)
    assert found
    assert found.file.cases == 1


def test_time_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by a second whenever it is read: once at the beginning and before every shard."""
    seconds = itertools.count()
    monkeypatch.setattr(campaign, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    record = Record(SMALL, None, sample=False)
    with local_pool(1) as pool:
        campaign.prepare(record, pool, here=True)
        calls = []
        campaign.run(record, pool, campaign.unfinished(record), 6, lambda: calls.append(record.total.shards))
    assert calls == sorted(calls)
    assert 0 < record.total.shards == calls[-1] == record._first <= 5

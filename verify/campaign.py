"""Campaigns: continuous regression of hardware against the golden model, until a limit or the first mismatch."""

import time
from collections.abc import Callable, Iterator, Sequence

from ..api.backends import backend
from ..infra.pools import Pool
from ..rtl.config import PRESET_OF_ARCHITECTURE
from .campaign_state import Record
from .shards import Shard, empty_coverage, run_shard
from .shrink import Reproducer, reproduce

__all__ = ["prepare", "reproducer", "run", "unfinished"]


def prepare(record: Record, pool: Pool, here: bool) -> None:
    """Make back ends ready for all datapaths before the workers need them, and collect the empty coverage groups.

    Parameters
    ----------
    record : Record
        The campaign.
    pool : Pool
        Pool that compiles.
    here : bool
        Whether the workers run on this machine. Other workers compile a datapath when they first need it.
    """
    sample = record.coverage is not None
    for arch in record.plan.datapaths:
        if here:
            pool.submit(make_ready, record.plan.backends, arch)
        if sample:
            pool.submit(empty_coverage, PRESET_OF_ARCHITECTURE[arch])
    while pool.busy:
        for coverage in pool.collect():
            if coverage is not None:
                record.expect(coverage)


def make_ready(backends: Sequence[str], arch: str) -> None:
    """Make several back ends ready for an architecture."""
    for name in backends:
        backend(name).make_ready(arch)


def unfinished(record: Record, *, shards: int | None = None, outputs: int | None = None) -> Iterator[Shard]:
    """Yield the unfinished shards of a campaign, in order.

    Parameters
    ----------
    record : Record
        The campaign.
    shards : int, optional
        Stop after this number of shards of the plan.
    outputs : int, optional
        Stop once the yielded shards and the finished ones before them compare this number of outputs.
    """
    counted = 0
    for shard in record.plan.shards():
        if shard.index == shards or (outputs is not None and counted >= outputs):
            return
        counted += shard.outputs
        if shard.index not in record:
            yield shard


def run(
    record: Record,
    pool: Pool,
    shards: Iterator[Shard],
    seconds: float | None = None,
    finished: Callable[[], None] = lambda: None,
) -> None:
    """Run shards until none is left, time is up, or one has a mismatch; the shards then running are still collected.

    Parameters
    ----------
    record : Record
        Record that takes the results.
    pool : Pool
        Pool that runs the shards.
    shards : iterator of Shard
        Shards to run.
    seconds : float, optional
        Time after which no shard is started.
    finished : callable
        Called after shards have finished, and at intervals.

    Raises
    ------
    WorkError
        A shard cannot be run.
    PoolError
        The cluster is lost.
    """
    end = None if seconds is None else time.monotonic() + seconds
    sample = record.coverage is not None
    try:
        while True:
            while pool.accepts and record.failed is None and (end is None or time.monotonic() < end):
                shard = next(shards, None)
                if shard is None:
                    break
                pool.submit(run_shard, shard, sample)
            if not pool.busy:
                break
            for result in pool.collect():
                record.add(result)
            finished()
    finally:
        record.flush()


def reproducer(shard: Shard, pool: Pool) -> Reproducer | None:
    """Reduce the mismatch of a shard on the back end that showed it; None if it does not reproduce."""
    pool.submit(reproduce, shard)
    while True:
        for found in pool.collect():
            return found

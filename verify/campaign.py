"""Continuous regression: shards of hardware against golden model, until a limit or the first mismatch."""

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
    """Make back ends ready for every datapath before the workers need it, and learn what coverage there is.

    Parameters
    ----------
    record : Record
        The campaign.
    pool : Pool
        Who compiles.
    here : bool
        Whether the workers are on this machine; others compile when they first need a datapath.
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
    """Do what back ends do once for an architecture."""
    for name in backends:
        backend(name).make_ready(arch)


def unfinished(record: Record, *, shards: int | None = None, outputs: int | None = None) -> Iterator[Shard]:
    """Yield the shards of a campaign that are not finished, in order.

    Parameters
    ----------
    record : Record
        The campaign.
    shards : int, optional
        Only the first so many of the plan.
    outputs : int, optional
        Only as many as it takes to compare so many outputs, finished ones included.
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
    """Run shards until there are no more, time is up, or one has a mismatch; what is under way then is still collected.

    Parameters
    ----------
    record : Record
        Where results go.
    pool : Pool
        Who runs them.
    shards : iterator of Shard
        Which.
    seconds : float, optional
        After how long none is begun.
    finished : callable
        Called after some shards have finished, and now and then.

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
    """Make the mismatch of a shard small, where it was found; None if it is there no more."""
    pool.submit(reproduce, shard)
    while True:
        for found in pool.collect():
            return found

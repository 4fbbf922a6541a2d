"""Pools of worker processes on this machine or on a Dask cluster. If a worker dies, its unfinished work is repeated."""

import gc
import importlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for_end
from typing import Any

from ..errors import Error
from .collector import uncollected
from .installation import install_line

__all__ = ["Pool", "PoolError", "WorkError", "cluster_pool", "cores", "local_pool", "threads_here"]

#: A work item is abandoned after this number of workers have died while the item was unfinished.
_DEATHS = 3
_KILLS = "killed its worker three times"
#: Time limits in seconds: until a Dask scheduler answers and has a worker, and until a cluster that lost all workers
#: has a worker again.
_PATIENCE = 5
_ABSENCE = 10
#: Maximum time that one call of `Pool.collect` waits, in seconds.
_GLANCE = 0.5
#: Whether Python is older than 3.11.5. In such a version, an executor waits forever if a worker dies before the worker
#: has read data that do not fit into a pipe.
_HOLDS_ON = sys.version_info < (3, 11, 5)


class PoolError(Error):
    """Error of a pool whose workers cannot be reached, or whose connection to the workers was lost."""


class WorkError(PoolError):
    """Error of a work item that failed, or whose workers died."""

    def __init__(self, argument: object, reason: str) -> None:
        super().__init__(f"{argument} {reason}")
        self.argument = argument  #: First argument of the work item, or the item's function if there are no arguments
        self.reason = reason  #: Predicate of the error message, for example "killed its worker three times"


# The package pebble can report the work item whose worker died. This module does not use pebble, because pebble fails
# if a worker is killed while the worker fetches work.
@dataclass(eq=False)
class _Job:
    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    deaths: int = 0

    @property
    def subject(self) -> Any:
        """Name of the work item in messages: its first argument, or its function if it has no arguments."""
        return self.arguments[0] if self.arguments else self.work


class Pool:
    """Pool that runs work items on an executor, and replaces the executor if it breaks.

    A broken executor does not report which work item killed a worker. All work items in flight are therefore run again,
    one at a time, before new items are accepted. A work item whose worker has died three times is abandoned; the last
    two times, the work item ran alone.

    `open_executor` returns an executor, and is called again when the executor breaks. At most `places` work items are
    in flight. `killed` are exceptions by which the executor itself reports that a work item repeatedly killed its
    worker. `workers` returns the number of workers, for an executor that does not replace dead workers.
    """

    def __init__(
        self,
        open_executor: Callable[[], Executor],
        places: int,
        killed: tuple[type[BaseException], ...] = (),
        workers: Callable[[], int] = lambda: 1,
    ) -> None:
        self.places = places
        self._workers = workers
        self._seen = time.monotonic()
        self._open_executor = open_executor
        self._killed = killed
        self._executor = open_executor()
        self._broken = False
        self._flying: dict[Future[Any], _Job] = {}
        self._suspects: deque[_Job] = deque()

    @property
    def busy(self) -> int:
        """Number of work items whose results were not yet collected."""
        return len(self._flying) + len(self._suspects)

    @property
    def accepts(self) -> bool:
        """Whether the pool accepts work: it has a free place, and no work item is suspected of killing its worker."""
        quarantine = self._broken or self._suspects or any(job.deaths for job in self._flying.values())
        return not quarantine and len(self._flying) < self.places

    def submit(self, work: Callable[..., Any], *arguments: object) -> None:
        """Submit a call to the workers. The function must be defined in a module; its arguments must be picklable."""
        self._start(_Job(work, arguments))

    def _start(self, job: _Job) -> None:
        try:
            self._flying[self._executor.submit(job.work, *job.arguments)] = job
        except BrokenExecutor:  # An idle worker died earlier; this work item did not kill it.
            self._suspects.append(job)
            self._broken = True

    def run(self, work: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Iterator[list[Any]]:
        """Submit a function for each tuple of arguments as capacity permits. Yield lists of results as they arrive.

        `arguments` may be a generator. After its last item, the results of all work items in flight are collected.
        """
        waiting = iter(arguments)
        while True:
            while self.accepts and (one := next(waiting, None)) is not None:
                self.submit(work, *one)
            if not self.busy:
                return
            yield self.collect()

    def collect(self) -> list[Any]:
        """Wait briefly for work items to end. Return the available results in any order.

        Raise a `WorkError` if a work item killed its worker three times, or raised an exception that is not an
        :class:`~sptc.Error`; and a `PoolError` if the cluster is lost.
        """
        if not self._broken and not wait(self._flying, _GLANCE, FIRST_COMPLETED).done:
            if self._workers():
                self._seen = time.monotonic()
            elif time.monotonic() > self._seen + _ABSENCE:
                raise PoolError("the Dask scheduler has no workers left")
            return []
        self._seen = time.monotonic()
        results, fallen = [], []
        for future in [future for future in self._flying if self._broken or future.done()]:
            job = self._flying.pop(future)
            try:
                results.append(future.result())
            except BrokenExecutor:
                fallen.append(job)
                self._broken = True
            except self._killed:
                raise WorkError(job.subject, _KILLS) from None
            except CancelledError:
                raise PoolError("the connection to the Dask scheduler was lost") from None
            except Error:
                raise
            except Exception as error:
                raise WorkError(job.subject, f"ended with {type(error).__name__} ({error})") from error
        if self._broken:
            results += self._recover(fallen)
        if self._suspects and not self._flying:
            self._start(self._suspects.popleft())
        return results

    def _recover(self, fallen: list[_Job]) -> list[Any]:
        """Replace the broken executor. Return the results that were complete before the executor broke."""
        results = []
        for future, job in self._flying.items():
            try:
                results.append(future.result())
            except BrokenExecutor:
                fallen.append(job)
        for job in fallen:
            job.deaths += 1
            if job.deaths == _DEATHS:
                raise WorkError(job.subject, _KILLS)
        self._suspects.extend(fallen)
        self.let_go()
        self._executor.shutdown()
        self._executor = self._open_executor()
        self._broken = False
        return results

    def let_go(self) -> None:
        """Drop the work items of dead workers, since executors of old Python versions would wait forever for them.

        Futures are not cancelled: an executor that finds a cancelled future while it breaks does not release resources.
        """
        self._flying.clear()
        queue = getattr(self._executor, "_call_queue", None)
        if _HOLDS_ON and queue is not None:
            with suppress(OSError):
                queue._reader.close()

    def close(self) -> None:
        """Cancel work items that have not begun, and wait for work items that are running."""
        for future in self._flying:
            future.cancel()
        with suppress(BrokenExecutor):
            self._executor.shutdown()


def _begin_worker() -> None:
    """Make a worker process ignore interrupts, and end when its parent process ends, even if the parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent

    def follow() -> None:
        wait_for_end([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def threads_here() -> int:
    """Return the number of threads for a computation in this process: one in a worker, otherwise one per core."""
    return 1 if multiprocessing.parent_process() else cores()


@contextmanager
def local_pool(jobs: int) -> Iterator[Pool]:
    """Yield a pool of processes on this machine."""
    context = multiprocessing.get_context("fork")  # create workers by fork, which is faster than by spawn
    pool = Pool(lambda: ProcessPoolExecutor(jobs, context, _begin_worker), 2 * jobs)
    try:
        yield pool
    except BaseException:  # kill the workers, which discards unfinished work items
        for worker in multiprocessing.active_children():
            worker.kill()
        pool.let_go()
        raise
    finally:
        pool.close()


@contextmanager
def cluster_pool(address: str) -> Iterator[Pool]:
    """Yield a pool of the workers of a Dask scheduler. The workers must have the same version of this package.

    The address is for example ``tcp://localhost:8786``. Raise a `PoolError` if `distributed` is not installed, or no
    scheduler with workers answers.
    """
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise PoolError(f"a cluster of workers needs Dask: install it with `{install_line('dask')}`") from None
    # Turn off Dask's warnings about lost and replaced workers, since this pool handles such workers.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    failure = ""
    try:
        # Collect garbage first. If a client that failed to connect is collected while another client is constructed,
        # the two clients deadlock: collection waits for a lock that the constructor holds.
        gc.collect()
        with uncollected():
            client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        failure = str(error).splitlines()[0] if str(error) else type(error).__name__
    if failure:
        gc.collect()
        raise PoolError(f"no Dask scheduler answers at {address} ({failure})")
    with closing(client):
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            raise PoolError(f"the Dask scheduler at {address} has no workers") from None
        places = max(4, 2 * sum(client.nthreads().values()))
        killed = (distributed.scheduler.KilledWorker,)
        pool = Pool(lambda: client.get_executor(pure=False), places, killed, lambda: len(client.nthreads()))
        with closing(pool):
            yield pool

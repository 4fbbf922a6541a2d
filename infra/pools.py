"""Work on all cores of this machine or on a Dask cluster; a worker that dies loses none of it."""

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
from collections.abc import Callable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for_end
from typing import Any

from ..errors import Error
from .collector import uncollected
from .installation import install_line

__all__ = ["Pool", "PoolError", "WorkError", "cluster_pool", "cores", "local_pool"]

#: Deaths of a worker after which a piece of work is given up.
_DEATHS = 3
_KILLS = "killed its worker three times"
#: Seconds a scheduler has to answer, and a cluster to have a worker or to get one again.
_PATIENCE = 5
_ABSENCE = 10
#: Seconds between two looks while nothing is done.
_GLANCE = 0.5
#: Before Python 3.11.5 an executor waits for ever for dead workers to take what does not fit into a pipe.
_HOLDS_ON = sys.version_info < (3, 11, 5)


class PoolError(Error):
    """Workers that cannot be reached, or are no more."""


class WorkError(PoolError):
    """Work that cannot be done.

    Attributes
    ----------
    argument : object
        The work's first.
    reason : str
        What it does instead, as in "... kills its workers".
    """

    def __init__(self, argument: object, reason: str) -> None:
        super().__init__(f"{argument} {reason}")
        self.argument = argument
        self.reason = reason


# Not pebble's pool, which says at once whose fault it was: a worker that is killed while it fetches work breaks it all.
@dataclass(eq=False)
class _Job:
    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    deaths: int = 0

    @property
    def subject(self) -> Any:
        """What an error names: the first argument, or the function of work without any."""
        return self.arguments[0] if self.arguments else self.work


class Pool:
    """Work in flight on an executor that is replaced when it breaks.

    A broken executor does not say whose fault it was. So what was in flight is tried again one by one, and only then
    more is begun: of the three times that a worker dies of the same work, that work was alone the last two.

    Parameters
    ----------
    open_executor : callable
        Returns an executor; called again when that one broke.
    places : int
        Pieces of work in flight at once.
    killed : tuple of exception types
        How the executor itself says that work keeps killing its workers.
    workers : callable
        Counts the workers of an executor that does not replace them.
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
        """Pieces of work not yet collected."""
        return len(self._flying) + len(self._suspects)

    @property
    def accepts(self) -> bool:
        """Whether more work should be submitted: never while it is unclear what broke the executor."""
        quarantine = self._broken or self._suspects or any(job.deaths for job in self._flying.values())
        return not quarantine and len(self._flying) < self.places

    def submit(self, work: Callable[..., Any], *arguments: object) -> None:
        """Submit a function of a module with its arguments, all of which can be pickled."""
        self._start(_Job(work, arguments))

    def _start(self, job: _Job) -> None:
        try:
            self._flying[self._executor.submit(job.work, *job.arguments)] = job
        except BrokenExecutor:  # an idle worker died, and this work is not to blame
            self._suspects.append(job)
            self._broken = True

    def collect(self) -> list[Any]:
        """Wait a moment until some work is done; return the results, in no order.

        Raises
        ------
        WorkError
            Work kills its workers, or raises what is no :class:`~sptc.Error`.
        PoolError
            The cluster is lost.
        """
        if not self._broken and not wait(self._flying, _GLANCE, FIRST_COMPLETED).done:
            if self._workers():
                self._seen = time.monotonic()
            elif time.monotonic() > self._seen + _ABSENCE:
                raise PoolError("the scheduler has no workers left")
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
                raise PoolError("the connection to the scheduler was lost") from None
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
        """Replace the executor; return what had been done before it broke."""
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
        """Give up what is on its way to workers that are dead, which an older Python would never do.

        Nothing may be cancelled then: an executor that finds a cancelled future as it breaks does not clean up.
        """
        self._flying.clear()
        queue = getattr(self._executor, "_call_queue", None)
        if _HOLDS_ON and queue is not None:
            with suppress(OSError):
                queue._reader.close()

    def close(self) -> None:
        """Give up what has not begun, and wait for what has."""
        for future in self._flying:
            future.cancel()
        with suppress(BrokenExecutor):
            self._executor.shutdown()


def _begin_worker() -> None:
    """Leave interrupts to the parent, and end with it: a killed one cannot say good-bye."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent

    def follow() -> None:
        wait_for_end([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def cores() -> int:
    """Return how many processes can run at once here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def local_pool(jobs: int) -> Iterator[Pool]:
    """Work on this machine.

    Parameters
    ----------
    jobs : int
        Processes.
    """
    # A fork is at work at once; elsewhere than on Linux, system libraries do not survive one.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    pool = Pool(lambda: ProcessPoolExecutor(jobs, context, _begin_worker), 2 * jobs)
    try:
        yield pool
    except BaseException:  # nobody waits for what is under way
        for worker in multiprocessing.active_children():
            worker.kill()
        pool.let_go()
        raise
    finally:
        pool.close()


@contextmanager
def cluster_pool(address: str) -> Iterator[Pool]:
    """Work on the workers of a Dask scheduler; these import the same version of this package.

    Parameters
    ----------
    address : str
        For example ``tcp://localhost:8786``.

    Raises
    ------
    PoolError
        `distributed` is not installed, or no scheduler with workers answers.
    """
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise PoolError(f"a scheduler needs Dask: install it with `{install_line('dask')}`") from None
    # It warns of every worker that is lost and of what it does about it, which is nothing to the user.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    failure = ""
    try:
        # A client that failed to connect waits, when it is collected, for a lock that the making of another one holds.
        gc.collect()
        with uncollected():
            client = distributed.Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        failure = str(error).splitlines()[0] if str(error) else type(error).__name__
    if failure:
        gc.collect()
        raise PoolError(f"no scheduler answers at {address} ({failure})")
    try:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            raise PoolError(f"the scheduler at {address} has no workers") from None
        places = max(4, 2 * sum(client.nthreads().values()))
        pool = Pool(
            lambda: client.get_executor(pure=False),
            places,
            (distributed.scheduler.KilledWorker,),
            lambda: len(client.nthreads()),
        )
        try:
            yield pool
        finally:
            pool.close()
    finally:
        client.close()

"""Pools of processes return each result exactly once, even if workers die."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from sptc.errors import BackendError
from sptc.infra import pools
from sptc.infra.pools import Pool, PoolError, WorkError, cluster_pool, local_pool


def double(number: int) -> int:
    return 2 * number


def deadly(number: int, mark: str, times: int) -> int:
    """Return `number`. If it is 5, kill the worker process instead, at most `times` times; `mark` counts the kills."""
    path = Path(mark)
    deaths = len(path.read_text()) if path.exists() else 0
    if number == 5 and deaths < times:
        path.write_text("x" * (deaths + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def complain(number: int) -> int:
    raise {1: ZeroDivisionError("on purpose"), 2: BackendError("no compiler")}[number]


def collected(pool: Pool) -> list[int]:
    results = []
    while pool.busy:
        results += pool.collect()
    return results


@pytest.fixture
def pool() -> Iterator[Pool]:
    with local_pool(2) as two:
        yield two


def results_of(pool: Pool, number: int, work: Callable[..., int], *arguments: object) -> list[int]:
    waiting = iter(range(number))
    results: list[int] = []
    while len(results) < number:
        while pool.accepts and (argument := next(waiting, None)) is not None:
            pool.submit(work, argument, *arguments)
        assert pool.busy <= 4
        results += pool.collect()
    return sorted(results)


def test_a_pool_gives_every_result_once(pool: Pool) -> None:
    assert results_of(pool, 50, double) == [*range(0, 100, 2)]
    assert pool.collect() == []


@pytest.mark.parametrize("times", [1, 2])
def test_a_killed_worker_loses_nothing(pool: Pool, times: int, tmp_path: Path) -> None:
    assert results_of(pool, 12, deadly, str(tmp_path / "mark"), times) == [*range(12)]
    assert (tmp_path / "mark").read_text() == "x" * times


def test_work_that_always_kills_is_given_up_and_nothing_else_is_blamed(pool: Pool, tmp_path: Path) -> None:
    for number in (4, 5, 6, 7):
        pool.submit(deadly, number, str(tmp_path / "mark"), 100)
    with pytest.raises(WorkError) as caught:
        collected(pool)
    assert caught.value.argument == 5
    assert caught.value.reason == "killed its worker three times"
    assert (tmp_path / "mark").read_text() == "xxx"


def test_an_idle_worker_that_dies(pool: Pool) -> None:
    pool.submit(os.getpid)
    (worker,) = collected(pool)
    os.kill(worker, signal.SIGKILL)
    for number in range(4):
        pool.submit(double, number)
    assert sorted(collected(pool)) == [0, 2, 4, 6]


class Breaking(Executor):
    """Executor that breaks at its second task while the first task is running. Later executors do not break."""

    opened = 0

    def __init__(self) -> None:
        Breaking.opened += 1
        self.futures: list[Future[int]] = []

    def submit(self, work: Callable[..., int], /, *arguments: object, **_: object) -> Future[int]:
        future: Future[int] = Future()
        self.futures.append(future)
        if Breaking.opened > 1 or len(self.futures) > 2:
            future.set_result(work(*arguments))
        elif len(self.futures) == 2:
            self.futures[1].set_exception(BrokenExecutor())
            threading.Timer(0.1, self.futures[0].set_result, [work(1)]).start()
        return future


class Idle(Executor):
    def submit(self, work: Callable[..., int], /, *arguments: object, **_: object) -> Future[int]:
        return Future()


def test_a_pool_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool without workers raises an error after some seconds. A fake clock advances one second at each reading."""
    seconds = count()
    monkeypatch.setattr(pools, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    monkeypatch.setattr(pools, "_GLANCE", 0.01)
    monkeypatch.setattr(pools, "_ABSENCE", 5)
    pool = Pool(Idle, 2, workers=lambda: 0)
    pool.submit(double, 1)
    assert [pool.collect() for _ in range(5)] == [[]] * 5
    with pytest.raises(PoolError, match=r"^the Dask scheduler has no workers left$"):
        pool.collect()


def test_what_was_done_before_a_worker_died_is_not_done_again() -> None:
    pool = Pool(Breaking, 2)
    pool.submit(double, 1)
    pool.submit(double, 2)
    assert collected(pool) == [2, 4]
    assert Breaking.opened == 2


def test_what_work_raises(pool: Pool) -> None:
    pool.submit(complain, 1)
    with pytest.raises(WorkError, match=r"^1 ended with ZeroDivisionError \(on purpose\)$"):
        collected(pool)
    pool.submit(complain, 2)
    with pytest.raises(BackendError, match=r"^no compiler$"):
        collected(pool)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nowhere", "ftp://x", ""])
def test_an_unreachable_scheduler(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_PATIENCE", 1)
    refused = pytest.raises(PoolError, match=f"no Dask scheduler answers at {re.escape(address)}")
    with refused as caught, cluster_pool(address):
        pass
    assert len(str(caught.value).splitlines()) == 1


def test_without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    refused = pytest.raises(PoolError, match=r"a cluster of workers needs Dask: install it with `.*\[dask\]'?`")
    with refused, cluster_pool("tcp://x:1"):
        pass


def wait_until(there: Path) -> None:
    for _ in range(60_000):
        if there.exists():
            return
        time.sleep(0.01)
    pytest.fail(f"{there.name} does not exist after ten minutes: the machine is too slow")


def _finish_when_allowed(folder: Path) -> None:
    (folder / "new").write_text(str(os.getpid()))
    (folder / "new").replace(folder / "begun")
    wait_until(folder / "go on")
    (folder / "done").touch()


def test_an_error_cancels_running_tasks(tmp_path: Path) -> None:

    def leave() -> None:
        with local_pool(1) as pool:
            pool.submit(_finish_when_allowed, tmp_path)
            wait_until(tmp_path / "begun")
            raise KeyError

    with pytest.raises(KeyError):
        leave()
    (tmp_path / "go on").touch()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "begun").read_text()), 0)
    assert not (tmp_path / "done").exists()


def sleep_on(burden: bytes) -> None:
    time.sleep(10_000)


#: Program with an error in the `with` block of a pool, while busy workers are sent more data than a pipe can hold.
_BURDENED = """
from sptc.infra.pools import local_pool
from sptc.tests.infra.test_pools import sleep_on
try:
    with local_pool(2) as pool:
        for _ in range(pool.places):
            pool.submit(sleep_on, bytes(1 << 22))
        pool.collect()
        raise ZeroDivisionError
except ZeroDivisionError:
    print("left")
"""


def test_an_error_while_data_are_sent() -> None:
    """An error ends a pool even while data are sent. The test stops the separate process of the pool if it hangs."""
    done = subprocess.run([sys.executable, "-c", _BURDENED], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout == "left\n"

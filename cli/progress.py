"""Show the progress of long commands on standard error, as bars or lines on a terminal."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from tqdm import tqdm

from ..infra.pools import cores, local_pool

__all__ = ["bar", "in_parallel", "progress_bar", "searching"]

#: Interval in seconds at which a progress bar is redrawn, even if no unit of work is finished.
_INTERVAL = 1.0
#: Least interval in seconds between two lines of progress if standard error is not a terminal.
_LINE_INTERVAL = 5.0
#: Seconds after which a search prints its first line of progress, and seconds between two further lines.
_FIRST_LINE, _NEXT_LINES = 3.0, 60.0
_T = TypeVar("_T")


class _MovingBar(tqdm):  # type: ignore[misc]
    """Progress bar that updates the elapsed time even while a single unit of work takes long.

    A timer signal redraws the bar. A thread is not used, because commands fork processes while a bar is shown.
    """

    _restored: Callable[[], None] | None = None

    def __init__(self, *arguments: Any, **words: Any) -> None:
        super().__init__(*arguments, **words)
        in_main_thread = threading.current_thread() is threading.main_thread()
        if self.disable or not hasattr(signal, "setitimer") or not in_main_thread:
            return
        handler = signal.signal(signal.SIGALRM, lambda *_: self.refresh())
        delay, interval = signal.setitimer(signal.ITIMER_REAL, _INTERVAL, _INTERVAL)

        def restore() -> None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, delay, interval)

        self._restored = restore

    def close(self) -> None:
        """Stop the timer that redraws the progress bar, and remove the bar."""
        if self._restored:
            self._restored()
            self._restored = None
        super().close()


def bar(unit: str, items: Iterable[Any] | None = None, **words: Any) -> "tqdm[Any]":
    """Return a progress bar over `items`; `unit` is the name of one unit of work, and `words` are options of tqdm."""
    tqdm.monitor_interval = 0  # tqdm then starts no thread: a process must not fork while a thread runs
    return _MovingBar(items, unit=unit, leave=False, disable=None, **words)


@contextmanager
def progress_bar(unit: str, command: str = "") -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar while the context is open; yield a function ``progress(done, total)`` that updates it.

    `unit` is the name of one unit of work. If standard error is not a terminal, print lines that start with `command`
    instead, at most one every five seconds; without `command`, print nothing.
    """
    printed = time.monotonic()
    with bar(unit) as shown:

        def progress(done: int, total: int) -> None:
            nonlocal printed
            shown.total, shown.n = total, done
            shown.refresh()
            if command and shown.disable and time.monotonic() - printed >= _LINE_INTERVAL:
                printed = time.monotonic()
                print(f"{command}: {done} of {total} {unit}s finished", file=sys.stderr, flush=True)

        yield progress


def in_parallel(unit: str, work: Callable[..., _T], tasks: Mapping[str, tuple[Any, ...]], jobs: int | None) -> list[_T]:
    """Return ``work(*task)`` for each task, in order, computed by several processes, and show a progress bar.

    The key of a task is its name in error messages. `jobs` is the number of processes (default: one per core).
    """
    results: dict[str, _T] = {}
    with progress_bar(unit) as progress, local_pool(min(jobs or cores(), len(tasks))) as pool:
        for pairs in pool.run(_named, ((name, work, task) for name, task in tasks.items())):
            results |= dict(pairs)
            progress(len(results), len(tasks))
    return [results[name] for name in tasks]


def _named(name: str, work: Callable[..., _T], task: tuple[Any, ...]) -> tuple[str, _T]:
    return name, work(*task)


@contextmanager
def searching(command: str) -> Iterator[None]:
    """If standard error is a terminal, print how long a command has searched while the context is open.

    The first line comes after three seconds, further lines every minute.
    """
    if not sys.stderr.isatty():
        yield
        return
    done, start = threading.Event(), time.monotonic()

    def report() -> None:
        delay, note = _FIRST_LINE, "; a search without a match can take minutes"
        while not done.wait(delay):
            print(f"{command}: searching for {time.monotonic() - start:.0f} s{note}", file=sys.stderr, flush=True)
            delay, note = _NEXT_LINES, ""

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()

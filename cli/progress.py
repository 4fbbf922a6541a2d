"""Progress bar for long commands, shown on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(unit: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar while the context is open; yield a function ``progress(done, total)`` that updates it.

    `unit` is the name of one unit of work.
    """
    tqdm.monitor_interval = 0  # processes must not be forked while tqdm's monitor thread runs
    with tqdm(unit=unit, disable=None, leave=False) as bar:

        def progress(done: int, total: int) -> None:
            bar.total, bar.n = total, done
            bar.refresh()

        yield progress

"""A progress bar on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(unit: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar while the context is open; yield its callback ``progress(done, total)``.

    `unit` is the name of one unit of work.
    """
    tqdm.monitor_interval = 0  # tqdm's monitor thread is unsafe where workers are forked
    with tqdm(unit=unit, disable=None, leave=False) as bar:

        def progress(done: int, total: int) -> None:
            bar.total, bar.n = total, done
            bar.refresh()

        yield progress

"""A bar on a terminal for work that tells how far it is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(unit: str) -> Iterator[Callable[[int, int], None]]:
    """Give a function that is told how much is done of how much.

    Parameters
    ----------
    unit : str
        What there are so many of.
    """
    tqdm.monitor_interval = 0  # its thread would be alive when workers are forked
    with tqdm(unit=unit, disable=None, leave=False) as bar:

        def progress(done: int, total: int) -> None:
            bar.total, bar.n = total, done
            bar.refresh()

        yield progress

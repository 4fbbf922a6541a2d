"""Progress bars for long commands, shown on a terminal."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

__all__ = ["bar", "progress_bar"]


def bar(unit: str, items: Iterable[Any] | None = None, **words: Any) -> "tqdm[Any]":
    """Return a progress bar over `items`, which counts units of work with this name; `words` are options of tqdm."""
    tqdm.monitor_interval = 0  # processes must not be forked while tqdm's monitor thread runs
    return tqdm(items, unit=unit, leave=False, disable=None, **words)


@contextmanager
def progress_bar(unit: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar while the context is open; yield a function ``progress(done, total)`` that updates it.

    `unit` is the name of one unit of work.
    """
    with bar(unit) as shown:

        def progress(done: int, total: int) -> None:
            shown.total, shown.n = total, done
            shown.refresh()

        yield progress

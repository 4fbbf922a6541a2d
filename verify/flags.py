"""The flags of undefined metadata that hardware raises, held against the rules of what it executes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from ..sim.engine.engine import FlaggedStep, flags_watched

__all__ = ["FlagWatch", "watching_flags"]


class FlagWatch:
    """What was seen, tile after tile: of an emulated instruction, the chunks of all that stands for it side by side."""

    def __init__(self) -> None:
        self._found: list[NDArray[np.bool_]] = []
        self._wanted: list[NDArray[np.bool_]] = []

    def see(self, steps: Sequence[FlaggedStep]) -> None:
        """Add what the same tiles went through."""
        self._found.append(np.concatenate([step.illegal for step in steps], axis=-1))
        self._wanted.append(np.concatenate([_undefined(step) for step in steps], axis=-1))

    def of(self, cases: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the flags raised and those that the rules want, shape (cases, rows, chunks); no chunks without any.

        Parameters
        ----------
        cases : int
            Cases that all tiles were; each may be several.
        """
        if not self._found:
            return (np.zeros((cases, 0, 0), np.bool_),) * 2
        found, wanted = (np.concatenate(parts) for parts in (self._found, self._wanted))
        rows = found.shape[0] * found.shape[1] // cases if cases else 0
        return tuple(part.reshape(cases, rows, found.shape[2]) for part in (found, wanted))  # type: ignore[return-value]


def _undefined(step: FlaggedStep) -> NDArray[np.bool_]:
    if step.instruction.rule is None or step.nibbles is None:
        return np.zeros_like(step.illegal)
    defined = np.zeros(16, np.bool_)
    defined[[*step.instruction.rule.legal]] = True
    return ~defined[step.nibbles]


@contextmanager
def watching_flags() -> Iterator[FlagWatch]:
    """Watch the flags of all that hardware executes in this context while it lasts."""
    watch = FlagWatch()
    with flags_watched(watch.see):
        yield watch

"""The operands of an instruction as matrices, with the metadata that a wrong decoder might read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..isa.operands import MatrixOperands

__all__ = ["Given", "joined"]


@dataclass(frozen=True, eq=False)
class Given:
    """Operands of an instruction.

    Attributes
    ----------
    matrices : MatrixOperands
        Operands as the instruction multiplies them.
    elsewhere : ndarray of uint8, shape of the nibbles, or None
        Nibbles that the next sparsity selector reads from the same registers or tensor memory. None if the instruction
        has only one selector or no metadata.
    """

    matrices: MatrixOperands
    elsewhere: NDArray[np.uint8] | None = None

    @property
    def cases(self) -> int:
        """Number of tiles."""
        return len(self.matrices.c)

    def take(self, cases: NDArray[np.intp]) -> "Given":
        """Return only some of the tiles."""
        return _each([self], lambda arrays: arrays[0][cases])

    def widened(self, n: int) -> "Given":
        """Return tiles of `n` columns; the columns of the following cases extend those of each case."""
        width = self.matrices.c.shape[2]
        turns = [self.take((np.arange(self.cases) + turn) % self.cases).matrices for turn in range(-(-n // width))]
        b, c = (np.concatenate([getattr(turn, name) for turn in turns], axis=2)[..., :n] for name in ("b", "c"))
        scale_b = self.matrices.scale_b
        if scale_b is not None:
            scale_b = np.concatenate([turn.scale_b for turn in turns if turn.scale_b is not None], axis=1)[:, :n]
        return replace(self, matrices=replace(self.matrices, b=b, c=c, scale_b=scale_b))


_MATRICES = ("a", "b", "c", "nibbles", "scale_a", "scale_b")


def joined(parts: Sequence[Given]) -> Given:
    """Concatenate several batches of tiles."""
    return _each(parts, np.concatenate)


def _each(parts: Sequence[Given], make: Callable[[Sequence[NDArray]], NDArray]) -> Given:
    """Apply `make` to the arrays of the same name from all parts."""

    def made(arrays: Sequence[NDArray | None]) -> NDArray | None:
        held = [array for array in arrays if array is not None]
        return make(held) if held else None

    matrices = {name: made([getattr(part.matrices, name) for part in parts]) for name in _MATRICES}
    return Given(MatrixOperands(**matrices), made([part.elsewhere for part in parts]))  # type: ignore[arg-type]

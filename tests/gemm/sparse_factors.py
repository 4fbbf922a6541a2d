"""Helpers that draw random factors of matrix products."""

from typing import Any

import numpy as np

__all__ = ["Random", "drawn", "sparse"]

Random = np.random.Generator


def sparse(rng: Random, rows: int, k: int, dtype: Any = np.float16) -> np.ndarray:
    """Return a matrix of Gaussian numbers that is 1:2 sparse, and therefore also 2:4 sparse."""
    a = rng.standard_normal((rows, k)).astype(dtype)
    a[:, rng.integers(0, 2, k // 2) + np.arange(0, k, 2)] = 0
    return a


def drawn(
    rng: Random, shape: tuple[int, int, int], dtype: Any = np.float16, spread: int = 3
) -> tuple[np.ndarray, np.ndarray]:
    """Return a 2:4 sparse matrix of Gaussian numbers times random powers of two, and a dense Gaussian matrix."""
    rows, columns, k = shape
    a = sparse(rng, rows, k, float) * 2.0 ** rng.integers(-spread, spread + 1, (rows, k))
    return a.astype(dtype), rng.standard_normal((k, columns)).astype(dtype)

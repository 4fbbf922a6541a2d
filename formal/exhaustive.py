"""Evaluate an and-inverter graph for every assignment of its inputs, since SMT solvers are slow for multipliers."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["first_violation"]

_INPUT_LIMIT = 24
#: For each of the six lowest inputs, a 64-bit word: bit n is the value of the input in the n-th input assignment.
_PATTERNS = [sum(1 << bit for bit in range(64) if bit >> place & 1) for place in range(6)]
_WORDS = 1 << 12  # number of 64-bit words, each with 64 input assignments, that are evaluated together


def first_violation(path: Path) -> dict[str, int] | None:
    """Return the first input assignment that breaks a claim of a graph without registers, or None if no claim breaks.

    The graph is an and-inverter graph in ASCII AIGER; its bad states are broken claims.
    """
    lines = iter(path.read_text(encoding="ascii").splitlines())
    _, inputs, latches, outputs, gates, bad, constraints = map(int, next(lines).split()[1:8])
    assert inputs <= _INPUT_LIMIT
    assert not latches + constraints
    input_variables = [int(next(lines)) >> 1 for _ in range(inputs)]
    for _ in range(outputs):
        next(lines)
    targets = [int(next(lines)) for _ in range(bad)]
    nodes = [tuple(map(int, next(lines).split())) for _ in range(gates)]
    names = [next(lines).split(maxsplit=1) for _ in range(inputs)]
    total_words = max(1, 1 << inputs >> 6)
    for start in range(0, total_words, _WORDS):
        words = np.arange(start, min(start + _WORDS, total_words), dtype=np.uint64)
        values: dict[int, NDArray[np.uint64]] = {0: np.zeros_like(words)}
        for place, variable in enumerate(input_variables):
            values[variable] = (
                np.full_like(words, _PATTERNS[place])
                if place < len(_PATTERNS)
                else np.uint64(0) - (words >> np.uint64(place - len(_PATTERNS)) & np.uint64(1))
            )
        for node, left, right in nodes:
            values[node >> 1] = _literal(values, left) & _literal(values, right)
        broken = np.zeros_like(words)
        for target in targets:
            broken |= _literal(values, target)
        if inputs < len(_PATTERNS):
            broken &= np.uint64((1 << (1 << inputs)) - 1)
        if broken.any():
            word = int(np.flatnonzero(broken)[0])
            bits = int(broken[word])
            assignment = (start + word) << 6 | (bits & -bits).bit_length() - 1
            return {name: assignment >> int(place[1:]) & 1 for place, name in names}
    return None


def _literal(values: dict[int, NDArray[np.uint64]], literal: int) -> NDArray[np.uint64]:
    value = values[literal >> 1]
    return ~value if literal & 1 else value

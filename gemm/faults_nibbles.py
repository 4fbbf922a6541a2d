"""Kernel faults in single metadata nibbles, computed from differences between a result and the correct product."""

from math import log2

import numpy as np
from numpy.typing import NDArray

from ..golden.select import WHOLE_ELEMENT_NIBBLES, kept_rows
from ..isa.formats import FORMATS
from ..tensors.encode import decode_codes
from .index_maps import describe_set
from .setting import Fault, Setting
from .ways import Way

__all__ = ["wrong_nibbles"]

#: Maximum number of compared columns per row; maximum total number of elements in the rows of A with wrong nibbles.
_COLUMNS, _ELEMENTS = 64, 1 << 18
#: Maximum number of steps in the search for the wrong nibbles of a row. Each step keeps the last two nibbles that were
#: found, and adds the best pair of nibbles.
_ROUNDS = 8
#: Maximum number of changes of one metadata nibble from which pairs are formed: 16 values of each of 128 nibbles.
_PAIRED = 2048
#: Upper limit of n in the accepted rounding error of a row: the root mean square of the error may be 2^-n times the
#: row's largest output. n is the smaller of this limit and the number of fraction bits of the result type. Integer
#: outputs must be equal.
_ROUNDING_BITS = 12
#: Maximum number of different mistakes that the text of a fault names.
_SHOWN = 3


def wrong_nibbles(
    setting: Setting, way: Way, correct: NDArray[np.float64], values: NDArray[np.float64]
) -> Fault | None:
    """Return the fault that a few metadata nibbles in some rows of A are wrong; None if such nibbles explain no row.

    The setting has metadata, no scales along K and no epilogue. `correct` is the correct product, computed by `way`,
    and `values` is the result whose fault is searched.
    """
    fmt = FORMATS[way.result]
    precision = 0 if fmt.is_integer else 2.0 ** -min(fmt.fraction_bits, _ROUNDING_BITS)
    differences = values - correct
    differences[~np.isfinite(differences)] = 0
    rows = np.flatnonzero(differences.any(1))
    if setting.nibbles is None or len(rows) * setting.k > _ELEMENTS:
        return None
    nibbles, whole = setting.nibbles.copy(), setting.in_blocks(setting.chunk)  # K is padded to whole metadata nibbles
    rows_by_text: dict[str, list[int]] = {}
    for row in rows.tolist():
        columns = np.flatnonzero(differences[row])[:_COLUMNS]
        rounding = precision * float(np.abs(correct[row, columns]).max())
        changes = _changes(whole, way, row, columns, differences[row, columns], rounding)
        nibbles[row, [*changes]] = [*changes.values()]
        if changes:
            rows_by_text.setdefault(_text(setting.nibbles[row], changes), []).append(row)
    if not rows_by_text:
        return None
    height, chunks = nibbles.shape
    texts = [f"{describe_set(np.array(same), height, 'rows')[0]}: {text}" for text, same in rows_by_text.items()]
    more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    wrong = nibbles != setting.nibbles
    bits = wrong.any(1).sum() * log2(height) + wrong.sum() * log2(15 * chunks)
    return Fault(
        "metadata",
        f"single nibbles: {'; '.join(texts[:_SHOWN])}{more}",
        setting.with_parts({"nibbles": nibbles}),
        bits=bits,
    )


def _changes(
    setting: Setting, way: Way, row: int, columns: NDArray[np.intp], differences: NDArray[np.float64], rounding: float
) -> dict[int, int]:
    """Return the values of wrong metadata nibbles, by position in a row of A; empty if a few cannot explain the row.

    `differences` are the differences of the result from the correct product in some columns of the row. The changed
    nibbles must explain these differences up to `rounding`.
    """
    assert setting.nibbles is not None
    assert setting.granularity
    i, own = way.parsed, setting.nibbles[row]
    a, b = (
        decode_codes(codes >> i.low_bit(fmt), fmt)
        for codes, fmt in ((setting.a[row], i.a), (setting.b[:, columns], i.b))
    )
    nibbles = range(16) if setting.granularity.stored > 1 else WHOLE_ELEMENT_NIBBLES
    if not np.isin(own, nibbles).all():
        return {}
    stored = a.reshape(len(own), -1, 1)
    sums = np.full((16, len(own), len(columns)), np.inf)
    for nibble in nibbles:
        selected = b[kept_rows(np.full_like(own, nibble), setting.granularity)]
        sums[nibble] = (stored * selected.reshape(*stored.shape[:2], -1)).sum(1)
    steps = (sums - sums[own, np.arange(len(own))]).swapaxes(0, 1)  # [n, v, c]: change of output c if nibble n is v
    usable = np.isfinite(steps).all(-1)  # for each nibble and new value: whether all output changes are finite
    steps[~usable] = 0
    changes: dict[int, int] = {}
    left, most = differences, len(columns) * rounding**2
    for _ in range(_ROUNDS):
        if left @ left <= most:
            return changes
        changes = dict([*changes.items()][-2:])
        left = differences - sum(steps[chunk, nibble] for chunk, nibble in changes.items())
        free = usable & ~np.isin(np.arange(len(own)), [*changes])[:, None]
        if not free.any():
            break
        pair = _best_pair(left, steps, free)
        left = left - sum(steps[chunk, nibble] for chunk, nibble in pair.items())
        changes |= {chunk: nibble for chunk, nibble in pair.items() if nibble != own[chunk]}
    return changes if left @ left <= most else {}


def _best_pair(left: NDArray[np.float64], steps: NDArray[np.float64], usable: NDArray[np.bool_]) -> dict[int, int]:
    """Return new values of two metadata nibbles that minimise the sum of squares of the output differences `left`.

    `steps` are the changes of a row by chunk and nibble, shape (chunks, 16, columns); the change by the present nibble
    of a chunk is zero, so a single wrong nibble is paired with a present nibble. `usable` is a mask of the nibbles that
    may be chosen, shape (chunks, 16).
    """
    vectors = steps.reshape(-1, steps.shape[-1])
    gains = np.where(usable.ravel(), 2 * vectors @ left - (vectors**2).sum(-1), -np.inf)
    likely = np.argsort(-gains)[: min(_PAIRED, int(usable.sum()))]
    chunks, nibbles = np.divmod(likely, 16)
    pairs = gains[likely, None] + gains[likely] - 2 * vectors[likely] @ vectors[likely].T
    pairs[chunks[:, None] == chunks] = -np.inf
    best = np.unravel_index(pairs.argmax(), pairs.shape)
    return {int(chunks[place]): int(nibbles[place]) for place in best}


def _text(own: NDArray[np.uint8], changes: dict[int, int]) -> str:
    """Return a text that lists the wrong metadata nibbles of a row of A, from left to right."""
    chunks = sorted(changes)
    if len(chunks) == 2 and [changes[chunk] for chunk in chunks] == own[chunks[::-1]].tolist():
        return f"the nibbles of chunks {chunks[0]} and {chunks[1]} are exchanged"
    return ", ".join(f"chunk {chunk} has nibble 0b{changes[chunk]:04b}, not 0b{own[chunk]:04b}" for chunk in chunks)

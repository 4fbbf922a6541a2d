"""Faults of single metadata nibbles, computed from the differences between a result and the correct product."""

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

#: Maximum number of wrong nibbles in a row, of columns that are compared, and of elements of A in all rows together.
_NIBBLES, _COLUMNS, _ELEMENTS = 4, 64, 1 << 18
#: A nibble is replaced if this removes a tenth of the squared differences of its row. All replacements together must
#: leave at most rounding errors: those of the result type, or of 12 bits if the type has more.
_GAIN, _ROUNDING_BITS = 0.9, 12
_SHOWN = 3


def wrong_nibbles(
    setting: Setting, way: Way, correct: NDArray[np.float64], values: NDArray[np.float64]
) -> Fault | None:
    """Return the fault by which a few nibbles in some rows of A are wrong; None if such nibbles explain no row.

    Parameters
    ----------
    setting : Setting
        Operands with metadata, without scales along K and without an epilogue.
    way : Way
        Way of summation of `correct`, whose instruction has the element types.
    correct, values : ndarray of float64, shape (M, N)
        Correct product, and the result whose fault is searched.
    """
    with np.errstate(invalid="ignore"):
        differences = np.where(np.isfinite(values - correct), values - correct, 0)
    rows = np.flatnonzero(differences.any(1))
    if setting.nibbles is None or len(rows) * setting.k > _ELEMENTS:
        return None
    nibbles = setting.nibbles.copy()
    rows_by_text: dict[str, list[int]] = {}
    for row in rows.tolist():
        columns = np.flatnonzero(differences[row])[:_COLUMNS]
        rounding = np.nanmax(np.abs(correct[row])) / (1 << min(FORMATS[way.result].fraction_bits, _ROUNDING_BITS))
        changes = _changes(setting, way, row, columns, differences[row, columns], rounding)
        nibbles[row, [*changes]] = [*changes.values()]
        if changes:
            rows_by_text.setdefault(_text(setting.nibbles[row], changes), []).append(row)
    if not rows_by_text:
        return None
    height, chunks = nibbles.shape
    texts = [f"{describe_set(np.array(rows), height, 'rows')[0]}: {text}" for text, rows in rows_by_text.items()]
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
    setting: Setting,
    way: Way,
    row: int,
    columns: NDArray[np.intp],
    differences: NDArray[np.float64],
    rounding: float,
) -> dict[int, int]:
    """Return the wrong nibbles of a row of A by chunk, if at most `_NIBBLES` leave errors of the size of `rounding`.

    `differences` are the differences of the result from the correct product in some columns of the row.
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
    steps = sums - sums[own, np.arange(len(own))]
    changes: dict[int, int] = {}
    left, most = differences, len(columns) * rounding**2
    while len(changes) < _NIBBLES and left @ left > most:
        distances = ((left - steps) ** 2).sum(-1)
        distances[:, [*changes]] = np.inf
        chunk = int(np.unravel_index(np.argmin(distances), distances.shape)[1])
        if not distances[:, chunk].min() < _GAIN * (left @ left):
            break
        changes[chunk] = int(own[chunk])
        for chosen in reversed(changes):  # the newest first: a nibble chosen before may now fit worse than another one
            left = left + steps[changes[chosen], chosen]
            changes[chosen] = int(((left - steps[:, chosen]) ** 2).sum(-1).argmin())
            left = left - steps[changes[chosen], chosen]
    return changes if left @ left <= most else {}


def _text(own: NDArray[np.uint8], changes: dict[int, int]) -> str:
    """Describe the wrong nibbles of a row by chunk, in the order of the chunks."""
    chunks = sorted(changes)
    if len(chunks) == 2 and [changes[chunk] for chunk in chunks] == own[chunks[::-1]].tolist():
        return f"the nibbles of chunks {chunks[0]} and {chunks[1]} are exchanged"
    return ", ".join(f"chunk {chunk} has nibble 0b{changes[chunk]:04b}, not 0b{own[chunk]:04b}" for chunk in chunks)

"""fp8 ``mma`` where the assembler emulates it with f16 instructions, sm_90 and sm_100 (numerics, section 2.1)."""

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import Format
from ..isa.numerics import Numerics, Rounding
from .decode import NARROW, Precision, Terms, decode
from .fused import fused_step
from .trace import Trace

__all__ = ["emulated_instruction", "even_and_odd_pairs", "widen"]


@lru_cache(maxsize=4)
def _f16_codes(fmt: Format) -> NDArray[np.uint16]:
    terms = decode(np.arange(256, dtype=np.uint8), fmt, NARROW).with_classes()
    assert terms.classes is not None
    values = np.where(np.isfinite(terms.classes), terms.values, terms.classes)
    codes = values.astype(np.float16).view(np.uint16)
    codes[0x80] = 0x8000
    return codes


def widen(codes: NDArray[np.uint8], fmt: Format) -> NDArray[np.uint16]:
    """Convert fp8 codes to f16 codes.

    The value is the same but its exponent need not be: the subnormals of e4m3 are normal f16 numbers, so a product
    of one can raise the alignment less than an fp8 datapath would have it (measured on an H200).
    """
    return _f16_codes(fmt).take(codes)


def even_and_odd_pairs(slots: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split the kept slots of an instruction into bytes 0, 1 and bytes 2, 3 of each register."""
    odd = (slots >> 1 & 1).astype(bool)
    return slots[~odd], slots[odd]


def emulated_instruction(
    parts: Iterable[tuple[Terms, Terms]],
    c: NDArray[np.float32],
    accumulator: Format,
    numerics: Numerics,
    precision: Precision,
    traces: list[Trace] | None = None,
) -> NDArray[np.float32]:
    """Chain the steps from zero and add C under IEEE rules, round to nearest even.

    Parameters
    ----------
    parts : iterable of (Terms, Terms)
        Operands of the steps, as :func:`fused_step` takes them.
    c : ndarray of float32, shape (rows, n)
        Accumulator of the instruction.
    accumulator, numerics, precision, traces
        As for :func:`fused_step`.

    Returns
    -------
    ndarray of float32, shape (rows, n)
        Of f16 results the numbers that registers hold; rounding the sum of f32 to f16 is the same as rounding the exact
        one: 24 bits are enough.
    """
    d = np.zeros_like(c)
    for a, b in parts:
        d = fused_step(a, b, d, accumulator, numerics, precision, traces=traces)
    with np.errstate(over="ignore", invalid="ignore"):
        total = c + d
        return total.astype(np.float16).astype(np.float32) if numerics.rounding is Rounding.RNE_F16 else total

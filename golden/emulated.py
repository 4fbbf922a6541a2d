"""Model of fp8 ``mma`` on sm_90 and sm_100, for which the assembler emits f16 instructions.

``T(operands, accumulator)`` is one step of the truncated fused dot-product-add on f16 operands, and ``+`` is the IEEE
addition of f32::

    d = c + T(odd pairs, T(even pairs, 0))
"""

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


def widen(codes: NDArray[np.uint8], fmt: Format) -> NDArray[np.uint16]:
    """Convert fp8 codes to f16 codes.

    The value is the same, but its exponent may be smaller: the subnormals of e4m3 are normal f16 numbers. The largest
    exponent of a step (e_max) may thus be smaller than in an fp8 datapath (measured on an H200).
    """
    return _f16_codes(fmt).take(codes)


@lru_cache(maxsize=4)
def _f16_codes(fmt: Format) -> NDArray[np.uint16]:
    terms = decode(np.arange(256, dtype=np.uint8), fmt, NARROW).with_classes()
    assert terms.classes is not None
    values = np.where(np.isfinite(terms.classes), terms.values, terms.classes)
    codes = values.astype(np.float16).view(np.uint16)
    codes[0x80] = 0x8000  # restore the sign of -0, which `decode` returns as +0
    return codes


def even_and_odd_pairs(slots: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split indices of stored fp8 elements of A into even pairs (bytes 0, 1 of registers) and odd pairs (2, 3)."""
    odd = (slots >> 1 & 1).astype(bool)
    return slots[~odd], slots[odd]


def emulated_instruction(
    steps: Iterable[tuple[Terms, Terms]],
    c: NDArray[np.float32],
    accumulator: Format,
    numerics: Numerics,
    precision: Precision,
    traces: list[Trace] | None = None,
) -> NDArray[np.float32]:
    """Compute the f16 steps of an emulated fp8 ``mma`` from a zero accumulator, then add C in IEEE f32 (RNE).

    Each step has the operands `a` and `b` of :func:`fused_step`; the other parameters are also those of
    :func:`fused_step`. C and the result have type f32 and shape (rows, n). An f16 result is stored as f32: rounding the
    f32 sum to f16 equals rounding the exact sum, since the 24 bits of f32 suffice.
    """
    d = np.zeros_like(c)
    for a, b in steps:
        d = fused_step(a, b, d, accumulator, numerics, precision, traces=traces)
    with np.errstate(over="ignore", invalid="ignore"):
        total = c + d
        return total.astype(np.float16).astype(np.float32) if numerics.rounding is Rounding.RNE_F16 else total

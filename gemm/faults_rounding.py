"""Operands that are rounded otherwise from the numbers that are given."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import Format
from ..tensors.blocks import in_float64
from ..tensors.encode import decode_codes, encode
from .epilogue import rounded_values
from .matrices import holds_codes, own_format

__all__ = ["rounded_otherwise"]


def rounded_otherwise(left: Any, right: NDArray, formats: tuple[Format, Format]) -> Iterator[tuple[str, Any, NDArray]]:
    """Yield factors whose numbers are rounded to the formats of an instruction in other ways: text, A and B.

    Parameters
    ----------
    left, right : array or Compressed, ndarray
        The factors as given. Nothing is yielded for factors that hold codes.
    formats : tuple of Format
        Formats of both.
    """
    are_numbers = [
        isinstance(array, np.ndarray) and not fmt.is_integer and not fmt.ignored_low_bits
        and not holds_codes(array, fmt) and own_format(array) != fmt.name
        for array, fmt in zip((left, right), formats, strict=True)
    ]  # fmt: skip
    rounders: dict[str, Callable[[NDArray, Format], NDArray]] = {
        "truncated (rounded toward zero)": _toward_zero,
        "rounded to nearest, ties away from zero": _away,
        "rounded twice, through f16": lambda x, fmt: _through(x, "f16"),
        "rounded twice, through bf16": lambda x, fmt: _through(x, "bf16"),
    }
    for how, rounder in rounders.items():
        for who, chosen in (("A and B are", (True, True)), ("A is", (True, False)), ("B is", (False, True))):
            if all(not one or number for one, number in zip(chosen, are_numbers, strict=True)):
                both = [
                    rounder(in_float64(array), fmt) if one else array
                    for one, array, fmt in zip(chosen, (left, right), formats, strict=True)
                ]
                yield f"{who} {how}", both[0], both[1]


def _encoded(values: NDArray[np.float64], fmt: Format) -> NDArray:
    return encode(values, fmt, saturate=True)


def _toward_zero(values: NDArray[np.float64], fmt: Format) -> NDArray[np.float64]:
    codes = _encoded(np.nan_to_num(values), fmt)
    beyond = np.abs(decode_codes(codes, fmt)) > np.abs(values)
    return np.where(np.isnan(values), values, decode_codes(codes - beyond.astype(codes.dtype), fmt))


def _away(values: NDArray[np.float64], fmt: Format) -> NDArray[np.float64]:
    """Round to nearest, ties away from zero: a tie rounds as the next number further away does."""
    return decode_codes(_encoded(np.nextafter(values, np.copysign(np.inf, values)), fmt), fmt)


def _through(values: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return rounded_values(values.astype(np.float32), name).astype(np.float64)

"""Functions that randomly change values, texts and bytes, from one generator with a seed, and a malicious object."""

import os
import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Trap", "mutated_bytes", "mutated_text", "mutated_value"]

Random = np.random.Generator

_PTX = ".sp .kind::f16 .m64n8k32 .f32 .e4m3 .sync ::ordered_metadata .scale_vec::2X wgmma mma"
#: Words that are inserted into texts: words of PTX, and text that terminals, parsers or encodings may process wrongly.
_WORDS = (
    *_PTX.split(),
    *(".cta_group::2", ".m16n8k99999999999999999999", ".m-1n8k16", "..", "::", " ", "\n", "\t", "\x00", "\x1b[31m"),
    *("\ud800", "\u202e", "é", "\uff10", "%s", "{}", "\\", "'", '"', "$HOME", "../..", "NaN", "1e999", "0x", "-"),
)
_POWERS = (1 << 9, 1 << 16, 1 << 31, 1 << 32, 1 << 46, 1 << 63, 1 << 64, 10**400, 10**6000)
_NUMBERS = (0, 1, -1, 2, 7, 15, 16, 31, 32, 63, *_POWERS)
_NAMES_OF_TYPES = "? i1 u1 i4 u4 >u4 i8 u8 f2 f4 f8 c8 U3 S4 M8[s] m8[s] O V4"
_DTYPES = tuple(_NAMES_OF_TYPES.split())


class _Awkward:
    def __array__(self, *args: object, **words: object) -> np.ndarray:
        raise RuntimeError("no array")

    def __index__(self) -> int:
        raise RuntimeError("no index")

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]


class Trap:
    """Object that creates a folder when it is unpickled. A test fails if this folder exists."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.mark),)


def mutated_text(text: str, rng: Random) -> str:
    """Return a text with one to three changes: a part is deleted, copied, replaced, inserted, swapped or repeated."""
    parts = list(text) if rng.random() < 0.4 else text.split(".")
    joint = "" if parts == list(text) else "."
    for _ in range(int(rng.integers(1, 4))):
        if not parts:
            break
        place = int(rng.integers(len(parts)))
        match int(rng.integers(6)):
            case 0:
                del parts[place]
            case 1:
                parts.insert(place, parts[int(rng.integers(len(parts)))])
            case 2:
                parts[place] = str(rng.choice(list(string.printable)))
            case 3:
                parts.insert(place, _WORDS[int(rng.integers(len(_WORDS)))])
            case 4:
                other = int(rng.integers(len(parts)))
                parts[place], parts[other] = parts[other], parts[place]
            case _:
                parts[place] = parts[place] * int(rng.choice([2, 3, 1000], p=[0.6, 0.39, 0.01]))
    return joint.join(parts)


def mutated_bytes(given: bytes, rng: Random) -> bytes:
    """Return bytes with one to eight changes: a bit is inverted, or some bytes are deleted, duplicated or replaced."""
    result = bytearray(given)
    for _ in range(int(rng.integers(1, 9))):
        if not result:
            break
        place = int(rng.integers(len(result)))
        length = int(min(len(result) - place, rng.integers(1, 64)))
        match int(rng.integers(6)):
            case 0:
                result[place] ^= 1 << int(rng.integers(8))
            case 1:
                del result[place:]
            case 2:
                del result[place : place + length]
            case 3:
                result[place:place] = result[place : place + length]
            case 4:
                result[place : place + length] = rng.bytes(length)
            case _:
                result[place : place + 4] = int(rng.choice([0, 0x7FFFFFFF, 0xFFFFFFFF])).to_bytes(4, "little")
    return bytes(result)


def mutated_value(value: Any, rng: Random) -> Any:
    """Return a wrong or unusual value for an argument. It may be similar to `value`, or have another type."""
    near: list[Callable[[], Any]] = []
    if isinstance(value, str):
        near = [lambda: mutated_text(value, rng)] * 4
    elif isinstance(value, np.ndarray) and value.ndim:
        near = [lambda: _mutated_array(value, rng)] * 4
    elif isinstance(value, bool):
        near = [lambda: not value, lambda: np.bool_(value), lambda: int(value)]
    elif isinstance(value, int):
        near = [lambda: value ^ 1 << int(rng.integers(72)), lambda: value + int(rng.integers(-3, 4))]
        near += [lambda: np.uint64(value & (1 << 64) - 1), lambda: float(value) if abs(value) < 1 << 100 else 0.0]
    elif isinstance(value, tuple):
        near = [lambda: _mutated_items(value, rng)] * 4
    choices = [*near, lambda: _other(value, rng)]
    return choices[int(rng.integers(len(choices)))]()


def _mutated_items(value: Sequence[Any], rng: Random) -> tuple[Any, ...]:
    items = list(value)
    place = int(rng.integers(len(items)))
    match int(rng.integers(4)):
        case 0:
            del items[place]
        case 1:
            items.insert(place, items[place])
        case _:
            items[place] = mutated_value(items[place], rng)
    return tuple(items)


def _mutated_array(value: np.ndarray, rng: Random) -> Any:
    def changed() -> np.ndarray:
        copy = value.copy()
        if copy.size and copy.dtype.kind == "u":
            copy.flat[int(rng.integers(copy.size))] = int(rng.integers(1 << 8))
        return copy

    integer = value.dtype if value.dtype.kind in "ui" else np.dtype("u4")
    others: list[Callable[[], Any]] = [
        lambda: value.astype(">u4") if value.dtype.kind == "u" else value[..., None],
        lambda: value[..., : int(rng.integers(value.shape[-1] + 1))],
        lambda: value[None, ...],
        lambda: np.broadcast_to(value, (int(rng.choice([0, 2, 3])), *value.shape)),
        lambda: np.zeros(value.shape, str(rng.choice(_DTYPES))),
        lambda: value.T,
        lambda: value[::-1],
        changed,
        lambda: rng.integers(0, 1 << 8, value.shape, np.uint8).astype(integer),
        value.tolist,
        lambda: np.ma.masked_array(value) if rng.random() < 0.5 else value.view(np.memmap),
    ]
    return others[int(rng.integers(len(others)))]()


def _other(value: Any, rng: Random) -> Any:
    others: list[Callable[[], Any]] = [
        lambda: None,
        lambda: _NUMBERS[int(rng.integers(len(_NUMBERS)))] * int(rng.choice([1, -1])),
        lambda: float(rng.choice([0.0, 0.5, float("nan"), float("inf"), 1e300])),
        lambda: _WORDS[int(rng.integers(len(_WORDS)))],
        lambda: np.zeros(tuple(rng.integers(0, 4, int(rng.integers(4))).tolist()), str(rng.choice(_DTYPES))),
        lambda: np.array(value, dtype=object) if not isinstance(value, _Awkward) else None,
        lambda: [value],
        lambda: (value, value),
        lambda: {"value": value},
        lambda: {1, 2},
        lambda: b"bytes",
        lambda: object(),
        lambda: _Awkward(),
        lambda: (number for number in range(3)),
        lambda: 1j,
        lambda: str,
        lambda: range(4),
        lambda: memoryview(b"abcd"),
    ]
    return others[int(rng.integers(len(others)))]()

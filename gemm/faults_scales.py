"""Faults of the epilogue (scales, bias, C, factors) and of block scales."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..isa.instructions import Instruction
from .epilogue import Epilogue
from .index_maps import named_maps
from .setting import Fault, Setting

__all__ = ["ARRAYS", "block_scales", "epilogues"]

#: Arrays of an epilogue: what they are, and whether they are applied twice by multiplying or by adding.
ARRAYS = {"scale_a": "the scale of A", "scale_b": "the scale of B", "c": "C", "bias": "the bias"}
#: Powers of two for maps of rows and columns.
_POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
#: Codes of a block scale of one.
_ONE = {"ue8m0": 0x7F, "ue4m3": 0x38}


def _kind(name: str) -> str:
    return "scale" if name.startswith("scale") else "C" if name == "c" else "bias"


def epilogues(setting: Setting) -> Iterator[Fault]:
    """Yield faults of the epilogue of a product."""
    epilogue, shape = setting.epilogue, setting.shape
    for name, noun in ARRAYS.items():
        array = getattr(epilogue, name)
        if array is None:
            continue
        kind = _kind(name)
        yield _changed(kind, f"{noun} is ignored", name, None)
        if kind == "scale":
            with np.errstate(over="ignore", under="ignore"):
                yield _changed(kind, f"{noun} is applied twice", name, array * array)
                yield _changed(kind, f"{noun} is applied as its reciprocal", name, np.float32(1) / array)
        else:
            yield _changed(kind, f"{noun} is added twice", name, array + array)
            yield _changed(kind, f"{noun} is subtracted", name, -array)
        whole = np.broadcast_to(array, shape)
        if shape[0] == shape[1]:
            yield _changed(kind, f"{noun} is transposed: rows and columns are exchanged", name, whole.T)
        elif array.size == whole.size:
            yield _changed(kind, f"{noun} is transposed in memory", name, whole.T.reshape(shape))
        for axis, line in enumerate(("row", "column")):
            if not (whole == whole.take([0], axis)).all():
                for text, index in named_maps(shape[axis], powers=_POWERS):
                    where = f"{noun} is that of another {line}: {line} p takes that of {line} {text}"
                    yield _changed(kind, where, name, whole.take(index, axis))
    yield from _factors(setting)


def _factors(setting: Setting) -> Iterator[Fault]:
    epilogue = setting.epilogue
    if epilogue.scale_a is not None and epilogue.scale_b is not None:
        yield Fault("scale", "the scales of A and B are multiplied first", _scales_first)
        if setting.shape[0] == setting.shape[1]:
            exchanged = {
                "scale_a": np.broadcast_to(epilogue.scale_b, setting.shape).T,
                "scale_b": np.broadcast_to(epilogue.scale_a, setting.shape).T,
            }
            yield Fault("scale", "the scales of A and B are exchanged", partial(_replaced, words=exchanged))
    if epilogue.alpha != 1:
        yield Fault("scale", "alpha is ignored", partial(_replaced, words={"alpha": 1.0}))
        twice = float(np.float32(epilogue.alpha) * np.float32(epilogue.alpha))
        yield Fault("scale", "alpha is applied twice", partial(_replaced, words={"alpha": twice}))
    if epilogue.c is not None and epilogue.beta != 1:
        yield Fault("C", "beta is ignored", partial(_replaced, words={"beta": 1.0}))
    if epilogue.relu:
        yield Fault("rounding of the result", "ReLU is ignored", partial(_replaced, words={"relu": False}))


def _changed(kind: str, text: str, name: str, array: NDArray[np.float32] | None) -> Fault:
    return Fault(kind, text, partial(_replaced, words={name: array}))


def _replaced(setting: Setting, words: dict[str, object]) -> Setting:
    changed: Epilogue = replace(setting.epilogue, **words)  # type: ignore[arg-type]
    return replace(setting, epilogue=changed)


def _scales_first(setting: Setting) -> Setting:
    epilogue = setting.epilogue
    assert epilogue.scale_a is not None
    assert epilogue.scale_b is not None
    both = np.broadcast_to(epilogue.scale_a, setting.shape) * np.broadcast_to(epilogue.scale_b, setting.shape)
    return _replaced(setting, {"scale_a": both, "scale_b": None})


def block_scales(setting: Setting, i: Instruction) -> Iterator[Fault]:
    """Yield faults of the block scales of a product with instruction `i`."""
    if setting.scales is None or i.scale_format is None:
        return
    for which, (name, line) in enumerate((("A", "row"), ("B", "column"))):
        codes = setting.scales[which]
        noun = f"the block scales of {name}"
        for text, found in _scaled(codes, line, i.scale_format.name):
            yield _block_fault(f"{noun} {text}", setting, which, found)
    one, other = setting.scales
    ignored = tuple(np.full_like(part, _ONE[i.scale_format.name]) for part in (one, other))
    yield Fault("scale", "the block scales of A and B are ignored", partial(replace, scales=ignored))
    if one.shape == other.shape:
        yield Fault("scale", "the block scales of A and B are exchanged", partial(replace, scales=(other, one)))
    for text, found_a in _orders(one):
        for again, found_b in _orders(other):
            if text == again:
                yield Fault("scale", f"the block scales of A and B {text}", partial(replace, scales=(found_a, found_b)))


def _block_fault(text: str, setting: Setting, which: int, codes: NDArray[np.uint8]) -> Fault:
    assert setting.scales
    scales = (codes, setting.scales[1]) if which == 0 else (setting.scales[0], codes)
    return Fault("scale", text, partial(replace, scales=scales))


def _scaled(codes: NDArray[np.uint8], line: str, fmt: str) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    yield "are ignored", np.full_like(codes, _ONE[fmt])
    if fmt == "ue8m0":
        twice = np.where(codes == 0xFF, 0xFF, np.clip(2 * codes.astype(int) - 0x7F, 0, 0xFE))
        yield "are applied twice", twice.astype(np.uint8)
    for text, index in named_maps(codes.shape[0], powers=_POWERS):
        yield f"are those of another {line}: {line} p takes those of {line} {text}", codes[index]
    for text, index in named_maps(codes.shape[1], powers=(1, 2, 4, 8)):
        yield f"are those of another block: block p along K takes that of block {text}", codes[:, index]
    yield from _orders(codes)


def _orders(codes: NDArray[np.uint8]) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    """Yield scales that are written in one order of memory and read in another."""
    rows, blocks = codes.shape
    yield "are transposed in memory", codes.T.reshape(rows, blocks)
    yield "are read transposed", codes.reshape(blocks, rows).T
    row, block = np.indices((rows, blocks))
    tile = row // 128 * -(-blocks // 4) + block // 4
    place = tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4
    memory = np.zeros(int(place.max()) + 1, np.uint8)
    memory[place] = codes
    yield "lie in blocks of 128 x 4 and are read row by row", memory[: rows * blocks].reshape(rows, blocks)
    memory[:] = 0
    memory[: rows * blocks] = codes.ravel()
    yield "lie row by row and are read as blocks of 128 x 4", memory[place]
    if blocks % 4 == 0:
        words = codes.reshape(rows, blocks // 4, 4)
        for byte in range(4):
            yield f"are read from byte {byte} of each word alone", np.repeat(words[:, :, byte], 4, 1)

"""``cvt``: conversion between integer and float formats of 4 to 64 bits, with every rounding mode.

Source: PTX ISA, ``cvt``. The source value is converted exactly, to float64 or an integer, and rounded once.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import FORMATS
from .codes import Rounding, clamped, converted_nan, decoded, encoded, flushed
from .machine import Machine, Step, not_modelled
from .memory import UNSIGNED
from .program import Immediate, Instruction, items_of, size_of
from .registers import Mask
from .values import numpy_type

__all__ = ["conversion_step"]

#: Packed types that ``cvt`` supports, with the number of bits per element, including unused bits above the element.
_PACKED = {"f16x2": 16, "bf16x2": 16, "e4m3x2": 8, "e5m2x2": 8, "e2m3x2": 8, "e3m2x2": 8, "e2m1x2": 4, "ue8m0x2": 8}
#: Types of ``cvt.pack``.
_PACKED_INTEGERS = {f"{kind}{bits}" for kind in "su" for bits in (2, 4, 8, 16)}
_TO_INTEGER: dict[str, Callable[[NDArray], NDArray]] = {
    "rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil,
}  # fmt: skip


def _is_integer(name: str) -> bool:
    return name[0] in "bus" and name[1:].isdigit()


def conversion_step(machine: Machine, ins: Instruction) -> Step:
    """Return a function that executes ``cvt``."""
    qualifiers = ins.words[1:]
    if qualifiers[:2] == ["pack", "sat"]:
        return _pack(machine, ins, *qualifiers[2:])
    ordered = [w for w in qualifiers if w in _PACKED or w in FORMATS or (w[0] in "busf" and w[1:].isdigit())]
    if len(ordered) != 2 or "scaled" in ".".join(qualifiers):
        raise not_modelled(ins)
    to, source = ordered
    modes = [word for word in qualifiers if word not in ordered]
    if unknown := [w for w in modes if w not in ("rn", "rna", "rz", "rm", "rp", "ftz", "sat", "satfinite", "relu",
                                                 *_TO_INTEGER)]:  # fmt: skip
        raise not_modelled(ins, f"the qualifier '.{unknown[0]}' is not supported")
    if _is_integer(to) and _is_integer(source):
        return _integer_to_integer(machine, ins, to, source, saturate="sat" in modes)
    if _is_integer(to):
        return _float_to_integer(machine, ins, to, source, modes)
    return _to_float(machine, ins, to, source, modes)


def _pack(machine: Machine, ins: Instruction, to: str, source: str, above: str = "") -> Step:
    """Execute ``cvt.pack``: clamp two integers to a type of 2 to 16 bits. The second is in the result's lowest bits.

    With fewer than 16 bits, the lowest bits of a third operand are above the two integers.
    """
    bits = int(to[1:]) if to in _PACKED_INTEGERS else 0
    if not bits or source != "s32" or above != ("b32" if bits < 16 else "") or len(ins.operands) != (4 if above else 3):
        raise not_modelled(ins)
    low, high = (-1 << bits - 1, (1 << bits - 1) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
    write = machine.writer(ins.operands[0], "b32")
    upper, lower = (machine.reader(operand, "s32") for operand in ins.operands[1:3])
    rest = machine.reader(ins.operands[3] if above else Immediate(0), "b32")

    def pack(mask: Mask) -> None:
        first, second = (np.clip(read(), low, high).view(np.uint32) & np.uint32((1 << bits) - 1)
                         for read in (upper, lower))  # fmt: skip
        write(mask, rest() << np.uint32(2 * bits) | first << np.uint32(bits) | second)

    return pack


def _integer_to_integer(machine: Machine, ins: Instruction, to: str, source: str, *, saturate: bool) -> Step:
    read, write = machine.reader(ins.operands[1], source), machine.writer(ins.operands[0], to)
    dtype = numpy_type(to)
    if not saturate:
        return lambda mask: write(mask, read().astype(dtype))
    limits = np.iinfo(dtype)

    def clamp(mask: Mask) -> None:
        values = read()
        own = np.iinfo(values.dtype)
        low, high = max(limits.min, own.min), min(limits.max, own.max)
        write(mask, np.clip(values, values.dtype.type(low), values.dtype.type(high)).astype(dtype))

    return clamp


def _float_to_integer(machine: Machine, ins: Instruction, to: str, source: str, modes: list[str]) -> Step:
    """Convert floats to integers, clamped to the range of the integer type.

    A NaN of f64, or a NaN converted to 64 bits, gives the integer whose only set bit is the highest. Other NaN give 0.
    """
    if source in _PACKED:
        raise not_modelled(ins)
    whole = next((_TO_INTEGER[mode] for mode in modes if mode in _TO_INTEGER), None)
    if whole is None:
        raise not_modelled(ins, "a qualifier for rounding to integer is missing")
    read, write = machine.reader(ins.operands[1], f"b{8 * size_of(source)}"), machine.writer(ins.operands[0], to)
    dtype = numpy_type(to)
    limits = np.iinfo(dtype)

    def convert(mask: Mask) -> None:
        values = decoded(read(), source)
        if "ftz" in modes and source == "f32":
            values = flushed(values.astype(np.float32)).astype(np.float64)
        nan = np.isnan(values)
        rounded = whole(np.where(nan, 0.0, values))
        over, under = rounded >= 2.0 ** (8 * dtype.itemsize - (dtype.kind == "i")), rounded < float(limits.min)
        result = np.where(over | under, 0.0, rounded).astype(dtype)
        result = np.where(over, dtype.type(limits.max), np.where(under, dtype.type(limits.min), result))
        if nan.any():
            has_bit = source == "f64" or dtype.itemsize == 8
            missing = np.array([has_bit << 8 * dtype.itemsize - 1], np.uint64)
            result = np.where(nan, missing.astype(f"<u{dtype.itemsize}").view(dtype), result)
        write(mask, result)

    return convert


def _to_float(machine: Machine, ins: Instruction, to: str, source: str, modes: list[str]) -> Step:
    """Convert to a float or to packed floats. The first of two source operands becomes the upper element."""
    element, inner = to.removesuffix("x2"), source.removesuffix("x2")
    size = _bytes_of(to)
    write = machine.writer(ins.operands[0], f"b{8 * size}")
    integer = _is_integer(source)
    read_type = source if integer else f"b{8 * _bytes_of(source)}"
    reads = [machine.reader(item, read_type) for operand in ins.operands[1:] for item in items_of(operand)]
    mode = next((word for word in modes if word in ("rn", "rna", "rz", "rm", "rp")), "rn")
    rounding = Rounding(mode, "satfinite" in modes, "relu" in modes)
    ftz, clamp, whole = "ftz" in modes, "sat" in modes, next((_TO_INTEGER[m] for m in modes if m in _TO_INTEGER), None)

    def values_of(read: Callable[[], NDArray]) -> list[NDArray[np.float64]]:
        codes = read()
        if integer:
            return [codes.astype(np.float64)]
        if bits := _PACKED.get(source):
            parts = (codes >> codes.dtype.type(shift) & codes.dtype.type((1 << bits) - 1) for shift in (0, bits))
            return [decoded(part.astype(UNSIGNED[max(bits // 8, 1)]), inner) for part in parts]
        values = decoded(codes, inner)
        return [flushed(values.astype(np.float32)).astype(np.float64) if ftz and source == "f32" else values]

    def code_of(values: NDArray[np.float64]) -> NDArray:
        if whole:
            values = np.copysign(whole(values), values)
        codes = encoded(clamped(values) if clamp else values, element, rounding)
        return flushed(codes.view(np.float32)).view(np.uint32) if ftz and element == "f32" else codes

    exact_64 = integer and size_of(source) == 8
    keep = None if clamp else _nan_conversion(to, source, mode, ftz=ftz)

    def convert(mask: Mask) -> None:
        if exact_64 and element in ("f32", "f64") and mode == "rn":
            write(mask, reads[0]().astype(f"<f{size}"))
            return
        values = [value for read in reversed(reads) for value in values_of(read)]
        codes = [code_of(value).astype(np.uint64) for value in values]
        if keep and np.isnan(values[0]).any():
            codes[0] = np.where(np.isnan(values[0]), keep(reads[0]()), codes[0])
        bits = 8 * size // len(codes)
        joined = codes[0]
        for place, code in enumerate(codes[1:], 1):
            joined = joined | code << np.uint64(bits * place)
        write(mask, joined.astype(f"<u{size}"))

    if exact_64 and (element not in ("f32", "f64") or mode != "rn"):
        raise not_modelled(ins, "64-bit integers are converted only to f32 and f64, with rounding to nearest")
    return convert


def _nan_conversion(to: str, source: str, mode: str, *, ftz: bool) -> Callable[[NDArray], NDArray[np.uint64]] | None:
    """Return a function that converts NaN codes like an H200. Return None if the result is always the canonical NaN."""
    if (to, source) == ("f32", "bf16"):
        return lambda codes: codes.astype(np.uint64) << np.uint64(16)
    if (to, mode) == ("tf32", "rna"):
        return lambda codes: codes.astype(np.uint64) & np.uint64(0xFFFFE000)
    if "f64" not in (to, source) or not {to, source} <= {"f16", "f32", "f64"}:
        return None
    if ftz and source == "f32":  # with .ftz, a NaN of f32 becomes canonical before the conversion
        return lambda codes: converted_nan(np.full_like(codes, 0x7FFFFFFF), source, to)
    return lambda codes: converted_nan(codes, source, to)


def _bytes_of(name: str) -> int:
    return 2 * _PACKED[name] // 8 if name in _PACKED else size_of(name)

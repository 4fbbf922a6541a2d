"""Integer, logic, comparison and floating-point instructions of single threads.

Source: PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions", "Comparison and Selection
Instructions" and "Floating Point Instructions".
"""

import operator
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .floats import bf16_bits, bf16_values, canonical, flushed, fused
from .machine import Machine, Mask, Step, not_modelled
from .memory import LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW
from .ptx import Instruction, Pair, Vector, size_of
from .values import numpy_type

__all__ = ["ARITHMETIC"]

_WIDE = {"s16": np.int32, "u16": np.uint32, "s32": np.int64, "u32": np.uint64}
_FLOATS = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")
Function = Callable[..., NDArray]


def _operation(machine: Machine, ins: Instruction, function: Function, types: list[str], result: str) -> Step:
    """Return the step that computes a function of source operands of these types."""
    destination, *sources = ins.operands
    if len(sources) != len(types):
        raise not_modelled(ins, f"it has {len(sources)} source operands")
    write = machine.writer(destination, result)
    reads = [machine.reader(source, type_) for source, type_ in zip(sources, types, strict=True)]
    if len(reads) == 1:
        (one,) = reads
        return lambda mask: write(mask, function(one()))
    if len(reads) == 2:
        first, second = reads
        return lambda mask: write(mask, function(first(), second()))
    return lambda mask: write(mask, function(*(read() for read in reads)))


# Integers


def _high_product(a: NDArray, b: NDArray) -> NDArray:
    """Return the upper half of a product."""
    if a.dtype.itemsize < 8:
        wide = _WIDE[f"{'s' if a.dtype.kind == 'i' else 'u'}{8 * a.dtype.itemsize}"]
        return (a.astype(wide) * b.astype(wide) >> wide(8 * a.dtype.itemsize)).astype(a.dtype)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    x, y = a.view(np.uint64), b.view(np.uint64)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + (x0 * y0 >> half)
    high = x1 * y1 + (middle >> half) + ((middle & low) + x0 * y1 >> half)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(a.dtype)


def _divided(a: NDArray, b: NDArray) -> NDArray:
    """Return a / b rounded toward zero; all ones where b is zero, as an H100 gives."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    quotient = a // safe
    if a.dtype.kind == "i":
        quotient = quotient + ((a % safe != 0) & ((a < 0) != (safe < 0)))
    return np.where(b == 0, ~np.zeros(1, a.dtype), quotient.astype(a.dtype))


def _remainder(a: NDArray, b: NDArray) -> NDArray:
    return np.where(b == 0, a, np.fmod(a, np.where(b == 0, b.dtype.type(1), b)))


def _shift_left(a: NDArray, count: NDArray[np.uint32]) -> NDArray:
    bits = 8 * a.dtype.itemsize
    return np.where(count >= bits, a.dtype.type(0), a << np.minimum(count, bits - 1).astype(a.dtype))


def _shift_right(a: NDArray, count: NDArray[np.uint32]) -> NDArray:
    """Shift right; counts beyond the width give zeros or copies of the sign."""
    last = a.dtype.type(8 * a.dtype.itemsize - 1)
    shifted = a >> np.minimum(count, last).astype(a.dtype)
    return shifted if a.dtype.kind == "i" else np.where(count > last, a.dtype.type(0), shifted)


def _funnel(left: bool, clamp: bool) -> Function:
    def shift(low: NDArray, high: NDArray, count: NDArray) -> NDArray:
        pair = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
        places = (np.minimum(count, 32) if clamp else count & np.uint32(31)).astype(np.uint64)
        return ((pair << places) >> np.uint64(32) if left else pair >> places).astype(np.uint32)

    return shift


def _lookup(a: NDArray, b: NDArray, c: NDArray, table: NDArray) -> NDArray:
    """Return the function of three bits that an eight-bit table gives: bit 4 a + 2 b + c of it."""
    number = int(table.flat[0])
    result = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), a.dtype)
    for entry in range(8):
        if number >> entry & 1:
            result = result | (a if entry & 4 else ~a) & (b if entry & 2 else ~b) & (c if entry & 1 else ~c)
    return result


def _permuted(a: NDArray, b: NDArray, select: NDArray) -> NDArray[np.uint32]:
    """Return four bytes of {b, a}; bit 3 of a selector takes the sign of its byte instead."""
    a, b, select = np.broadcast_arrays(a, b, select)
    octets = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    result = np.zeros(a.shape, np.uint64)
    for place in range(4):
        chosen = select >> np.uint32(4 * place) & np.uint32(15)
        octet = octets >> ((chosen & np.uint32(7)).astype(np.uint64) * np.uint64(8)) & np.uint64(255)
        sign = np.where(octet & np.uint64(128), np.uint64(255), np.uint64(0))
        result |= np.where(chosen & np.uint32(8), sign, octet) << np.uint64(8 * place)
    return result.astype(np.uint32)


def _extracted(a: NDArray, start: NDArray, length: NDArray) -> NDArray:
    """Return a bit field, extended by its sign if the type has one; beyond the width stands the sign."""
    bits = 8 * a.dtype.itemsize
    start, length = (np.minimum(x & np.uint32(255), 64).astype(np.uint64) for x in (start, length))
    wide = a.astype(np.int64).view(np.uint64) if a.dtype.kind == "i" else a.astype(np.uint64)
    if a.dtype.kind == "i":
        first = np.minimum(start, np.uint64(63))
        field = (wide.view(np.int64) >> first.view(np.int64)).view(np.uint64)
        length = np.minimum(length, np.uint64(bits))
        up = np.minimum(np.uint64(64) - length, np.uint64(63))
        field = ((field << up).view(np.int64) >> up.view(np.int64)).view(np.uint64)
        return np.where(length == 0, np.uint64(0), field).astype(f"<u{a.dtype.itemsize}").view(a.dtype)
    field = np.where(start >= 64, np.uint64(0), wide >> np.minimum(start, np.uint64(63)))
    mask = np.where(length >= 64, ~np.uint64(0), (np.uint64(1) << np.minimum(length, np.uint64(63))) - np.uint64(1))
    return (field & mask).astype(a.dtype)


def _inserted(field: NDArray, into: NDArray, start: NDArray, length: NDArray) -> NDArray:
    bits = np.uint64(8 * into.dtype.itemsize)
    start, length = (np.minimum((x & np.uint32(255)).astype(np.uint64), bits) for x in (start, length))
    safe = np.minimum(start, np.uint64(63))
    ones = np.where(length >= 64, ~np.uint64(0), (np.uint64(1) << np.minimum(length, np.uint64(63))) - np.uint64(1))
    mask = np.where(start >= 64, np.uint64(0), ones << safe)
    return (into.astype(np.uint64) & ~mask | field.astype(np.uint64) << safe & mask).astype(into.dtype)


def _population(a: NDArray) -> NDArray[np.uint32]:
    return np.bitwise_count(a).astype(np.uint32)


def _leading_zeros(a: NDArray) -> NDArray[np.uint32]:
    bits = 8 * a.dtype.itemsize
    filled = a.astype(np.uint64)
    for step in (1, 2, 4, 8, 16, 32):
        filled |= filled >> np.uint64(step)
    return (np.uint32(bits) - np.bitwise_count(filled)).astype(np.uint32)


def _reversed(a: NDArray) -> NDArray:
    octets = np.ascontiguousarray(a).view(np.uint8)
    flipped = np.packbits(np.unpackbits(octets, bitorder="little"), bitorder="big")
    return np.ascontiguousarray(flipped.reshape(-1, a.dtype.itemsize)[:, ::-1]).view(a.dtype)[:, 0]


_INTEGER: dict[str, Function] = {
    "add": operator.add,
    "sub": operator.sub,
    "min": np.minimum,
    "max": np.maximum,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "not": operator.invert,
    "neg": operator.neg,
    "abs": np.abs,
    "div": _divided,
    "rem": _remainder,
    "popc": _population,
    "clz": _leading_zeros,
    "brev": _reversed,
    "cnot": lambda a: (a == 0).astype(a.dtype),
    "sad": lambda a, b, c: np.where(a > b, a - b, b - a) + c,
}
#: Qualifiers of an integer instruction that change nothing here, or are handled.
_KNOWN = {"lo", "hi", "wide", "rn", "ftz", "uni"}


def _integer(machine: Machine, ins: Instruction) -> Step:
    name, *qualifiers = ins.words
    type_ = qualifiers[-1]
    if type_ in _FLOATS:
        return _float(machine, ins)
    if unknown := [word for word in qualifiers[:-1] if word not in _KNOWN]:
        raise not_modelled(ins, f"its qualifier '.{unknown[0]}'")
    if name in ("mul", "mad"):
        return _product(machine, ins, type_)
    sources = len(ins.operands) - 1
    result = "u32" if name in ("popc", "clz") else type_
    return _operation(machine, ins, _INTEGER[name], [type_] * sources, result)


def _product(machine: Machine, ins: Instruction, type_: str) -> Step:
    words, add = ins.words, ins.words[0] == "mad"
    result = type_
    if "wide" in words:
        wide = _WIDE[type_]
        result = f"{type_[0]}{16 * size_of(type_)}"

        def product(a: NDArray, b: NDArray) -> NDArray:
            return a.astype(wide) * b.astype(wide)
    else:
        product = _high_product if "hi" in words else operator.mul
    if add:
        return _operation(machine, ins, lambda a, b, c: product(a, b) + c, [type_, type_, result], result)
    return _operation(machine, ins, product, [type_, type_], result)


def _bits(machine: Machine, ins: Instruction) -> Step:
    """Shifts, fields, permutations and tables."""
    words = ins.words
    name, type_ = words[0], words[-1]
    if name == "shf":
        return _operation(machine, ins, _funnel("l" in words, "clamp" in words), ["b32", "b32", "u32"], "b32")
    function, types = {
        "shl": (_shift_left, [type_, "u32"]),
        "shr": (_shift_right, [type_, "u32"]),
        "lop3": (_lookup, [type_, type_, type_, "u32"]),
        "prmt": (_permuted, ["b32", "b32", "u32"]),
        "bfe": (_extracted, [type_, "u32", "u32"]),
        "bfi": (_inserted, [type_, type_, "u32", "u32"]),
    }[name]
    if name == "prmt" and len(words) > 2:
        raise not_modelled(ins, "modes of prmt")
    return _operation(machine, ins, function, types, type_)


# Moves, selection, comparison


def _move(machine: Machine, ins: Instruction) -> Step:
    type_ = ins.words[-1]
    destination, source = ins.operands
    if isinstance(destination, Vector):
        part = size_of(type_) // len(destination.items)
        read = machine.reader(source, f"b{8 * size_of(type_)}")
        writes = [machine.writer(item, f"b{8 * part}") for item in destination.items]

        def unpack(mask: Mask) -> None:
            parts = np.ascontiguousarray(read()).view(f"<u{part}").reshape(-1, len(writes))
            for place, write in enumerate(writes):
                write(mask, np.ascontiguousarray(parts[:, place]))

        return unpack
    if isinstance(source, Vector):
        part = size_of(type_) // len(source.items)
        reads = [machine.reader(item, f"b{8 * part}") for item in source.items]
        write_whole = machine.writer(destination, type_)
        whole = f"<u{size_of(type_)}"

        def pack(mask: Mask) -> None:
            parts = np.stack(np.broadcast_arrays(*(read() for read in reads)), -1)
            write_whole(mask, np.ascontiguousarray(parts).view(whole)[:, 0])

        return pack
    return _operation(machine, ins, lambda a: a, [type_], type_)


def _select(machine: Machine, ins: Instruction) -> Step:
    type_ = ins.words[-1]
    return _operation(machine, ins, lambda a, b, p: np.where(p, a, b), [type_, type_, "pred"], type_)


_COMPARISONS: dict[str, Function] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_COMBINATIONS: dict[str, Function] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _comparison(word: str) -> Function:
    """Return a comparison of numbers; with a u in front it is also true of a NaN."""
    if word in _COMPARISONS:
        compare = _COMPARISONS[word]
        if word == "ne":
            return lambda a, b: (a != b) & (a == a) & (b == b)
        return compare
    if word in ("num", "nan"):
        return lambda a, b: ((a == a) & (b == b)) == (word == "num")
    compare = _COMPARISONS[word.removesuffix("u")]
    return lambda a, b: compare(a, b) | (a != a) | (b != b)


def _compare(machine: Machine, ins: Instruction) -> Step:
    name, *qualifiers = [word for word in ins.words if word != "ftz"]
    type_ = qualifiers[-1]
    if type_ in ("bf16", "f16x2", "bf16x2") or name == "set":
        raise not_modelled(ins)
    compare = _comparison(qualifiers[0])
    combine = _COMBINATIONS.get(qualifiers[1]) if len(qualifiers) > 2 else None
    destination, first, second, *third = ins.operands
    read_a, read_b = machine.reader(first, type_), machine.reader(second, type_)
    read_c = machine.reader(third[0], "pred") if combine else None
    pair = isinstance(destination, Pair)
    write = machine.writer(destination.first if isinstance(destination, Pair) else destination, "pred")
    write_other = machine.writer(destination.second, "pred") if isinstance(destination, Pair) else None

    def step(mask: Mask) -> None:
        result = compare(read_a(), read_b())
        third_value = read_c() if read_c else None
        write(mask, combine(result, third_value) if combine else result)
        if pair and write_other:
            write_other(mask, combine(~result, third_value) if combine else ~result)

    return step


def _to_generic(machine: Machine, ins: Instruction) -> Step:
    """``cvta``: addresses of a state space to generic ones, or back."""
    words = ins.words
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAMETER_WINDOW}
    start = next((window[word.split("::")[0]] for word in words if word.split("::")[0] in window), 0)
    add = np.uint64((-start if "to" in words else start) % (1 << 64))
    return _operation(machine, ins, lambda a: a + add, [words[-1]], words[-1])


# Floating point


def _as_f32(function: Function, ftz: bool) -> Function:
    if not ftz:
        return lambda *values: canonical(function(*values))
    return lambda *values: canonical(flushed(function(*(flushed(value) for value in values))))


def _minimum(smaller: bool, nan: bool) -> Function:
    """Return minimum or maximum: a NaN gives way to a number unless `nan`; -0 is below +0."""

    def chosen(a: NDArray, b: NDArray) -> NDArray:
        result = (np.minimum if smaller else np.maximum)(a, b) if nan else (np.fmin if smaller else np.fmax)(a, b)
        zeros = (a == 0) & (b == 0)
        if not zeros.any():
            return result
        signs = (np.signbit(a) | np.signbit(b)) if smaller else (np.signbit(a) & np.signbit(b))
        return np.where(zeros, np.where(signs, result.dtype.type(-0.0), result.dtype.type(0)), result)

    return chosen


_PLAIN: dict[str, Function] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "sqrt": np.sqrt,
    "rcp": lambda a: a.dtype.type(1) / a,
}
_ROUNDED = ("rn", "ftz", "NaN", "relu", "xorsign", "sat")


def _float(machine: Machine, ins: Instruction) -> Step:
    name, *qualifiers = ins.words
    type_ = qualifiers[-1]
    if unknown := [word for word in qualifiers[:-1] if word not in ("rn", "ftz", "NaN", "sat")]:
        raise not_modelled(ins, f"its qualifier '.{unknown[0]}'")
    if name in ("neg", "abs"):
        return _sign(machine, ins, name, type_)
    if name == "mad":
        name = "fma"
    if type_ in ("f16", "f16x2", "bf16", "bf16x2"):
        return _halves(machine, ins, name, type_)
    if name in ("div", "sqrt", "rcp") and "rn" not in qualifiers:
        raise not_modelled(ins, "only '.rn' is exact")
    if name == "fma":
        if type_ == "f64":
            raise not_modelled(ins)
        with_f32: Function = lambda a, b, c: fused(a, b, c).astype(np.float32)  # noqa: E731
    elif name in ("min", "max"):
        with_f32 = _minimum(name == "min", "NaN" in qualifiers)
    else:
        with_f32 = _PLAIN[name]
    function = _as_f32(with_f32, "ftz" in qualifiers) if type_ == "f32" else lambda *v: canonical(with_f32(*v))
    if "sat" in qualifiers:
        return _operation(machine, ins, lambda *v: _saturated(function(*v)), [type_] * (len(ins.operands) - 1), type_)
    return _operation(machine, ins, function, [type_] * (len(ins.operands) - 1), type_)


def _saturated(x: NDArray) -> NDArray:
    """Clamp to [0, 1]; a NaN becomes +0."""
    return np.where(x == x, np.clip(x, x.dtype.type(0), x.dtype.type(1)), x.dtype.type(0))


def _sign(machine: Machine, ins: Instruction, name: str, type_: str) -> Step:
    """``neg`` and ``abs`` change the sign bit of each element and nothing else."""
    bits, element = 8 * size_of(type_), 16 if type_.endswith("x2") or type_ in ("f16", "bf16") else 8 * size_of(type_)
    signs = sum(1 << place + element - 1 for place in range(0, bits, element))
    unsigned = f"b{bits}"
    dtype = numpy_type(unsigned).type
    if name == "neg":
        return _operation(machine, ins, lambda a: a ^ dtype(signs), [unsigned], unsigned)
    return _operation(machine, ins, lambda a: a & dtype(~signs & (1 << bits) - 1), [unsigned], unsigned)


def _halves(machine: Machine, ins: Instruction, name: str, type_: str) -> Step:
    """Arithmetic of f16 and bf16, single or in pairs: each result is rounded once, from its exact value."""
    is_f16, pair = not type_.startswith("bf16"), type_.endswith("x2")
    if name not in ("add", "sub", "mul", "fma", "min", "max"):
        raise not_modelled(ins)
    nan = "NaN" in ins.words

    def exact(*values: NDArray[np.float32]) -> NDArray[np.float64]:
        if name in ("min", "max"):
            return _minimum(name == "min", nan)(*values).astype(np.float64)
        if name == "mul":
            return values[0].astype(np.float64) * values[1].astype(np.float64)
        one = np.ones(1, np.float32)
        a, b, c = values if name == "fma" else (values[0], one, values[1] if name == "add" else -values[1])
        return fused(a, b, c)

    def function(*codes: NDArray) -> NDArray:
        halves = [np.ascontiguousarray(code).view("<u2") for code in np.broadcast_arrays(*codes)]
        values = [half.view("<f2").astype(np.float32) if is_f16 else bf16_values(half) for half in halves]
        with np.errstate(over="ignore"):
            result = exact(*values)
            bits = canonical(result.astype(np.float16)).view("<u2") if is_f16 else bf16_bits(result)
        return np.ascontiguousarray(bits).view("<u4" if pair else "<u2")

    unsigned = "b32" if pair else "b16"
    return _operation(machine, ins, function, [unsigned] * (len(ins.operands) - 1), unsigned)


ARITHMETIC: dict[str, Callable[[Machine, Instruction], Step]] = {
    **dict.fromkeys((*_INTEGER, "mul", "mad"), _integer),
    **dict.fromkeys(("shl", "shr", "shf", "lop3", "prmt", "bfe", "bfi"), _bits),
    **dict.fromkeys(("fma", "sqrt", "rcp"), _float),
    "mov": _move,
    "selp": _select,
    "setp": _compare,
    "cvta": _to_generic,
}

"""Execute instructions that compare values, test numbers, or select a value by a sign.

Source: PTX ISA, "Comparison and Selection Instructions", "Half Precision Comparison Instructions" and ``testp``.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .codes import decoded, flushed
from .integers import COMBINATIONS
from .machine import Builder, Machine, Step, not_modelled
from .operation import Function, operation
from .program import Instruction, Operand, pair_of, size_of
from .registers import Mask

__all__ = ["COMPARISON"]

_COMPARISONS: dict[str, Function] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip


def _comparison(word: str) -> Function:
    """Return the function of a comparison operator. An operator with suffix u (unordered) is also true for a NaN."""
    if word in _COMPARISONS:
        compare = _COMPARISONS[word]
        if word == "ne":
            return lambda a, b: (a != b) & (a == a) & (b == b)
        return compare
    if word in ("num", "nan"):
        return lambda a, b: ((a == a) & (b == b)) == (word == "num")
    compare = _COMPARISONS[word.removesuffix("u")]
    return lambda a, b: compare(a, b) | (a != a) | (b != b)


#: Types that can be compared: types that allow ``.ftz`` (subnormal numbers are flushed to zero), and other types.
_FLUSHED = ("f16", "f16x2", "f32")
_INTEGERS = tuple(f"{kind}{bits}" for kind in "bus" for bits in (16, 32, 64))
_OTHERS = ("bf16", "bf16x2", "f64", *_INTEGERS)
_ORDER = ("lt", "le", "gt", "ge")
#: Operators of each kind of type, by the first letter of the type.
_OPERATORS = {
    "b": ("eq", "ne"), "s": ("eq", "ne", *_ORDER), "u": ("eq", "ne", *_ORDER, "lo", "ls", "hi", "hs"),
    "f": ("eq", "ne", *_ORDER, "equ", "neu", *(f"{word}u" for word in _ORDER), "num", "nan"),
}  # fmt: skip


def _is_16_bit_float(type_: str) -> bool:
    """Return whether a type is f16 or bf16, or a pair of them."""
    return type_.removesuffix("x2") in ("f16", "bf16")


def _numbers(codes: NDArray, type_: str) -> NDArray:
    """Return the numbers in registers with codes of f16 or bf16. A register of a type with ``x2`` has two numbers."""
    halves = np.ascontiguousarray(codes).view("<u2")
    return halves.view("<f2") if type_[0] == "f" else decoded(halves, "bf16")


def _comparer(
    machine: Machine, ins: Instruction, comparison: str, combination: list[str], type_: str, sources: list[Operand]
) -> Callable[[], tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Return a function that compares two operands, and returns the result and its complement.

    A Boolean operation in the opcode combines both with a predicate, the third source operand.
    """
    ftz, is_half = "ftz" in ins.words, _is_16_bit_float(type_)
    kind = "f" if is_half else type_[0]
    if (
        combination not in ([], ["and"], ["or"], ["xor"])
        or type_ not in (*_FLUSHED, *(() if ftz else _OTHERS))
        or comparison not in _OPERATORS[kind]
        or len(sources) != 2 + len(combination)
        or (combination and type_.endswith("x2"))
    ):
        raise not_modelled(ins)
    compare, combine = _comparison(comparison), COMBINATIONS[combination[0]] if combination else None
    register_type = f"b{8 * size_of(type_)}" if is_half else type_
    read_a, read_b = (machine.reader(source, register_type) for source in sources[:2])
    read_c = machine.reader(sources[2], "pred") if combine else None

    def result_and_complement() -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        a, b = read_a(), read_b()
        if is_half:
            a, b = (_numbers(codes, type_) for codes in np.broadcast_arrays(a, b))
        result = compare(flushed(a), flushed(b)) if ftz else compare(a, b)
        if combine and read_c:
            third_value = read_c()
            return combine(result, third_value), combine(~result, third_value)
        return result, ~result

    return result_and_complement


def _set_predicate(machine: Machine, ins: Instruction) -> Step:
    """Execute ``setp``."""
    _, comparison, *combination, type_ = [word for word in ins.words if word != "ftz"]
    destination, *sources = ins.operands
    if type_.endswith("x2"):
        raise not_modelled(ins)
    compare, pair = _comparer(machine, ins, comparison, combination, type_, sources), pair_of(destination)
    write, write_other = machine.writer(pair.first, "pred"), machine.writer(pair.second, "pred")

    def step(mask: Mask) -> None:
        result, other = compare()
        write(mask, result)
        write_other(mask, other)

    return step


#: Code of 1.0, by float type. Integer results of ``set`` that are true have all bits set.
_ONES = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}
_WORDS = ("u32", "s32")
#: Result types of ``set`` for each source type of 16-bit floats, and for all other source types.
_RESULTS = {
    "f16": ("f16", "u16", "s16", *_WORDS), "bf16": ("bf16", "u16", "s16", *_WORDS),
    "f16x2": ("f16x2", *_WORDS), "bf16x2": ("bf16x2", *_WORDS),
}  # fmt: skip
_OTHER_RESULTS = (*_WORDS, *_ONES)


def _set(machine: Machine, ins: Instruction) -> Step:
    """Execute ``set``, which writes a number instead of a predicate: 0, or 1.0 for floats and all ones for integers."""
    _, comparison, *combination, result, type_ = [word for word in ins.words if word != "ftz"]
    destination, *sources = ins.operands
    if result not in _RESULTS.get(type_, _OTHER_RESULTS):
        raise not_modelled(ins)
    octets = size_of(result)
    compare = _comparer(machine, ins, comparison, combination, type_, sources)
    write = machine.writer(destination, f"b{8 * octets}")
    dtype = np.dtype(f"<u{2 if type_.endswith('x2') else octets}").type
    true = dtype(_ONES.get(result.removesuffix("x2"), np.iinfo(dtype).max))

    def step(mask: Mask) -> None:
        write(mask, np.where(compare()[0], true, dtype(0)).view(f"<u{octets}"))

    return step


def _select_by_sign(machine: Machine, ins: Instruction) -> Step:
    """Execute ``slct``: select the first operand if the third is not negative; a NaN selects the second operand."""
    *qualifiers, type_, sign_type = ins.words[1:]
    if [*qualifiers, sign_type] not in (["s32"], ["f32"], ["ftz", "f32"]) or type_ not in ("f32", "f64", *_INTEGERS):
        raise not_modelled(ins)

    def select(a: NDArray, b: NDArray, sign: NDArray) -> NDArray:
        return np.where((flushed(sign) if "ftz" in qualifiers else sign) >= 0, a, b)

    bits = f"b{8 * size_of(type_)}"
    return operation(machine, ins, select, [bits, bits, sign_type], bits)


def _is_subnormal(a: NDArray) -> NDArray[np.bool_]:
    """Return which floats are subnormal. Zeros are not."""
    return (a != 0) & (np.abs(a) < np.finfo(a.dtype).smallest_normal)


_KINDS: dict[str, Function] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: a == a,
    "notanumber": np.isnan,
    "normal": lambda a: np.isfinite(a) & ~_is_subnormal(a),
    "subnormal": _is_subnormal,
}


def _test_number(machine: Machine, ins: Instruction) -> Step:
    """Execute ``testp``."""
    _, kind, type_ = ins.words
    if kind not in _KINDS or type_ not in ("f32", "f64"):
        raise not_modelled(ins)
    return operation(machine, ins, _KINDS[kind], [type_], "pred")


COMPARISON: dict[str, Builder] = {
    "set": _set,
    "setp": _set_predicate,
    "slct": _select_by_sign,
    "testp": _test_number,
}

"""Floating-point instructions of single threads.

Source: PTX ISA, "Floating Point Instructions" and "Half Precision Floating Point Instructions".
"""

import operator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..tensors.fused import fused
from .codes import Rounding, canonical, clamped, decoded, encoded, first_nan, flushed
from .machine import Machine, Step, not_modelled
from .operation import Function, operation, source_count
from .program import Instruction
from .registers import Mask

__all__ = ["APPROXIMATE", "approximate_step", "canonical_function", "float_step", "half_function"]


def canonical_function(function: Function, *, ftz: bool) -> Function:
    """Wrap a function: its NaN results become canonical, and `ftz` flushes subnormal operands and results to zero."""
    if not ftz:
        return lambda *values: canonical(function(*values))
    return lambda *values: canonical(flushed(function(*(flushed(value) for value in values))))


def _minimum(smaller: bool, nan: bool) -> Function:
    """Return a minimum or maximum function. A single NaN operand is ignored unless `nan` is set. -0 is less than +0."""

    def chosen(a: NDArray, b: NDArray) -> NDArray:
        result = (np.minimum if smaller else np.maximum)(a, b) if nan else (np.fmin if smaller else np.fmax)(a, b)
        zeros = (a == 0) & (b == 0)
        if not zeros.any():
            return result
        signs = (np.signbit(a) | np.signbit(b)) if smaller else (np.signbit(a) & np.signbit(b))
        return np.where(zeros, np.where(signs, result.dtype.type(-0.0), result.dtype.type(0)), result)

    return chosen


_FUNCTIONS: dict[str, Function] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "fma": lambda a, b, c: fused(a, b, c).astype(np.float32),
    "div": operator.truediv,
    "sqrt": np.sqrt,
    "rcp": lambda a: 1 / a,
    "ex2": np.exp2,
    "lg2": np.log2,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}
#: Instructions that PTX allows to have inexact results.
_APPROXIMATE = {*_FUNCTIONS} - {"add", "sub", "mul", "fma"}


#: Reason for which approximate instructions are rejected unless they are allowed.
APPROXIMATE = "the results are not bit-exact; the option 'approximate' allows such instructions"


def approximate_step(machine: Machine, ins: Instruction) -> Step:
    """Return a function that computes an approximate instruction in f64. Results can differ from those of a GPU."""
    name, type_ = ins.words[0], ins.words[-1]
    if not machine.launch.approximate:
        raise not_modelled(ins, APPROXIMATE)
    if type_ != "f32":
        raise not_modelled(ins)
    function, ftz = _FUNCTIONS[name], "ftz" in ins.words

    def rounded(*values: NDArray) -> NDArray[np.float32]:
        return np.asarray(function(*(value.astype(np.float64) for value in values))).astype(np.float32)

    inner = operation(machine, ins, canonical_function(rounded, ftz=ftz), ["f32"] * source_count(ins), "f32")

    def step(mask: Mask) -> None:
        machine.exact = False
        inner(mask)

    return step


def float_step(machine: Machine, ins: Instruction) -> Step:
    """Return a function that executes an arithmetic instruction on floats."""
    name, *qualifiers = ins.words
    type_ = qualifiers[-1]
    if name in _APPROXIMATE and ("approx" in qualifiers or "full" in qualifiers):
        return approximate_step(machine, ins)
    is_pair = type_ == "f32x2"
    if is_pair and (
        name not in ("add", "sub", "mul", "fma") or not {*qualifiers[:-1]} <= {"rn", "rz", "rm", "rp", "ftz"}
    ):
        raise not_modelled(ins)
    type_ = "f32" if is_pair else type_
    directed = ("rz", "rm", "rp") if type_ == "f32" and name in ("add", "sub", "mul", "fma", "mad") else ()
    mode = next((word for word in qualifiers if word in directed), None)
    if name == "fma" and not {"rn", "rz", "rm", "rp"} & {*qualifiers}:
        raise not_modelled(ins, "the rounding mode is missing")
    if unknown := [word for word in qualifiers[:-1] if word not in (mode or "rn", "ftz", "NaN", "sat", "relu")]:
        raise not_modelled(ins, f"the qualifier '.{unknown[0]}' is not supported")
    if "relu" in qualifiers and (name != "fma" or type_ in ("f32", "f64") or "sat" in qualifiers):
        raise not_modelled(ins, f"'{name}' of type {type_} has no qualifier '.relu'")
    allowed = {"ftz": True, "sat": name in ("add", "sub", "mul", "fma", "mad")}
    for word, is_allowed in allowed.items():
        if word in qualifiers and not (is_allowed and type_ in ("f16", "f16x2", "f32")):
            raise not_modelled(ins, f"'{name}' of type {type_} has no qualifier '.{word}'")
    if name in ("neg", "abs"):
        return _sign(machine, ins, name, type_)
    if name == "mad":
        name = "fma"
    if type_ in ("f16", "f16x2", "bf16", "bf16x2"):
        return _halves(machine, ins, name, type_)
    if name in ("div", "sqrt", "rcp") and "rn" not in qualifiers:
        raise not_modelled(ins, "results are exact only with the qualifier '.rn'")
    compute = _minimum(name == "min", "NaN" in qualifiers) if name in ("min", "max") else _FUNCTIONS[name]
    if mode:
        compute = _directed(name, mode)
    elif (name, type_) == ("fma", "f64"):
        compute = _fused_doubles
    function = _keeping_nan(name, compute) if type_ == "f64" else canonical_function(compute, ftz="ftz" in qualifiers)
    inner = (lambda *values: clamped(function(*values))) if "sat" in qualifiers else function
    if is_pair:
        return operation(machine, ins, _on_pairs(inner), ["b64"] * source_count(ins), "b64")
    return operation(machine, ins, inner, [type_] * source_count(ins), type_)


def _on_pairs(function: Function) -> Function:
    """Return an operation on registers that hold two f32 values, from an operation on f32 values."""

    def combine(*registers: NDArray) -> NDArray[np.uint64]:
        values = (np.ascontiguousarray(register).view("<f4") for register in np.broadcast_arrays(*registers))
        return function(*values).view("<u8")

    return combine


def _directed(name: str, mode: str) -> Function:
    """Return an operation on f32 values that rounds toward zero (``rz``), down (``rm``) or up (``rp``)."""

    def compute(*values: NDArray[np.float32]) -> NDArray[np.float32]:
        values = tuple(np.broadcast_arrays(*values))
        a, b = values[0], np.float32(1) if name in ("add", "sub") else values[1]
        # For mul, `c` is a zero with the sign of the product: adding it does not change the sign of a zero product.
        c = values[-1] if name != "mul" else np.where(np.signbit(a) != np.signbit(b), np.float32(-0.0), np.float32(0))
        c = -c if name == "sub" else c
        exact = fused(a, b, c)
        if mode == "rm":  # rounding down makes the zero sum of a positive and a negative number -0
            exact = np.where((exact == 0) & (np.signbit(c) | np.signbit(a) ^ np.signbit(b)), -0.0, exact)
        return encoded(exact, "f32", Rounding(mode)).view(np.float32)

    return compute


def _fused_doubles(a: NDArray, b: NDArray, c: NDArray) -> NDArray[np.float64]:
    """Return a b + c of f64 values, rounded once: a fraction of integers gives each finite result."""
    a, b, c = np.broadcast_arrays(a, b, c)
    factors = np.isfinite(a) & np.isfinite(b)
    result = np.where(factors, c, a * b + c)  # an infinite or NaN c is the result if the factors are finite
    for place in np.flatnonzero(factors & np.isfinite(c)):
        exact = Fraction(float(a[place])) * Fraction(float(b[place])) + Fraction(float(c[place]))
        try:  # If the exact sum is zero, so is the sum in f64, which has the right sign.
            result[place] = float(exact) if exact else a[place] * b[place] + c[place]
        except OverflowError:
            result[place] = np.inf if exact > 0 else -np.inf
    return result


def _keeping_nan(name: str, compute: Function) -> Function:
    """Wrap an f64 operation so that its NaN results have the same bits as on an H200."""
    if name == "div":
        return lambda a, b: first_nan(compute(a, b), *np.broadcast_arrays(a, b))
    if name == "fma":
        return lambda a, b, c: first_nan(compute(a, b, c), *np.broadcast_arrays(b, c, a))
    return lambda *values: first_nan(compute(*values), *np.broadcast_arrays(*values)[::-1])


def _sign(machine: Machine, ins: Instruction, name: str, type_: str) -> Step:
    """Execute ``neg`` and ``abs``, which change only sign bits. NaN results follow the rules for results of ``add``."""
    change: Function = operator.neg if name == "neg" else np.abs
    if type_ == "f64":
        return operation(machine, ins, _keeping_nan(name, change), [type_], type_)
    ftz = "ftz" in ins.words
    if type_ == "f32":
        return operation(machine, ins, canonical_function(change, ftz=ftz), [type_], type_)
    bits = "b32" if type_.endswith("x2") else "b16"
    return operation(machine, ins, half_function(name, type_, ftz=ftz), [bits], bits)


def _halves(machine: Machine, ins: Instruction, name: str, type_: str) -> Step:
    """Execute arithmetic of f16 and bf16, single or packed in pairs. Each result is rounded once."""
    if name not in ("add", "sub", "mul", "fma", "min", "max"):
        raise not_modelled(ins)
    unsigned = "b32" if type_.endswith("x2") else "b16"
    words = ins.words
    relu = "relu" in words
    function = half_function(name, type_, nan="NaN" in words, ftz="ftz" in words, sat="sat" in words, relu=relu)
    return operation(machine, ins, function, [unsigned] * source_count(ins), unsigned)


def half_function(
    name: str, type_: str, *, nan: bool = False, ftz: bool = False, sat: bool = False, relu: bool = False
) -> Function:
    """Return an operation on codes of f16 or bf16, single or packed in pairs, that rounds each result once.

    `nan` means that the minimum or maximum with a NaN is a NaN, `ftz` that subnormal operands and results of f16 are
    flushed to zero, `sat` that results are clamped to [0, 1], and `relu` that negative results become +0.
    """
    element, pair = type_.removesuffix("x2"), type_.endswith("x2")

    def exact(*values: NDArray[np.float32]) -> NDArray[np.float64]:
        if name in ("min", "max"):
            return _minimum(name == "min", nan)(*values).astype(np.float64)
        if name in ("neg", "abs"):
            return (-values[0] if name == "neg" else np.abs(values[0])).astype(np.float64)
        if name == "mul":
            return values[0].astype(np.float64) * values[1].astype(np.float64)
        one = np.ones(1, np.float32)
        a, b, c = values if name == "fma" else (values[0], one, values[1] if name == "add" else -values[1])
        return fused(a, b, c)

    def function(*codes: NDArray) -> NDArray:
        halves = [np.ascontiguousarray(code).view("<u2") for code in np.broadcast_arrays(*codes)]
        if ftz:
            halves = [flushed(half.view("<f2")).view("<u2") for half in halves]
        result = exact(*(decoded(half, element).astype(np.float32) for half in halves))
        rounded = encoded(clamped(result) if sat else result, element, Rounding("rn", relu=relu)).astype("<u2")
        if ftz:
            rounded = flushed(rounded.view("<f2")).view("<u2")
        return rounded.view("<u4" if pair else "<u2")

    return function

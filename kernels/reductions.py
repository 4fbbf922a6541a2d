"""Results of atomic operations and reductions in memory.

Source: PTX ISA, ``atom``, ``red`` and ``cp.reduce.async.bulk``.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .float_arithmetic import canonical_function, half_function
from .integers import COMBINATIONS, selected
from .program import size_of

__all__ = ["REDUCTIONS", "apply_in_turn", "is_reduction", "memory_type", "reduction"]

Combination = Callable[..., NDArray]
_HALVES = ("f16", "f16x2", "bf16", "bf16x2")
_INTEGERS, _BITS = ("u32", "s32", "u64", "s64"), ("b32", "b64")


_FUNCTIONS: dict[str, Combination] = {
    **COMBINATIONS,
    "exch": lambda old, new: new,
    "cas": lambda old, expected, new: selected(new, old, old == expected),
    "inc": lambda old, limit: np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1)),
}
#: Names of the reduction operations in opcodes.
REDUCTIONS = tuple(_FUNCTIONS)


def is_reduction(name: str, type_: str) -> bool:
    """Return whether PTX has a reduction operation for a type, and this model implements the operation."""
    if name in ("inc", "dec"):
        return type_ == "u32"
    if name == "add":
        return type_ in ("u32", "s32", "u64", "f32", "f64", *_HALVES)
    if name in ("min", "max"):
        return type_ in (*_INTEGERS, *_HALVES)
    return name in _FUNCTIONS and (type_ in _BITS or (name, type_) == ("cas", "b16"))


def reduction(name: str, type_: str, *, flush: bool = False) -> Combination:
    """Return the function that computes the new value in memory from the old value and the operand.

    `name` is one of `REDUCTIONS`. Arrays hold f16 and bf16 as codes. If `flush` is set, subnormal operands and results
    of f32 are flushed to zero, as ``add`` of f32 in global memory does.
    """
    if type_ in _HALVES:
        return half_function(name, type_)
    function = _FUNCTIONS[name]
    return canonical_function(function, ftz=flush and type_ == "f32") if type_ in ("f32", "f64") else function


def memory_type(type_: str) -> str:
    """Return the type in which a reduction stores elements in memory: unsigned bits for f16 and bf16, else `type_`."""
    return f"b{8 * size_of(type_)}" if type_ in _HALVES else type_


def apply_in_turn(
    function: Callable[..., NDArray], memory: NDArray, elements: NDArray[np.int64], values: list[NDArray]
) -> NDArray:
    """Combine a value in memory with the operand of one thread after another. Return the old value for each thread."""
    before = np.empty(len(elements), memory.dtype)
    left = np.arange(len(elements))
    while left.size:  # each pass executes one thread per address, in order of threads
        _, first = np.unique(elements[left], return_index=True)
        chosen = left[first]
        before[chosen] = memory[elements[chosen]]
        memory[elements[chosen]] = function(before[chosen], *(value[chosen] for value in values))
        left = np.delete(left, first)
    return before

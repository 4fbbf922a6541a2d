"""The step of an instruction that computes a function of its source operands."""

from collections.abc import Callable

from numpy.typing import NDArray

from .machine import Machine, Step, not_modelled
from .program import Instruction

__all__ = ["Function", "operation"]

Function = Callable[..., NDArray]


def operation(machine: Machine, ins: Instruction, function: Function, types: list[str], result: str) -> Step:
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

"""Registers that delay a value along a pipeline."""

from typing import TypeVar

from amaranth.hdl import Module, Signal, Value, ValueLike

__all__ = ["delayed"]

_T = TypeVar("_T", bound=ValueLike)


def delayed(m: Module, value: _T, cycles: int, enable: Value, name: str) -> _T:
    """Return a value delayed by `cycles` enabled clock cycles, through registers without reset."""
    for cycle in range(cycles):
        register = Signal(value.shape(), name=f"{name}_{cycle}", reset_less=True)
        with m.If(enable):
            m.d.sync += register.eq(value)
        value = register
    return value

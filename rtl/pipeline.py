"""Registers that let a value keep pace with a pipeline."""

from amaranth.hdl import Module, Signal, Value

__all__ = ["delayed"]


def delayed(m: Module, value: Value, cycles: int, enable: Value, name: str) -> Value:
    """Return what a value was so many enabled cycles ago. Payload registers need no reset."""
    for cycle in range(cycles):
        register = Signal(value.shape(), name=f"{name}_{cycle}", reset_less=True)
        with m.If(enable):
            m.d.sync += register.eq(value)
        value = register
    return value

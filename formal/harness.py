"""Harness of a property: free variables, assumptions, claims and covers around a component."""

from collections.abc import Callable, Mapping
from enum import EnumMeta
from typing import Any

from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    ClockDomain,
    Const,
    Cover,
    Module,
    Shape,
    ShapeLike,
    Signal,
    Value,
    ValueLike,
)
from amaranth.lib import data, wiring

__all__ = ["RESET", "Harness", "changed", "delayed", "opened", "replace_logic", "stand_in"]

#: Name of the free reset variable in a harness with registers.
RESET = "reset"


class Harness:
    """A design whose inputs are free variables, with assumptions, claims and covers."""

    def __init__(self) -> None:
        self.m = Module()  #: The design
        self.observed: dict[str, Any] = {}  #: Values that a counterexample shows: free variables and named values
        self.claims: list[str] = []  #: Names of the signals that must be 1 in every cycle
        self.covers: list[str] = []  #: Names of the signals that must be 1 in some reachable cycle
        self.flags: dict[str, Signal] = {}  #: Key: name of a claim or cover. Value: its signal
        self.registers = False  #: Whether the design has a clock
        self.any_state = False  #: Whether registers of components may begin with any value
        self.ports: list[Value] = []  #: Free variables: inputs with any value
        self._started: Value = Const(1)

    def free(self, name: str, shape: ShapeLike = 1) -> Signal:
        """Return a free variable, which may have any value in each cycle."""
        signal = Signal(shape, name=name)
        self.ports.append(Value.cast(signal))
        self.observed[name] = signal
        return signal

    def clocked(self, *, any_state: bool = False) -> Value:
        """Add a clock domain whose reset is a free variable, and return the reset.

        With `any_state`, registers of components may begin with any value, as after power-up, instead of their initial
        values. The first cycle is then a reset, and claims must hold from the second cycle on.
        """
        domain = ClockDomain("sync")
        self.m.domains += domain
        self.registers = True
        self.ports.append(domain.clk)
        reset = self.free(RESET)
        self.m.d.comb += domain.rst.eq(reset)
        if any_state:
            self.any_state = True
            started = Signal(reset_less=True, name="started")
            self.m.d.sync += started.eq(1)
            self.assume(started | reset)
            self._started = started
        return reset

    def add(self, name: str, component: wiring.Component, **inputs: ValueLike) -> wiring.Component:
        """Instantiate a component, and connect some of its inputs to given values."""
        self.m.submodules[name] = component
        for port, value in inputs.items():
            self.m.d.comb += getattr(component, port).eq(value)
        return component

    def named(self, name: str, value: ValueLike, shape: ShapeLike | None = None) -> Signal:
        """Name a value. Counterexamples then show the value under this name."""
        signal = Signal(Value.cast(value).shape() if shape is None else shape, name=name)
        self.m.d.comb += signal.eq(value)
        self.observed[name] = signal
        return signal

    def decoded(self, values: Mapping[str, int]) -> dict[str, str]:
        """Return the values of named signals in one cycle as text, formatted by their shapes."""
        return {name: _text(signal.shape(), values[name]) for name, signal in self.observed.items() if name in values}

    def assume(self, condition: ValueLike) -> None:
        """Assume a condition: exclude all cases in which the condition is false."""
        self.m.d.comb += Assume(condition)

    def claim(self, name: str, condition: ValueLike) -> None:
        """Claim that a condition holds in every cycle, for all free variables."""
        holds = ~self._started | Value.cast(condition).bool()
        self.m.d.comb += Assert(self._flag(f"claim_{name}", holds))
        self.claims.append(f"claim_{name}")

    def cover(self, name: str, condition: ValueLike) -> None:
        """Require that a condition is reachable, which shows that the claims are not vacuous."""
        self.m.d.comb += Cover(self._flag(f"cover_{name}", condition))
        self.covers.append(f"cover_{name}")

    def _flag(self, name: str, condition: ValueLike) -> Signal:
        assert name not in self.flags, name
        flag = self.flags[name] = Signal(name=name)
        self.m.d.comb += flag.eq(Value.cast(condition).bool())
        return flag


def opened(component: Any) -> Any:
    """Elaborate a component, and give it the attributes `parts` and `signal`, by which a harness reads its internals.

    `parts` has the submodules. `signal` is a function that returns a register or wire by its name in waveforms.
    """
    module = component.elaborate("formal")

    def signal(name: str) -> Any:
        (named,) = (each for each in module._driving if each.name == name)
        return named

    component.elaborate = lambda platform: module
    component.parts, component.signal = module.submodules, signal
    return component


def replace_logic(component: Any, build: Callable[[Any], Module]) -> None:
    """Replace the logic of a component by a stand-in: the module that `build` returns for this component."""
    component.elaborate = lambda platform: build(component)


def stand_in(part: type[wiring.Component], build: Callable[[Any], Module]) -> Any:
    """Return a component class with the ports of class `part`, and with `build` instead of method ``elaborate``."""
    return type(f"{part.__name__}StandIn", (part,), {"elaborate": lambda self, platform: build(self)})


def changed(view: data.View, **fields: ValueLike) -> Value:
    """Return the bits of a structure in which some fields are replaced by values of the same width."""
    return Cat(fields.get(name, Value.cast(view[name])) for name in view.shape().members)


def delayed(m: Module, value: Value, cycles: int, enable: Value, name: str) -> Value:
    """Return a value delayed by `cycles` enabled cycles. The initial values of the delay registers are free."""
    for cycle in range(cycles):
        earlier = Signal(value.shape(), name=f"{name}_{cycle}", reset_less=True)
        with m.If(enable):
            m.d.sync += earlier.eq(value)
        value = earlier
    return value


def _text(shape: ShapeLike, bits: int) -> str:
    """Return a value as text: the name of an enumeration member, the fields of a structure, or a number."""
    if isinstance(shape, data.Layout):
        fields = {str(name): field for name, field in shape}
        parts = (f"{name}={_text(f.shape, bits >> f.offset & (1 << f.width) - 1)}" for name, f in fields.items())
        return "{" + ", ".join(parts) + "}"
    if isinstance(shape, EnumMeta):
        members: dict[str, Any] = dict(shape.__members__)
        names = {member.value: name for name, member in members.items()}
        return names.get(bits, f"{bits} (no member)")
    cast = Shape.cast(shape)
    if cast.signed:
        return str(bits - (bits >> cast.width - 1 << cast.width))
    return (
        str(bits)
        if cast.width == 1
        else f"0b{bits:0{cast.width}b}"
        if cast.width <= 4
        else f"0x{bits:0{-(-cast.width // 4)}x}"
    )

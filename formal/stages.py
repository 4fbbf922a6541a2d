"""Proof that full-width dot-product units pass data correctly from stage to stage, whatever each stage computes.

Each stage is proved separately. The harness marks any one step, and claims that each stage receives the data of this
step in the right cycle. Stand-ins replace the stages: if a stand-in receives the data of the marked step, it outputs a
free constant, otherwise noise. The unit therefore outputs the constant of the last stage only if every stage has
received the data of the marked step.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import In

from ..rtl.config import CUTS, STAGE_CUTS, CoreConfig
from ..rtl.unit import Unit
from .harness import Harness, delayed, opened, replace_logic
from .properties import Parameters, anonymous
from .streams import claim_chosen, constant
from .unit import UNIT

__all__ = ["UNIT"]

#: Path of a port: the sequence of names from the component to the port.
_Path = tuple[str | int, ...]
#: For each stage with pipeline registers inside, the names (cuts) of these registers.
_WITHIN = {"multiply": ("product",), "reduce": ("align", "tree"), "round": ("reduce", "count", "normalise")}
#: Inputs of the round stage that only float results need. A dot-product unit without float formats leaves them
#: unconnected, so they are zero.
_INTEGERS: dict[_Path, Any] = {(name,): 0 for name in ("headroom", "nan", "positive_inf", "negative_inf")}


@dataclass(frozen=True)
class _StandIn:
    """Stand-in for a pipeline stage of a dot-product unit. The proof follows the operands of one cycle."""

    receiving: Value  #: Whether the operands that the proof tracks enter the stage in this cycle
    answering: Value  #: Whether the stage outputs `answers` in this cycle
    answers: dict[_Path, Value]  #: For each output port of the stage, its value for the operands that the proof tracks


def _cycles_in(name: str, config: CoreConfig) -> int:
    return sum(cut in config.cuts for cut in _WITHIN.get(name, ()))


def _behind(paths: dict[_Path, Value], *prefix: str) -> dict[_Path, Value]:
    """Return the values of all ports whose paths begin with a prefix. The prefix is removed from each path."""
    return {path[len(prefix) :]: value for path, value in paths.items() if path[: len(prefix)] == prefix}


def _alike(port: Value, expected: Any) -> Value:
    """Return whether a port equals the lowest bits of a value."""
    return port.as_unsigned() == Value.cast(expected)[: len(port)]


def _stand_in(h: Harness, name: str, stage: Any, expected: dict[_Path, Any], cycles: int, enable: Value) -> _StandIn:
    """Replace a stage by a stand-in: `cycles` after expected inputs it gives fixed outputs, otherwise any outputs."""
    ports = {path: (member.flow, Value.cast(value)) for path, member, value in stage.signature.flatten(stage)}
    inputs = {path: value for path, (flow, value) in ports.items() if flow is In and path != ("enable",)}
    outputs = {path: value for path, (flow, value) in ports.items() if flow is not In}
    assert inputs.keys() == expected.keys(), name
    m, same = Module(), Signal(name=f"receiving_{name}")
    m.d.comb += same.eq(Cat(_alike(inputs[path], expected[path]) for path in inputs).all())
    answering = Signal(name=f"answering_{name}")
    m.d.comb += answering.eq(delayed(m, same, cycles, enable, "receiving"))
    answers = {path: constant(h, "_".join(map(str, (name, *path))), value.shape()) for path, value in outputs.items()}
    noise = h.free(f"noise_{name}", sum(map(len, outputs.values())))
    m.d.comb += Cat(outputs.values()).eq(Mux(answering, Cat(answers.values()), noise))
    replace_logic(stage, lambda _: m)
    return _StandIn(same, answering, answers)


#: Sets of pipeline-register positions (cuts) that no shipped configuration has. Together, the sets contain every cut
#: within a stage. With all nine registers in one dot-product unit, the proof engine does not finish in ten minutes.
_OTHER_CUTS = (("product", "tree", "count"), ("align", "count", "normalise"))


def _units(config: CoreConfig) -> Iterator[Parameters]:
    yield (anonymous(config),)
    if config.latency < len(STAGE_CUTS):  # pipeline registers behave the same for all formats, so one datapath suffices
        for cuts in _OTHER_CUTS:
            yield (replace(anonymous(config), cuts=cuts),)


@UNIT.property("stages", _units, cycles=lambda config: config.latency + 3)
def _stages(h: Harness, config: CoreConfig) -> None:
    """Each stage of a dot-product unit receives outputs of earlier stages for the same operands, in the right cycle.

    The claims hold for any function of each stage, at full width, with the registers of the configuration, with any
    following steps, and with any stalls.
    """
    h.assume(~h.clocked())
    unit = h.add("unit", opened(Unit(config)))
    parts, enable = unit.parts, h.free("enable")
    marked = constant(h, "marked_step", unit.step.shape())
    # Number of enabled cycles since the tracked operands entered the unit, including the cycle of entry; 0 before.
    age = Signal(range(config.latency + 2), name="age")
    claim_chosen(h, age == 0)
    enters = h.named("enters", h.free("mark") & enable & (age == 0))
    with h.m.If(enters | (enable & (age != 0) & (age <= config.latency))):
        h.m.d.sync += age.eq(age + 1)
    h.m.d.comb += [unit.enable.eq(enable), unit.step.eq(Mux(enters, marked, h.free("step", unit.step.shape())))]

    control = marked.control
    c = Cat(marked.c, marked.c[31] ^ marked.overflow)
    scales: dict[_Path, Any] = {(name,): marked[name] for name in ("scale_a", "scale_b")}
    stages: dict[str, _StandIn] = {}

    def enter(name: str, expected: dict[_Path, Any]) -> dict[_Path, Value]:
        stages[name] = _stand_in(h, name, getattr(parts, name), expected, _cycles_in(name, config), enable)
        return stages[name].answers

    b: Value = marked.b[: 8 * config.step_bytes]
    if config.sparse:
        b = enter("select", {("b",): marked.b, ("selects",): marked.selects})[("selected",)]
    products = enter("multiply", {("control",): control, ("a",): marked.a, ("b",): b, ("c",): c, **scales})
    multiplied = {("i", *path): value for path, value in _behind(products, "o").items()}
    aligned = _behind(enter("align", {("control",): control, ("c",): c, **scales, **multiplied}), "o")
    addends = {("i", *path): value for path, value in _behind(aligned, "addends").items()}
    narrow = [element.format.is_integer and element.container_bits == 4 for element in config.elements]
    # A dot-product unit that has only 4-bit integers does not decode the element format: `integer_groups` is always 1.
    integers = Cat(all(narrow) or control.a == code for code, is_narrow in enumerate(narrow) if is_narrow).any()
    total = enter("reduce", {**addends, ("integer_groups",): integers})
    special = {path: value for path, value in aligned.items() if path[0] != "addends"}
    rounded = {("result",): control.result, ("saturate",): control.saturate, **total, **(special or _INTEGERS)}
    result = enter("round", rounded)

    def now(depth: int) -> Value:
        return (age == depth) if depth else enters

    for name, stage in stages.items():
        depth = sum(cut in config.cuts for cut in CUTS[: CUTS.index(name)])
        h.claim(f"{name}_receives", ~now(depth - _cycles_in(name, config)) | stage.receiving)
        h.claim(f"{name}_answers", ~now(depth) | stage.answering)
    # The accumulator and the block scales bypass the multiply stage. The claim `passes` delays these two inputs
    # by as many registers as operand selection has, and compares them with the inputs of the cycle that is tracked.
    sources = unit.step, marked
    passing, expected = (Cat(each.c, each.c[31] ^ each.overflow, each.scale_a, each.scale_b) for each in sources)
    cycles = int("select" in config.cuts)
    h.claim("passes", ~now(cycles) | (delayed(h.m, passing, cycles, enable, "passing") == expected))
    leaves = now(config.latency)
    h.claim("d", ~leaves | (unit.result.d == result[("output",)]))
    h.claim("overflow", ~leaves | (unit.result.overflow == result[("overflow",)]))
    h.cover("leaves", leaves & unit.result.d.any())

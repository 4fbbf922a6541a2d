"""A unit at full width as its stages one after the other, whatever these compute.

Every stage is proved by itself, and here the whole of them: of one step, which is marked and may be anything, each
stage is given what is its own of that step, in the cycle in which it is there. Stand-ins take the places of the stages.
Given what belongs to the marked step, one answers with a constant, which may be anything, and otherwise with noise: so
what comes out is the last stage's answer to the marked step or not known at all.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import In

from ..rtl.config import CUTS, STAGE_CUTS, CoreConfig
from .harness import Harness, delayed
from .properties import Parameters, anonymous
from .streams import claim_chosen, constant
from .unit import UNIT, OpenUnit

__all__ = ["UNIT"]

#: A port, by the names that lead to it.
_Path = tuple[str | int, ...]
#: Stages that have registers inside, and of which cuts.
_WITHIN = {"multiply": ("product",), "reduce": ("align", "tree"), "round": ("reduce", "count", "normalise")}
#: What the round stage of a unit without floats is given of what only these have: nothing is connected.
_INTEGERS: dict[_Path, Any] = {(name,): 0 for name in ("headroom", "nan", "positive_inf", "negative_inf")}


@dataclass(frozen=True)
class _StandIn:
    """What stands for a stage.

    Attributes
    ----------
    given, answering : Value
        It is given what belongs to the marked step; it answers to that.
    answers : dict of path to Value
        What it answers then.
    """

    given: Value
    answering: Value
    answers: dict[_Path, Value]


def _held_in(name: str, config: CoreConfig) -> int:
    """Return the cycles for which a stage holds what it is given."""
    return sum(cut in config.cuts for cut in _WITHIN.get(name, ()))


def _behind(paths: dict[_Path, Value], *prefix: str) -> dict[_Path, Value]:
    """Return those that are reached by some names, without these."""
    return {path[len(prefix) :]: value for path, value in paths.items() if path[: len(prefix)] == prefix}


def _alike(port: Value, wanted: Any) -> Value:
    """Return whether a port has the lowest bits of what is wanted."""
    return port.as_unsigned() == Value.cast(wanted)[: len(port)]


def _stand_in(h: Harness, name: str, stage: Any, wanted: dict[_Path, Any], held: int, enable: Value) -> _StandIn:
    """Replace a stage.

    Parameters
    ----------
    wanted : dict of path to Value
        What belongs to the marked step.
    held : int
        Cycles for which the stage holds what it is given.
    """
    ports = {path: (member.flow, Value.cast(value)) for path, member, value in stage.signature.flatten(stage)}
    inputs = {path: value for path, (flow, value) in ports.items() if flow is In and path != ("enable",)}
    outputs = {path: value for path, (flow, value) in ports.items() if flow is not In}
    assert inputs.keys() == wanted.keys(), name
    m, same = Module(), Signal(name=f"given_{name}")
    m.d.comb += same.eq(Cat(_alike(inputs[path], wanted[path]) for path in inputs).all())
    answering = Signal(name=f"answering_{name}")
    m.d.comb += answering.eq(delayed(m, same, held, enable, "given"))
    answers = {path: constant(h, "_".join(map(str, (name, *path))), value.shape()) for path, value in outputs.items()}
    noise = h.free(f"noise_{name}", sum(map(len, outputs.values())))
    m.d.comb += Cat(outputs.values()).eq(Mux(answering, Cat(answers.values()), noise))
    stage.elaborate = lambda platform: m
    return _StandIn(same, answering, answers)


#: Cuts beside those of presets, in sets that hold every place within a stage: with all nine registers at once the
#: engine finds no end in ten minutes.
_OTHER_CUTS = (("product", "tree", "count"), ("align", "count", "normalise"))


def _units(config: CoreConfig) -> Iterator[Parameters]:
    yield (anonymous(config),)
    if config.latency < len(STAGE_CUTS):  # what registers hold does not depend on formats: one datapath is enough
        for cuts in _OTHER_CUTS:
            yield (replace(anonymous(config), cuts=cuts),)


@UNIT.property("stages", _units, cycles=lambda config: config.latency + 3)
def _stages(h: Harness, config: CoreConfig) -> None:
    """A unit is its stages one after the other, each given what is its own of the same step, whatever they compute.

    At full width, with the registers of the configuration, every step followed by any others, and stalls anywhere.
    """
    h.assume(~h.clocked())
    unit = h.add("unit", OpenUnit(config))
    parts, enable = unit.parts, h.free("enable")
    marked = constant(h, "marked_step", unit.step.shape())
    # Advances since the marked step entered, itself included; none before.
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

    def enter(name: str, wanted: dict[_Path, Any]) -> dict[_Path, Value]:
        stages[name] = _stand_in(h, name, getattr(parts, name), wanted, _held_in(name, config), enable)
        return stages[name].answers

    b: Value = marked.b[: 8 * config.step_bytes]
    if config.sparse:
        b = enter("select", {("b",): marked.b, ("selects",): marked.selects})[("selected",)]
    products = enter("multiply", {("control",): control, ("a",): marked.a, ("b",): b, ("c",): c, **scales})
    given = {("i", *path): value for path, value in _behind(products, "o").items()}
    aligned = _behind(enter("align", {("control",): control, ("c",): c, **scales, **given}), "o")
    addends = {("i", *path): value for path, value in _behind(aligned, "addends").items()}
    narrow = [element.format.is_integer and element.container_bits == 4 for element in config.elements]
    # A unit of these alone does not look which of them it is.
    integers = Cat(all(narrow) or control.a == code for code, meant in enumerate(narrow) if meant).any()
    total = enter("reduce", {**addends, ("integer_groups",): integers})
    special = {path: value for path, value in aligned.items() if path[0] != "addends"}
    rounded = {("result",): control.result, ("saturate",): control.saturate, **total, **(special or _INTEGERS)}
    result = enter("round", rounded)

    def now(depth: int) -> Value:
        return (age == depth) if depth else enters

    for name, stage in stages.items():
        depth = sum(cut in config.cuts for cut in CUTS[: CUTS.index(name)])
        h.claim(f"{name}_given", ~now(depth - _held_in(name, config)) | stage.given)
        h.claim(f"{name}_answers", ~now(depth) | stage.answering)
    # What the multiply stage does not take, but the next one does: a copy of the registers that it passes by.
    passing, wanted = (
        Cat(step.c, step.c[31] ^ step.overflow, step.scale_a, step.scale_b) for step in (unit.step, marked)
    )
    held = int("select" in config.cuts)
    h.claim("passes", ~now(held) | (delayed(h.m, passing, held, enable, "passing") == wanted))
    leaves = now(config.latency)
    h.claim("d", ~leaves | (unit.result.d == result[("output",)]))
    h.claim("overflow", ~leaves | (unit.result.overflow == result[("overflow",)]))
    h.cover("leaves", leaves & unit.result.d.any())

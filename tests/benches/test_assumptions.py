"""The assumptions about inputs, for designs with injected faults, permit every input that the benches drive."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Assume, Cat, ClockDomain, Const, Elaboratable, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from sptc.isa.fragments import metadata_map
from sptc.isa.instructions import every_instruction
from sptc.rtl.config import PRESETS
from sptc.rtl.round import RoundStage
from sptc.rtl.step import control_layout
from sptc.rtl.unit import Unit
from sptc.rtl.warp import LANES, Warp, warp_operands_layout
from sptc.sim.benches.blocks import native
from sptc.sim.benches.components import component_benches
from sptc.sim.engine.ports import joined, split
from sptc.sim.engine.steps import control_word, executes
from sptc.sim.faults import assumptions
from sptc.sim.faults.assumptions import AssumedArray, AssumedComponents, AssumedStream, assumed_control
from sptc.tests.rtl.conftest import simulate_clocked

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
Random = np.random.Generator
TINY, ARCH = PRESETS["tiny"], "sm_80"
#: Fields of a control word that identify the instruction.
FIELDS = ("a", "b", "result", "sparse", "scale")


def kept(design: Elaboratable, inputs: list[Any], cycles: list[list[int]], *, clocked: bool = False) -> bool:
    """Return whether the inputs of all cycles satisfy the assumptions of a design."""
    simulator = Simulator(design)
    if clocked:
        simulator.add_clock(1e-6)

    async def drive(context: Any) -> None:
        for values in cycles:
            # Set all inputs together, so that no process runs between the assignments.
            context.set(Cat(inputs), sum(value << len(Cat(inputs[:place])) for place, value in enumerate(values)))
            await (context.tick() if clocked else context.delay(1e-6))

    simulator.add_testbench(drive)
    try:
        simulator.run()
    except AssertionError as error:
        if "Assumption violated" not in str(error):
            raise
        return False
    return True


def of_instruction(word: int) -> tuple[int, ...]:
    layout = control_layout()
    return tuple(word >> layout[name].offset & (1 << layout[name].width) - 1 for name in FIELDS)


def control_kept(words: list[int]) -> bool:
    m, word = Module(), Signal(control_layout().size)
    m.submodules.assumed = assumed_control(control_layout()(word), TINY, ARCH, Const(1))
    return kept(m, [word], [[each] for each in words])


def test_every_instruction_may_come_and_nothing_else(rng: Random) -> None:
    words = [control_word(TINY, i, last=last) for i in native(TINY, ARCH) for last in (False, True)]
    assert len({*map(of_instruction, words)}) == 6
    assert control_kept(words)
    drawn = rng.integers(0, 1 << control_layout().size, 200).tolist()
    strange = [word for word in drawn if of_instruction(word) not in {*map(of_instruction, words)}]
    assert len(strange) >= 20
    assert not any(control_kept([word]) for word in strange[:20])


@pytest.mark.regression
def test_vectors_of_components_may_come(rng: Random) -> None:
    """The vectors of all component benches satisfy the assumptions. An undefined code at a port does not."""
    benches = component_benches(TINY)
    design = AssumedComponents(TINY, benches)
    inputs = [port for port in design.ports if port.is_input]
    columns = {}
    for name, bench in benches.items():
        of_one = [port for port in inputs if port.name.startswith(f"{name}__")]
        given = split(bench.stimulus(rng, 100), of_one, f"{name}__")
        columns |= {port.name: joined(given[port.name]) for port in of_one}
    vectors = [[int(columns[port.name][number]) for port in inputs] for number in range(100)]
    assert kept(design, [port.value for port in inputs], vectors)
    names = [port.name for port in inputs]
    codes = {}  # keys: indices of ports for element or result formats; values: an undefined code of the port
    for name, bench in benches.items():
        codes |= {names.index(f"{name}__{port}"): len(TINY.elements) for port in bench.codes}
        if isinstance(bench.component, RoundStage):
            results = {int(code.value) for code in bench.component.results}
            codes[names.index(f"{name}__result")] = min({*range(4)} - results)
    for place in rng.choice([*codes], 2, replace=False).tolist():
        code = codes[place]
        assert len({vector[place] for vector in vectors}) > 1
        wrong = [*vectors[0][:place], code, *vectors[0][place + 1 :]]
        design = AssumedComponents(TINY, benches)
        assert not kept(design, [port.value for port in design.ports if port.is_input], [wrong]), names[place]


class Wire(wiring.Component):
    i: In(stream.Signature(4))
    o: Out(stream.Signature(4))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += Signal(name="clocked").eq(1)
        m.d.comb += [self.o.valid.eq(self.i.valid), self.o.payload.eq(self.i.payload), self.i.ready.eq(self.o.ready)]
        return m


#: Runs of a stream: (reset, valid, payload, ready) of each cycle, whether the assumptions permit the run, and its name.
RUNS = [
    ([(0, 1, 5, 1), (0, 1, 6, 1), (0, 0, 0, 1)], True, "taken"),
    ([(0, 1, 5, 0), (0, 1, 5, 0), (0, 1, 5, 1), (0, 0, 0, 0)], True, "waits"),
    ([(0, 1, 5, 0), (1, 0, 0, 0), (0, 1, 6, 1)], True, "reset while it waits"),
    ([(0, 1, 5, 0), (0, 0, 5, 1)], False, "withdrawn"),
    ([(0, 1, 5, 0), (0, 1, 7, 1)], False, "changed"),
    ([(1, 1, 5, 1)], False, "offered in reset"),
]


@pytest.mark.parametrize(("cycles", "may_come", "_name"), RUNS, ids=[name for *_, name in RUNS])
def test_a_waiting_payload_is_assumed_stable(cycles: list[tuple[int, ...]], may_come: bool, _name: str) -> None:
    m, design = Module(), AssumedStream(Wire())
    m.domains.sync = domain = ClockDomain()
    m.submodules.design = design
    inputs = [domain.rst, design.i.valid, design.i.payload, design.o.ready]
    assert kept(m, inputs, [*map(list, cycles)], clocked=True) is may_come


def test_further_assumptions() -> None:
    for payload, may_come in ((4, True), (3, False)):
        m, design = Module(), Wire()
        m.d.comb += Assume(design.i.payload != 3)
        more = AssumedStream(design, m)
        inputs = [more.i.valid, more.i.payload, more.o.ready]
        assert kept(more, inputs, [[1, 2, 1], [1, payload, 1]], clocked=True) is may_come


def test_unused_outputs_are_forced_to_zero() -> None:
    """The payload of an output is forced to zero without valid, and the ready of an input during reset."""
    design = AssumedStream(Wire())
    m = Module()
    m.domains.sync = domain = ClockDomain()
    m.submodules.design = design
    shown: list[tuple[int, int, int]] = []

    async def bench(ctx: Any) -> None:
        ctx.set(design.o.ready, 1)
        for valid, reset in ((1, 0), (0, 0), (0, 1)):
            ctx.set(design.i.valid, valid)
            ctx.set(design.i.payload, 15)
            ctx.set(domain.rst, reset)
            shown.append((ctx.get(design.o.valid), ctx.get(design.o.payload), ctx.get(design.i.ready)))
            await ctx.tick()

    simulate_clocked(m, bench)
    assert shown == [(1, 15, 1), (0, 0, 1), (0, 0, 0)]


class Idle(Unit):
    """Unit without logic, since only the control of an array is tested."""

    def elaborate(self, platform: object) -> Module:
        return Module()


def test_an_array_reads_the_metadata_lanes_of_ptx() -> None:
    """Proofs ignore the metadata registers of exactly those lanes that PTX ignores, for every ``mma.sp``."""
    config, m = PRESETS["hopper"], Module()
    item, read = (Signal(warp_operands_layout(), name=name) for name in ("item", "read"))
    m.d.comb += assumptions._read_by_array(config, item, read, Const(1))
    checked = set()

    async def compare(context: Any) -> None:
        context.set(Value.cast(item.e), (1 << 32 * LANES) - 1)
        for i in every_instruction("mma"):
            if not (i.sparse and "sm_90" in i.architectures and executes(config, i, "sm_90")):
                continue
            is_long = i.stored_k * i.container_bits == 256
            context.set(Value.cast(item.control), control_word(config, i, last=True))
            context.set(item.long, is_long)
            for selector in range(i.sparsity_selectors):
                context.set(item.sparsity_selector, selector)
                lanes = {lane for lane in range(LANES) if context.get(read.e[lane])}
                assert lanes == {*metadata_map(i, selector).lanes.ravel().tolist()}, (i, selector)
                checked.add((i.wide, is_long))

    simulator = Simulator(m)
    simulator.add_testbench(compare)
    simulator.run()
    assert len(checked) == 4


def test_assumption_about_an_array(monkeypatch: pytest.MonkeyPatch, rng: Random) -> None:
    """With random gaps and stalls, an array never exceeds its maximum number of items, and reaches it."""
    config = replace(TINY, rows=8, columns=4, cuts=PRESETS["ampere"].cuts)
    most, conditions = config.warp_items, []

    def kept_aside(condition: Value) -> Assume:
        conditions.append(condition)
        return Assume(Const(1))

    monkeypatch.setattr(assumptions, "ArrayInstance", lambda config: Warp(config, Idle))
    monkeypatch.setattr(assumptions, "Assume", kept_aside)
    array, inside, numbers = AssumedArray(config), 0, set()

    async def drive(context: Any) -> None:
        nonlocal inside
        for valid, ready in (rng.random((400, 2)) < 0.8).tolist():
            context.set(Cat(array.i.valid, array.o.ready), valid + 2 * ready)
            (condition,) = conditions
            assert context.get(condition)
            inside += context.get(array.i.valid & array.i.ready) - context.get(array.o.valid & array.o.ready)
            numbers.add(inside)
            await context.tick()

    simulate_clocked(array, drive)
    assert max(numbers) == most

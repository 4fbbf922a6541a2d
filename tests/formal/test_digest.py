"""The digest of a proof problem ignores names, order of ports and source locations, and depends on everything else."""

from collections.abc import Callable

import pytest
from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from sptc.formal.digest import problem_digest
from sptc.formal.harness import Harness

Build = Callable[[Harness], None]


class Adder(wiring.Component):
    step: In(4)
    total: Out(4)

    def __init__(self, register: str, *, subtracts: bool = False, init: int = 0) -> None:
        super().__init__()
        self._total = Signal(4, name=register, init=init)
        self._subtracts = subtracts

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self._total.eq(self._total - self.step if self._subtracts else self._total + self.step)
        m.d.comb += self.total.eq(self._total)
        return m


def digest(build: Build) -> str:
    harness = Harness()
    build(harness)
    return problem_digest(harness)


def lanes(
    prefix="lane", *, crossed=False, backwards=False, any_state=False, limit=9, assumed=True, register="sum", **options
) -> Build:
    """Claim that each of two equal adders holds the sum of its steps or, if `crossed`, of the other adder's steps."""

    def build(h: Harness) -> None:
        h.clocked(any_state=any_state)
        names = [f"{prefix}_{lane}" for lane in range(2)]
        steps = {name: h.free(name, 4) for name in (reversed(names) if backwards else names)}
        adders = [h.add(f"{name}_adder", Adder(register, **options), step=steps[name]) for name in names]
        expected = [Signal(4, name=f"{name}_expected") for name in names]
        for lane, name in enumerate(names):
            h.m.d.sync += expected[lane].eq(expected[lane] + steps[name])
            if assumed:
                h.assume(steps[name] < limit)
        for lane, name in enumerate(names):
            h.claim(f"sum_of_{name}", adders[lane ^ crossed].total == expected[lane])
            h.cover(f"five_in_{name}", adders[lane].total == 5)

    return build


def test_names_and_order_of_ports_change_nothing() -> None:
    same = {digest(lanes()), digest(lanes("other")), digest(lanes(register="total")), digest(lanes(backwards=True))}
    assert len(same) == 1


@pytest.mark.parametrize(
    "change",
    [{"crossed": True}, {"subtracts": True}, {"init": 1}, {"any_state": True}, {"limit": 8}, {"assumed": False}],
    ids=lambda change: next(iter(change)),
)
def test_every_other_change_is_seen(change: dict[str, object]) -> None:
    """Exchanged claims about two adders also change the digest, although each adder by itself looks the same."""
    assert digest(lanes(**change)) != digest(lanes())


def test_registers_with_any_initial_value_differ_from_registers_of_the_harness() -> None:
    """With `any_state`, registers of components start with any value, those of the harness with their initial value."""

    def build(h: Harness, inside: bool) -> None:
        h.clocked(any_state=True)
        if inside:
            value = h.add("adder", Adder("total"), step=0).total
        else:
            value = Signal(4, name="total")
            h.m.d.sync += value.eq(value + 0)
        h.claim("zero", value == 0)

    assert digest(lambda h: build(h, True)) != digest(lambda h: build(h, False))


def test_operands_are_not_exchanged() -> None:
    def build(h: Harness, exchanged: bool, renamed: bool) -> None:
        a, b, chosen = h.free("a", 4), h.free("b", 4), h.free("chosen")
        h.claim("least", Mux(chosen, *((b, a) if exchanged else (a, b))) <= (b if renamed else a))

    right = digest(lambda h: build(h, False, False))
    assert digest(lambda h: build(h, True, True)) == right
    assert digest(lambda h: build(h, True, False)) != right


def test_what_cannot_be_compared_has_no_digest() -> None:
    def build(h: Harness) -> None:
        h.clocked()
        memory = Memory(shape=4, depth=4, init=[])
        h.m.submodules.memory = memory
        h.claim("zero", memory.read_port(domain="comb").data == 0)

    with pytest.raises(TypeError, match="cannot include a cell of type"):
        digest(build)

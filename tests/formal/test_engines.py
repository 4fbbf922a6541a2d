"""Proof engines find the known results of small designs: proofs, counterexamples, covers, and time limits."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import Out
from sptc.errors import BackendError
from sptc.formal import abc, model
from sptc.formal.exhaustive import first_violation
from sptc.formal.harness import Harness
from sptc.formal.model import TEXT_GRAPH, Model, UndecidedError, written
from sptc.formal.proof import Outcome, settle
from sptc.formal.properties import Case, Engine, Property
from sptc.infra.installation import install_line

Build = Callable[[Harness], None]


class Colour(enum.Enum, shape=2):
    RED = 0
    GREEN = 1
    BLUE = 2


def settled(build: Build, engine: Engine = Engine.SOLVER, cycles: int = 1, seconds: float = 20) -> Outcome:
    item = Property("test.one", "It holds.", build, lambda config: [()], engine, lambda: cycles)
    return settle(Case(item, (), ("tiny",)), seconds)


def commutes(h: Harness) -> None:
    a, b = h.free("a", 6), h.free("b", 6)
    h.claim("sum", a + b == b + a)
    h.cover("carry", (a + b)[6])


def below(h: Harness) -> None:
    a, b = h.free("a", 4), h.free("b", 4)
    h.claim("true", (a + b)[:4] == (b + a)[:4])
    h.claim("below", (a != 9) | (b != 12))


@pytest.mark.parametrize("engine", [Engine.SOLVER, Engine.EXHAUSTIVE])
def test_combinational(engine: Engine) -> None:
    outcome = settled(commutes, engine)
    assert (outcome.result, outcome.engine, outcome.depth) == ("proved", engine.value, "all inputs")
    assert outcome.covers == {"cover_carry": 1}
    assert outcome.trace is None
    assert outcome.values == outcome.broken == ()
    assert outcome.seconds > 0
    outcome = settled(below, engine)
    assert (outcome.result, outcome.broken) == ("broken", ("claim_below",))
    assert outcome.values == ({"a": "0b1001", "b": "0b1100"},)
    assert outcome.trace.steps[0]["claim_below"] == 0


def test_a_claim_without_cases_is_vacuous() -> None:
    def nothing(h: Harness) -> None:
        a = h.free("a", 4)
        h.assume(a == 3)
        h.claim("anything", a != 4)
        h.cover("three", a == 3)
        h.cover("four", a == 4)

    outcome = settled(nothing)
    assert (outcome.result, outcome.covers) == ("vacuous", {"cover_three": 1, "cover_four": None})

    def narrowed(h: Harness) -> None:
        a = h.free("a", 4)
        h.assume(a < 9)
        h.claim("small", a != 12)

    assert settled(narrowed).result == "proved"


@pytest.mark.parametrize("engine", Engine)
@pytest.mark.parametrize("wrong", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_every_claim_is_asked(wrong: tuple[int, ...], engine: Engine) -> None:
    def build(h: Harness) -> None:
        if engine is Engine.REACHABILITY:
            h.clocked()
        a = h.free("a", 4)
        for place in range(3):
            h.claim(str(place), a != 6 if place in wrong else a + place >= place)

    outcome = settled(build, engine)
    assert (outcome.result, outcome.values[-1]["a"]) == ("broken", "0b0110")
    assert outcome.broken == tuple(f"claim_{place}" for place in wrong)


@pytest.mark.parametrize(
    ("wrong", "late", "result"),
    [
        ((), None, "proved"), ((0,), None, "broken"), ((2,), None, "broken"), ((), 0, "undecided"),
        ((), 2, "undecided"), ((2,), 0, "broken"),
    ],
)  # fmt: skip
def test_claims_that_are_too_much_at_once(
    wrong: tuple[int, ...], late: int | None, result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If all claims together are too hard, each is proved by itself. An undecided claim does not count as proved."""
    right = abc._broken_after

    def broken_after(folder: Path, claims: range, seconds: float) -> int | None:
        if len(claims) > 1 or claims.start == late:
            raise UndecidedError
        return right(folder, claims, seconds)

    def broken_soon(*_: object) -> None:
        raise UndecidedError

    def build(h: Harness) -> None:
        h.clocked()
        a, count = h.free("a", 4), Signal(4, name="count")
        h.m.d.sync += count.eq(count + a)
        for place in range(3):
            h.claim(str(place), count != 6 if place in wrong else (count ^ a ^ place) == (place ^ a ^ count))
            h.claim(f"again_{place}", (count & a) <= count)

    monkeypatch.setattr(abc, "_broken_after", broken_after)
    monkeypatch.setattr(abc, "_broken_soon", broken_soon)
    outcome = settled(build)
    assert (outcome.result, outcome.broken) == (result, tuple(f"claim_{place}" for place in wrong))


def test_assumptions_hold_in_every_cycle() -> None:
    def build(h: Harness, limit: int) -> None:
        h.clocked()
        step = h.free("step", 2)
        h.assume(step != 2)
        h.assume(step != 3)
        count, skipped = Signal(4, name="count"), Signal(name="skipped")
        with h.m.If(count != 9):
            h.m.d.sync += count.eq(count + step)
        with h.m.If(step[1]):
            h.m.d.sync += skipped.eq(1)
        h.claim("one_by_one", ~skipped)
        h.claim("limit", count <= limit)
        h.cover("nine", count == 9)

    outcome = settled(lambda h: build(h, 9), cycles=12)
    assert (outcome.result, outcome.covers) == ("proved", {"cover_nine": 10})
    outcome = settled(lambda h: build(h, 4), cycles=12)
    assert (outcome.result, outcome.broken) == ("broken", ("claim_limit",))
    assert [values["step"] for values in outcome.values[:-1]] == ["0b01"] * 5


def hard(h: Harness) -> None:
    """Claim that no two 32-bit numbers have this product, which has two large prime factors. This is hard to decide."""
    a, b = h.free("a", 32), h.free("b", 32)
    h.claim("prime", a * b != 3037000493 * 2654435761)


def far(h: Harness) -> None:
    """Claim a condition that breaks, but only after 2**31 cycles."""
    h.clocked()
    count = Signal(32, name="count")
    h.m.d.sync += count.eq(count + 1)
    h.claim("half", count != 1 << 31)


def covered_late(h: Harness) -> None:
    """Claim a condition that holds, with a cover that is reached only after 2**30 cycles."""
    h.clocked()
    count = Signal(32, name="count")
    h.m.d.sync += count.eq(count + 1)
    h.claim("same", count == count)
    h.cover("far", count == 1 << 30)


@pytest.mark.parametrize(("build", "seconds"), [(hard, 1e-9), (far, 0.2), (covered_late, 0.2)])
def test_what_takes_too_long_is_undecided(build: Build, seconds: float) -> None:
    outcome = settled(build, cycles=1 << 31, seconds=seconds)
    assert (outcome.result, outcome.trace, outcome.covers) == ("undecided", None, {})


def counting(limit: int) -> Build:
    def build(h: Harness) -> None:
        reset = h.clocked()
        count = Signal(4, name="count")
        h.observed["count"] = count
        with h.m.If(h.free("go") & (count != 7)):
            h.m.d.sync += count.eq(count + 1)
        h.claim("limit", count != limit)
        h.claim("other", count <= 7)
        h.cover("six", count == 6)
        h.cover("reset", reset & (count == 3))

    return build


def test_reachability(monkeypatch: pytest.MonkeyPatch) -> None:
    """ABC proves claims for any number of cycles and reaches covers, or finds a counterexample to a claim."""
    outcome = settled(counting(9), cycles=9)
    assert (outcome.result, outcome.engine, outcome.depth) == ("proved", "ABC pdr", "no bound")
    assert outcome.covers == {"cover_six": 7, "cover_reset": 4}
    assert settled(counting(9), cycles=5).result == "vacuous"
    outcome = settled(counting(5), cycles=9)
    assert (outcome.result, outcome.broken) == ("broken", ("claim_limit",))
    assert [values["count"] for values in outcome.values] == [f"0b{count:04b}" for count in range(6)]
    assert all(values["go"] == "1" for values in outcome.values[:-1])
    monkeypatch.setattr(abc, "broken_after", lambda folder, seconds: 2)
    assert settled(counting(9), cycles=9).result == "undecided"


@pytest.mark.parametrize(
    ("any_state", "reset_less", "result"),
    [(True, False, "proved"), (True, True, "broken"), (False, True, "vacuous"), (False, False, "vacuous")],
)
def test_registers_of_components_may_start_anyhow(any_state: bool, reset_less: bool, result: str) -> None:
    """With `any_state`, a register of a component has its initial value only after a reset that applies to it."""

    class Held(wiring.Component):
        value: Out(4, init=5)

        def elaborate(self, platform: object) -> Module:
            m = Module()
            held = Signal(4, init=5, reset_less=reset_less)
            m.d.sync += held.eq(held)
            m.d.comb += self.value.eq(held)
            return m

    def build(h: Harness) -> None:
        h.clocked(any_state=any_state)
        held = h.add("component", Held())
        h.claim("five", held.value == 5)
        h.cover("another", held.value != 5)

    outcome = settled(build, cycles=3)
    assert outcome.result == result
    assert not outcome.trace or len(outcome.trace.steps) == 2


def test_a_reset_ends() -> None:
    """If registers start with any value, only the first cycle has a reset, and later cycles are checked too."""

    def build(h: Harness) -> None:
        h.claim("always_reset", h.clocked(any_state=True))

    outcome = settled(build, cycles=3)
    assert (outcome.result, [values["reset"] for values in outcome.values]) == ("broken", ["1", "0"])


def test_values_are_decoded_by_their_shapes(tmp_path: Path) -> None:
    h = Harness()
    h.free("level", signed(5))
    h.free("colour", Colour)
    h.free("flag")
    h.free("word", 12)
    h.free("pair", data.StructLayout({"low": 2, "colour": Colour}))
    h.named("sum", Cat(Const(1, 3)))
    written(h, tmp_path, graph=False)
    assert h.decoded({"level": 0b11110, "colour": 2, "flag": 1, "word": 0xABC, "pair": 0b0110, "sum": 1}) == {
        "level": "-2", "colour": "BLUE", "flag": "1", "word": "0xabc", "pair": "{low=0b10, colour=GREEN}",
        "sum": "0b001",
    }  # fmt: skip
    assert h.decoded({"colour": 3}) == {"colour": "3 (no member)"}


@pytest.mark.parametrize("bits", [1, 3, 6, 9])
@pytest.mark.parametrize("of_nine", [0, 0b101101100, 0b111111111])
def test_exhaustion_finds_one_case_of_all(bits: int, of_nine: int, tmp_path: Path) -> None:
    expected = of_nine & (1 << bits) - 1

    def build(h: Harness) -> None:
        h.claim("never", Mux(h.free("word", bits) == expected, 0, 1))

    h = Harness()
    build(h)
    written(h, tmp_path, graph=True)
    result = first_violation(tmp_path / TEXT_GRAPH)
    assert result
    assert sum(value << int(name.partition("[")[2].rstrip("]") or 0) for name, value in result.items()) == expected
    assert settled(build, Engine.EXHAUSTIVE).values[0]["word"]


@pytest.mark.parametrize("wanted", [5, 1 << 18, 0b1100_0000_0000_0000_0011, (1 << 20) - 1])
def test_exhaustion_of_more_than_is_tried_at_once(wanted: int, tmp_path: Path) -> None:
    """Exhaustive evaluation finds the only one of 2**20 assignments that sets an AND of 20 inputs, some inverted."""
    literals = [2 * (bit + 1) + (not wanted >> bit & 1) for bit in range(20)]
    gates, last = [], literals[0]
    for number, literal in enumerate(literals[1:], 21):
        gates.append(f"{2 * number} {last} {literal}")
        last = 2 * number
    lines = [f"aag 39 20 0 0 {len(gates)} 1 0", *(str(2 * (bit + 1)) for bit in range(20)), str(last), *gates]
    path = tmp_path / TEXT_GRAPH
    path.write_text("\n".join([*lines, *(f"i{bit} word[{bit}]" for bit in range(20))]) + "\n", encoding="ascii")
    result = first_violation(path)
    assert sum(result[f"word[{bit}]"] << bit for bit in range(20)) == wanted


def test_without_the_solvers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(model.importlib.util, "find_spec", lambda name: None)
    line = re.escape(install_line("formal"))
    with pytest.raises(BackendError, match=f"^proofs need Bitwuzla: install it with `{line}`$"):
        Model("", 1)
    with pytest.raises(BackendError, match=f"^proofs need ABC: install it with `{line}`$"):
        abc.reached_after(tmp_path, 0, 1, 1)

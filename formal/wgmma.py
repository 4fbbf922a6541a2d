"""The streams of a warp of ``wgmma``: which accumulator meets which rows of A and columns of B.

Fetcher and warp are cut away, since they are proved by themselves; stand-ins one item deep take their places. Of all
words of all panels one is marked, any one, and shows wherever it goes, which speaks of all words.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from ..rtl.config import CoreConfig
from ..rtl.fetch import CORE_MATRICES, PANEL_ROWS, PanelFetcher, panel_request_layout
from ..rtl.warp import LANES, REGISTERS, Warp, warp_operands_layout
from ..rtl.wgmma import WgmmaWarp
from .harness import Harness
from .properties import Parameters, Topic
from .streams import Flow, constant

__all__ = ["WGMMA", "at_once"]

WGMMA = Topic("wgmma")
_WORD_BITS, _WORDS = 16, 8  # half a register; of a unit of 16 bytes
_REGISTER_BITS = 32
#: What an instruction is here: the rest of it decides nothing that is looked at.
_INSTRUCTION = data.StructLayout(
    {
        "sparse": 1,
        "a": 1,
        "a_descriptor": 1,
        "b_descriptor": 1,
        "a_shared": 1,
        "a_transposed": 1,
        "b_transposed": 1,
        "add": 1,
        "sparsity_selector": 2,
        "metadata": LANES,
        "warp": 2,
        "last_panel": 5,
    }
)
#: One word of one panel of one operand.
_PLACE = data.StructLayout({"of_a": 1, "descriptor": 1, "mn_major": 1, "panel": 5, "row": 3, "word": 5})


def _of_a(request: data.View, field: str = "descriptor") -> Value:
    """Return a bit that is set in the descriptor of A alone, where the hardware looks at nothing."""
    return request[field].reserved0[0]


class _Cut:
    """What stands for the fetcher and for the warp, and what the claims see of them.

    Attributes
    ----------
    marked : view of _PLACE
        The marked word.
    full, held : Value
        The fetcher has a panel, and for which request.
    accumulator : Value
        The mark of the accumulator that is taken.
    asks, asked_for : Value
        It is asked for another, and which.
    loaded : list of list of Value
        A bit of each half of each register of A at the warp's input.
    given : view of warp_operands_layout()
        All that is at the warp's input.
    """

    def __init__(self, h: Harness) -> None:
        self.marked = constant(h, "marked", _PLACE)
        self.full, self.held = Signal(name="full"), Signal(panel_request_layout(), reset_less=True, name="held")
        self.accumulator = Signal(name="accumulator")
        self.asks, self.asked_for = Signal(name="asks"), Signal(panel_request_layout(), name="asked_for")
        self.given = Signal(warp_operands_layout(), name="given")
        self.loaded = [[Signal(2, name=f"loaded_{lane}_{r}") for r in range(REGISTERS)] for lane in range(LANES)]

    def fetcher(self) -> type[PanelFetcher]:
        """Return a fetcher whose panels show the marked word."""
        cut, held = self, self.held

        class Fetcher(PanelFetcher):
            def elaborate(self, platform: object) -> Module:
                m = Module()
                m.d.comb += [
                    self.i.ready.eq(~cut.full | self.o.ready),
                    self.o.valid.eq(cut.full),
                    cut.asks.eq(self.i.valid),
                    cut.asked_for.eq(self.i.payload),
                ]
                with m.If(self.i.ready):
                    m.d.sync += [cut.full.eq(self.i.valid), held.eq(self.i.payload)]
                shown = Signal()
                m.d.comb += shown.eq(cut.is_marked(_of_a(held), held.descriptor.start[0], held.mn_major, held.panel))
                for row, word in product(range(PANEL_ROWS), range(CORE_MATRICES * _WORDS)):
                    here = shown & (cut.marked.row == row) & (cut.marked.word == word)
                    m.d.comb += self.o.payload[row].word_select(word, _WORD_BITS).eq(here)
                return m

        return Fetcher

    def warp(self) -> type[Warp]:
        """Return a warp whose result shows a bit of each half of each register of A and B, and a mark of C."""
        cut = self

        class Echo(Warp):
            def elaborate(self, platform: object) -> Module:
                m = Module()
                full = Signal()
                m.d.comb += [self.i.ready.eq(~full | self.o.ready), self.o.valid.eq(full), cut.given.eq(self.i.payload)]
                with m.If(self.i.ready):
                    m.d.sync += full.eq(self.i.valid)
                for lane, register in product(range(LANES), range(REGISTERS)):
                    seen = Signal(5, reset_less=True, name=f"seen_{lane}_{register}")
                    a, b = (getattr(self.i.payload, name)[lane][register] for name in "ab")
                    m.d.comb += cut.loaded[lane][register].eq(Cat(a[0], a[_WORD_BITS]))
                    with m.If(self.i.ready):
                        m.d.sync += seen.eq(Cat(cut.accumulator, cut.loaded[lane][register], b[0], b[_WORD_BITS]))
                    m.d.comb += self.o.payload.d[lane][register].eq(seen)
                return m

        return Echo

    def is_marked(self, of_a: Any, descriptor: Value, mn_major: Value, panel: Value) -> Value:
        """Return whether the marked word is in a panel."""
        of_operand = (self.marked.of_a == of_a) & (self.marked.descriptor == descriptor)
        return of_operand & (self.marked.mn_major == mn_major) & (self.marked.panel == panel)

    def is_marked_in_a(self, instruction: data.View, upper: int) -> Value:
        """Return whether it is in the first or second eight rows of A of an instruction's warp."""
        panel = Cat(Const(upper, 1), instruction.warp)
        return self.is_marked(1, instruction.a_descriptor, instruction.a_transposed, panel)


class _Progress:
    """Which instruction runs and how far it is, counted beside the hardware.

    Attributes
    ----------
    current, of_result : view of _INSTRUCTION
        The instruction that runs, and that of the last accumulator taken.
    running, count : Value
        Whether one runs, and how many of its accumulators were taken.
    number : Value
        Columns of the last accumulator taken, in panels.
    panels_of_a : Value
        Panels of A that were taken.
    """

    def __init__(self, h: Harness, cut: _Cut, flow: Flow, starts: Value, instruction: data.View) -> None:
        self.current, self.of_result = (Signal(_INSTRUCTION, reset_less=True, name=x) for x in ("current", "of_result"))
        self.count, self.number = Signal(5, name="count"), Signal(5, reset_less=True, name="number")
        self.running, self.panels_of_a = Signal(name="running"), Signal(range(3), name="panels_of_a")
        last = flow.accepts & (self.count == self.current.last_panel)
        with h.m.If(flow.accepts):
            h.m.d.sync += [
                self.of_result.eq(self.current),
                self.number.eq(self.count),
                self.count.eq(self.count + ~last),
                self.running.eq(~last),
            ]
        with h.m.If(cut.full & _of_a(cut.held)):
            h.m.d.sync += self.panels_of_a.eq(self.panels_of_a + 1)
        with h.m.If(starts):
            h.m.d.sync += [
                self.current.eq(instruction),
                self.count.eq(0),
                self.running.eq(1),
                self.panels_of_a.eq(0),
            ]
        h.claim("accumulators_of_an_instruction", ~flow.accepts | self.running)
        h.claim("starts_after_the_last", ~starts | ~self.running | last)

    def claim(self, h: Harness, cut: _Cut) -> None:
        """State what is under way, so that all claims together are an invariant."""
        current, running, count = self.current, self.running, self.count
        of_a, of_b = cut.full & _of_a(cut.held), cut.full & ~_of_a(cut.held)
        asks_a, asks_b = cut.asks & _of_a(cut.asked_for), cut.asks & ~_of_a(cut.asked_for)
        panels_of_b, asked_of_a = Signal(6), Signal(range(4))
        h.m.d.comb += [panels_of_b.eq(count + of_b), asked_of_a.eq(self.panels_of_a + of_a)]
        for name, there, request, panel in (
            ("held", cut.full, cut.held, count),
            ("asked_for", cut.asks, cut.asked_for, panels_of_b[:5]),
        ):
            start, mn_major = request.descriptor.start[0], request.mn_major
            right_b = (start == current.b_descriptor) & (mn_major == current.b_transposed) & (request.panel == panel)
            right_a = (start == current.a_descriptor) & (mn_major == current.a_transposed)
            right_a &= current.a_shared & (request.panel[1:] == current.warp) & (count == 0)
            right_length = request.short == (_of_a(request) | ~current.sparse)
            h.claim(name, ~there | (running & right_length & Mux(_of_a(request), right_a, right_b)))
        h.claim("held_of_a", ~of_a | (cut.held.panel[0] == self.panels_of_a[0]))
        h.claim("asked_of_a", ~asks_a | (cut.asked_for.panel[0] == asked_of_a[0]))
        h.claim("a_first", ~(cut.asks & current.a_shared) | (_of_a(cut.asked_for) == (asked_of_a < 2)))
        h.claim("all_of_a", ~(of_b & current.a_shared) | (self.panels_of_a == 2))
        h.claim("none_of_a", ~running | current.a_shared | ((asked_of_a == 0) & ~asks_a))
        h.claim("asks_no_more", ~running | cut.asks | (of_b & (count == current.last_panel)))
        h.claim("asks_no_further", ~asks_b | (panels_of_b <= current.last_panel))
        h.claim("rests", running | ~(cut.full | cut.asks))


def _array(config: CoreConfig, formats: tuple[str, ...] = ("f16",)) -> CoreConfig:
    return replace(
        config, name="array", formats=formats, scales=(), rows=4, columns=4, alignment_bits=25, fp8_alignment_bits=24
    )


def _bare(config: CoreConfig) -> Iterator[Parameters]:
    """Formats decide nothing here but signs, which are not looked at."""
    yield (_array(config),)


def _cycles(config: CoreConfig) -> int:
    """Cycles in which an instruction with A in memory fetches, multiplies twice and lets go."""
    return 12


@WGMMA.property("order", _bare, cycles=_cycles)
def _order(h: Harness, config: CoreConfig) -> None:
    """Every accumulator meets the columns of B that are its own and the rows of A of its warp, once and in order.

    With it go the metadata, the sparsity selector and the control of its instruction; where D is not added, zeros.
    A comes from registers or shared memory; instructions follow each other with gaps, stalls and resets anywhere.
    """
    reset = h.clocked()
    cut = _Cut(h)
    wgmma = h.add("wgmma", WgmmaWarp(config, warp_class=cut.warp(), fetcher_class=cut.fetcher()))
    flow = Flow(h, reset, wgmma.c, wgmma.o, 1)
    instruction = h.free("instruction", _INSTRUCTION)
    asked, registers = wgmma.i.payload, LANES * REGISTERS * _REGISTER_BITS
    h.m.d.comb += [
        wgmma.i.valid.eq(h.free("instruction_valid") & ~reset),
        wgmma.c.payload.eq(flow.marks.replicate(registers)),
        cut.accumulator.eq(flow.marks),
        asked.a.eq(instruction.a.replicate(registers)),
        asked.control.sparse.eq(instruction.sparse),
        *(word.eq(bit.replicate(_REGISTER_BITS)) for word, bit in zip(asked.e, instruction.metadata, strict=True)),
        asked.a_descriptor.start.eq(instruction.a_descriptor),
        _of_a(asked, "a_descriptor").eq(1),
        asked.b_descriptor.start.eq(instruction.b_descriptor),
    ]
    for name in ("a_shared", "a_transposed", "b_transposed", "add", "sparsity_selector", "warp", "last_panel"):
        h.m.d.comb += asked[name].eq(instruction[name])
    starts = h.named("starts", wgmma.i.valid & wgmma.i.ready)
    progress = _Progress(h, cut, flow, starts, instruction)
    progress.claim(h, cut)
    result, current, r = wgmma.o.payload.d, progress.current, progress.of_result
    token = h.named("token", result[0][0][0])
    flow.claim(h, token, Cat(result[0][0], result[LANES - 1][REGISTERS - 1]), reset)

    given = cut.given
    metadata = Cat(bit.replicate(_REGISTER_BITS) for bit in current.metadata)
    own = (given.sparsity_selector == current.sparsity_selector) & (given.control.sparse == current.sparse) & given.long
    h.claim("control", ~progress.running | (own & (given.e.as_value() == metadata)))
    h.claim("accumulators", ~flow.accepts | (given.c.as_value() == (flow.marks & current.add).replicate(registers)))
    marked, in_b = cut.marked, cut.is_marked(0, r.b_descriptor, r.b_transposed, progress.number)
    for lane in range(LANES):
        in_row = marked.row == lane // 4
        right_a: list[Value] = []
        right_b: list[Value] = []
        right_now: tuple[list[Value], list[Value]] = [], []
        for register, half in product(range(REGISTERS), range(2)):
            seen, upper, place = result[lane][register], register % 2, 2 * (lane % 4) + half
            right_b.append(seen[3 + half] == (in_b & in_row & (marked.word == _WORDS * register + place)))
            of_a = in_row & (marked.word == _WORDS * (register // 2) + place)
            right_a.append(seen[1 + half] == Mux(r.a_shared, cut.is_marked_in_a(r, upper) & of_a, r.a))
            now = Mux(current.a_shared, cut.is_marked_in_a(current, upper) & of_a, current.a)
            right_now[upper].append(cut.loaded[lane][register][half] == now)
        h.claim(f"b_{lane}", ~flow.o_valid | Cat(right_b).all())
        h.claim(f"a_{lane}", ~flow.o_valid | Cat(right_a).all())
        for upper in range(2):
            there = progress.running & (~current.a_shared | (progress.panels_of_a > upper))
            h.claim(f"loaded_{lane}_{upper}", ~there | Cat(right_now[upper]).all())
    h.cover("marked_a", flow.o_valid & r.a_shared & result[5][2][1])
    h.cover("marked_b", flow.o_valid & (progress.number == 1) & result[5][2][3])


def at_once(word: Value, taken: Signal) -> type[PanelFetcher]:
    """Return what stands for a fetcher: panels in which each four bytes are a word, in the cycle of the request.

    Parameters
    ----------
    word : Value
        32 bits.
    taken : Signal
        Set in a cycle in which a panel is taken.
    """

    class Fetcher(PanelFetcher):
        def elaborate(self, platform: object) -> Module:
            m = Module()
            m.d.comb += [
                self.i.ready.eq(self.o.ready),
                self.o.valid.eq(self.i.valid),
                taken.eq(self.o.valid & self.o.ready),
                *(row.eq(word.replicate(len(row) // _REGISTER_BITS)) for row in self.o.payload),
            ]
            return m

    return Fetcher


#: Sign bits of the elements in a register, by the formats of ``wgmma``; integers are not negated.
_SIGNS = {
    "f16": 0x8000_8000,
    "bf16": 0x8000_8000,
    "tf32": 0x8000_0000,
    "e4m3": 0x8080_8080,
    "e5m2": 0x8080_8080,
    "s8": 0,
    "u8": 0,
}


def _floats(config: CoreConfig) -> Iterator[Parameters]:
    """Of the formats those that ``wgmma`` has."""
    if formats := tuple(name for name in config.formats if name in _SIGNS):
        yield (_array(config, formats),)


@WGMMA.property("negation", _floats, cycles=_cycles)
def _negation(h: Harness, config: CoreConfig) -> None:
    """Where products are negated every float of A has its sign inverted, and nothing else of A changes, nor any of B.

    For any word of A, from registers or shared memory; all words are alike here, and integers stay as they are.
    """
    reset = h.clocked()
    cut, word, taken = _Cut(h), constant(h, "word", _REGISTER_BITS), Signal(name="taken")
    wgmma = h.add("wgmma", WgmmaWarp(config, warp_class=cut.warp(), fetcher_class=at_once(word, taken)))
    asked = wgmma.i.payload
    for name in ("control", "a_shared", "negated", "last_panel"):
        h.m.d.comb += asked[name].eq(h.free(name, asked.shape()[name].shape))
    h.m.d.comb += [
        wgmma.i.valid.eq(h.free("i_valid") & ~reset),
        wgmma.c.valid.eq(h.free("c_valid") & ~reset),
        wgmma.o.ready.eq(h.free("o_ready") & ~reset),
        asked.a.eq(Mux(asked.a_shared, ~word, word).replicate(LANES * REGISTERS)),
    ]
    starts, accepts = wgmma.i.valid & wgmma.i.ready, h.named("accepts", wgmma.c.valid & wgmma.c.ready)
    # What runs, and how many panels have come; of A the first two, if it is in shared memory.
    negated, signs, missing = (
        Signal(name="runs_negated"),
        Signal(_REGISTER_BITS, name="signs"),
        Signal(2, name="missing"),
    )
    codes = {code: _SIGNS[element.format.name] for code, element in enumerate(config.elements)}
    with h.m.If(taken & (missing != 0)):
        h.m.d.sync += missing.eq(missing - 1)
    with h.m.If(starts):
        of_format = Cat(
            Cat(asked.control.a == code for code, places in codes.items() if places >> bit & 1).any()
            for bit in range(_REGISTER_BITS)
        )
        h.m.d.sync += [negated.eq(asked.negated), signs.eq(of_format), missing.eq(Mux(asked.a_shared, 2, 0))]
    running = Signal(name="running")
    h.m.d.sync += running.eq((running | starts) & ~reset)
    wanted = word ^ Mux(negated, signs, 0)
    for lane, register in product(range(LANES), range(REGISTERS)):
        there = running & (missing <= (0 if register % 2 else 1))
        h.claim(f"a_{lane}_{register}", ~there | (cut.given.a[lane][register] == wanted))
    h.claim("complete", ~accepts | (running & (missing == 0)))
    b = cut.given.b.as_value()
    h.claim("b", ~accepts | (b == word.replicate(len(b) // _REGISTER_BITS)))
    h.cover("negated", accepts & negated & signs[-1])
    h.cover("in_place", accepts & ~negated & (word != 0))

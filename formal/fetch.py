"""Operands from shared memory: addresses for every descriptor, and panels word by word.

What a memory holds is abstracted by one marked word at any place: a panel shows the mark exactly where the index map
has that place, which speaks of all words.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from ..rtl.config import CoreConfig
from ..rtl.fetch import (
    ADDRESS_BITS,
    CORE_MATRICES,
    PANEL_ROWS,
    CoreMatrixAddress,
    PanelFetcher,
    SwizzleCode,
    panel_request_layout,
)
from ..rtl.operand_fetch import OperandFetch
from .harness import Harness
from .properties import Parameters, Topic
from .streams import Flow, constant, offered

__all__ = ["FETCH", "Names"]

FETCH = Topic("fetch")
#: Swizzle modes, and how many units of 16 bytes are in a row of their pattern.
_SWIZZLES = {
    "none": (SwizzleCode.NONE, 1),
    "32B": (SwizzleCode.B32, 2),
    "64B": (SwizzleCode.B64, 4),
    "128B": (SwizzleCode.B128, 8),
}
_WORD_BITS, _WORDS = 16, 8  # of a unit, as MN-major elements


def _once(config: CoreConfig) -> Iterator[Parameters]:
    yield ()


def _modes(config: CoreConfig) -> Iterator[Parameters]:
    yield from product(_SWIZZLES, ("k", "mn"))


def _linear(descriptor: data.View, units: int, major: str, row: int, panel: Value, segment: Value) -> Value:
    """Return where a unit lies before it is swizzled, in units, by the canonical layouts of PTX ISA 9.7.15.5.1.

    K-major, a unit holds eight k of one row of the panel, and a core matrix is a segment of K. MN-major, it holds the
    panel's eight rows of one k, and a core matrix is eight k. Units side by side fill a row of the swizzle's pattern,
    and the next such row is eight of them away; without swizzling the two offsets trade places where MN-major.
    """
    across, down = (segment, panel) if major == "k" else (panel, segment)
    leading, stride = descriptor.leading, descriptor.stride
    if major == "mn" and units == 1:
        leading, stride = stride, leading
    return descriptor.start + row * units + across % units + (across // units) * leading + down * stride


@FETCH.property("address", _modes)
def _address(h: Harness, swizzle: str, major: str) -> None:
    """For every descriptor, panel and core matrix the eight addresses are those of the manual's canonical layouts.

    That is for four swizzles, K-major and MN-major, any start, offsets and base offset, modulo 2**18 bytes.
    """
    code, units = _SWIZZLES[swizzle]
    request, segment = h.free("request", panel_request_layout()), h.free("segment", 2)
    addresses = h.add("addresses", CoreMatrixAddress(), segment=segment)
    asked, descriptor = addresses.request, request.descriptor
    h.m.d.comb += [
        asked.eq(request),
        asked.descriptor.swizzle.eq(code),
        asked.mn_major.eq(major == "mn"),
    ]
    for row in range(PANEL_ROWS):
        linear = _linear(descriptor, units, major, row, request.panel, segment)[:ADDRESS_BITS]
        # Row n of the pattern, which are 128 bytes, has its units at their numbers XOR n.
        turned = (linear[3:6] - descriptor.base_offset)[:3] & (units - 1)
        h.claim(f"row{row}", addresses.address[row] == linear ^ turned)
    moved = addresses.address[1] != (addresses.address[0] + units)[:ADDRESS_BITS]
    h.cover("moved" if units > 1 else "plain", moved if units > 1 else ~moved)


class Names(CoreMatrixAddress):
    """Stands for the addresses: each unit of each panel has one of its own, whose top bit is the descriptor's."""

    def elaborate(self, platform: object) -> Module:
        """Build the names."""
        m = Module()
        for row in range(PANEL_ROWS):
            m.d.comb += self.address[row].eq(_name(self.request, self.segment, row))
        return m


def _name(request: data.View, segment: Value, row: int) -> Value:
    known = Cat(Const(row, 3), segment, request.panel, request.mn_major)
    return Cat(known, Const(0, ADDRESS_BITS - 1 - len(known)), request.descriptor.start[0])


class _MarkedMemory:
    """A memory of zeros but for one marked word, any one, and the top bit of each unit's address; noise unasked."""

    def __init__(self, h: Harness, port: Any) -> None:
        self.address, self.word = constant(h, "marked_unit", ADDRESS_BITS), constant(h, "marked_word", 3)
        noise = h.free("noise")
        for row, word in product(range(PANEL_ROWS), range(_WORDS)):
            held = Signal(2, name=f"held_{row}_{word}", reset_less=True)
            marked = (port.address[row] == self.address) & (self.word == word)
            h.m.d.sync += held.eq(Cat(marked, port.address[row][-1]) ^ (~port.read & noise).replicate(2))
            h.m.d.comb += port.data[row].word_select(word, _WORD_BITS).eq(held)

    def marks(self, request: data.View, row: int, number: int) -> Value:
        """Return whether the marked word is a panel's: so many words into a row."""
        segment, within = Const(number // _WORDS, 2), number % _WORDS
        straight = (_name(request, segment, row) == self.address) & (self.word == within)
        across = (_name(request, segment, within) == self.address) & (self.word == row)
        return (~request.mn_major & straight) | (request.mn_major & across)


def _panel_cycles(*_: object) -> int:
    """Cycles in which two panels are fetched."""
    return 2 * (CORE_MATRICES + 3)


@FETCH.property("panel", _once, cycles=_panel_cycles)
def _panel(h: Harness) -> None:
    """Every word of a panel is the one that its place in the operand says, K-major or transposed, long or short.

    Panels come in the order of their requests, none is lost, and one once offered stays until it is taken.
    """
    reset = h.clocked()
    fetcher = h.add("fetcher", PanelFetcher(Names))
    flow = Flow(h, reset, fetcher.i, fetcher.o, 1)
    memory = _MarkedMemory(h, fetcher.memory)
    request, waits, before = offered(h, "request", fetcher.i, reset)
    h.m.d.comb += fetcher.i.payload.eq(request)
    h.assume(~flow.accepts | (request.descriptor.start[0] == flow.marks))
    panel = [[row.word_select(word, _WORD_BITS) for word in range(CORE_MATRICES * _WORDS)] for row in fetcher.o.payload]
    # What is under way, word by word and cycle by cycle: then the claims together are an invariant.
    reads, segment = fetcher.memory.read, fetcher.memory.address[0][3:5]
    owner = Signal(panel_request_layout(), reset_less=True, name="owner")
    arrives, arriving, captured = Signal(), Signal(2, reset_less=True), Signal(CORE_MATRICES, name="captured")
    h.m.d.sync += [arrives.eq(reads), arriving.eq(segment), captured.eq(captured | (arrives << arriving))]
    with h.m.If(reads):
        h.m.d.sync += owner.eq(request)
        with h.m.If(segment == 0):
            h.m.d.sync += captured.eq(0)
    h.claim("one_request", (segment == 0) | (waits & (before == owner)))
    h.claim("in_turn", ~(arrives & reads) | (segment == arriving + 1))
    for row, word in product(range(PANEL_ROWS), range(_WORDS)):
        wanted = (_name(owner, arriving, row) == memory.address) & (memory.word == word)
        h.claim(
            f"arriving{row}_{word}", ~arrives | (fetcher.memory.data[row].word_select(word, _WORD_BITS)[0] == wanted)
        )
    for row in range(PANEL_ROWS):
        for number, word in enumerate(panel[row]):
            held = captured[number // _WORDS]
            h.claim(f"row{row}_word{number}", ~held | (word[0] == memory.marks(owner, row, number)))
    h.claim("complete", ~flow.o_valid | (captured[:2].all() & (owner.short | captured[2:].all())))
    token = h.named("token", panel[0][0][1])
    h.claim("marked", ~captured[0] | (token == owner.descriptor.start[0]))
    flow.claim(h, token, Cat(token, panel[0][0][0], panel[PANEL_ROWS - 1][-1][0]), reset)
    flow.answers(h, CORE_MATRICES + 2)
    flow.drains(h, 2, fetcher.i.valid, fetcher.o.ready)
    h.cover("straight", flow.delivers & ~owner.mn_major & panel[1][2][0])
    h.cover("across", flow.delivers & owner.mn_major & panel[1][2][0])


def _lengths(config: CoreConfig) -> Iterator[Parameters]:
    yield from ((short,) for short in (False, True))


@FETCH.property("both", _lengths, cycles=_panel_cycles)
def _both(h: Harness, short: bool) -> None:
    """Of two operands through one port: panels of B in the order of their requests, none lost, those of A core by core.

    All words of a panel are of one request, each from the place in its core matrix that is its own, K-major or
    transposed. B is read while there is room for it, and A in every cycle in which B is not. A core matrix of A is
    there in the cycle behind its read, with number, segment and tag of its request, and holds what was read.
    """
    reset = h.clocked()
    fetch = h.add("fetch", OperandFetch(Names))
    flow = Flow(h, reset, fetch.b, fetch.panels, 2)
    memory, port = _MarkedMemory(h, fetch.memory), fetch.memory
    b, b_waits, _ = offered(h, "request_b", fetch.b, reset)
    a, a_waits, _ = offered(h, "request_a", fetch.a, reset)
    tag, tag_before = h.free("tag"), Signal(reset_less=True, name="tag_before")
    h.m.d.sync += tag_before.eq(tag)
    h.assume(~a_waits | (tag == tag_before))
    h.m.d.comb += [
        fetch.b.payload.eq(b),
        fetch.a.payload.eq(a),
        fetch.a.valid.eq(h.free("a_valid") & ~reset),
        fetch.a_tag.eq(tag),
    ]
    # Units of A have names of their own: the highest bit of a panel's number says whose it is.
    h.assume(~fetch.a.valid | (a.panel[-1] & a.short))
    h.assume(~flow.i_valid | (~b.panel[-1] & (b.short == short)))
    # The marked panel is the other way round than the others.
    h.assume(~flow.accepts | ((b.descriptor.start[0] == flow.marks) & (b.mn_major == flow.marks)))
    panel = fetch.panels.payload
    token = h.named("token", panel[0][1])
    of_a = h.named("reads_a", port.read & port.address[0][3 + 2 + 4])
    segment = port.address[0][3:5]
    h.claim("b_first", ~(of_a & flow.i_valid) | ((flow.inside == 2) & ~flow.delivers))
    h.claim("a_where_not_b", ~(fetch.a.valid & ~reset) | port.read)
    h.claim("a_is_taken", (fetch.a.valid & fetch.a.ready) == (of_a & (segment == 1)))
    read_a, was_segment = Signal(name="read_a"), Signal(2, reset_less=True, name="was_segment")
    was = Signal(panel_request_layout(), reset_less=True, name="was")
    h.m.d.sync += [read_a.eq(of_a), was_segment.eq(segment), was.eq(a)]
    arrived = fetch.core_matrix
    h.claim("arrives", fetch.arriving == read_a)
    said = (arrived.segment == was_segment) & (arrived.panel == was.panel[:3]) & (arrived.tag == tag_before)
    h.claim("said", ~read_a | said)
    for row, word in product(range(PANEL_ROWS), range(_WORDS)):
        straight = (_name(was, was_segment, row) == memory.address) & (memory.word == word)
        across = (_name(was, was_segment, word) == memory.address) & (memory.word == row)
        wanted = (~was.mn_major & straight) | (was.mn_major & across)
        h.claim(f"a_{row}_{word}", ~read_a | (arrived.rows[row].word_select(word, _WORD_BITS)[0] == wanted))
    row_of, segment_of, within = memory.address[:3], memory.address[3:5], memory.word
    for row in range(PANEL_ROWS):
        for number in range(CORE_MATRICES * _WORDS // (2 if short else 1)):
            word = panel[row].word_select(number, _WORD_BITS)
            straight = (row_of == row) & (within == number % _WORDS)
            across = (row_of == number % _WORDS) & (within == row)
            place = (segment_of == number // _WORDS) & Mux(token, across, straight)
            h.claim(f"one_request_{row}_{number}", ~flow.o_valid | (word[1] == token))
            h.claim(f"place_{row}_{number}", ~flow.o_valid | ~word[0] | place)
    h.cover("marked_b", flow.o_valid & panel[1].word_select(_WORDS, _WORD_BITS)[0])
    flow.claim(h, token, token, reset)
    flow.drains(h, 2, fetch.b.valid, fetch.panels.ready)
    h.cover("beside", of_a & (flow.inside != 0) & b_waits)

"""Proofs about operand fetch from shared memory: addresses for every descriptor, and positions of all fetched words.

The model of the memory contains one marked word at a free address. A panel must contain the marked word exactly at the
position to which PTX maps this address. Since the address is free, the proof covers all words.
"""

from itertools import product
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from ..rtl.fetch import CoreMatrixAddress, SwizzleCode, panel_layout, panel_request_layout
from ..rtl.operand_fetch import OperandFetch
from .harness import Harness, opened, replace_logic
from .properties import Topic
from .sizes import ADDRESS_BITS, CORE_MATRICES, PANEL_ROWS
from .slot_states import claim_fetch_of_b
from .streams import constant, offered

__all__ = ["FETCH", "with_names"]

FETCH = Topic("fetch")
#: For each swizzle mode: its code in the matrix descriptor, and the number of 16-byte words in a row of its pattern.
_SWIZZLES = {
    "none": (SwizzleCode.NONE, 1),
    "32B": (SwizzleCode.B32, 2),
    "64B": (SwizzleCode.B64, 4),
    "128B": (SwizzleCode.B128, 8),
}
#: For an MN-major operand: width of an element in bits, and number of elements in a 16-byte word.
_WORD_BITS, _WORDS = 16, 8


def _linear(descriptor: data.View, units: int, major: str, row: int, panel: Value, segment: Value) -> Value:
    """Return the address of a 16-byte word before swizzling, from the canonical layouts of PTX ISA 9.7.15.5.1.

    K-major: a 16-byte word holds eight elements along K of one row of the panel, and a core matrix is a segment of K.
    MN-major: a 16-byte word holds one element of each of the panel's eight rows, all with the same k, and a core matrix
    has eight values of k. A row of the swizzle pattern has `units` words, each of another core matrix. The leading
    offset is the distance to the next `units` core matrices along this row, and the stride offset the distance to the
    next core matrix in the other direction. Without swizzling, the two offsets are exchanged for MN-major operands.
    """
    across, down = (segment, panel) if major == "k" else (panel, segment)
    leading, stride = descriptor.leading, descriptor.stride
    if major == "mn" and units == 1:
        leading, stride = stride, leading
    return descriptor.start + row * units + across % units + (across // units) * leading + down * stride


@FETCH.property("address", lambda _: product(_SWIZZLES, ("k", "mn")))
def _address(h: Harness, swizzle: str, major: str) -> None:
    """For every matrix descriptor and core matrix, the eight 16-byte words are read at the addresses of PTX's layouts.

    This covers four swizzle modes, K-major and MN-major, and any start address, offsets and base offset, modulo 2**18
    bytes.
    """
    code, units = _SWIZZLES[swizzle]
    request, segment = h.free("request", panel_request_layout()), h.free("segment", 2)
    addresses = h.add("addresses", CoreMatrixAddress(), segment=segment)
    h.m.d.comb += [
        addresses.request.eq(request),
        addresses.request.descriptor.swizzle.eq(code),
        addresses.request.mn_major.eq(major == "mn"),
    ]
    for row in range(PANEL_ROWS):
        linear = _linear(request.descriptor, units, major, row, request.panel, segment)[:ADDRESS_BITS]
        # A row of the swizzle pattern has 128 bytes. In row n, the 16-byte word u is at position u XOR (n mod `units`).
        turned = (linear[3:6] - request.descriptor.base_offset)[:3] & (units - 1)
        h.claim(f"row{row}", addresses.address[row] == linear ^ turned)
    moved = addresses.address[1] != (addresses.address[0] + units)[:ADDRESS_BITS]
    h.cover("moved" if units > 1 else "plain", moved if units > 1 else ~moved)


def _names(addresses: Any) -> Module:
    """Build a stand-in for the address generator that gives each 16-byte word of A and B a unique address."""
    m = Module()
    for row in range(PANEL_ROWS):
        m.d.comb += addresses.address[row].eq(_name(addresses.request, addresses.segment, row))
    return m


def with_names(fetch: OperandFetch) -> Any:
    """Replace the address generator of an operand fetch: each 16-byte word gets a unique address. Return the fetch."""
    replace_logic(opened(fetch).parts.addresses, _names)
    return fetch


def _name(request: data.View, segment: Value, row: int) -> Value:
    """Return the unique address of a 16-byte word. The top address bit is bit 0 of the descriptor's start address."""
    known = Cat(Const(row, 3), segment, request.panel, request.mn_major)
    return Cat(known, Const(0, ADDRESS_BITS - 1 - len(known)), request.descriptor.start[0])


class _MarkedMemory:
    """Model of shared memory with 16-bit words: bit 0 is 1 only at one free address, bit 1 is the top address bit.

    In the cycle after a cycle without a read, bits 0 and 1 of each word are arbitrary.
    """

    def __init__(self, h: Harness, port: Any) -> None:
        self.address, self.word = constant(h, "marked_unit", ADDRESS_BITS), constant(h, "marked_word", 3)
        noise = h.free("noise")
        for row, word in product(range(PANEL_ROWS), range(_WORDS)):
            output = Signal(2, name=f"output_{row}_{word}", reset_less=True)
            marked = (port.address[row] == self.address) & (self.word == word)
            h.m.d.sync += output.eq(Cat(marked, port.address[row][-1]) ^ (~port.read & noise).replicate(2))
            h.m.d.comb += port.data[row].word_select(word, _WORD_BITS).eq(output)

    def places(self, request: data.View, segment: Value, row: int, word: int) -> tuple[Value, Value]:
        """Return two bits: whether the word with bit 0 = 1 is at this place, read in K-major and in MN-major order."""
        straight = (_name(request, segment, row) == self.address) & (self.word == word)
        return straight, (_name(request, segment, word) == self.address) & (self.word == row)

    def marks(self, request: data.View, segment: Value, row: int, word: int) -> Value:
        """Return whether a word of the requested core matrix is the only word of the memory model whose bit 0 is 1."""
        straight, across = self.places(request, segment, row, word)
        return (~request.mn_major & straight) | (request.mn_major & across)


# Upper bound on the cycles needed to reach every cover condition: the time to fetch two panels (eight columns) of B.
@FETCH.property("both", lambda _: [(False,), (True,)], cycles=2 * (CORE_MATRICES + 3))
def _both(h: Harness, short: bool) -> None:
    """Panels (eight columns) of B arrive in order, without loss. A core matrix of A arrives one cycle after its read.

    A panel has eight rows of A or eight columns of B. Every word of a panel is the word that the request and the
    position in the panel select, for K-major and for MN-major operands. If B is requested and a buffer has room, B is
    read; otherwise A is read if it is requested. A core matrix of A arrives in the cycle after its read, with the panel
    number, segment and tag of its request, and with the data that was read. An offered panel stays valid and unchanged
    until it is taken.
    """
    reset = h.clocked()
    fetch = h.add("fetch", with_names(OperandFetch()))
    memory, port = _MarkedMemory(h, fetch.memory), fetch.memory
    h.m.d.comb += [
        fetch.b.valid.eq(h.free("b_valid") & ~reset),
        fetch.a.valid.eq(h.free("a_valid") & ~reset),
        fetch.panels.ready.eq(h.free("panels_ready") & ~reset),
    ]
    b, b_waits, b_before = offered(h, "request_b", fetch.b, reset)
    a, a_waits, _ = offered(h, "request_a", fetch.a, reset)
    tag, tag_before = h.free("tag"), Signal(reset_less=True, name="tag_before")
    h.m.d.sync += tag_before.eq(tag)
    h.assume(~a_waits | (tag == tag_before))
    h.m.d.comb += fetch.a_tag.eq(tag)
    # Requests (each for eight rows of A or columns of B) have numbers with highest bit 1 for A and 0 for B. This is
    # assumed so that the 16-byte words of A and of B have different addresses.
    h.assume(~fetch.a.valid | (a.panel[-1] & a.short))
    h.assume(~fetch.b.valid | (~b.panel[-1] & (b.short == short)))
    of_a = h.named("reads_a", port.read & port.address[0][3 + 2 + 4])
    segment = port.address[0][3:5]
    h.claim("a_where_not_b", ~(fetch.a.valid & ~reset) | port.read)
    h.claim("a_is_taken", (fetch.a.valid & fetch.a.ready) == (of_a & (segment == 1)))
    read_a, was_segment = Signal(name="read_a"), Signal(2, reset_less=True, name="was_segment")
    was = Signal(panel_request_layout(), reset_less=True, name="was")
    h.m.d.sync += [read_a.eq(of_a), was_segment.eq(segment), was.eq(a)]
    arrived = fetch.core_matrix
    h.claim("arrives", fetch.arriving == read_a)
    place = (arrived.segment == was_segment) & (arrived.panel == was.panel[:3]) & (arrived.tag == tag_before)
    h.claim("place_of_a", ~read_a | place)
    for row, word in product(range(PANEL_ROWS), range(_WORDS)):
        expected = memory.marks(was, was_segment, row, word)
        h.claim(f"a_{row}_{word}", ~read_a | (arrived.rows[row].word_select(word, _WORD_BITS)[0] == expected))
    panels = _Panels(h, fetch, memory, b, port.read & ~of_a, reset, short)
    panels.claim(h, b_waits & (b_before == b))
    h.claim("b_first", (port.read & ~of_a) == (fetch.b.valid & panels.room))
    h.cover("marked_b", fetch.panels.valid & fetch.panels.payload[1].word_select(_WORDS, _WORD_BITS)[0])
    h.cover("beside", of_a & (panels.inside != 0) & b_waits)


class _Panels:
    """Reference model of the two buffers for B of the operand fetch, each for a panel (eight columns).

    `inside` is the number of accepted requests whose panels are not delivered yet. `delivers` is 1 if a panel is
    delivered in this cycle, and `room` is 1 if a core matrix of B may be read.
    """

    def __init__(
        self, h: Harness, fetch: Any, memory: _MarkedMemory, request: data.View, reads: Value, reset: Value, short: bool
    ) -> None:
        m, layout = h.m, panel_request_layout()
        self._fetch, self._memory, self._reset = fetch, memory, reset
        self._request, self._reads = request, reads
        self._segments = CORE_MATRICES // 2 if short else CORE_MATRICES
        self._accepted = h.named("takes_b", fetch.b.valid & fetch.b.ready)
        self.delivers = h.named("delivers", fetch.panels.valid & fetch.panels.ready)
        self.inside, self._segment = Signal(range(3), name="inside"), Signal(3, name="segment")
        self.room = (self._segment != 0) | (self.inside != 2) | self.delivers
        self._pending = pending = [Signal(layout, reset_less=True, name=f"pending_{place}") for place in range(2)]
        behind = self.inside - self.delivers
        m.d.sync += self.inside.eq(behind + self._accepted)
        with m.If(self.delivers):
            m.d.sync += pending[0].eq(pending[1])
        for place, entry in enumerate(pending):
            with m.If(self._accepted & (behind == place)):
                m.d.sync += entry.eq(request)
        # Registers of the model of B: the core matrix that arrives, and the core matrices and request in each buffer
        # for eight columns of B.
        self._arriving = Signal(name="arriving_b")
        self._arriving_segment = Signal(3, reset_less=True, name="arriving_segment")
        self._arriving_request = Signal(layout, reset_less=True, name="arriving_request")
        self._filled, self._offered = Signal(name="filled"), Signal(name="offered")
        self._stored = [Signal(CORE_MATRICES, name=f"stored_{buffer}") for buffer in range(2)]
        self._buffer_owners = [Signal(layout, reset_less=True, name=f"buffer_owner_{buffer}") for buffer in range(2)]
        self._completes = h.named("completes", self._arriving & (self._arriving_segment == self._segments - 1))
        m.d.sync += [
            self._arriving.eq(reads),
            self._filled.eq(self._filled ^ self._completes),
            self._offered.eq(self._offered ^ self.delivers),
        ]
        with m.If(reads):
            m.d.sync += [
                self._arriving_segment.eq(self._segment),
                self._arriving_request.eq(request),
                self._segment.eq(Mux(self._segment == self._segments - 1, 0, self._segment + 1)),
            ]
        for buffer in range(2):
            with m.If(self._arriving & (self._filled == buffer)):
                earlier = Mux(self._arriving_segment == 0, 0, self._stored[buffer])
                m.d.sync += [
                    self._buffer_owners[buffer].eq(self._arriving_request),
                    self._stored[buffer].eq(earlier | (1 << self._arriving_segment)),
                ]

    def claim(self, h: Harness, same_request: Value) -> None:
        """Claim that the fetch buffers of B hold the requested words. Claims about control make the claim inductive."""
        fetch, signal, memory, segment = self._fetch, self._fetch.signal, self._memory, self._segment
        arriving, number, request = self._arriving, self._arriving_segment, self._arriving_request
        whole = (1 << self._segments) - 1
        buffers = data.ArrayLayout(panel_layout(), 2)(signal("buffers"))
        complete, delivered = signal("complete"), signal("delivered")
        pointers = (complete[0] == self._filled) & (delivered[0] == self._offered)
        h.claim("pointers", pointers & (signal("segment_b") == segment))
        claim_fetch_of_b(h, fetch, self.inside)
        h.claim("taken", self._accepted == (self._reads & (segment == self._segments - 1)))
        h.claim("arriving", (signal("arriving_b") == arriving) & (signal("completes") == self._completes))
        same = (signal("arriving_segment") == number[:2]) & (signal("arriving_mn_major") == request.mn_major)
        h.claim("what_arrives", ~arriving | (same & (number < self._segments)))
        count = self.inside - self._completes
        first, second = self._offered, ~self._offered
        full = h.named("full", Mux(count == 0, 0, Mux(count == 1, 1 << first, 3)), 2)
        h.claim("in_turns", self._filled == Mux(count == 1, second, first))
        h.claim("valid", fetch.panels.valid == (count != 0))
        stored, buffer_owner = (Array(each)[self._filled] for each in (self._stored, self._buffer_owners))
        so_far = Mux(arriving, Mux(number == 0, 0, stored) | (1 << number), stored)
        begun = segment != 0
        own = Mux(arriving, Value.cast(request), Value.cast(buffer_owner)) == Value.cast(self._request)
        h.claim("begun", ~begun | self._reset | (same_request & own & (so_far[:CORE_MATRICES] == (1 << segment) - 1)))
        h.claim("arrives_in_turn", ~(begun & arriving) | (number + 1 == segment))
        h.claim("arrives_last", ~arriving | begun | self._completes)
        within = (number == 0) | ((stored == (1 << number) - 1) & (Value.cast(buffer_owner) == Value.cast(request)))
        h.claim("arrives_behind", ~arriving | within)
        newest = Array(self._pending)[(self.inside - 1)[0]]
        h.claim("complete", ~self._completes | (Value.cast(request) == Value.cast(newest)))
        for buffer in range(2):
            owner = Mux(first == buffer, Value.cast(self._pending[0]), Value.cast(self._pending[1]))
            is_whole = (self._stored[buffer] == whole) & (Value.cast(self._buffer_owners[buffer]) == owner)
            h.claim(f"full_{buffer}", ~full[buffer] | is_whole)
        for row, word in product(range(PANEL_ROWS), range(_WORDS)):
            straight, across = memory.places(request, number[:2], row, word)
            of_row, of_column = (
                fetch.memory.data[unit].word_select(place, _WORD_BITS)[0] for unit, place in ((row, word), (word, row))
            )
            expected, arrives = Mux(request.mn_major, across, straight), Mux(request.mn_major, of_column, of_row)
            h.claim(f"arriving_{row}_{word}", ~arriving | (arrives == expected))
        for row, place in product(range(PANEL_ROWS), range(self._segments * _WORDS)):
            part, within = divmod(place, _WORDS)
            for buffer in range(2):
                stored_word = buffers[buffer][row].word_select(place, _WORD_BITS)[0]
                right = stored_word == memory.marks(self._buffer_owners[buffer], Const(part, 2), row, within)
                h.claim(f"stored_{buffer}_{row}_{place}", ~self._stored[buffer][part] | right)
            offered_word = fetch.panels.payload[row].word_select(place, _WORD_BITS)[0]
            expected = memory.marks(self._pending[0], Const(part, 2), row, within)
            h.claim(f"panel_{row}_{place}", ~fetch.panels.valid | (offered_word == expected))
        waited = Signal(name="waited")
        h.m.d.sync += waited.eq(fetch.panels.valid & ~self.delivers & ~self._reset)
        h.claim("stays", ~waited | self._reset | fetch.panels.valid)

"""Two instructions that are held, what stands for the fetch of their operands, and claims about both.

Of ``wgmma`` and ``tcgen05`` alike: instructions are taken, brought their operands and multiplied in turns. Every word
of an operand has a label: its instruction's mark, and where it belongs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from ..rtl.fetch import panel_request_layout
from ..rtl.operand_fetch import OperandFetch
from ..rtl.operand_slots import SLOTS
from ..rtl.warp import LANES, REGISTERS
from .harness import Harness

__all__ = [
    "PLACE_BITS",
    "SEGMENTS",
    "WORD",
    "Fetch",
    "Own",
    "Turns",
    "claim_a",
    "claim_b",
    "claim_slots",
    "descriptor",
    "label",
    "label_of_b",
    "lane_register",
    "place_of_a",
]

WORD = 32
#: Of a label: bits of the number of a word among those of all arrays.
PLACE_BITS = 10
#: Segments of 16 bytes of a row of A; panels of B that a fetch may have read and not handed on.
SEGMENTS, _FETCHED = 2, 2
#: A panel of B as it is read: whose, and which.
_PANEL = data.StructLayout({"mark": 1, "panel": 5})


def label(mark: Value, place: int) -> Value:
    """Return a word of an operand: its instruction's mark, and its place."""
    return Cat(mark, Const(place, PLACE_BITS), Const(0, WORD - 1 - PLACE_BITS))


def place_of_a(array: int, lane: int, register: int) -> int:
    """Return the number of a register of A."""
    return (array * LANES + lane) * REGISTERS + register


def label_of_b(mark: Value, panel: Value, column: int, word: int) -> Value:
    """Return a word of a panel of B: its instruction's mark, its panel, column and place in that."""
    return Cat(mark, panel, Const(column, 3), Const(word, 4))


def lane_register(panel: int, segment: int, row: int, word: int) -> tuple[int, int, int]:
    """Return where a word of A from shared memory belongs: array, lane and register.

    PTX ISA 9.7.15.4.1: an array has 16 rows; lane 4 g + t has word t of rows g and g + 8, in registers 0 and 1 those of
    the first 16 bytes of K, in registers 2 and 3 those of the second.
    """
    array, upper = divmod(panel, 2)
    return array, 4 * row + word, 2 * segment + upper


def descriptor(mark: Value, which: int) -> Value:
    """Return a descriptor that is all of its instruction's mark, but for a bit that says whose it is: 1 for A."""
    layout = panel_request_layout()["descriptor"].shape
    bits = [mark] * layout.size
    bits[layout["reserved0"].offset] = Const(which, 1)
    return Cat(bits)


class Fetch:
    """What stands for the fetch: it reads whenever it likes, and keeps up to two panels of B.

    Parameters
    ----------
    h : Harness
        Where.
    a_panels : int
        Panels of A.

    Attributes
    ----------
    count, panels : Value, list
        Panels of B that were read and not handed on, the oldest first.
    segment : Value
        How much of the request at `a` has been read.
    arrives, arrived : Value
        A core matrix of A is there, and which: panel, segment, tag and mark.
    """

    def __init__(self, h: Harness, a_panels: int) -> None:
        self.a_panels = a_panels
        self.may_read, self.may_offer, self.may_read_a = (
            h.free(name) for name in ("may_read_b", "may_offer_b", "may_read_a")
        )
        self.count = Signal(range(_FETCHED + 1), name="fetched")
        self.panels = [Signal(_PANEL, reset_less=True, name=f"fetched_{place}") for place in range(_FETCHED)]
        self.segment, self.arrives = Signal(name="segment_of_a"), Signal(name="a_arrives")
        layout = data.StructLayout({"panel": range(a_panels), "segment": 1, "tag": 1, "mark": 1})
        self.arrived = Signal(layout, reset_less=True, name="a_arrived")

    def component(self) -> Callable[[int], OperandFetch]:
        """Return what makes it."""
        cut = self

        class Stand(OperandFetch):
            def elaborate(self, platform: object) -> Module:
                m = Module()
                first, second = cut.panels
                asked = Signal(_PANEL)
                enters, leaves, reads = Signal(), Signal(), Signal()
                m.d.comb += [
                    self.b.ready.eq(cut.may_read & (cut.count != _FETCHED)),
                    self.panels.valid.eq(cut.may_offer & (cut.count != 0)),
                    enters.eq(self.b.valid & self.b.ready),
                    leaves.eq(self.panels.valid & self.panels.ready),
                    asked.mark.eq(self.b.payload.descriptor.start[0]),
                    asked.panel.eq(self.b.payload.panel),
                    reads.eq(self.a.valid & cut.may_read_a),
                    self.a.ready.eq(cut.may_read_a & cut.segment),
                    self.arriving.eq(cut.arrives),
                    *(self.core_matrix[name].eq(cut.arrived[name]) for name in ("panel", "segment", "tag")),
                ]
                m.d.sync += [cut.count.eq(cut.count + enters - leaves), cut.arrives.eq(reads)]
                with m.If(leaves):
                    m.d.sync += first.eq(second)
                with m.If(enters):
                    with m.If(cut.count == leaves):
                        m.d.sync += first.eq(asked)
                    with m.Else():
                        m.d.sync += second.eq(asked)
                with m.If(reads):
                    m.d.sync += [
                        cut.segment.eq(~cut.segment),
                        cut.arrived.panel.eq(self.a.payload.panel),
                        cut.arrived.segment.eq(cut.segment),
                        cut.arrived.tag.eq(self.a_tag),
                        cut.arrived.mark.eq(self.a.payload.descriptor.start[0]),
                    ]
                for column, word in product(range(8), range(16)):
                    shown = label_of_b(first.mark, first.panel, column, word)
                    m.d.comb += self.panels.payload[column].word_select(word, WORD).eq(shown)
                for row, word in product(range(8), range(4)):
                    of_row = self.core_matrix.rows[row].word_select(word, WORD)
                    for panel, segment in product(range(cut.a_panels), range(SEGMENTS)):
                        with m.If((cut.arrived.panel == panel) & (cut.arrived.segment == segment)):
                            place = place_of_a(*lane_register(panel, segment, row, word))
                            m.d.comb += of_row.eq(label(cut.arrived.mark, place))
                return m

        return Stand


class Turns:
    """Two instructions that are held, followed beside the hardware: which is next to be taken, brought and multiplied.

    Parameters
    ----------
    h : Harness
        Where.
    taken, offered : Value, view
        An instruction is taken, and which.
    multiplied : Value
        A panel is multiplied.

    Attributes
    ----------
    instructions : list of view
        What is held, by slot.
    occupied : Value
        Which slots hold one.
    next_slot, now, panel : Value
        Where the next is taken, which is multiplied, and how many panels of it have been.
    """

    def __init__(self, h: Harness, taken: Value, offered: data.View, multiplied: Value) -> None:
        m = self._m = h.m
        self._taken = taken
        layout = offered.shape()
        self.instructions = [Signal(layout, reset_less=True, name=f"instruction_{slot}") for slot in range(SLOTS)]
        self.occupied, self.panel = Signal(SLOTS, name="occupied"), Signal(5, name="panel")
        self.next_slot, self.now = Signal(name="next_slot"), Signal(name="now")
        self.current: Any = Array(self.instructions)[self.now]
        self.last = h.named("last", multiplied & (self.panel == self.current.last_panel))
        self._comes = h.named("comes", taken << self.next_slot, SLOTS)
        m.d.sync += [
            self.occupied.eq((self.occupied | self._comes) & ~(self.last << self.now)),
            self.next_slot.eq(self.next_slot ^ taken),
            self.now.eq(self.now ^ self.last),
        ]
        with m.If(multiplied):
            m.d.sync += self.panel.eq(Mux(self.last, 0, self.panel + 1))
        for slot, instruction in enumerate(self.instructions):
            with m.If(self._comes[slot]):
                m.d.sync += instruction.eq(offered)

    @property
    def other(self) -> Value:
        """The slot that is not multiplied."""
        return ~self.now

    def of(self, slot: Value) -> Any:
        """Return what a slot holds."""
        return Array(self.instructions)[slot]

    def brought(self, name: str, ends: Value) -> tuple[Value, Value]:
        """Return whose operand is brought, and of which slots not all of it was requested; it ends with a slot's."""
        slot, left = Signal(name=f"slot_of_{name}"), Signal(SLOTS, name=f"left_of_{name}")
        self._m.d.sync += [slot.eq(slot ^ ends), left.eq(left & ~(ends << slot) | self._comes)]
        return slot, left

    def missing(self, arrived: Value) -> Value:
        """Return of which slots not all of an operand has arrived, which it does where `arrived` says so."""
        missing = Signal(SLOTS, name="missing")
        self._m.d.sync += missing.eq(missing & ~arrived | self._comes)
        return missing

    def claim(self, h: Harness) -> None:
        """State the order of slots."""
        both, none = self.occupied.all(), ~self.occupied.any()
        h.claim("in_turns", (self.next_slot == self.now) == (both | none))
        h.claim("oldest", none | self.occupied.bit_select(self.now, 1))
        h.claim("begun", (self.panel == 0) | (~none & (self.panel <= self.current.last_panel)))

    def claim_brought(self, h: Harness, name: str, slot: Value, left: Value) -> None:
        """State that an operand is brought in the order of the instructions."""
        of_now, of_other = (left.bit_select(which, 1) for which in (self.now, self.other))
        h.claim(f"{name}_of_those_held", Mux(of_now, left == self.occupied, ~(left & ~self.occupied).any()))
        h.claim(f"{name}_in_order", slot == Mux(of_now, self.now, Mux(of_other, self.other, self.next_slot)))


def claim_slots(h: Harness, slots: Any, turns: Turns, names: Sequence[str]) -> None:
    """State that the hardware's slots hold the instructions that are held: their fields of these names."""
    h.claim("slots", (slots.occupied == turns.occupied) & (slots.next_slot == turns.next_slot))
    h.claim("slot", (slots.slot == turns.now) & (slots.panel == turns.panel))
    for slot, instruction in enumerate(turns.instructions):
        held = slots.held[slot]
        right = [Value.cast(held[name]) == Value.cast(instruction[name]) for name in names]
        for name, which in (("a_descriptor", 1), ("b_descriptor", 0)):
            right.append(Value.cast(held[name]) == descriptor(instruction.mark, which))
        h.claim(f"held_{slot}", ~turns.occupied[slot] | Cat(right).all())


@dataclass(frozen=True)
class Own:
    """The panels of B that an instruction has in this shared memory: all, or of a pair of CTAs every other one.

    Attributes
    ----------
    total : callable
        Of an instruction: how many.
    used : callable
        Of an instruction and the number of panels that were multiplied: how many of its own these are.
    """

    total: Callable[[Any], Value]
    used: Callable[[Any, Value], Value]


#: All of them.
ALL = Own(lambda instruction: instruction.last_panel + 1, lambda _, panel: panel)


def claim_b(h: Harness, parts: Any, fetch: Fetch, turns: Turns, own: Own = ALL) -> None:
    """State that panels of B are requested one after another, and that those read are the next to be multiplied."""
    turn, requests = parts.slots.b, parts.fetch.b
    asked, requested = requests.payload, h.named("requested_of_b", requests.valid & requests.ready)
    panel, ends = Signal(6, name="panel_of_b"), Signal(name="b_ends")
    slot, left = turns.brought("b", ends)
    turns.claim_brought(h, "b", slot, left)
    of_request = turns.of(slot)
    h.m.d.comb += ends.eq(requested & (panel + 1 == own.total(of_request)))
    with h.m.If(requested):
        h.m.d.sync += panel.eq(Mux(ends, 0, panel + 1))
    h.claim("turn_of_b", (turn.slot == slot) & (turn.left == left))
    right = [
        asked.mn_major == of_request.b_transposed,
        asked.short == ~of_request.control.sparse,
        Value.cast(asked.descriptor) == descriptor(of_request.mark, 0),
    ]
    h.claim("requests_of_b", requests.valid == left.any())
    h.claim("request_of_b", ~requests.valid | Cat(right).all())
    h.claim("panel_of_b", asked.panel == panel)

    # Of the panels that are read the next ones of the order: of the instruction that multiplies, then of the other.
    current, other = turns.current, turns.of(turns.other)
    used, rest, of_both, count = (
        Signal(6, name="used"),
        Signal(6, name="rest"),
        Signal(7, name="rest_of_both"),
        fetch.count,
    )
    h.m.d.comb += [
        used.eq(own.used(current, turns.panel)),
        rest.eq(Mux(turns.occupied.any(), own.total(current) - used, 0)),
        of_both.eq(rest + Mux(turns.occupied.all(), own.total(other), 0)),
    ]
    of_now, of_other = (left.bit_select(which, 1) for which in (turns.now, turns.other))
    h.claim("read_no_more", (count <= of_both) & (count <= _FETCHED))
    h.claim("reads_of_now", of_now == (count < rest))
    h.claim("reads_of_other", of_other == (turns.occupied.all() & (count < of_both)))
    following = Mux(of_now, used + count, Mux(of_other & (count > rest), count - rest, 0))
    h.claim("reads_next", panel == following[:6])
    for place, read in enumerate(fetch.panels):
        of_current = Cat(current.mark, (used + place)[:5])
        due = Mux(place < rest, of_current, Cat(other.mark, (place - rest)[:5]))
        h.claim(f"read_{place}", (count <= place) | (Value.cast(read) == due))


def claim_a(h: Harness, parts: Any, fetch: Fetch, turns: Turns, elsewhere: Value) -> tuple[list[list[Value]], Value]:
    """State that A is requested panel by panel; return which parts each slot has, two of a panel, and what is missing.

    `elsewhere` ends the turn of A that is not in shared memory.
    """
    turn, requests, last = parts.slots.a, parts.fetch.a, SEGMENTS * fetch.a_panels - 1
    asked, taken = requests.payload, h.named("requested_of_a", requests.valid & requests.ready)
    panel, ends = Signal(range(fetch.a_panels), name="panel_of_a"), Signal(name="a_ends")
    slot, left = turns.brought("a", ends)
    turns.claim_brought(h, "a", slot, left)
    of_request = turns.of(slot)
    elsewhere = h.named("elsewhere", elsewhere)
    arrived, arrives = fetch.arrived, fetch.arrives
    whole = h.named("a_is_whole", arrives & (arrived.panel == fetch.a_panels - 1) & arrived.segment)
    missing = turns.missing((whole << arrived.tag) | (elsewhere << slot))
    h.m.d.comb += ends.eq(Mux(of_request.a_shared, taken & (panel == fetch.a_panels - 1), elsewhere))
    with h.m.If(taken):
        h.m.d.sync += panel.eq(panel + 1)
    wanted = left.bit_select(slot, 1)
    h.claim("turn_of_a", (turn.slot == slot) & (turn.left == left) & (turn.missing == missing))
    right = (asked.panel == panel) & (asked.mn_major == of_request.a_transposed) & asked.short
    right &= (Value.cast(asked.descriptor) == descriptor(of_request.mark, 1)) & (parts.fetch.a_tag == slot)
    h.claim("requests_of_a", requests.valid == (wanted & of_request.a_shared))
    h.claim("request_of_a", ~requests.valid | right)
    h.claim("panel_of_a", asked.panel == panel)
    h.claim("is_elsewhere", ~elsewhere | (wanted & ~of_request.a_shared))
    # How much of A of the slot whose turn it is was read, and what of that arrives in this cycle.
    read = h.named("read_of_a", Cat(fetch.segment, panel, Const(0, 1)))
    h.claim("a_is_begun", (read == 0) | (wanted & of_request.a_shared))
    of_arrived = turns.of(arrived.tag)
    still = (slot == arrived.tag) & wanted
    number = Cat(arrived.segment, arrived.panel)
    h.claim(
        "arrives",
        ~arrives
        | (
            missing.bit_select(arrived.tag, 1)
            & of_arrived.a_shared
            & (arrived.mark == of_arrived.mark)
            & Mux(still, number + 1 == read, (number == last) & ~left.bit_select(arrived.tag, 1))
        ),
    )
    h.claim("missing_is_left", ~(left & ~missing).any() & ~(missing & ~turns.occupied).any())
    h.claim("missing", (turns.panel == 0) | ~missing.bit_select(turns.now, 1))
    got = []
    for number_of_slot, instruction in enumerate(turns.instructions):
        in_flight = arrives & (arrived.tag == number_of_slot)
        h.claim(f"on_its_way_{number_of_slot}", left[number_of_slot] | ~missing[number_of_slot] | (in_flight & whole))
        here = Mux(slot == number_of_slot, read, 0) - in_flight
        there = [
            turns.occupied[number_of_slot]
            & (~instruction.a_shared | ~missing[number_of_slot] | Mux(left[number_of_slot], place < here, place < last))
            for place in range(last + 1)
        ]
        got.append(there)
    return got, missing

"""Reference model of the two instructions in progress (``wgmma``, ``tcgen05``). Claims: the hardware matches the model.

Instructions are accepted, fetched and multiplied in program order, two at a time. The claims about slots, requests and
operands together are inductive.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Array, Cat, Const, Mux, ShapeLike, Signal, Value
from amaranth.lib import data

from ..rtl.step import control_layout
from .harness import Harness
from .sizes import SLOTS
from .slot_states import arrives_in_turn, claim_requests_in_turn, claim_slots_in_turn
from .stand_ins import DEPTH, SEGMENTS, FetchStandIn, Queue, descriptor

__all__ = [
    "ALL_PANELS",
    "OwnPanels",
    "SlotModel",
    "claim_a",
    "claim_b",
    "claim_slots",
    "claim_stream",
    "instruction_layout",
]


def instruction_layout(**fields: ShapeLike) -> data.StructLayout:
    """Return the layout of a model's instruction: bit `mark`, fields of ``wgmma`` and ``tcgen05``, and `fields`."""
    flags = ("a_shared", "a_transposed", "b_transposed", "negated", "add")
    common = {"mark": 1, "control": control_layout(), **dict.fromkeys(flags, 1), "last_panel": 5}
    return data.StructLayout(common | fields)


class SlotModel:
    """Model of two instructions in progress, each in its own slot (buffer), which runs in parallel with the hardware.

    If `accepted` is 1, `instruction` enters a slot. If `multiplied` is 1, a panel of the oldest instruction is
    multiplied.
    """

    def __init__(self, h: Harness, accepted: Value, instruction: data.View, multiplied: Value) -> None:
        self._h, m, layout = h, h.m, instruction.shape()
        #: For each instruction slot, the instruction that the slot holds.
        self.instructions = [Signal(layout, reset_less=True, name=f"instruction_{slot}") for slot in range(SLOTS)]
        #: Mask of filled instruction slots, and number of panels (eight columns) of `current` already multiplied.
        self.occupied, self.panel = Signal(SLOTS, name="occupied"), Signal(5, name="panel")
        #: Slot that the next accepted instruction will fill, and slot of the instruction that is being multiplied.
        self.next_slot, self.slot = Signal(name="next_slot"), Signal(name="slot")
        #: `current`: instruction that is being multiplied. `other`: instruction in the other instruction slot (of two).
        self.current: Any = self.in_slot(self.slot)
        self.other: Any = self.in_slot(~self.slot)
        last = h.named("last", multiplied & (self.panel == self.current.last_panel))
        #: For each instruction slot, a bit that is set if an accepted instruction fills the slot in the current cycle.
        self.filled = h.named("filled", accepted << self.next_slot, SLOTS)
        m.d.sync += [
            self.occupied.eq((self.occupied | self.filled) & ~(last << self.slot)),
            self.next_slot.eq(self.next_slot ^ accepted),
            self.slot.eq(self.slot ^ last),
        ]
        with m.If(multiplied):
            m.d.sync += self.panel.eq(Mux(last, 0, self.panel + 1))
        for slot, stored in enumerate(self.instructions):
            with m.If(self.filled[slot]):
                m.d.sync += stored.eq(instruction)
        claim_slots_in_turn(h, self)
        h.claim("begun", (self.panel == 0) | (self.occupied.any() & (self.panel <= self.current.last_panel)))

    def in_slot(self, slot: Value) -> Any:
        """Return the instruction in the given one of the two slots (buffers for instructions in progress)."""
        return Array(self.instructions)[slot]

    def at_current(self, slots: Value) -> Value:
        """Return bit n of `slots`, where slot (instruction buffer) n holds the instruction that is multiplied now."""
        return slots.bit_select(self.slot, 1)

    def at_other(self, slots: Value) -> Value:
        """Return bit n of `slots`, where slot (instruction buffer) n holds the instruction that is not multiplied."""
        return slots.bit_select(~self.slot, 1)

    def turn(self, name: str, turn: Any, end: Value) -> tuple[Value, Value]:
        """Model which instruction slot's operand is requested. Claim that the hardware's port `turn` names that slot.

        `end` is 1 in the cycle of the last request for a slot. The next requests are for the other slot. Return the
        slot for which the operand is requested, and a mask of the slots whose requests are not complete.
        """
        h = self._h
        slot, left = Signal(name=f"slot_of_{name}"), Signal(SLOTS, name=f"left_of_{name}")
        h.m.d.sync += [slot.eq(slot ^ end), left.eq(left & ~(end << slot) | self.filled)]
        h.claim(f"turn_of_{name}", (turn.slot == slot) & (turn.left == left))
        claim_requests_in_turn(h, name, self, slot, left)
        return slot, left

    def missing(self, name: str, turn: Any, left: Value, arrived: Value) -> Value:
        """Return a mask of the instructions whose operand `name` has not arrived. Claim that the hardware agrees."""
        h = self._h
        missing = Signal(SLOTS, name=f"missing_{name}")
        h.m.d.sync += missing.eq(missing & ~arrived | self.filled)
        h.claim(f"arrived_{name}", turn.arrived == (self.occupied & ~missing))
        h.claim(f"missing_{name}_if_left", ~(left & ~missing).any() & ~(missing & ~self.occupied).any())
        h.claim(f"{name}_before_panels", (self.panel == 0) | ~self.at_current(missing))
        return missing


def claim_slots(h: Harness, slots: Any, model: SlotModel, names: Sequence[str]) -> None:
    """Claim that the fields `names` of instructions in the hardware equal those of instructions in the model."""
    h.claim("slots", (slots.occupied == model.occupied) & (slots.next_slot == model.next_slot))
    h.claim("slot", (slots.slot == model.slot) & (slots.panel == model.panel))
    for slot, instruction in enumerate(model.instructions):
        stored = slots.stored[slot]
        right = [Value.cast(stored[name]) == Value.cast(instruction[name]) for name in names]
        for name, of_a in (("a_descriptor", 1), ("b_descriptor", 0)):
            right.append(Value.cast(stored[name]) == descriptor(instruction.mark, of_a))
        h.claim(f"slot_{slot}", ~model.occupied[slot] | Cat(right).all())


@dataclass(frozen=True)
class OwnPanels:
    """Panels (eight columns) of an instruction that a stream transfers: all, or every second one (B of a CTA pair)."""

    total: Callable[[Any], Value]  #: Number of panels of an instruction that pass through the stream
    #: Function that returns how many of the first n panels of an instruction pass through the stream. Its arguments are
    #: the instruction and n.
    used: Callable[[Any, Value], Value]


ALL_PANELS = OwnPanels(lambda instruction: instruction.last_panel + 1, lambda _, panel: panel)


def claim_stream(
    h: Harness,
    model: SlotModel,
    name: str,
    turn: Any,
    requests: Any,
    queue: Queue,
    own: OwnPanels = ALL_PANELS,
    number: Callable[[Any, Value], Value] = lambda _, place: place[:5],
) -> tuple[Any, Value]:
    """Claim that a stream requests panels (eight columns) in order, and that its queue holds those to multiply next.

    `turn` and `requests` are the ports of the operand. `number` returns the number of a panel, given an instruction and
    the position of the panel in the order of multiplication. Return the instruction for which a panel is requested, and
    the position of this panel.
    """
    requested = h.named(f"requested_of_{name}", requests.valid & requests.ready)
    place, end = Signal(6, name=f"place_of_{name}"), Signal(name=f"{name}_ends")
    slot, left = model.turn(name, turn, end)
    instruction = model.in_slot(slot)
    h.m.d.comb += end.eq(requested & (place + 1 == own.total(instruction)))
    with h.m.If(requested):
        h.m.d.sync += place.eq(Mux(end, 0, place + 1))
    h.claim(f"requests_of_{name}", requests.valid == left.any())

    # The queue has the next panels (eight columns) of the current instruction, then the first panels of the other one.
    current, other, count = model.current, model.other, queue.count
    widths = {"used": 6, "rest": 6, "all": 7}
    used, rest, of_both = (Signal(bits, name=f"{word}_of_{name}") for word, bits in widths.items())
    h.m.d.comb += [
        used.eq(own.used(current, model.panel)),
        rest.eq(Mux(model.occupied.any(), own.total(current) - used, 0)),
        of_both.eq(rest + Mux(model.occupied.all(), own.total(other), 0)),
    ]
    current_left, other_left = model.at_current(left), model.at_other(left)
    h.claim(f"{name}_no_more", (count <= of_both) & (count <= DEPTH))
    h.claim(f"{name}_of_current", current_left == (count < rest))
    h.claim(f"{name}_of_other", other_left == (model.occupied.all() & (count < of_both)))
    following = Mux(current_left, used + count, Mux(other_left & (count > rest), count - rest, 0))
    h.claim(f"{name}_next", place == following[:6])
    for ahead, entry in enumerate(queue.entries):
        first = Cat(current.mark, number(current, (used + ahead)[:5]))
        second = Cat(other.mark, number(other, (ahead - rest)[:5]))
        h.claim(f"{name}_ahead_{ahead}", (count <= ahead) | (Value.cast(entry) == Mux(ahead < rest, first, second)))
    return instruction, place


def claim_b(h: Harness, parts: Any, fetch: FetchStandIn, model: SlotModel, own: OwnPanels = ALL_PANELS) -> None:
    """Claim that requests for panels (eight columns) of B have the right order, descriptor, K- or MN-major, length."""
    requests = parts.fetch.b
    request: Any = requests.payload
    instruction, place = claim_stream(h, model, "b", parts.slots.b, requests, fetch.panels, own)
    right = [
        request.mn_major == instruction.b_transposed,
        request.short == ~instruction.control.sparse,
        Value.cast(request.descriptor) == descriptor(instruction.mark, 0),
    ]
    h.claim("request_of_b", ~requests.valid | Cat(right).all())
    h.claim("panel_of_b", request.panel == place)


def claim_a(
    h: Harness, parts: Any, fetch: FetchStandIn, model: SlotModel, elsewhere: Value
) -> tuple[list[list[Value]], Value]:
    """Claim that A in shared memory is requested panel by panel (eight rows). The two instruction slots take turns.

    If A is not in shared memory, `elsewhere` ends the turn of the slot. Return which core matrices of A (two for each
    panel) are stored for each slot, and a mask of the slots with incomplete A.
    """
    turn, requests, last = parts.slots.a, parts.fetch.a, SEGMENTS * fetch.a_panels - 1
    request: Any = requests.payload
    requested = h.named("requested_of_a", requests.valid & requests.ready)
    panel, end = Signal(range(fetch.a_panels), name="panel_of_a"), Signal(name="a_ends")
    slot, left = model.turn("a", turn, end)
    instruction = model.in_slot(slot)
    elsewhere = h.named("a_elsewhere", elsewhere)
    arriving, core_matrix = fetch.arriving, fetch.core_matrix
    complete = h.named("a_complete", arriving & (core_matrix.panel == fetch.a_panels - 1) & core_matrix.segment)
    missing = model.missing("a", turn, left, (complete << core_matrix.tag) | (elsewhere << slot))
    h.m.d.comb += end.eq(Mux(instruction.a_shared, requested & (panel == fetch.a_panels - 1), elsewhere))
    with h.m.If(requested):
        h.m.d.sync += panel.eq(panel + 1)
    pending = left.bit_select(slot, 1)
    right = [
        request.mn_major == instruction.a_transposed,
        request.short,
        Value.cast(request.descriptor) == descriptor(instruction.mark, 1),
        parts.fetch.a_tag == slot,
    ]
    h.claim("requests_of_a", requests.valid == (pending & instruction.a_shared))
    h.claim("request_of_a", ~requests.valid | Cat(right).all())
    h.claim("panel_of_a", request.panel == panel)
    h.claim("a_elsewhere", ~elsewhere | (pending & ~instruction.a_shared))
    # `read` counts the core matrices of A that have been read for instruction slot `slot`. `number` is the index of the
    # core matrix of A that arrives.
    read = h.named("read_of_a", Cat(fetch.segment, panel, Const(0, 1)))
    h.claim("a_begun", (read == 0) | (pending & instruction.a_shared))
    owner = model.in_slot(core_matrix.tag)
    number = Cat(core_matrix.segment, core_matrix.panel)
    is_next = arrives_in_turn(slot, left, core_matrix.tag, number, read, last)
    right = [missing.bit_select(core_matrix.tag, 1), owner.a_shared, core_matrix.mark == owner.mark, is_next]
    h.claim("a_arriving", ~arriving | Cat(right).all())
    stored = []
    for number_of_slot, of_slot in enumerate(model.instructions):
        arrives = arriving & (core_matrix.tag == number_of_slot)
        waits, is_left, occupied = missing[number_of_slot], left[number_of_slot], model.occupied[number_of_slot]
        h.claim(f"last_of_a_{number_of_slot}", is_left | ~waits | (arrives & complete))
        count, places = Mux(slot == number_of_slot, read, 0) - arrives, range(last + 1)
        arrived = [Mux(is_left, place < count, place < last) for place in places]
        stored.append([occupied & (~of_slot.a_shared | ~waits | arrived[place]) for place in places])
    return stored, missing

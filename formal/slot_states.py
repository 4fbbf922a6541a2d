"""Claims about the states of instruction slots and operand fetch, which make claims about progress inductive."""

from typing import Any

from amaranth.hdl import Cat, Mux, Value

from .harness import Harness, opened
from .sizes import SLOTS

__all__ = [
    "arrives_in_turn",
    "claim_fetch_of_a",
    "claim_fetch_of_b",
    "claim_requests_in_turn",
    "claim_slots_in_turn",
    "claim_turns",
]

#: Number of panels of A (eight rows each) that an array of dot-product units multiplies.
_PANELS = 2


def _bit(slots: Value, slot: Value) -> Value:
    return slots.bit_select(slot, 1)


def claim_slots_in_turn(h: Harness, slots: Any) -> None:
    """Claim that the two instruction buffers `slots` take turns: instructions are accepted and multiplied in order."""
    both, none = slots.occupied.all(), ~slots.occupied.any()
    h.claim("in_turns", (slots.next_slot == slots.slot) == (both | none))
    h.claim("oldest", none | _bit(slots.occupied, slots.slot))


def claim_requests_in_turn(h: Harness, name: str, slots: Any, slot: Value, left: Value) -> None:
    """Claim that an operand is requested for two instruction buffers in turn. `left`: mask of buffers not yet done."""
    current_left, other_left = _bit(left, slots.slot), _bit(left, ~slots.slot)
    h.claim(f"{name}_left", Mux(current_left, left == slots.occupied, ~(left & ~slots.occupied).any()))
    h.claim(f"{name}_in_order", slot == Mux(current_left, slots.slot, Mux(other_left, ~slots.slot, slots.next_slot)))


def claim_turns(h: Harness, slots: Any, *names: str) -> None:
    """Claim that two instruction buffers take turns in accepting instructions, requesting operands, and multiplying."""
    claim_slots_in_turn(h, slots)
    for name in names:
        turn = getattr(slots, name)
        claim_requests_in_turn(h, name, slots, turn.slot, turn.left)
        if hasattr(turn, "arrived"):
            h.claim(f"{name}_arrived", ~(turn.arrived & (turn.left | ~slots.occupied)).any())


def arrives_in_turn(slot: Value, left: Value, tag: Value, number: Value, read: Value, last: int) -> Value:
    """Return 1 if core matrix `number` of slot `tag` was the last to be read. `read`: core matrices read for `slot`."""
    in_progress = (slot == tag) & _bit(left, tag)
    return Mux(in_progress, number + 1 == read, (number == last) & ~_bit(left, tag))


def claim_fetch_of_a(h: Harness, parts: Any, arrays: int) -> None:
    """Claim that A is read and arrives core matrix by core matrix. `parts` are the submodules of the hardware."""
    slots, fetch = parts.slots, parts.fetch
    turn, occupied, arriving = slots.a, slots.occupied, fetch.core_matrix
    shared, tag = Cat(instruction.a_shared for instruction in slots.stored), arriving.tag
    # `read` counts the core matrices of A that have been read for instruction slot `turn.slot`. `number` is the index
    # of the core matrix that arrives.
    segment = fetch.signal("segment_a")
    read, number = Cat(segment[0], opened(parts.requests_a).signal("panel")), Cat(arriving.segment, arriving.panel)
    last = 2 * _PANELS * arrays - 1
    in_turn = arrives_in_turn(turn.slot, turn.left, tag, number, read, last)
    h.claim("reads_of_a", (segment <= 1) & ((read == 0) | (turn.pending & _bit(shared, turn.slot))))
    h.claim("arriving_a", ~fetch.arriving | (_bit(occupied & shared & ~turn.arrived, tag) & in_turn))
    for slot in range(SLOTS):
        arrives = fetch.arriving & (number == last) & (tag == slot)
        h.claim(f"last_of_a_{slot}", ~occupied[slot] | turn.left[slot] | turn.arrived[slot] | arrives)


def claim_fetch_of_b(h: Harness, fetch: Any, count: Value) -> None:
    """Claim that fetch counters agree with `count`: panels (eight columns) of B requested but not yet consumed."""
    begun, complete, delivered = (fetch.signal(name) for name in ("begun", "complete", "delivered"))
    is_begun, completes = fetch.signal("segment_b") != 0, fetch.signal("completes")
    h.claim("begun_panels", ((begun - delivered)[:2] == count + is_begun) & (count + is_begun <= 2))
    h.claim("complete_panels", ((complete - delivered)[:2] == count - completes) & (~completes | (count != 0)))

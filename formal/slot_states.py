"""Claims about the states of instruction slots and operand fetch, which make claims about progress inductive."""

from typing import Any

from amaranth.hdl import Cat, Mux, Value

from .harness import Harness, opened
from .sizes import SLOTS

__all__ = ["claim_fetch_of_a", "claim_fetch_of_b", "claim_turns"]

#: Number of panels of A (eight rows each) of an array.
_PANELS = 2


def _bit(slots: Value, slot: Value) -> Value:
    return slots.bit_select(slot, 1)


def claim_turns(h: Harness, slots: Any, *names: str) -> None:
    """Claim that slots are filled, requested for and multiplied in turn. `names` are the operands of the slots."""
    occupied, current, other = slots.occupied, slots.slot, ~slots.slot
    h.claim("slots_in_turns", (slots.next_slot == current) == (occupied.all() | ~occupied.any()))
    h.claim("oldest_slot", ~occupied.any() | _bit(occupied, current))
    for name in names:
        turn = getattr(slots, name)
        is_left, other_left = _bit(turn.left, current), _bit(turn.left, other)
        h.claim(f"left_of_{name}", Mux(is_left, turn.left == occupied, ~(turn.left & ~occupied).any()))
        h.claim(f"turn_of_{name}", turn.slot == Mux(is_left, current, Mux(other_left, other, slots.next_slot)))
        if hasattr(turn, "arrived"):
            h.claim(f"arrived_of_{name}", ~(turn.arrived & (turn.left | ~occupied)).any())


def claim_fetch_of_a(h: Harness, parts: Any, arrays: int) -> None:
    """Claim that A is read and arrives core matrix by core matrix. `parts` has slots, fetch and requests."""
    slots, fetch = parts.slots, parts.fetch
    turn, occupied, arriving = slots.a, slots.occupied, fetch.core_matrix
    shared, tag = Cat(instruction.a_shared for instruction in slots.stored), arriving.tag
    # Number of core matrices of A that have been read for the slot `turn.slot`, and number of the one that arrives.
    segment = fetch.signal("segment_a")
    read, number = Cat(segment[0], opened(parts.requests_a).signal("panel")), Cat(arriving.segment, arriving.panel)
    is_last = number == 2 * _PANELS * arrays - 1
    in_progress = (turn.slot == tag) & _bit(turn.left, tag)
    in_turn = Mux(in_progress, number + 1 == read, is_last & ~_bit(turn.left, tag))
    h.claim("reads_of_a", (segment <= 1) & ((read == 0) | (turn.pending & _bit(shared, turn.slot))))
    h.claim("arriving_a", ~fetch.arriving | (_bit(occupied & shared & ~turn.arrived, tag) & in_turn))
    for slot in range(SLOTS):
        arrives = fetch.arriving & is_last & (tag == slot)
        h.claim(f"last_of_a_{slot}", ~occupied[slot] | turn.left[slot] | turn.arrived[slot] | arrives)


def claim_fetch_of_b(h: Harness, fetch: Any, count: Value) -> None:
    """Claim that the counters of panels of B agree with `count`, the number of panels requested and not yet used."""
    begun, complete, delivered = (fetch.signal(name) for name in ("begun", "complete", "delivered"))
    is_begun, completes = fetch.signal("segment_b") != 0, fetch.signal("completes")
    h.claim("begun_panels", ((begun - delivered)[:2] == count + is_begun) & (count + is_begun <= 2))
    h.claim("complete_panels", ((complete - delivered)[:2] == count - completes) & (~completes | (count != 0)))

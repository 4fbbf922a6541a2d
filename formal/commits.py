"""Proofs about commit groups: no group completes early or late, and the count of pending groups is right."""

from typing import Any

from amaranth.hdl import Array, Cat, Mux, Signal, Value, signed

from ..rtl.commits import Commits
from .harness import Harness, opened
from .properties import Topic, once
from .ring import claim_ring

__all__ = ["COMMITS"]

COMMITS = Topic("commits")
#: Maximum number of instructions that are issued and not yet completely multiplied: one for each instruction slot of
#: the hardware.
_ISSUED = 2
_IN_FLIGHT = 2
#: Maximum number of pending commit groups.
_GROUPS = 8
#: Width in bits of the signed difference between an instruction's number and the number of completed instructions.
_BITS = 4


# Upper bound on the cycles needed to reach every cover condition: the time in which two instructions are issued,
# multiplied and delivered, with a commit after each instruction.
@COMMITS.property("order", once, cycles=12)
def _order(h: Harness) -> None:
    """A commit group does not complete before all instructions that precede its commit have completed.

    After that, the group finishes in the first cycle in which it is the oldest pending group. If all instructions have
    completed, one group finishes in each cycle. Every wait for groups therefore ends, and so does the wait of a commit
    while too many groups are pending. Instructions are issued, multiplied and delivered in order, with any number of
    idle cycles between them.
    """
    reset = h.clocked()
    commits = h.add("commits", opened(Commits(_IN_FLIGHT)))
    waiting, inside = Signal(range(_ISSUED + 1), name="waiting"), Signal(range(_IN_FLIGHT + 1), name="inside")
    issued = h.named("issued", h.free("issues") & (waiting != _ISSUED) & ~reset)
    multiplied = h.named("multiplied", h.free("multiplies") & (waiting != 0) & (inside != _IN_FLIGHT) & ~reset)
    last = h.named("last", h.free("is_last") & multiplied)
    delivered = h.named("delivered", h.free("delivers") & (inside != 0) & ~reset)
    commit = h.named("commit", h.free("commits") & commits.room & ~issued & ~reset)
    h.m.d.comb += [
        commits.issued.eq(issued),
        commits.multiplied.eq(multiplied),
        commits.last.eq(last),
        commits.delivered.eq(delivered),
        commits.commit.eq(commit),
    ]
    ends = Signal(_IN_FLIGHT, name="ends")
    h.m.d.sync += [
        waiting.eq(waiting + issued - last),
        inside.eq(inside + multiplied - delivered),
        ends.eq((ends | (last << inside)) >> delivered),
    ]
    inside_ends = sum(ends[place] for place in range(_IN_FLIGHT))
    # `open_ones` is the number of unfinished instructions. `awaited` is the number of instructions for which the commit
    # group under test still waits; if instructions issued after the commit finish too, `awaited` becomes negative.
    finishes = h.named("finishes", delivered & ends[0])
    open_ones, awaited = Signal(3, name="open"), Signal(signed(_BITS), name="awaited")
    groups, ahead = Signal(range(_GROUPS + 1), name="groups"), Signal(range(_GROUPS + 1), name="ahead")
    marked, passed = Signal(name="marked"), Signal(name="passed")
    marks = h.named("marks", h.free("mark") & commit & ~marked)
    finished = h.named("finished", commits.finished)
    h.m.d.sync += [open_ones.eq(open_ones + issued - finishes), groups.eq(groups + commit - finished)]
    with h.m.If(marks):
        h.m.d.sync += [marked.eq(1), awaited.eq(open_ones - finishes), ahead.eq(groups - finished)]
    with h.m.Elif(marked & ~passed):
        h.m.d.sync += [awaited.eq(awaited - finishes), ahead.eq(ahead - finished)]
        with h.m.If(finished & (ahead == 0)):
            h.m.d.sync += passed.eq(1)
    is_oldest = marked & ~passed & (ahead == 0)
    h.claim("pending", commits.pending == groups)
    h.claim("room", commits.room == (groups != _GROUPS))
    waits = _claim_groups(h, commits, groups, open_ones)
    h.claim("awaited", ~(marked & ~passed) | (Array(waits)[ahead] == awaited))
    end = claim_ring(h, "ends", commits.parts.ends, inside)
    h.claim("ends", Cat(ends[place] == (end(place) & (place < inside)) for place in range(_IN_FLIGHT)).all())
    h.claim("not_before", ~(is_oldest & finished) | (awaited <= 0))
    h.claim("not_later", ~(is_oldest & (awaited <= 0)) | finished)
    h.claim("of_a_group", ~finished | (groups != 0))
    h.claim("is_pending", ~(marked & ~passed) | ((ahead < groups) & (awaited <= open_ones)))
    h.claim("open", (open_ones == waiting + inside_ends) & (waiting <= _ISSUED))
    h.claim("drains", (open_ones != 0) | (groups == 0) | finished)
    h.cover("finished", is_oldest & finished)
    h.cover("waits", is_oldest & (awaited == 2))
    h.cover("full", groups == _GROUPS)


def _claim_groups(h: Harness, commits: Any, groups: Value, open_ones: Value) -> list[Value]:
    """Claim that no commit group waits for more instructions than a newer group. Return how many each waits for.

    A negative result counts later instructions that have completed, although the group does not wait for them.
    """
    entry = claim_ring(h, "groups", commits.parts.groups, groups)
    completed = commits.signal("completed")
    h.claim("numbers", (commits.signal("issued_before") - completed)[:_BITS] == open_ones)
    waits = [h.named(f"waits_{place}", entry(place) - completed, signed(_BITS)) for place in range(_GROUPS)]
    for place, wait in enumerate(waits):
        newer = Mux(groups == place + 1, open_ones, waits[place + 1]) if place + 1 < _GROUPS else open_ones
        # One commit group finishes in each cycle in which the oldest commit group waits for no instruction.
        least = place - (_GROUPS - 1)
        h.claim(f"group_{place}", (groups <= place) | ((wait <= newer) & (wait >= least)))
    return waits

"""Claims about a ring buffer. They make other claims about a component that contains the buffer inductive."""

from collections.abc import Callable
from functools import reduce
from operator import or_

from amaranth.hdl import Array, Cat, Mux, Value

from ..rtl.ring import Ring
from .harness import Harness, opened

__all__ = ["claim_ring"]


def claim_ring(h: Harness, name: str, ring: Ring, count: Value) -> Callable[[Value | int], Value]:
    """Claim that a ring buffer holds its `count` entries in successive registers, and writes the next entry after them.

    Return a function that takes a number n and returns the entry that follows the n oldest entries.
    """
    most, written = ring.most, opened(ring).signal("written")
    begins_at = [ring.first == 1 << place for place in range(most)]
    h.claim(f"{name}_first", Cat(begins_at).any())
    right = []
    for place, begins in enumerate(begins_at):
        for length in range(most + 1):
            occupied = sum(1 << (place + each) % most for each in range(length))
            follows = written == 1 << (place + length) % most
            right.append(~(begins & (count == length)) | ((ring.valid == occupied) & follows))
    h.claim(f"{name}_registers", Cat(right).all() & (count <= most))

    def behind(ahead: Value | int) -> Value:
        entries = [Value.cast(entry) for entry in ring.entries]
        turned = (Array(entries[place:] + entries[:place])[ahead] for place in range(most))
        return reduce(or_, (Mux(begins, entry, 0) for begins, entry in zip(begins_at, turned, strict=True)))

    return behind

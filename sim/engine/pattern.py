"""Events in a cycle of a stream test: bits that the C++ drivers and Python share."""

from enum import IntFlag

__all__ = ["CycleBits", "pattern_constants"]


class CycleBits(IntFlag):
    """Bits of one cycle of a pattern.

    Attributes
    ----------
    OFFER : int
        The next item or command is offered; it stays offered until it is taken.
    OFFER_C : int
        The next accumulators are offered, likewise.
    TAKE : int
        Results are taken.
    OFFER_MMA : int
        An instruction of ``mma`` is offered.
    TAKE_MMA : int
        Results of ``mma`` of the first array are taken; the next three bits are for the other arrays.
    RESET : int
        Reset.
    MEET : int
        After a stalled result, everything is offered and taken in this cycle instead.
    MEET_RESET : int
        After a transfer, this cycle is a reset instead.
    BLIND : int
        The instruction of ``mma`` is offered to the array that the bits from ARRAY on name, whether or not it has room.
    ARRAY : int
        Lowest bit of the number of that array.
    """

    OFFER = 1 << 0
    OFFER_C = 1 << 1
    TAKE = 1 << 2
    OFFER_MMA = 1 << 3
    TAKE_MMA = 1 << 4
    RESET = 1 << 8
    MEET = 1 << 9
    MEET_RESET = 1 << 10
    BLIND = 1 << 11
    ARRAY = 1 << 12


def pattern_constants() -> dict[str, int]:
    """Return the bits as constants of a driver: ``pattern_offer`` and so on."""
    return {f"pattern_{bit.name.lower()}": bit.value for bit in CycleBits if bit.name}

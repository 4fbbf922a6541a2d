"""Reserved bits of matrix descriptors: what the hardware flags against what the decoder refuses."""

from collections.abc import Callable

from sptc.errors import OperandError
from sptc.isa.memory import decode_descriptor


def check_every_bit(check: Callable[[int], bool], family: str, fixed: int) -> None:
    """Flip every bit of a descriptor: the hardware flags what its decoder refuses."""
    for bit in (None, *range(64)):
        value = fixed if bit is None else fixed ^ 1 << bit
        try:
            decode_descriptor(value, family)
            refused = False
        except OperandError:
            refused = True
        assert check(value) == refused, bit

"""What a design can be elaborated for, besides gates."""

__all__ = ["FPGA", "OPERATORS", "has_operators"]

#: Platform of a simulator: arithmetic is the processor's own, and the fewest operations are the best.
OPERATORS = "operators"
#: Platform of an FPGA: additions are carry chains and multiplications DSP blocks; all else is gates.
FPGA = "fpga"


def has_operators(platform: object) -> bool:
    """Return whether the tools of a platform bring arithmetic of their own."""
    return platform in (OPERATORS, FPGA)

"""Targets of elaboration other than gates."""

__all__ = ["FPGA", "OPERATORS", "has_operators"]

#: Platform of a simulator: arithmetic uses operators of the processor, and fewer operations are faster.
OPERATORS = "operators"
#: Platform of an FPGA: additions are carry chains and multiplications DSP blocks; all else is gates.
FPGA = "fpga"


def has_operators(platform: object) -> bool:
    """Return whether the tools of a platform implement arithmetic operators."""
    return platform in (OPERATORS, FPGA)

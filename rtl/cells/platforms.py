"""Elaboration targets other than standard-cell gates: compiled simulation and FPGAs."""

__all__ = ["FPGA", "OPERATORS", "has_operators"]

#: Platform of a compiled simulator. RTL arithmetic uses the operators + and *, because fewer operations run faster.
OPERATORS = "operators"
#: Platform of an FPGA. Additions use carry chains, and multiplications use DSP blocks. All other logic is described as
#: gates.
FPGA = "fpga"


def has_operators(platform: object) -> bool:
    """Return whether a platform's tools implement + and * themselves, so that adders are not described as gates."""
    return platform in (OPERATORS, FPGA)

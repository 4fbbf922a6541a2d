"""Elaboration targets other than gates: compiled simulation and FPGAs."""

__all__ = ["FPGA", "OPERATORS", "has_operators"]

#: Platform of a compiled simulator. Arithmetic uses the processor's operators, since fewer operations run faster.
OPERATORS = "operators"
#: Platform of an FPGA. Additions use carry chains and multiplications use DSP blocks. All other logic is gates.
FPGA = "fpga"


def has_operators(platform: object) -> bool:
    """Return whether the tools of a platform implement additions and multiplications as operators."""
    return platform in (OPERATORS, FPGA)

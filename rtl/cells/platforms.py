"""What a design can be elaborated for, besides gates."""

__all__ = ["OPERATORS"]

#: Platform of tools that bring arithmetic of their own: instructions of a processor, multipliers of an FPGA.
OPERATORS = "operators"

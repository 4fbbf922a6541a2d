"""The golden model: every result bit of an instruction, computed in numpy and independently of the RTL."""

from .matrix import multiply

__all__ = ["multiply"]

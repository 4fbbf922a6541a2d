"""The golden model: computes every result bit of an instruction with numpy, independently of the RTL."""

from .matrix import multiply

__all__ = ["multiply"]

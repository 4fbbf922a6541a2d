"""The golden model: what each bit must be, in numpy, written to be read beside the rules of the hardware."""

from .matrix import multiply

__all__ = ["multiply"]

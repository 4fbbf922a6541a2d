"""The golden model: what each bit must be, in numpy, written to be read beside the rules of the hardware."""

from .warp import mma, wgmma

__all__ = ["mma", "wgmma"]

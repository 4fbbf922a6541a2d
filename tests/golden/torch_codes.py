"""Codes of the golden model as tensors of the oracle, and its results as codes."""

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["TORCH_TYPES", "result_codes", "tensor"]

TORCH_TYPES = {
    "f32": torch.float32,
    "tf32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "ue4m3": torch.float8_e4m3fn,
    "ue8m0": torch.float8_e8m0fnu,
}


def tensor(codes: NDArray, name: str) -> torch.Tensor:
    """Return codes of a format as numbers."""
    size = TORCH_TYPES[name].itemsize
    unsigned = codes.astype(f"u{size}", copy=False)
    return torch.from_numpy(unsigned.view(f"i{size}") if size > 1 else unsigned).view(TORCH_TYPES[name])


def result_codes(d: torch.Tensor) -> NDArray[np.uint32]:
    """Return results in f16 or f32 as codes, with NaN as the hardware writes it."""
    half = d.dtype == torch.float16
    codes = d.view(torch.int16 if half else torch.int32).numpy().view(np.uint16 if half else np.uint32)
    return np.where(d.isnan().numpy(), np.uint32(0x7FFF if half else 0x7FFFFFFF), codes)

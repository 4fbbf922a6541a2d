"""Compiled kernels with their operands, and what an H100 wrote."""

import ast
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sptc.kernels.launch import KernelRun, TensorTile, run_kernel

__all__ = ["NAMES", "RecordedKernel", "recorded"]

PATH = Path(__file__).parents[2] / "recordings" / "kernels" / "h100-2026-11-27.npz"
_SWIZZLES = ("none", "32B", "64B", "128B")
with np.load(PATH) as archive:
    NAMES = sorted({key.partition("|")[0] for key in archive.files})


@dataclass(frozen=True)
class RecordedKernel:
    """A kernel, how it was launched, and its result."""

    ptx: str
    grid: tuple[int, ...]
    block: int
    shared: int
    #: Arguments; the result stands at its place as an array of zeros.
    arguments: list[Any]
    result: int
    expected: NDArray

    def run(self, ptx: str | None = None, **options: Any) -> tuple[NDArray, KernelRun]:
        """Run the kernel, or another text in its place, and return what it writes."""
        d = np.zeros_like(self.expected)
        arguments = list(self.arguments)
        place = arguments[self.result]
        arguments[self.result] = TensorTile(d, place.box, place.swizzle) if isinstance(place, TensorTile) else d
        run = run_kernel(ptx or self.ptx, self.grid, self.block, arguments, shared=self.shared, **options)
        return d, run


@cache
def recorded(name: str) -> RecordedKernel:
    """Return a kernel by its name."""
    with np.load(PATH) as archive:
        fields = {key.partition("|")[2]: archive[key] for key in archive.files if key.startswith(f"{name}|")}
    ptx, expected = bytes(fields["ptx"]).decode(), fields["c"]
    if name.startswith("cuda"):
        b = np.ascontiguousarray(fields["b"].T) if "wgmma" in name else fields["b"]
        sizes = [256] if "wgmma" in name else [128, 256]
        arguments = [fields["stored"], fields["e"], b, expected, *sizes]
        return RecordedKernel(ptx, (1,) if "wgmma" in name else (4, 2), 128, 0, arguments, 3, expected)
    launch = json.loads(bytes(fields["launch"]))
    grid, block, shared = tuple(launch["grid"]), launch["threads"], launch["shared"]
    if "tensordesc_meta" not in launch:
        strides = [stride for stride in launch["strides"] if stride != 1]
        sizes = [launch["m"], launch["n"], launch["k"], *strides, 0, 0]
        count = ptx.partition(")")[0].count(".param ")
        arguments = [fields["a"], fields["b"], expected, *sizes][:count]
        return RecordedKernel(ptx, grid, block, shared, arguments, 2, expected)
    arguments = []
    for meta, array in zip(
        ast.literal_eval(launch["tensordesc_meta"]), (fields["a"], fields["b"], expected), strict=True
    ):
        tile = TensorTile(array, tuple(meta["block_size"]), _SWIZZLES[meta["swizzle"]])
        arguments += [tile, *array.shape, array.shape[1], 1]
    return RecordedKernel(ptx, grid, block, shared, [*arguments, launch["k"], 0, 0], 10, expected)

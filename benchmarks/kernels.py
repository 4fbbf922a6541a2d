"""Speed of compiled kernels on the model, on one core: instructions of threads, and time against the product alone.

The kernels are those of Triton that ship (512 x 640 x 320). Beside the time of a run stands that of ``sptc.gemm`` on
the same back end for the same product, which does no more than the tensor cores do.
"""

from measure import Row, best_seconds, one_core, options, show

one_core()

import json  # noqa: E402
import zlib  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import sptc  # noqa: E402

RECORDS = Path(sptc.__file__).parent / "recordings" / "kernels" / "triton-h100-2026-11-28.npz"
KERNELS = ("f16.128x256x64.warps8", "f16.mma.32x64", "tma.f16", "tma.f16.persistent", "s8")
TYPES = {"f16": np.dtype("f2"), "s8": np.dtype("i1"), "s32": np.dtype("i4"), "f32": np.dtype("f4")}


def measure(name: str, repeats: int) -> list[Row]:
    """Return the rows of a kernel."""
    with np.load(RECORDS) as archive:
        ptx, launch = zlib.decompress(archive[f"{name}|ptx"].tobytes()).decode(), archive[f"{name}|launch"].tobytes()
    said = json.loads(launch)
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for key, (kind, shape) in said["arrays"].items():
        values = rng.integers(-8, 8, shape)
        arrays[key] = np.zeros(shape, TYPES[kind]) if key == "d" else values.astype(TYPES[kind])
    arguments = [
        value if isinstance(value, int)
        else arrays[value["array"]] if "array" in value
        else sptc.TensorMap(arrays[value["tile"]], tuple(value["box"]), value["swizzle"])
        for value in said["arguments"]
    ]  # fmt: skip

    def kernel() -> Any:
        return sptc.run_kernel(ptx, said["grid"], said["block"], arguments, shared=said["shared"], check=False)

    count = kernel().instructions
    seconds = best_seconds(kernel, repeats)
    a, b = arrays["a"], arrays["b"]
    b = b if b.shape[0] == a.shape[1] else b.T
    structured = {"instruction": f"wgmma.mma_async.sync.aligned.m64n128k{64 // (2 * a.itemsize)}."
                  f"{'s32.s8.s8' if a.dtype == np.int8 else 'f32.f16.f16'}"}  # fmt: skip
    alone = best_seconds(lambda: sptc.gemm(a, b, backend="native", **structured), repeats)
    return [
        Row(f"{name}: thread instructions", "M/s", count / seconds / 1e6),
        Row(f"{name}: time of a run", "s", seconds),
        Row(f"{name}: against the product alone", "times", seconds / alone),
    ]


if __name__ == "__main__":
    chosen = options(__doc__).parse_args()
    rows = [
        row for name in (KERNELS[1:2] if chosen.small else KERNELS) for row in measure(name, 1 if chosen.small else 5)
    ]
    show(rows, chosen.json)

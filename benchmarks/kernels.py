"""Speed of sptc.run_kernel on one core: thread instructions per second, and time relative to sptc.gemm.

Triton 3.6 compiled f16 kernels for products of 512 x 512 x 512: for sm_80 (cp.async and mma) and sm_90 (TMA and wgmma).
The time of a kernel is compared with the time of ``sptc.gemm`` for the same product on the same back end, which models
only the tensor cores. The result of every kernel must equal the result of ``sptc.gemm`` bit for bit. Times are
processor times, since other processes affect elapsed times more. The load of the machine is also printed.

    python benchmarks/kernels.py --size 4096 --once    # one run of the first kernel, with the check and a progress bar
    python benchmarks/kernels.py --compile FILE.npz    # needs triton: writes recordings/kernels/triton-512.npz
"""

from measure import Row, best_seconds, one_core, options, show

one_core()

import json  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import time  # noqa: E402
import zlib  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import sptc  # noqa: E402
from kernel_records import fields  # noqa: E402
from sptc.cli.progress import progress_bar  # noqa: E402

RECORDS = Path(sptc.__file__).parent / "recordings" / "kernels" / "triton-512.npz"
#: Tile sizes and warps per CTA of the kernels. Kernels for sm_90 use TMA.
TILES = {
    "sm_80.128x128x64": ((128, 128, 64), 4), "sm_80.64x64x64": ((64, 64, 64), 4), "sm_80.128x64x32": ((128, 64, 32), 4),
    "sm_80.128x256x64.warps8": ((128, 256, 64), 8), "sm_90.tma.128x128x64": ((128, 128, 64), 4),
}  # fmt: skip
INSTRUCTIONS = {
    "sm_80": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "sm_90": "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16",
}


def compile_all(path: Path) -> None:
    """Compile the kernels with Triton, and write the PTX and the launch description of each kernel."""
    from record_kernels import matmul, tl, tma
    from sptc.kernels.triton import bound_arguments, compile_kernel

    operand, result, records = np.zeros((512, 512), np.float16), np.zeros((512, 512), np.float32), {}
    for name, ((m, n, k), warps) in TILES.items():
        blocks: dict[str, Any] = {"BM": m, "BN": n, "BK": k, "OUT": tl.float32}
        if name.startswith("sm_80"):
            kernel, arguments = matmul, (operand, operand, result, 512, 512, 512, 512, 1, 512, 1, 512, 1)
            blocks |= {"ACC": tl.float32, "GROUP": 8, "EPILOGUE": 0, "TF32": "tf32", "IMPRECISE": None}
        else:
            boxes = ((operand, (m, k)), (operand, (n, k)), (result, (m, n)))
            kernel, arguments = tma, (*(sptc.TensorMap(array, box) for array, box in boxes), 512, 512, 512)
            blocks |= {"PERSISTENT": 1 << 20, "SPECIALIZE": False}
        values = bound_arguments(kernel, arguments, blocks)
        compiled = compile_kernel(kernel, values, name.partition(".")[0], num_warps=warps, num_stages=3)
        launch = {"tile": [m, n], "block": compiled.block, "shared": compiled.shared, "maps": compiled.maps}
        records |= fields(name, compiled.ptx, launch)
    np.savez(path, allow_pickle=False, **records)


def launch_of(name: str, size: int) -> tuple[str, dict[str, Any], list[Any], tuple[np.ndarray, ...]]:
    """Return PTX, launch geometry, arguments and arrays of a kernel for a product with M = N = K = `size`."""
    with np.load(RECORDS) as archive:
        ptx = zlib.decompress(archive[f"{name}|ptx"].tobytes()).decode()
        launch = json.loads(archive[f"{name}|launch"].tobytes())
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size)).astype(np.float16) for _ in "ab")
    d = np.zeros((size, size), np.float32)
    arguments: list[Any] = [a, b, d, *[size] * 6]
    if launch["maps"]:
        arguments = [value for array, (box, swizzle) in zip((a, b, d), launch["maps"], strict=True)
                     for value in (sptc.TensorMap(array, tuple(box), swizzle), size, size, size, 1)]  # fmt: skip
        arguments += [size] * 3
    count = ptx.partition(".visible .entry")[2].partition(")")[0].count(".param ")
    m, n = launch["tile"]
    geometry = {"grid": (size // m) * (size // n), "block": launch["block"], "shared": launch["shared"]}
    return ptx, geometry, [*arguments, *[0] * (count - len(arguments))], (a, b, d)


def measure(name: str, size: int, repeats: int) -> list[Row]:
    """Measure the speed of ``sptc.run_kernel`` for one kernel, and return the figures as table rows."""
    arch = name.partition(".")[0]
    ptx, geometry, arguments, (a, b, d) = launch_of(name, size)

    def product() -> Any:
        right = b if arch == "sm_80" else np.ascontiguousarray(b.T)
        return sptc.gemm(a, right, instruction=INSTRUCTIONS[arch], arch=arch, backend="native")

    def kernel(*, check: bool, progress: Any = None) -> Any:
        return sptc.run_kernel(ptx, args=arguments, arch=arch, check=check, progress=progress, **geometry)

    if not repeats:
        start = time.process_time()
        with progress_bar("CTA") as progress:
            run = kernel(check=True, progress=progress)
        seconds = time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rows = [
            Row(f"{name}: time of {size}^3 with the shared memory check", "s", seconds),
            Row(f"{name}: peak memory", "MiB", peak),
        ]
    else:
        run = kernel(check=False)
        seconds, checked = (
            best_seconds(lambda check=check: kernel(check=check), repeats, time.process_time) for check in (False, True)
        )
        alone = best_seconds(product, repeats, time.process_time)
        rows = [
            Row(f"{name}: thread instructions", "M/s", run.instructions / seconds / 1e6),
            Row(f"{name}: thread instructions with the shared memory check", "M/s", run.instructions / checked / 1e6),
            Row(f"{name}: time of a run", "s", seconds),
            Row(f"{name}: time of a run with the shared memory check", "s", checked),
            Row(f"{name}: time of a run relative to sptc.gemm", "times", seconds / alone),
        ]
    if not np.array_equal(run.after(d).view(np.uint32), product().view(np.uint32)):
        raise SystemExit(f"{name}: the result differs from that of sptc.gemm")
    return rows


def main() -> None:
    """Measure the speed of the kernels and print the figures, or compile the kernels."""
    parser = options(__doc__)
    parser.add_argument("--size", type=int, default=512, help="M, N and K of the matrix product (default 512)")
    parser.add_argument("--once", action="store_true", help="run only one kernel, once, with a progress bar")
    parser.add_argument("--compile", type=Path, metavar="FILE.npz", help="compile kernels to FILE without measuring")
    chosen = parser.parse_args()
    if chosen.compile:
        compile_all(chosen.compile)
        return
    few = chosen.small or chosen.once
    repeats = 0 if chosen.once else 1 if chosen.small else 5
    rows = [row for name in [*TILES][: 1 if few else None] for row in measure(name, chosen.size, repeats)]
    show([*rows, Row("load of the machine", "processes", os.getloadavg()[0])], chosen.json)


if __name__ == "__main__":
    main()

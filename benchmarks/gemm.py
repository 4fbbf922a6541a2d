"""Matrix products with ``sptc gemm``: seconds for 1024 x 1024 x 1024 on all cores, and memory for large matrices."""

import json
import resource
import subprocess
import sys
import tempfile
import time

from measure import Row, options, show

#: M = N = K of the matrix product that is timed, and of the one whose memory is measured. `SMALL` is for `--small`.
SIDE, LARGE_SIDE = 1024, 8192
SMALL_SIDE, SMALL_LARGE_SIDE = 64, 256


def gemm(*words: str) -> tuple[float, dict]:
    """Run the command ``sptc gemm``. Return the time in seconds and the report."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "sptc", "gemm", *words, "--json"], check=True, capture_output=True)
    return time.perf_counter() - start, json.loads(done.stdout)


def main() -> None:
    """Measure time and memory of matrix products, and print the figures."""
    chosen = options(__doc__).parse_args()
    side, large_side = (SMALL_SIDE, SMALL_LARGE_SIDE) if chosen.small else (SIDE, LARGE_SIDE)
    shape, large = ([str(length)] * 3 for length in (side, large_side))
    gemm("--random", "16", "8", "32", "--backend", "rtl")  # not timed: the first run compiles the simulated hardware
    golden, _ = gemm("--random", *shape, "--backend", "golden")
    hardware, report = gemm("--random", *shape, "--backend", "rtl")
    rows = [
        Row(f"{side}^3 of f16 at 2:4, golden model", "s", golden, "under 10"),
        Row(f"{side}^3 of f16 at 2:4, hardware", "s", hardware, "under 60"),
        Row("hardware, kept products per second", "M", report["kept_products"] / hardware / 1e6),
    ]
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        gemm("--random", *large, "--rows", "128", "--backend", "golden", "--output", f"{folder}/d.npy")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    rows.append(
        Row(f"peak memory of a process, 128 rows of {large_side}^3", "MiB", max(before, peak) / 1024, "under 1024")
    )
    show(rows, chosen.json)


if __name__ == "__main__":
    main()

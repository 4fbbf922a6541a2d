"""Whole products with ``sptc gemm``: seconds at 1024 x 1024 x 1024 on every core, and memory for large matrices."""

import json
import resource
import subprocess
import sys
import tempfile
import time

from measure import Row, options, show

SHAPE = ("1024", "1024", "1024")
LARGE = ("8192", "8192", "8192")


def gemm(*words: str) -> tuple[float, dict]:
    """Run the command; return its seconds and its report."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "sptc", "gemm", *words, "--json"], check=True, capture_output=True)
    return time.perf_counter() - start, json.loads(done.stdout)


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__).parse_args()
    gemm("--random", "16", "8", "32", "--backend", "rtl")  # compiles the hardware
    golden, _ = gemm("--random", *SHAPE, "--backend", "golden")
    hardware, report = gemm("--random", *SHAPE, "--backend", "rtl")
    rows = [
        Row("1024^3 of f16 at 2:4, golden model", "s", golden, "under 10"),
        Row("1024^3 of f16 at 2:4, hardware", "s", hardware, "under 60"),
        Row("hardware, kept products a second", "M", report["kept_products"] / hardware / 1e6),
    ]
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        gemm("--random", *LARGE, "--rows", "128", "--backend", "golden", "--output", f"{folder}/d.npy")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    rows.append(Row("largest process at 8192^3, first 128 rows", "MiB", max(before, peak) / 1024, "under 1024"))
    show(rows, chosen.json)


if __name__ == "__main__":
    main()

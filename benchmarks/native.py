"""Speed of the C++ library on one core, relative to the golden model, the model mmasim, and a plain AVX2 loop."""

from measure import Row, best_seconds, one_core, options, show

one_core()

import ctypes  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
from sptc.errors import BackendError  # noqa: E402
from sptc.golden.matrix import multiply as golden_model  # noqa: E402
from sptc.infra.compiler import cxx_compiler, run_tool  # noqa: E402
from sptc.isa.instructions import Instruction, parse  # noqa: E402
from sptc.isa.operands import MatrixOperands  # noqa: E402
from sptc.native.backend import multiply, opened  # noqa: E402
from sptc.native.library import Input, MmaOperands, Output, library  # noqa: E402
from sptc.sim.benches.random_operands import random_operands  # noqa: E402

import golden as peers  # noqa: E402

ORDERED = "mma.sp::ordered_metadata.sync.aligned"
#: Measured instruction, architecture, and lower bound of the speed in 10^9 multiply-accumulates per s, by format.
MATRICES = {
    "f16": (f"{ORDERED}.m16n8k32.row.col.f32.f16.f16.f32", "sm_90", 2),
    "bf16": (f"{ORDERED}.m16n8k32.row.col.f32.bf16.bf16.f32", "sm_90", 0),
    "e4m3": (f"{ORDERED}.m16n8k64.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32", "sm_120", 2),
    "s8": (f"{ORDERED}.m16n8k64.row.col.satfinite.s32.s8.s8.s32", "sm_90", 8),
    "mxf4": (f"{ORDERED}.m16n8k128.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0", "sm_120", 1),
}
THROUGH_REGISTERS = 1
TIMES_MMASIM = 40
GIB = 1 << 30
#: C++ loop of plain 32-bit multiply-accumulates, without selection, alignment or rounding.
LIMIT = """
#include <cstdint>
extern "C" int64_t products(const int32_t *a, const int32_t *b, int32_t *d, int64_t times) {
    constexpr int K = 64, LANES = 64;
    for (int64_t time = 0; time < times; ++time)
        for (int lane = 0; lane < LANES; lane += 32) {
            int32_t sum[32] = {};
            for (int k = 0; k < K; ++k)
                for (int i = 0; i < 32; ++i) sum[i] += a[(time & 7) * K + k] * b[k * LANES + lane + i];
            for (int i = 0; i < 32; ++i) d[lane + i] ^= sum[i];
        }
    return times * K * LANES;
}
"""


@dataclass(frozen=True)
class Size:
    """Size of a run: M, N, K of a product; executions of an mma; side length and measured rows of a large square."""

    m: int
    n: int
    k: int
    tiles: int
    rows: int
    large: int


FULL = Size(m=512, n=512, k=1024, tiles=4096, rows=64, large=8192)
SMALL = Size(m=16, n=8, k=128, tiles=16, rows=2, large=128)


def limit() -> float:
    """Return the speed of a plain AVX2 loop, in G multiply-accumulates per second."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "limit.cpp").write_text(LIMIT, encoding="utf-8")
        words = [*cxx_compiler(), "-O3", "-mavx2", "-fPIC", "-shared", "-o", "limit.so", "limit.cpp"]
        run_tool(words, folder, "the C++ compiler", "a loop of multiplications")
        loop = ctypes.CDLL(str(folder / "limit.so"))
    a, b, d = (np.ones(count, np.int32) for count in (8 * 64, 64 * 64, 64))
    times = 20_000
    loop.products.restype = ctypes.c_int64
    arguments = [array.ctypes.data_as(ctypes.c_void_p) for array in (a, b, d)]
    seconds = best_seconds(lambda: loop.products(*arguments, ctypes.c_int64(times)))
    return times * 64 * 64 / seconds / 1e9


def of_matrices(size: Size, most: float) -> Iterator[Row]:
    """Yield the speed of the C++ library for products of each format, and ratios to the speed of other models."""
    work = size.m * size.n * size.k / 2 / 1e9
    for name, (text, arch, promised) in MATRICES.items():
        i = parse(text)
        operands = peers.matrices(i, size.m, size.n, size.k)
        seconds = best_seconds(lambda i=i, arch=arch, operands=operands: multiply(i, arch, operands))
        of_golden = best_seconds(lambda i=i, arch=arch, operands=operands: golden_model(i, arch, operands), 1)
        shape = f"{size.m}x{size.n}x{size.k}"
        yield Row(f"{shape} {name} matrix", "G kept MAC/s", work / seconds, f"at least {promised}" if promised else "")
        yield Row("  relative to a plain AVX2 loop", "%", 100 * work / seconds / most)
        yield Row("  relative to the golden model", "x", of_golden / seconds)
        if name == "f16" and (peer := mmasim(i, operands)):
            yield Row("  relative to mmasim 2.1.1", "x", peer / seconds, f"at least {TIMES_MMASIM}")


def mmasim(i: Instruction, operands: MatrixOperands) -> float | None:
    """Return the seconds that the public model mmasim would take for a whole product, extrapolated from some rows."""
    rows = min(64, operands.a.shape[1])
    seconds = peers.mmasim_seconds(i, operands.take(slice(None), slice(rows)))
    return seconds and seconds * operands.a.shape[1] / rows


def through_registers(tiles: int) -> Row:
    """Return the speed of the register interface of the C++ library, for m16n8k32 f16."""
    text, arch, _ = MATRICES["f16"]
    i = parse(text)
    arrays = random_operands(i, "mid", tiles, np.random.default_rng(0)).arrays
    d = np.empty_like(arrays["c"])

    def given(array: np.ndarray, kind: type[Input] = Input) -> Input:
        return kind(array.ctypes.data, array.nbytes)

    operands = MmaOperands(tiles, *(given(arrays[name]) for name in "abce"), 0, 0, d=given(d, Output))
    with opened(i, arch) as handle:
        seconds = best_seconds(lambda: library().sptc_mma(handle, ctypes.byref(operands), 1))
    speed = peers.kept(i) * tiles / seconds / 1e9
    return Row("m16n8k32 f16 through registers", "G kept MAC/s", speed, f"at least {THROUGH_REGISTERS}")


def large(size: Size, small: bool) -> Iterator[Row]:
    """Yield the time, extrapolated from some rows, and the peak memory of a large matrix product on two cores."""
    words = [sys.executable, __file__, "--large", *(["--small"] if small else [])]
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    name = f"{size.large}^3 sparse f16 on two cores"
    yield Row(f"{name}, from {size.rows} rows", "s", float(printed[0]))
    yield Row(f"{name}, peak memory", "GiB", float(printed[1]), "below 1")


def compute_large(size: Size) -> None:
    """Multiply the first rows of a large A by B on two cores. Print time and memory, extrapolated to all rows of A."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    text, arch, _ = MATRICES["f16"]
    i = parse(text)
    operands = peers.matrices(i, size.rows, size.large, size.large)
    start = time.perf_counter()
    multiply(i, arch, operands, threads=2)
    seconds = (time.perf_counter() - start) * size.large / size.rows
    # Bytes of C, D, stored A, and metadata (4 bits per two stored elements) for the rows that are not computed.
    others = (size.large - size.rows) * size.large * (4 + 4 + 1 + 1 / 4)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(seconds, (used + others) / GIB)


def main() -> None:
    """Measure the speed and the memory use of the C++ library, and print the figures."""
    parser = options(__doc__)
    parser.add_argument("--large", action="store_true", help="only compute some rows of a large matrix product")
    chosen = parser.parse_args()
    size = SMALL if chosen.small else FULL
    if chosen.large:
        compute_large(size)
        return
    most = limit()
    rows = [Row("plain AVX2 loop of 32-bit multiply-accumulates", "G/s", most)]
    rows += of_matrices(size, most)
    rows += [through_registers(size.tiles), *large(size, chosen.small)]
    show(rows, chosen.json)


if __name__ == "__main__":
    try:
        main()
    except BackendError as error:
        sys.exit(str(error))

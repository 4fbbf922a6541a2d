"""Speed-up of sparse products on this GPU: cuSPARSELt compared with cuBLAS, both called through PyTorch.

All matrices are square, and A is pruned 2:4. Kernels are replayed from CUDA graphs, so that the time of the host is not
measured. Each product is measured with normally distributed operands, with which large products reach the power limit
of the GPU, and with zeros, with which no product reaches the power limit. The script prints the time and the SM clock
of each measurement. cuSPARSELt runs the algorithm that the search of cuSPARSELt selects.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from kernel_records import NAMES
from measure import Row, options, show

SIZES = (1024, 2048, 4096, 8192)
#: M and N of matrix products with varied K: one output tile (128 x 256 or 256 x 128) per SM of an H200, or many tiles.
PLANES = ((1536, 2816), (2816, 1536), (8192, 8192))
DEPTHS = (512, 1024, 2048, 4096, 8192, 16384)
#: Format of the result, by format of the elements of A and B.
RESULTS = {"f16": "f16", "bf16": "bf16", "e4m3": "bf16", "s8": "s32"}
#: Seconds per measurement, seconds per measurement with ``--along-k``, and number of repetitions. A measurement must be
#: long, because the driver reports the clock with a delay.
SECONDS, SHORT_SECONDS, REPEATS = 0.4, 0.12, 3
QUERY = ("nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits")


def milliseconds(torch: Any, work: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Return the mean time of a call in ms, in the fastest of several rounds, and the median SM clock in MHz."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def run(count: int) -> float:
        begin.record()
        for _ in range(count):
            graph.replay()
        end.record()
        time.sleep(seconds / 2)
        clocks.append(float(subprocess.run(QUERY, capture_output=True, text=True, check=True).stdout.split()[0]))
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / count

    clocks: list[float] = []
    count = max(3, int(1000 * seconds / run(3)))
    clocks.clear()
    return min(run(count) for _ in range(REPEATS)), statistics.median(clocks)


Products = tuple[Callable[[], object], Callable[[], object]]


def products(torch: Any, name: str, shape: tuple[int, int, int], zeros: bool) -> Products:
    """Return two functions: the dense product by cuBLAS, and the sparse product by cuSPARSELt, with the same B."""
    operand_type, result_type = (getattr(torch, NAMES[word]) for word in (name, RESULTS[name]))
    m, n, k = shape
    draw = torch.zeros if zeros else torch.randn
    a, b = (draw(rows, k, device="cuda") for rows in (m, n))
    if name == "s8":
        a, b = ((32 * matrix).clamp(-127, 127) for matrix in (a, b))
    kept = torch.tensor([1, 1, 0, 0], device="cuda").repeat(k // 4)
    pruned, a, b = (a * kept).to(operand_type), a.to(operand_type), b.to(operand_type).t()
    one = torch.ones((), device="cuda")
    dense = {
        "e4m3": lambda: torch._scaled_mm(a, b, one, one, out_dtype=result_type),
        "s8": lambda: torch._int_mm(a, b),
    }.get(name, lambda: torch.mm(a, b))
    compressed = torch._cslt_compress(pruned)
    result = {"out_dtype": result_type} if result_type != operand_type else {}
    best = int(torch._C._cusparselt.mm_search(compressed, b, None, None, result.get("out_dtype"), False)[0])
    return dense, lambda: torch._cslt_sparse_mm(compressed, b, alg_id=best, **result)


def rows(torch: Any, name: str, shape: tuple[int, int, int], operands: str, seconds: float) -> Iterator[Row]:
    """Yield rows: times of a dense and of a sparse matrix product, SM clock during each of both, and the speed-up."""
    m, n, k = shape
    title = f"{name} {m if m == n == k else f'{m}x{n}x{k}'} {operands}"
    dense, sparse = products(torch, name, shape, operands == "zeros")
    times = {}
    for library, work in (("cuBLAS", dense), ("cuSPARSELt", sparse)):
        times[library], clock = milliseconds(torch, work, seconds)
        yield Row(f"{library} {title}", "ms", times[library])
        yield Row(f"{library} {title}, clock", "MHz", clock)
    yield Row(f"speed-up of sparse over dense, {title}", "times", times["cuBLAS"] / times["cuSPARSELt"])


def main() -> int:
    """Measure all products and print the speed-ups. Return 2 if PyTorch, cuSPARSELt or a GPU is missing."""
    parser = options(__doc__)
    parser.add_argument(
        "--along-k", action="store_true", help="only measure products of zero matrices, with many values of K"
    )
    chosen = parser.parse_args()
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available() or not torch.backends.cusparselt.is_available():
        print("this benchmark needs PyTorch with cuSPARSELt and an NVIDIA GPU", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}", file=sys.stderr)
    cubes = [((size, size, size), operands) for size in SIZES for operands in ("normal", "zeros")]
    planes = [((m, n, k), "zeros") for m, n in PLANES for k in DEPTHS]
    work = [(name, *of) for name in RESULTS for of in (planes if chosen.along_k else cubes)]
    seconds, work = (0.05, work[:1]) if chosen.small else (SHORT_SECONDS if chosen.along_k else SECONDS, work)
    show([row for name, shape, operands in work for row in rows(torch, name, shape, operands, seconds)], chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

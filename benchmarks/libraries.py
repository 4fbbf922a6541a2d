"""Sparse against dense products in closed libraries: cuSPARSELt against cuBLAS, on the GPU of this machine, by PyTorch.

Square matrices, A pruned to two of each four; kernels replayed from CUDA graphs, so that the host takes no part. Each
product is measured with normal operands, where a large one meets the GPU's power limit, and with zeros, where it does
not; beside each time stands the SM clock that the driver showed meanwhile. cuSPARSELt runs the algorithm that its own
search finds.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from measure import Row, options, show

SIZES = (1024, 2048, 4096, 8192)
#: PyTorch's names of the types, and of the results.
TYPES = {
    "f16": ("float16", "float16"),
    "bf16": ("bfloat16", "bfloat16"),
    "e4m3": ("float8_e4m3fn", "bfloat16"),
    "s8": ("int8", "int32"),
}
SECONDS, REPEATS = 0.4, 3
QUERY = ("nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits")


def milliseconds(torch: Any, work: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Return the shortest mean of a few rounds, and the median of the clocks (MHz) seen in them."""
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


def products(torch: Any, name: str, size: int, zeros: bool) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return the dense product and the sparse one, of the same B."""
    of_operands, of_result = (getattr(torch, word) for word in TYPES[name])
    a, b = (torch.zeros(size, size, device="cuda") if zeros else torch.randn(size, size, device="cuda") for _ in "ab")
    if name == "s8":
        a, b = ((32 * matrix).clamp(-127, 127) for matrix in (a, b))
    kept = torch.tensor([1, 1, 0, 0], device="cuda").repeat(size // 4)
    pruned, a, b = (a * kept).to(of_operands), a.to(of_operands), b.to(of_operands).t()
    one = torch.ones((), device="cuda")
    dense = {
        "e4m3": lambda: torch._scaled_mm(a, b, one, one, out_dtype=of_result),
        "s8": lambda: torch._int_mm(a, b),
    }.get(name, lambda: torch.mm(a, b))
    compressed = torch._cslt_compress(pruned)
    result = {"out_dtype": of_result} if of_result != of_operands else {}
    best = int(torch._C._cusparselt.mm_search(compressed, b, None, None, result.get("out_dtype"), False)[0])
    return dense, lambda: torch._cslt_sparse_mm(compressed, b, alg_id=best, **result)


def rows(torch: Any, sizes: tuple[int, ...], seconds: float) -> Iterator[Row]:
    """Yield the time of each product, its clock, and what the sparse one gains."""
    for name in TYPES:
        for size in sizes:
            for operands in ("normal", "zeros"):
                of = f"{name} {size} {operands}"
                dense, sparse = products(torch, name, size, operands == "zeros")
                times = {}
                for library, work in (("cuBLAS", dense), ("cuSPARSELt", sparse)):
                    times[library], clock = milliseconds(torch, work, seconds)
                    yield Row(f"{library} {of}", "ms", times[library])
                    yield Row(f"{library} {of}, clock", "MHz", clock)
                yield Row(f"sparse against dense, {of}", "times", times["cuBLAS"] / times["cuSPARSELt"])


def main() -> int:
    """Measure and print; return 2 where there is nothing to measure with."""
    chosen = options(__doc__).parse_args()
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available() or not torch.backends.cusparselt.is_available():
        print("this needs PyTorch with cuSPARSELt and an NVIDIA GPU", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}", file=sys.stderr)
    show([*rows(torch, SIZES[:1] if chosen.small else SIZES, 0.05 if chosen.small else SECONDS)], chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

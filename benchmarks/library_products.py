"""Identify the way of summation behind products that libraries computed on a GPU, and time ``sptc identify``.

``--record FOLDER`` runs cuSPARSELt and cuBLAS through PyTorch, and a kernel of Triton, on the GPU of this machine and
writes what they give. Else the products in ``--folder`` are identified, wherever: operands are drawn again. What is
found is written beside them with ``--ways``.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from measure import Row, options, show
from numpy.typing import NDArray

RECORDED = Path(__file__).parents[1] / "recordings" / "libraries"
PRODUCTS, RESULTS = "products.json", "products.npz"
#: PyTorch's name of each format.
NAMES = {"f16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn", "s8": "int8", "tf32": "float32"}
LONGEST_NAME = 200
CODES = {1: np.uint8, 2: np.uint16, 4: np.uint32}


class Product(NamedTuple):
    """One recorded product: library, format, result type, shape, and options of the library."""

    library: str
    format: str
    result: str
    shape: tuple[int, int, int]
    options: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the product in files."""
        words = [f"{key}{value}" for key, value in self.options.items()]
        return ".".join([self.library, self.format, "x".join(map(str, self.shape)), *words])


def products() -> Iterator[Product]:
    """Yield the products to record."""
    shapes = ((128, 64, 256), (256, 128, 2048), (64, 96, 8192))
    for fmt, result in (("f16", "f16"), ("bf16", "bf16"), ("e4m3", "bf16"), ("s8", "s32")):
        for shape in shapes:
            yield Product("cusparselt", fmt, result, shape, {})
    for fmt in ("f16", "bf16"):
        for split in (2, 3, 5):
            yield Product("cusparselt", fmt, fmt, (128, 64, 4096), {"split_k": split})
    for fmt, result in (("f16", "f16"), ("bf16", "bf16"), ("tf32", "f32"), ("s8", "s32")):
        for shape in shapes:
            yield Product("cublas", fmt, result, shape, {})
    for shape in shapes:
        for fast in (True, False):
            yield Product("cublas", "e4m3", "bf16", shape, {"use_fast_accum": fast})
    for fmt in ("f16", "bf16"):
        yield Product("triton", fmt, "f32", (128, 128, 1024), {})


def operands(product: Product) -> tuple[NDArray, NDArray]:
    """Draw A (M x K, 2:4 sparse for sparse libraries) and B (K x N) as numbers that the format represents exactly."""
    import ml_dtypes

    m, n, k = product.shape
    seed = int.from_bytes(hashlib.sha256(product.name.encode()).digest()[:4], "little")
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    if product.format == "s8":
        a, b = ((32 * matrix).round().clip(-127, 127) for matrix in (a, b))
    if product.library == "cusparselt":
        order = np.argsort(rng.random((m, k // 4, 4)), axis=2)
        a *= (order < 2).reshape(m, k)
    if product.format == "tf32":
        return tuple((matrix.view(np.uint32) & 0xFFFFE000).view(np.float32) for matrix in (a, b))  # type: ignore[return-value]
    dtype = {
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "e4m3": ml_dtypes.float8_e4m3fn,
        "s8": np.int8,
    }[product.format]
    return a.astype(dtype), b.astype(dtype)


def digest_of(product: Product) -> str:
    """Return the SHA-256 of both operands, to detect operands that differ from the recorded ones."""
    return hashlib.sha256(b"".join(matrix.tobytes() for matrix in operands(product))).hexdigest()


def on_gpu(torch: Any, product: Product) -> Callable[[], Any]:
    """Return a function that calls the library."""
    tensors = [
        torch.from_numpy(matrix.view(CODES[matrix.itemsize]).copy()).cuda().view(getattr(torch, NAMES[product.format]))
        for matrix in operands(product)
    ]
    a, b = tensors[0], tensors[1].t().contiguous().t()
    result = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "s32": torch.int32}[product.result]
    if product.library == "cusparselt":
        compressed = torch._cslt_compress(a)
        out = {} if result == a.dtype else {"out_dtype": result}
        split = product.options.get("split_k")
        more = {"alg_id": 0, "split_k": split, "split_k_mode": 0} if split else {}
        return lambda: torch._cslt_sparse_mm(compressed, b, **out, **more)
    if product.library == "triton":
        return _triton(torch, a, b)
    one = torch.ones((), device="cuda")
    return {
        "e4m3": lambda: torch._scaled_mm(a, b, one, one, out_dtype=result, **product.options),
        "s8": lambda: torch._int_mm(a, b),
    }.get(product.format, lambda: torch.mm(a, b))


def _triton(torch: Any, a: Any, b: Any) -> Callable[[], Any]:
    from library_kernels import product

    return lambda: product(torch, a, b)


def _short(kernel: str) -> str:
    """Return the name of a CUDA kernel without template arguments that only list types."""
    return kernel.split("<")[0] if len(kernel) > LONGEST_NAME else kernel


def record(folder: Path) -> None:
    """Run every product that the libraries accept, and write their results."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    said: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cusparselt": torch.backends.cusparselt.version(),
        "products": {},
    }
    arrays = {}
    for product in products():
        try:
            call = on_gpu(torch, product)
            call()
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                y = call()
                torch.cuda.synchronize()
        except Exception as error:
            said["products"][product.name] = {"refused": str(error).splitlines()[0][:200]}
            print(product.name, str(error).splitlines()[0][:300], flush=True)
            continue
        seen = (event.key for event in profile.key_averages())
        kernels = [_short(name) for name in seen if not name.startswith(("cuda", "cuLaunch", "Mem", "Act"))]
        codes = y.contiguous().view({2: torch.int16, 4: torch.int32}[y.element_size()]).cpu().numpy()
        codes = codes.view(CODES[codes.itemsize])
        arrays[product.name] = codes
        digest = hashlib.sha256(codes.tobytes()).hexdigest()
        said["products"][product.name] = {"kernels": kernels, "sha256": digest, "operands": digest_of(product)}
        print(product.name, kernels, flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / RESULTS, **arrays)
    (folder / PRODUCTS).write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


def rows(folder: Path, chosen: list[Product], said: dict[str, Any]) -> Iterator[Row]:
    """Yield the time to identify each product, and its way; exit with an error if none is found."""
    import sptc

    with np.load(folder / RESULTS) as results:
        for product in chosen:
            a, b = operands(product)
            dense = product.library != "cusparselt"
            start = time.perf_counter()
            identified = sptc.identify(
                a, b, results[product.name], format=product.format, result=product.result, dense=dense
            )
            seconds = time.perf_counter() - start
            if not identified.exact:
                sys.exit(f"{product.name}: {identified}")
            said[product.name]["way"] = str(identified.way)
            yield Row(f"{product.name}, {identified.compared} outputs: {identified.way}", "s", seconds, "under 60")


def main() -> int:
    """Record products, or identify the recorded ones."""
    parser = options(__doc__)
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="run the libraries and write their results")
    parser.add_argument("--folder", type=Path, default=RECORDED, help="recorded products (default %(default)s)")
    parser.add_argument("--ways", action="store_true", help="write the ways that are found to the folder")
    chosen = parser.parse_args()
    if chosen.record:
        record(chosen.record)
        return 0
    path = chosen.folder / PRODUCTS
    recorded = json.loads(path.read_text(encoding="utf-8"))
    said = recorded["products"]
    computed = [product for product in products() if "refused" not in said[product.name]]
    some = computed[:: len(computed) // 2] if chosen.small else computed
    show([*rows(chosen.folder, some, said)], chosen.json)
    if chosen.ways:
        path.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

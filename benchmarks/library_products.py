"""Find the method of summation of matrix products that GPU libraries computed, and measure the time of each search.

``--record FOLDER`` runs the libraries on the GPU of this machine and writes the results. Without ``--record``, the
script identifies the products that are recorded in ``--folder``, which needs no GPU: the operands are drawn from seeds.
``--ways`` also stores the identified methods of summation in the folder. ``--scaled`` chooses the products of fp8,
mxfp8, mxfp4 and nvfp4 with scales and the tf32 and bf16 products of XLA, instead of the products without scales.
"""

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from kernel_records import NAMES
from measure import Row, options, show
from numpy.typing import NDArray

if TYPE_CHECKING:
    import sptc

RECORDED = Path(__file__).parents[1] / "recordings" / "libraries"
#: Packages whose versions are recorded.
PACKAGES = ("triton", "torchao", "transformers", "deep_gemm", "gemlite", "jax")
LONGEST_NAME = 200
CODES = {1: np.uint8, 2: np.uint16, 4: np.uint32}


class Product(NamedTuple):
    """A product that a library computes: library, format, result type, shape, and options of the library."""

    library: str
    format: str
    result: str
    shape: tuple[int, int, int]
    options: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the matrix product in the files of recorded results."""
        words = [f"{key}{str(value).replace(' ', '-by-')}" for key, value in self.options.items()]
        return ".".join([self.library, self.format, "x".join(map(str, self.shape)), *words])


def products() -> Iterator[Product]:
    """Yield the recorded matrix products of GPU libraries, except products with scales."""
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


def scaled_products() -> Iterator[Product]:
    """Yield the recorded products of GPU libraries that have scales, and the products of XLA in tf32 and bf16."""
    small, large = (64, 128, 512), (128, 256, 1024)
    fine, coarse = {"scales": "1x128 1x128"}, {"scales": "1x128 128x128"}
    for kind in ("tensor", "row"):
        for fast in (True, False):
            yield Product("cublas", "e4m3", "bf16", small, {"scales": kind, "use_fast_accum": fast})
    for scales in (coarse, fine):
        yield Product("cublas", "e4m3", "f32", small, scales)
    yield Product("torchao", "e4m3", "bf16", small, coarse)
    yield Product("torchao", "e4m3", "f32", small, {**coarse, "training": True})
    yield Product("torchao-weights", "bf16", "bf16", small, {"weights": "nvfp4"})
    yield Product("transformers", "e4m3", "f32", small, coarse)
    yield Product("triton", "e4m3", "f32", small, {"tile": 32})
    for shape in (small, large):
        yield Product("deepgemm", "e4m3", "bf16", shape, coarse)
        yield Product("deepgemm", "e4m3", "f32", shape, fine)
        yield Product("deepgemm", "bf16", "f32", shape, {})
        for fmt in ("bf16", "f16"):
            for weights in ("mxfp8", "mxfp4"):
                yield Product("gemlite", fmt, fmt, shape, {"weights": weights})
        for fmt in ("bf16", "tf32"):
            yield Product("xla", fmt, "f32", shape, {})
    yield Product("xla", "bf16", "f32", (64, 128, 2048), {})


def draw(product: Product) -> np.random.Generator:
    """Return a random number generator for a matrix product, seeded by the name of the product."""
    return np.random.default_rng(int.from_bytes(hashlib.sha256(product.name.encode()).digest()[:4], "little"))


def scales(product: Product) -> dict[str, Any]:
    """Draw random scales for a recorded matrix product. Return them as keyword arguments of :func:`sptc.identify`."""
    (m, n, k), rng = product.shape, draw(product)
    kind = product.options.get("scales")
    if not kind:
        return {}
    shapes = {
        "tensor": ((), ()),
        "row": ((m, 1), (1, n)),
        "1x128 1x128": ((m, k // 128), (k // 128, n)),
        "1x128 128x128": ((m, k // 128), (k // 128, n // 128)),
    }[kind]
    names = ("scale_a", "scale_b") if kind in ("tensor", "row") else ("group_scale_a", "group_scale_b")
    return {name: rng.uniform(0.01, 2, shape).astype(np.float32) for name, shape in zip(names, shapes, strict=True)}


def weights(product: Product) -> tuple[NDArray[np.uint8], NDArray[np.uint8]] | None:
    """Return random codes of B^T (N x K) and of its block scales (N x blocks), or None if B has no block scales."""
    kind, rng, (_, n, k) = product.options.get("weights"), draw(product), product.shape
    if not kind:
        return None
    codes = rng.integers(0, 16, (n, k), np.uint8)
    if kind == "mxfp8":
        codes = rng.integers(0, 127, (n, k), np.uint8) | rng.integers(0, 2, (n, k), np.uint8) << 7
        return codes, rng.integers(112, 120, (n, k // 32), np.uint8)
    if kind == "mxfp4":
        return codes, rng.integers(118, 126, (n, k // 32), np.uint8)
    codes[:, ::16] = 7  # each block contains the e2m1 maximum 6.0, from which the library computes the drawn scale
    return codes, rng.integers(32, 64, (n, k // 16), np.uint8)


def operands(product: Product) -> tuple[NDArray, NDArray]:
    """Return a random A (M x K, 2:4 sparse for cuSPARSELt) and B (K x N), whose elements are exact in their format."""
    import ml_dtypes

    (m, n, k), rng = product.shape, draw(product)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    if product.format == "s8":
        a, b = ((32 * matrix).round().clip(-127, 127) for matrix in (a, b))
    if product.library == "cusparselt":
        order = np.argsort(rng.random((m, k // 4, 4)), axis=2)
        a *= (order < 2).reshape(m, k)
    if product.format == "tf32" and product.library == "cublas":
        return tuple((matrix.view(np.uint32) & 0xFFFFE000).view(np.float32) for matrix in (a, b))  # type: ignore[return-value]
    if of_weights := weights(product):
        mx = product.options["weights"] != "nvfp4"
        of_codes = ml_dtypes.float8_e4m3fn if product.options["weights"] == "mxfp8" else ml_dtypes.float4_e2m1fn
        codes, blocks = of_weights
        factors = blocks.view(ml_dtypes.float8_e8m0fnu if mx else ml_dtypes.float8_e4m3fn).astype(np.float32)
        b = (codes.view(of_codes).astype(np.float32) * factors.repeat(32 if mx else 16, 1)).T
    name = NAMES[product.format]
    dtype = getattr(ml_dtypes, name, name)
    return a.astype(dtype), b.astype(dtype)


def digest_of(product: Product) -> str:
    """Return the SHA-256 of operands and scales, to detect operands that differ from those of the recording."""
    arrays = [*operands(product), *scales(product).values()]
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def identified(product: Product, y: NDArray) -> "sptc.gemm.identify.Identification":
    """Search for the method of summation that gives the recorded result `y` of a product."""
    import sptc

    words: dict[str, Any] = {"format": product.format, "result": product.result, **scales(product)}
    return sptc.identify(*operands(product), y, dense=product.library != "cusparselt", **words)


def _version(package: str) -> str | None:
    """Return the version of a package, or None if the package is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return getattr(sys.modules.get(package), "__version__", None)


def _short(kernel: str) -> str:
    """Return the name of a CUDA kernel without template arguments that only list types."""
    return kernel.split("<")[0] if len(kernel) > LONGEST_NAME else kernel


def record(folder: Path, name: str, chosen: Iterator[Product]) -> None:
    """Compute each matrix product with its GPU library. Write the results of all products that the library accepts."""
    import torch
    from library_calls import call

    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    said: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cusparselt": torch.backends.cusparselt.version(),
        "packages": {package: known for package in PACKAGES if (known := _version(package))},
        "products": {},
    }
    arrays = {}
    for product in chosen:
        try:
            multiply = call(product, *operands(product), scales(product), weights(product))
            multiply()
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                y = multiply()
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
    np.savez_compressed(folder / f"{name}.npz", **arrays)
    (folder / f"{name}.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


def rows(results: Path, chosen: list[Product], said: dict[str, Any]) -> Iterator[Row]:
    """Yield search time and method of summation of each product. Exit if no method gives every bit of a product."""
    with np.load(results) as arrays:
        for product in chosen:
            start = time.perf_counter()
            identification = identified(product, arrays[product.name])
            seconds = time.perf_counter() - start
            if not identification.exact:
                sys.exit(f"{product.name}: {identification}")
            said[product.name]["way"] = str(identification.way)
            yield Row(
                f"{product.name}, {identification.compared} outputs: {identification.way}", "s", seconds, "under 60"
            )


def main() -> int:
    """Record matrix products of libraries on the GPU, or find the summation orders of recorded matrix products."""
    parser = options(__doc__)
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="record matrix products of libraries in FOLDER")
    parser.add_argument("--folder", type=Path, default=RECORDED, help="recorded matrix products (default %(default)s)")
    parser.add_argument(
        "--scaled", action="store_true", help="use recorded matrix products with scales, not those without scales"
    )
    parser.add_argument("--ways", action="store_true", help="store the identified methods of summation in FOLDER")
    chosen = parser.parse_args()
    name, every = ("scaled", scaled_products()) if chosen.scaled else ("products", products())
    if chosen.record:
        record(chosen.record, name, every)
        return 0
    path = chosen.folder / f"{name}.json"
    recorded = json.loads(path.read_text(encoding="utf-8"))
    said = recorded["products"]
    computed = [product for product in every if "refused" not in said[product.name]]
    some = computed[:: len(computed) // 2] if chosen.small else computed
    show([*rows(chosen.folder / f"{name}.npz", some, said)], chosen.json)
    if chosen.ways:
        path.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Functions that call each library to multiply operands on the GPU. A library is imported on its first call."""

import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from kernel_records import NAMES

if TYPE_CHECKING:
    from library_products import Product

__all__ = ["call"]

_CODES = {1: np.uint8, 2: np.int16, 4: np.int32}
#: Rows and columns of an output tile of the Triton kernel.
_TILE = 64
#: Module of the package transformers 4.57 with the kernel for block-scaled fp8.
_FINEGRAINED = "transformers.integrations.finegrained_fp8"


def call(product: "Product", a: Any, b: Any, scales: dict[str, Any], weights: tuple[Any, Any] | None) -> Callable:
    """Return a function without arguments that calls a library for a matrix product and returns the result as a tensor.

    Parameters
    ----------
    product : Product
        The product to compute: library, formats, shape and options.
    a, b : ndarray
        Operands, M x K and K x N.
    scales : dict of ndarray
        Scales, as for :func:`sptc.identify`.
    weights : (ndarray, ndarray), optional
        Codes of B^T with block scales, and the codes of the scales.
    """
    import torch

    def tensor(array: Any) -> Any:
        codes = np.ascontiguousarray(array)
        codes = codes if codes.dtype == np.float32 else codes.view(_CODES[codes.itemsize])
        return torch.from_numpy(codes.copy()).cuda()

    kind, result = getattr(torch, NAMES[product.format]), getattr(torch, NAMES[product.result])
    left, right = tensor(a).view(kind), tensor(b.T).view(kind)  # the tensor `right` is B transposed, N x K
    factors = {name: tensor(array) for name, array in scales.items()}
    if weights:
        return _LIBRARIES[product.library](torch, product, left, result, tensor(weights[0]), tensor(weights[1]))
    return _LIBRARIES[product.library](torch, product, left, right, result, factors)


def _cusparselt(torch: Any, product: "Product", a: Any, b: Any, result: Any, _: dict[str, Any]) -> Callable:
    compressed = torch._cslt_compress(a)
    out = {} if result == a.dtype else {"out_dtype": result}
    split = product.options.get("split_k")
    more = {"alg_id": 0, "split_k": split, "split_k_mode": 0} if split else {}
    return lambda: torch._cslt_sparse_mm(compressed, b.t(), **out, **more)


def _cublas(torch: Any, product: "Product", a: Any, b: Any, result: Any, scales: dict[str, Any]) -> Callable:
    options, one = dict(product.options), torch.ones((), device="cuda")
    kind = options.pop("scales", None)
    if product.format == "s8":
        return lambda: torch._int_mm(a, b.t())
    if product.format != "e4m3":
        return lambda: torch.mm(a, b.t())
    if not kind:
        return lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=result, **options)
    of_a, of_b = scales.values()
    if kind in ("1x128 128x128", "1x128 1x128"):  # scales of 1 x 128 blocks must be contiguous along M or N
        of_a = of_a.t().contiguous().t()
        of_b = of_b.t().contiguous().t() if kind.endswith("128x128") else of_b.contiguous()
    return lambda: torch._scaled_mm(a, b.t(), of_a, of_b, out_dtype=result, **options)


def _triton(torch: Any, product: "Product", a: Any, b: Any, result: Any, _: dict[str, Any]) -> Callable:
    from library_kernels import product as of_triton

    return lambda: of_triton(torch, a, b.t(), product.options.get("tile", _TILE))


def _torchao(torch: Any, product: "Product", a: Any, b: Any, result: Any, scales: dict[str, Any]) -> Callable:
    of_a, of_b = scales.values()
    if product.options.get("training"):
        from torchao.prototype.blockwise_fp8_training.kernels import triton_fp8_gemm_1x128_128x128

        of_a, of_b = of_a.t().contiguous().t(), of_b.t().contiguous().t()
        return lambda: triton_fp8_gemm_1x128_128x128(a, b.t(), of_a, of_b, out_dtype=result)
    from torchao.kernel.blockwise_quantization import blockwise_fp8_gemm

    return lambda: blockwise_fp8_gemm(a, of_a, b, of_b.t().contiguous())


def _torchao_weights(torch: Any, product: "Product", a: Any, result: Any, codes: Any, scales: Any) -> Callable:
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor

    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device="cuda")
    values = torch.where(codes > 7, -1.0, 1.0) * table[(codes & 7).long()]
    b = (values * scales.view(torch.float8_e4m3fn).float().repeat_interleave(16, 1)).to(a.dtype)
    quantised = NVFP4Tensor.to_nvfp4(b)
    if not torch.equal(quantised.dequantize(a.dtype), b):
        raise ValueError("the conversion to NVFP4Tensor changes the drawn operand")
    return lambda: torch.nn.functional.linear(a, quantised)


def _transformers(torch: Any, product: "Product", a: Any, b: Any, result: Any, scales: dict[str, Any]) -> Callable:
    from importlib import import_module

    if "transformers" not in sys.modules:  # import only the fp8 kernel, not all of transformers
        for name in ("transformers", "transformers.utils", "transformers.integrations"):
            sys.modules[name] = types.ModuleType(name)
        utilities: Any = sys.modules["transformers.utils"]
        utilities.is_torch_available = utilities.is_torch_accelerator_available = lambda: True
        utilities.is_accelerate_available = lambda: False
        utilities.logging = types.SimpleNamespace(get_logger=lambda name: None)
        sys.modules["transformers.integrations"].__path__ = [f"{path}/transformers/integrations" for path in sys.path]
    multiply = import_module(_FINEGRAINED).w8a8_block_fp8_matmul_triton
    of_a, of_b = scales.values()
    return lambda: multiply(a, b, of_a, of_b.t().contiguous(), [128, 128], result)


def _deepgemm(torch: Any, product: "Product", a: Any, b: Any, result: Any, scales: dict[str, Any]) -> Callable:
    import deep_gemm

    def multiply() -> Any:
        y = torch.zeros(len(a), len(b), dtype=result, device="cuda")
        if not scales:
            deep_gemm.bf16_gemm_nt(a, b, y)
            return y
        of_a, of_b = scales.values()
        more = {"c": y, "recipe": (1, 1, 128)} if product.options["scales"] == "1x128 1x128" else {}
        deep_gemm.fp8_gemm_nt((a, of_a), (b, of_b.t().contiguous()), y, **more)
        return y

    return multiply


def _gemlite(torch: Any, product: "Product", a: Any, result: Any, codes: Any, scales: Any) -> Callable:
    from gemlite import helper, set_autotune

    set_autotune(False)
    of_weights = {"mxfp8": helper.A16W8_MXFP, "mxfp4": helper.A16W4_MXFP}[product.options["weights"]]
    codes = codes.view(torch.float8_e4m3fn) if product.options["weights"] == "mxfp8" else codes
    layer = of_weights(device="cuda:0", dtype=result).from_weights(codes, scales.view(torch.float8_e8m0fnu))
    return lambda: layer.forward_manual(a, matmul_type="GEMM")


def _xla(torch: Any, product: "Product", a: Any, b: Any, result: Any, _: dict[str, Any]) -> Callable:
    import jax

    name = {"bf16": "BF16_BF16_F32", "tf32": "TF32_TF32_F32"}[product.format]
    algorithm = getattr(jax.lax.DotAlgorithmPreset, name)
    along = (((1,), (1,)), ((), ()))
    multiply = jax.jit(lambda p, q: jax.lax.dot_general(p, q, along, precision=algorithm))
    left, right = (matrix.float().cpu().numpy() for matrix in (a, b))
    return lambda: torch.from_numpy(np.array(multiply(left, right))).cuda()


_LIBRARIES: dict[str, Callable[..., Callable]] = {
    "cusparselt": _cusparselt, "cublas": _cublas, "triton": _triton, "torchao": _torchao,
    "torchao-weights": _torchao_weights, "transformers": _transformers, "deepgemm": _deepgemm, "gemlite": _gemlite,
    "xla": _xla,
}  # fmt: skip

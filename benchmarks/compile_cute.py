"""Compile the dense matrix product kernels of CUTLASS's CuTe DSL examples, for ``launch_kernels.py``.

    python benchmarks/compile_cute.py CUTLASS FILE.npz

The script needs ``nvidia-cutlass-dsl`` and a checkout of CUTLASS with the examples, but no GPU. Tensor maps have the
shapes and swizzles that the host code of the CUTLASS examples specifies.
"""

import argparse
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cutlass
import cutlass.cute as cute
import numpy as np
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from kernel_records import BYTES, fields

TYPES = {"f16": cutlass.Float16, "bf16": cutlass.BFloat16, "e4m3": cutlass.Float8E4M3FN, "f32": cutlass.Float32,
         "tf32": cutlass.TFloat32}  # fmt: skip
FOLDER = Path("examples/python/CuTeDSL/cute")
FILES = {"sm_80": "ampere/kernel/dense_gemm/tensorop_gemm.py", "sm_90a": "hopper/kernel/dense_gemm/dense_gemm.py",
         "sm_100a": "blackwell/kernel/dense_gemm/dense_gemm.py"}  # fmt: skip
#: Bytes along K of a tile of A or B.
ROW_BYTES = 128


@dataclass(frozen=True)
class Case:
    """A CuTe kernel to compile, with types, tile and cluster. If `pair` is set, two CTAs compute one tile together."""

    name: str
    arch: str
    a: str = "f16"
    d: str = "f32"
    tile: tuple[int, int] = (128, 128)
    cluster: tuple[int, int] = (1, 1)
    pair: bool = False


CASES = [
    Case("cute.sm80.f16", "sm_80", d="f16"),
    Case("cute.sm80.f16.f32", "sm_80"),
    Case("cute.sm90.f16", "sm_90a"),
    Case("cute.sm90.f16.to_f16", "sm_90a", d="f16"),
    Case("cute.sm90.bf16.64", "sm_90a", a="bf16", tile=(64, 128)),
    Case("cute.sm90.e4m3", "sm_90a", a="e4m3"),
    Case("cute.sm90.f16.multicast", "sm_90a", cluster=(2, 1)),
    Case("cute.sm100.f16", "sm_100a"),
    Case("cute.sm100.bf16.pair", "sm_100a", a="bf16", tile=(256, 128), cluster=(2, 1), pair=True),
    Case("cute.sm100.e4m3.pair", "sm_100a", a="e4m3", tile=(256, 128), cluster=(2, 1), pair=True),
    Case("cute.sm100.tf32", "sm_100a", a="tf32"),
]
M, N, K = 512, 384, 256


def example(root: Path, arch: str) -> Any:
    """Load an example of CUTLASS and return it as a Python module."""
    path = root / FOLDER / FILES[arch]
    spec = importlib.util.spec_from_file_location(arch, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(root: Path, case: Case) -> str:
    """Return the PTX of a kernel that CuTe compiled."""

    def tensor(rows: int, columns: int, kind: str) -> Any:
        return make_fake_compact_tensor(TYPES[kind], (rows, columns, 1), stride_order=(1, 0, 2), assumed_align=16)

    module, operands = example(root, case.arch), (tensor(M, K, case.a), tensor(N, K, case.a), tensor(M, N, case.d))
    if case.arch == "sm_80":
        kernel = module.TensorOpGemm(TYPES[case.a], TYPES[case.d], cutlass.Float32, (2, 2, 1))
    elif case.arch == "sm_90a":
        kernel = module.HopperWgmmaGemmKernel(cutlass.Float32, case.tile, case.cluster)
    else:
        kernel = module.DenseGemmKernel(cutlass.Float32, case.pair, case.tile, case.cluster, True)
    options = f"--keep-ptx --gpu-arch {case.arch}"
    text: str = cute.compile(kernel, *operands, make_fake_stream(), options=options).__ptx__
    return text


def launch_of(case: Case, ptx: str, seed: int) -> dict[str, Any]:
    """Return the launch description of a kernel."""
    kind = "f32" if case.a == "tf32" else case.a
    arrays: dict[str, tuple[str, list[int]]] = {"a": (kind, [M, K]), "b": (kind, [N, K]), "d": (case.d, [M, N])}

    def tile(name: str, box: tuple[int, int], swizzle: str) -> dict[str, Any]:
        kind, (rows, columns) = arrays[name]
        return {"tile": name, "box": box, "swizzle": swizzle, "shape": [rows, columns],
                "strides": [columns * BYTES[kind], BYTES[kind]]}  # fmt: skip

    rows, columns = case.tile
    if case.arch == "sm_80":
        factor = 4 if N // 128 > 2 else 2
        grid, shared, arguments = [M // 128 * factor, 1, 1], 98304, [*({"array": name} for name in "abd"), factor]
    else:
        own, share, depth = rows // (2 if case.pair else 1), columns // case.cluster[0], ROW_BYTES // BYTES[kind]
        store = (64 if case.arch == "sm_90a" else 128, 32)
        swizzle = {2: "64B", 4: "128B"}[BYTES[case.d]]
        maps = [tile("a", (own, depth), "128B"), tile("b", (share, depth), "128B"), tile("d", store, swizzle)]
        state = int(ptx.partition("_param_0[")[2].partition("]")[0]) if case.arch == "sm_100a" else 0
        grid, shared = [M // own, N // columns, 1], 220 << 10
        arguments = [{"bytes": state}, *maps] if state else [*maps, {"bytes": 1}]
    return {"entry": ptx.partition(".visible .entry ")[2].partition("(")[0], "arch": case.arch.rstrip("a"),
            "grid": grid, "block": [128, 1, 1], "cluster": [*case.cluster, 1], "shared": shared,
            "arguments": arguments, "arrays": arrays, "seed": seed}  # fmt: skip


def main() -> None:
    """Compile all kernels, and write the PTX and the launch description of each kernel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cutlass", type=Path, metavar="CUTLASS")
    parser.add_argument("file", type=Path, metavar="FILE.npz")
    chosen = parser.parse_args()
    records: dict[str, np.ndarray] = {}
    for seed, case in enumerate(CASES):
        try:
            ptx = compiled(chosen.cutlass, case)
        except Exception as error:
            print(f"{case.name}: {str(error)[:300]}", flush=True)
            continue
        records |= fields(case.name, ptx, launch_of(case, ptx, seed))
        print(f"{case.name}: {len(ptx)} characters of PTX", flush=True)
    np.savez(chosen.file, **records)


if __name__ == "__main__":
    main()

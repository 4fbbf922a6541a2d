"""Compile TileLang kernels for sm_80 to sm_90a, and write the PTX and the launch description of each kernel.

    python benchmarks/compile_tilelang.py FILE.npz

The script needs TileLang and ``nvcc``, but no GPU. ``benchmarks/launch_kernels.py`` launches the compiled kernels on a
GPU and adds a digest of each result; ``tests/kernels/test_compilers.py`` runs the recorded kernels on the model.
"""

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tilelang
import tilelang.language as T  # noqa: N812  (as every TileLang program writes it)
from kernel_records import NAMES, fields
from sptc import TensorMap
from sptc.kernels.tilelang import compile_function


@dataclass(frozen=True)
class Case:
    """A TileLang kernel to compile, with its types, sizes and target."""

    name: str
    arch: str
    a: str = "f16"
    d: str = "f32"
    acc: str = "f32"
    kind: str = "dense"
    shape: tuple[int, int, int] = (256, 384, 320)
    block: tuple[int, int, int] = (128, 128, 64)
    threads: int = 128
    stages: int = 2
    a_k_major: bool = True
    b_k_major: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    passes: dict[str, Any] = field(default_factory=dict)


def dense(case: Case) -> Any:
    """Return a kernel that multiplies tiles copied to shared memory in several pipeline stages."""
    (m, n, k), (bm, bn, bk) = case.shape, case.block
    kind, total, result = NAMES[case.a], NAMES[case.acc], NAMES[case.d]
    relu = case.options.get("relu", False)
    threads, stages, a_k_major, b_k_major = case.threads, case.stages, case.a_k_major, case.b_k_major

    @T.prim_func
    def matmul(
        a: T.Tensor((m, k) if a_k_major else (k, m), kind),
        b: T.Tensor((n, k) if b_k_major else (k, n), kind),
        d: T.Tensor((m, n), result),
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=threads) as (column, row):
            tile_a = T.alloc_shared((bm, bk) if a_k_major else (bk, bm), kind)
            tile_b = T.alloc_shared((bn, bk) if b_k_major else (bk, bn), kind)
            sums = T.alloc_fragment((bm, bn), total)
            T.clear(sums)
            for step in T.Pipelined(T.ceildiv(k, bk), num_stages=stages):
                if a_k_major:
                    T.copy(a[row * bm, step * bk], tile_a)
                else:
                    T.copy(a[step * bk, row * bm], tile_a)
                if b_k_major:
                    T.copy(b[column * bn, step * bk], tile_b)
                else:
                    T.copy(b[step * bk, column * bn], tile_b)
                T.gemm(tile_a, tile_b, sums, not a_k_major, b_k_major)
            if relu:
                for i, j in T.Parallel(bm, bn):
                    sums[i, j] = T.max(sums[i, j], 0)
            T.copy(sums, d[row * bm, column * bn])

    return matmul


def sparse(case: Case) -> Any:
    """Return a kernel that multiplies a compressed A by a dense B. Each byte of metadata holds two nibbles."""
    (m, n, k), (bm, bn, bk) = case.shape, case.block
    kind, total, result = NAMES[case.a], NAMES[case.acc], NAMES[case.d]
    threads, stages, b_k_major = case.threads, case.stages, case.b_k_major
    change_b = case.options.get("change_b", False)

    @T.prim_func
    def matmul(
        a: T.Tensor((m, k // 2), kind),
        e: T.Tensor((m, k // 8), "uint8"),
        b: T.Tensor((n, k) if b_k_major else (k, n), kind),
        d: T.Tensor((m, n), result),
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=threads) as (column, row):
            tile_a = T.alloc_shared((bm, bk // 2), kind)
            tile_e = T.alloc_shared((bm, bk // 8), "uint8")
            tile_b = T.alloc_shared((bn, bk) if b_k_major else (bk, bn), kind)
            sums = T.alloc_fragment((bm, bn), total)
            T.clear(sums)
            for step in T.Pipelined(T.ceildiv(k, bk), num_stages=stages):
                T.copy(a[row * bm, step * bk // 2], tile_a)
                T.copy(e[row * bm, step * bk // 8], tile_e)
                if b_k_major:
                    T.copy(b[column * bn, step * bk], tile_b)
                else:
                    T.copy(b[step * bk, column * bn], tile_b)
                if change_b:
                    for i, j in T.Parallel(bk, bn):
                        tile_b[i, j] = tile_b[i, j] + T.float16(3)
                T.gemm_sp(tile_a, tile_e, tile_b, sums, transpose_B=b_k_major)
            T.copy(sums, d[row * bm, column * bn])

    return matmul


def split_k(case: Case) -> Any:
    """Return a kernel in which each of two CTAs multiplies half of K and adds its product atomically, in any order."""
    (m, n, k), (bm, bn, bk) = case.shape, case.block
    kind, threads, stages = NAMES[case.a], case.threads, case.stages

    @T.prim_func
    def matmul(a: T.Tensor((m, k), kind), b: T.Tensor((n, k), kind), d: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), 2, threads=threads) as (column, row, half):
            tile_a = T.alloc_shared((bm, bk), kind)
            tile_b = T.alloc_shared((bn, bk), kind)
            sums = T.alloc_fragment((bm, bn), "float32")
            T.clear(sums)
            for step in T.Pipelined(k // 2 // bk, num_stages=stages):
                T.copy(a[row * bm, half * (k // 2) + step * bk], tile_a)
                T.copy(b[column * bn, half * (k // 2) + step * bk], tile_b)
                T.gemm(tile_a, tile_b, sums, False, True)
            for i, j in T.Parallel(bm, bn):
                T.atomic_add(d[row * bm + i, column * bn + j], sums[i, j])

    return matmul


def weights(case: Case) -> Any:
    """Return a kernel that multiplies by 4-bit weights, which threads first convert to f16."""
    (m, n, k), (bm, bn, bk) = case.shape, case.block
    threads, stages = case.threads, case.stages

    @T.prim_func
    def matmul(a: T.Tensor((m, k), "float16"), b: T.Tensor((n, k // 2), "uint8"), d: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=threads) as (column, row):
            tile_a = T.alloc_shared((bm, bk), "float16")
            packed = T.alloc_shared((bn, bk // 2), "uint8")
            local = T.alloc_fragment((bn, bk // 2), "uint8")
            wide = T.alloc_fragment((bn, bk), "float16")
            tile_b = T.alloc_shared((bn, bk), "float16")
            sums = T.alloc_fragment((bm, bn), "float32")
            T.clear(sums)
            for step in T.Pipelined(k // bk, num_stages=stages):
                T.copy(a[row * bm, step * bk], tile_a)
                T.copy(b[column * bn, step * bk // 2], packed)
                T.copy(packed, local)
                for i, j in T.Parallel(bn, bk):
                    nibble = (local[i, j // 2] >> T.cast(j % 2 * 4, "uint8")) & T.cast(15, "uint8")
                    wide[i, j] = T.cast(nibble, "float16") - T.cast(8, "float16")
                T.copy(wide, tile_b)
                T.gemm(tile_a, tile_b, sums, False, True)
            T.copy(sums, d[row * bm, column * bn])

    return matmul


FUNCTIONS = {"dense": dense, "sparse": sparse, "split_k": split_k, "weights": weights}
NO_TMA = {"tl.disable_tma_lower": True}
NO_ROLES = {"tl.disable_warp_specialized": True}
CASES = [
    Case("sm80.f16", "sm_80"),
    Case("sm80.f16.f16", "sm_80", d="f16", acc="f16"),
    Case("sm80.f16.to_f16.stages3", "sm_80", d="f16", stages=3),
    Case("sm80.f16.mn_major", "sm_80", a_k_major=False, b_k_major=False),
    Case("sm80.f16.64x256x32", "sm_80", block=(64, 128, 32), threads=256, options={"relu": True}),
    Case("sm80.bf16", "sm_80", a="bf16"),
    Case("sm80.bf16.ragged", "sm_80", a="bf16", shape=(200, 328, 160)),
    Case("sm80.tf32", "sm_80", a="f32", block=(64, 64, 32)),
    Case("sm80.s8", "sm_80", a="s8", d="s32", acc="s32"),
    Case("sm80.split_k.f16", "sm_80", kind="split_k", shape=(256, 256, 512)),
    Case("sm80.weights", "sm_80", kind="weights", block=(64, 64, 64)),
    Case("sm89.e4m3", "sm_89", a="e4m3"),
    Case("sm89.e5m2", "sm_89", a="e5m2", block=(64, 64, 64)),
    Case("sm80.sparse.f16", "sm_80", kind="sparse"),
    Case("sm80.sparse.f16.b_mn_major", "sm_80", kind="sparse", b_k_major=False),
    Case("sm80.sparse.bf16", "sm_80", kind="sparse", a="bf16", block=(64, 128, 64)),
    Case("sm80.sparse.s8", "sm_80", kind="sparse", a="s8", d="s32", acc="s32", shape=(256, 256, 512),
         block=(128, 128, 128)),
    Case("sm90.f16", "sm_90a"),
    Case("sm90.f16.to_f16.256_threads", "sm_90a", d="f16", threads=256, stages=3),
    Case("sm90.f16.f16", "sm_90a", d="f16", acc="f16"),
    Case("sm90.f16.mn_major", "sm_90a", a_k_major=False, b_k_major=False),
    Case("sm90.f16.n24", "sm_90a", shape=(256, 240, 320), block=(64, 24, 64)),
    Case("sm90.f16.n8", "sm_90a", shape=(128, 64, 320), block=(64, 8, 64)),
    Case("sm90.f16.no_tma", "sm_90a", passes=NO_TMA),
    Case("sm90.f16.no_roles", "sm_90a", passes=NO_ROLES),
    Case("sm90.f16.relu", "sm_90a", options={"relu": True}, stages=4),
    Case("sm90.bf16", "sm_90a", a="bf16", d="bf16"),
    Case("sm90.bf16.ragged", "sm_90a", a="bf16", shape=(200, 328, 160)),
    Case("sm90.tf32", "sm_90a", a="f32", block=(128, 128, 32)),
    Case("sm90.e4m3", "sm_90a", a="e4m3", block=(128, 128, 128)),
    Case("sm90.e5m2.f16", "sm_90a", a="e5m2", d="f16"),
    Case("sm90.s8", "sm_90a", a="s8", d="s32", acc="s32"),
    Case("sm90.split_k.bf16", "sm_90a", kind="split_k", a="bf16", shape=(256, 256, 512)),
    Case("sm90.weights", "sm_90a", kind="weights"),
    Case("sm90.sparse.f16", "sm_90a", kind="sparse"),
    Case("sm90.sparse.f16.b_mn_major", "sm_90a", kind="sparse", b_k_major=False),
    Case("sm90.sparse.bf16.stages3", "sm_90a", kind="sparse", a="bf16", stages=3),
    Case("sm90.sparse.f16.256_threads", "sm_90a", kind="sparse", threads=256, block=(128, 128, 128),
         shape=(256, 256, 512)),
    Case("sm90.sparse.e5m2", "sm_90a", kind="sparse", a="e5m2", shape=(128, 256, 256), block=(64, 128, 64)),
    Case("sm90.sparse.s8", "sm_90a", kind="sparse", a="s8", d="s32", acc="s32", shape=(256, 256, 512),
         block=(128, 128, 128)),
    # Kernels that TileLang 0.1.11 compiles to wrong code. The number in a kernel name is that of the TileLang issue.
    # TileLang 0.1.15 compiles these kernels correctly.
    Case("reported.2593", "sm_90a", shape=(128, 96, 128), block=(64, 24, 64), b_k_major=False, passes=NO_ROLES),
    Case("reported.2603", "sm_90a", kind="sparse", shape=(128, 96, 128), block=(64, 24, 64), b_k_major=False,
         passes=NO_ROLES),
    Case("reported.2634", "sm_90a", kind="sparse", shape=(256, 256, 256), block=(128, 128, 64), b_k_major=False,
         options={"change_b": True}),
]  # fmt: skip


def arrays_of(case: Case) -> dict[str, tuple[str, list[int]]]:
    """Return the element type and the shape of each argument of a kernel."""
    m, n, k = case.shape
    of_a = (m, k) if case.a_k_major else (k, m)
    of_b = (n, k) if case.b_k_major else (k, n)
    kinds = {"a": (case.a, of_a), "b": (case.a, of_b)}
    if case.kind == "sparse":
        kinds = {"a": (case.a, (m, k // 2)), "e": ("nibbles", (m, k // 8)), "b": (case.a, of_b)}
    if case.kind == "weights":
        kinds["b"] = "u8", (n, k // 2)
    return {name: (kind, list(shape)) for name, (kind, shape) in (kinds | {"d": (case.d, (m, n))}).items()}


def main() -> None:
    """Compile all chosen kernels, and write the PTX and the launch description of each kernel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, metavar="FILE.npz")
    parser.add_argument("--only", default="", help="compile only kernels whose names contain this text")
    chosen = parser.parse_args()
    records: dict[str, np.ndarray] = {}
    for seed, case in enumerate(CASES):
        if chosen.only not in case.name:
            continue
        try:
            compiled = compile_function(FUNCTIONS[case.kind](case), {}, case.arch, case.passes)
        except Exception as error:
            print(f"{case.name}: {str(error)[:300]}", flush=True)
            continue
        arguments = [
            {"tile": value.array, "box": value.box, "swizzle": value.swizzle, "shape": value.shape,
             "strides": value.strides} if isinstance(value, TensorMap)
            else {"array": value} if isinstance(value, str) else value
            for value in compiled.arguments
        ]  # fmt: skip
        launch = {
            "entry": compiled.entry, "arch": case.arch.rstrip("a"), "grid": compiled.grid, "block": compiled.block,
            "shared": compiled.shared, "arguments": arguments, "arrays": arrays_of(case), "seed": seed,
            "tilelang": tilelang.__version__,
        }  # fmt: skip
        records |= fields(case.name, compiled.ptx, launch)
        print(f"{case.name}: {len(compiled.ptx)} characters of PTX", flush=True)
    np.savez(chosen.file, **records)


if __name__ == "__main__":
    main()

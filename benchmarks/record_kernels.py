"""Compile Triton kernels, run them on this GPU, and record PTX, launch and results for ``sptc.run_kernel``.

    python benchmarks/record_kernels.py FILE.npz [--results]

The script needs torch and triton, but not the package ``sptc``. For each kernel, the script writes the PTX, the launch
description as JSON with a digest of the operands, and a digest of the result; with ``--results``, also the result.
Operands are not stored: numpy draws operands from the seed in the launch description.
``tests/kernels/test_compilers.py`` runs the recorded kernels on the model.
"""

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from kernel_records import NAMES, fields, operand, operands_digest
from triton.tools.tensor_descriptor import TensorDescriptor

SWIZZLES = ("none", "32B", "64B", "128B")


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr, ACC: tl.constexpr, OUT: tl.constexpr, GROUP: tl.constexpr, EPILOGUE: tl.constexpr,
           TF32: tl.constexpr, IMPRECISE: tl.constexpr):  # fmt: skip
    """Kernel: multiply A and B in tiles, with masked loads and an epilogue."""
    pid = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    if GROUP == 0:
        pm, pn = pid % rows, pid // rows
    else:
        first = pid // (GROUP * columns) * GROUP
        height = min(rows - first, GROUP)
        pm = first + pid % (GROUP * columns) % height
        pn = pid % (GROUP * columns) // height
    om = (pm * BM + tl.arange(0, BM)) % M
    on = (pn * BN + tl.arange(0, BN)) % N
    ok = tl.arange(0, BK)
    a = a_ptr + om[:, None] * sam + ok[None, :] * sak
    b = b_ptr + ok[:, None] * sbk + on[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=ACC)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(a, mask=ok[None, :] < K - k * BK, other=0.0)
        y = tl.load(b, mask=ok[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(x, y, acc, input_precision=TF32, out_dtype=ACC, max_num_imprecise_acc=IMPRECISE)
        a += BK * sak
        b += BK * sbk
    if EPILOGUE == 1:
        acc = tl.maximum(acc, 0.0) * 0.5
    if EPILOGUE == 2:
        acc = acc + tl.sum(acc, 1)[:, None]
    c = acc.to(OUT)
    cm, cn = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN)
    tl.store(c_ptr + cm[:, None] * scm + cn[None, :] * scn, c, mask=(cm[:, None] < M) & (cn[None, :] < N))


@triton.jit
def tma(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, OUT: tl.constexpr,
        PERSISTENT: tl.constexpr, SPECIALIZE: tl.constexpr):  # fmt: skip
    """Kernel: multiply A and B in tiles that are loaded and stored by tensor maps. A CTA may compute several tiles."""
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), rows * columns, PERSISTENT, flatten=False, warp_specialize=SPECIALIZE):
        pm, pn = tile % rows, tile // rows
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            x = a.load([pm * BM, k])
            y = b.load([pn * BN, k])
            acc = tl.dot(x, y.T, acc)
        c.store([pm * BM, pn * BN], acc.to(OUT))


@triton.jit
def split_k(a_ptr, b_ptr, c_ptr, M, N, K, sam, sbk, slice_stride, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
            SLICES: tl.constexpr):  # fmt: skip
    """Kernel: multiply A and B over a part of K, and store the partial sums."""
    pid, part = tl.program_id(0), tl.program_id(1)
    rows = tl.cdiv(M, BM)
    pm, pn = pid % rows, pid // rows
    om, on, ok = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), part * BK + tl.arange(0, BK)
    a = a_ptr + om[:, None] * sam + ok[None, :]
    b = b_ptr + ok[:, None] * sbk + on[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, BK * SLICES)):
        acc = tl.dot(tl.load(a), tl.load(b), acc)
        a += BK * SLICES
        b += BK * SLICES * sbk
    tl.store(c_ptr + part * slice_stride + om[:, None] * N + on[None, :], acc)


@triton.jit
def device_maps(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                OUT: tl.constexpr):  # fmt: skip
    """Kernel: multiply A and B in tiles that are loaded and stored by tensor maps, which the kernel creates."""
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BN, BK])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
    pm, pn = tl.program_id(0), tl.program_id(1)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([pm * BM, k]), b.load([pn * BN, k]).T, acc)
    c.store([pm * BM, pn * BN], acc.to(OUT))


@triton.jit
def atomic(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Kernel: add the products of the two halves of K atomically to a result of zeros, in any order."""
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    on = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = tl.program_id(2) * (K // 2) + tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K // 2, BK):
        x = tl.load(a_ptr + om[:, None] * K + k + ok[None, :])
        acc = tl.dot(x, tl.load(b_ptr + (k + ok[:, None]) * N + on[None, :]), acc)
    tl.atomic_add(c_ptr + om[:, None] * N + on[None, :], acc)


@triton.jit
def scaled(a_ptr, b_ptr, c_ptr, sa_ptr, sb_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
           FORMAT: tl.constexpr, PACKED: tl.constexpr):  # fmt: skip
    """Kernel: multiply block-scaled matrices, which Triton converts to bf16 on sm_90."""
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    on = tl.program_id(1) * BN + tl.arange(0, BN)
    ok, os = tl.arange(0, BK // PACKED), tl.arange(0, BK // 32)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a_ptr + om[:, None] * (K // PACKED) + k // PACKED + ok[None, :])
        y = tl.load(b_ptr + on[None, :] * (K // PACKED) + k // PACKED + ok[:, None])
        p = tl.load(sa_ptr + om[:, None] * (K // 32) + k // 32 + os[None, :])
        q = tl.load(sb_ptr + on[:, None] * (K // 32) + k // 32 + os[None, :])
        acc = tl.dot_scaled(x, p, FORMAT, y, q, FORMAT, acc)
    tl.store(c_ptr + om[:, None] * N + on[None, :], acc)


@dataclass(frozen=True)
class Case:
    """A Triton kernel to record, with its types and sizes."""

    name: str
    kind: str = "plain"
    a: str = "f16"
    d: str = "f16"
    shape: tuple[int, int, int] = (512, 640, 320)
    block: tuple[int, int, int] = (128, 128, 64)
    warps: int = 4
    stages: int = 3
    #: Whether elements of A, and elements of B, that are adjacent along K are adjacent in memory.
    a_k_major: bool = True
    b_k_major: bool = False
    acc: str = "f32"
    options: dict[str, Any] = field(default_factory=dict)


CASES = [
    Case("f16.128x128x32.stages2", block=(128, 128, 32), stages=2),
    Case("f16.128x256x64.warps8", block=(128, 256, 64), warps=8),
    Case("f16.64x64x64", block=(64, 64, 64)),
    Case("f16.ragged", shape=(500, 600, 300)),
    Case("f16.b_k_major", b_k_major=True),
    Case("f16.a_mn_major", a_k_major=False),
    Case("f16.both_other", a_k_major=False, b_k_major=True),
    Case("f16.f32", d="f32"),
    Case("f16.f16_accumulators", acc="f16", block=(128, 128, 32)),
    Case("f16.grouped", options={"GROUP": 4}),
    Case("f16.relu", options={"EPILOGUE": 1}),
    Case("f16.row_sums", d="f32", options={"EPILOGUE": 2}),
    Case("f16.to_e4m3", d="e4m3"),
    Case("f16.stages1", stages=1),
    Case("f16.stages5", block=(128, 64, 64), stages=5),
    Case("f16.mma.16x32", block=(16, 32, 32), warps=1, shape=(256, 256, 128)),
    Case("f16.mma.32x64", block=(32, 64, 64), warps=4, shape=(256, 256, 256)),
    Case("bf16", a="bf16", d="bf16"),
    Case("bf16.f32.warps8", a="bf16", d="f32", warps=8, block=(128, 256, 32)),
    Case("bf16.ragged.b_k_major", a="bf16", d="bf16", b_k_major=True, shape=(333, 520, 200)),
    Case("bf16.mma.16x16", a="bf16", d="f32", block=(16, 16, 64), warps=1, shape=(128, 256, 128)),
    Case("e4m3", a="e4m3", d="f16", b_k_major=True),
    Case("e4m3.imprecise", a="e4m3", d="f16", b_k_major=True, options={"IMPRECISE": 1 << 20}),
    Case("e4m3.imprecise64", a="e4m3", d="f32", b_k_major=True, block=(128, 128, 128), options={"IMPRECISE": 64}),
    Case("e4m3.ragged", a="e4m3", d="bf16", b_k_major=True, shape=(400, 700, 352)),
    Case("e5m2", a="e5m2", d="f16", b_k_major=True),
    Case("e5m2.mma", a="e5m2", d="f32", b_k_major=True, block=(16, 32, 64), warps=1, shape=(256, 256, 128)),
    Case("tf32", a="f32", d="f32", b_k_major=True, block=(128, 128, 32)),
    Case("tf32.stages4", a="f32", d="f32", b_k_major=True, block=(64, 128, 32), stages=4),
    Case("tf32.mma", a="f32", d="f32", block=(32, 32, 32), warps=1, shape=(256, 256, 128)),
    Case("s8", a="s8", d="s32", b_k_major=True, acc="s32", block=(128, 128, 64)),
    Case("s8.warps8", a="s8", d="s32", b_k_major=True, acc="s32", block=(128, 256, 128), warps=8),
    Case("s8.mma", a="s8", d="s32", b_k_major=True, acc="s32", block=(32, 32, 64), warps=2, shape=(256, 256, 128)),
    Case("tma.f16", kind="tma"),
    Case("tma.f16.128x256.warps8", kind="tma", block=(128, 256, 64), warps=8),
    Case("tma.bf16.64x128", kind="tma", a="bf16", d="bf16", block=(64, 128, 64)),
    Case("tma.f16.32_columns", kind="tma", block=(128, 64, 32), stages=4),
    Case("tma.e4m3", kind="tma", a="e4m3", d="f16", block=(128, 128, 128)),
    Case("tma.f16.persistent", kind="tma", options={"PERSISTENT": 6}),
    Case("tma.f16.ragged", kind="tma", shape=(504, 616, 296)),
    Case("split_k.f16", kind="split_k", d="f32", shape=(256, 384, 512), block=(128, 128, 32)),
    Case("tf32x3", a="f32", d="f32", b_k_major=True, block=(64, 64, 32), shape=(256, 256, 256),
         options={"TF32": "tf32x3"}),
    Case("f16.256x128x64.warps8", block=(256, 128, 64), warps=8),
    Case("f16.128x64.warps8.stages4", block=(128, 64, 32), warps=8, stages=4),
    Case("device_maps.f16", kind="device_maps"),
    Case("device_maps.e4m3.f32", kind="device_maps", a="e4m3", d="f32", block=(64, 128, 128)),
    Case("atomic.f16", kind="atomic", d="f32", shape=(256, 384, 256), block=(128, 128, 64)),
    Case("atomic.bf16.warps8", kind="atomic", a="bf16", d="f32", shape=(256, 256, 512), block=(128, 64, 32), warps=8),
    Case("scaled.mxfp8", kind="scaled", a="e4m3", d="f32", shape=(256, 256, 512), block=(128, 128, 128)),
    Case("scaled.mxfp4", kind="scaled", a="e2m1", d="f32", shape=(256, 384, 512), block=(128, 128, 128)),
    Case("split_k.bf16", kind="split_k", a="bf16", d="f32", shape=(256, 256, 768), block=(64, 64, 64)),
]  # fmt: skip
TYPES = {"f16": tl.float16, "bf16": tl.bfloat16, "e4m3": tl.float8e4nv, "f32": tl.float32, "s32": tl.int32}


def on_gpu(codes: np.ndarray, kind: str) -> torch.Tensor:
    """Return element codes of a format as a PyTorch tensor of the corresponding type."""
    signed = codes.view(f"i{codes.itemsize}")
    return torch.from_numpy(signed.copy()).cuda().view(getattr(torch, NAMES.get(kind, "uint8")))


def run(case: Case, seed: int) -> tuple[str, dict[str, Any], np.ndarray]:
    """Run a kernel on the GPU. Return the PTX, the launch description and the result bytes of the kernel."""
    rng = np.random.default_rng(seed)
    (m, n, k), (bm, bn, bk) = case.shape, case.block
    a_shape = (m, k) if case.a_k_major else (k, m)
    b_shape = (n, k) if case.b_k_major or case.kind in ("tma", "device_maps") else (k, n)
    packed = 2 if case.a == "e2m1" else 1
    if case.kind == "scaled":
        a_shape, b_shape = (m, k // packed), (n, k // packed)
    kinds = {"a": case.a, "b": case.a}
    names: dict[str, tuple[int, ...]] = {"a": a_shape, "b": b_shape}
    if case.kind == "scaled":
        kinds |= {"sa": "ue8m0", "sb": "ue8m0"}
        names |= {"sa": (m, k // 32), "sb": (n, k // 32)}
    codes = {name: operand(kinds[name], shape, rng) for name, shape in names.items()}
    x, y, *scales = (on_gpu(array, kinds[name]) for name, array in codes.items())
    slices = case.options.get("SLICES", 4) if case.kind == "split_k" else 1
    d_shape = (m, n) if slices == 1 else (slices, m, n)
    d = torch.zeros(d_shape, dtype=getattr(torch, NAMES[case.d]), device="cuda")
    tiles = -(-m // bm) * -(-n // bn)
    choice = {"num_warps": case.warps, "num_stages": case.stages}
    names["d"] = d_shape
    if case.kind == "plain":
        strides = [*((k, 1) if case.a_k_major else (1, m)), *((1, k) if case.b_k_major else (n, 1)), n, 1]
        options = {"GROUP": 0, "EPILOGUE": 0, "TF32": "tf32", "IMPRECISE": None, **case.options}
        grid = (tiles,)
        kernel = matmul[grid](x, y, d, m, n, k, *strides, BM=bm, BN=bn, BK=bk, ACC=TYPES[case.acc], OUT=TYPES[case.d],
                              **options, **choice)  # fmt: skip
        arguments = [{"array": "a"}, {"array": "b"}, {"array": "d"}, *(v for v in (m, n, k, *strides) if v != 1)]
    elif case.kind == "split_k":
        grid = (tiles, slices)
        kernel = split_k[grid](x, y, d, m, n, k, k, n, m * n, BM=bm, BN=bn, BK=bk, SLICES=slices, **choice)
        arguments = [{"array": "a"}, {"array": "b"}, {"array": "d"}, m, n, k, k, n, m * n]
    elif case.kind == "scaled":
        grid = (-(-m // bm), -(-n // bn))
        kernel = scaled[grid](x, y, d, *scales, m, n, k, BM=bm, BN=bn, BK=bk, FORMAT=case.a, PACKED=packed, **choice)
        arguments = [{"array": name} for name in ("a", "b", "d", "sa", "sb")] + [m, n, k]
    elif case.kind in ("device_maps", "atomic"):
        grid = (-(-m // bm), -(-n // bn), *((2,) if case.kind == "atomic" else ()))
        function, out = (atomic, {}) if case.kind == "atomic" else (device_maps, {"OUT": TYPES[case.d]})
        kernel = function[grid](x, y, d, m, n, k, BM=bm, BN=bn, BK=bk, **out, **choice)
        arguments = [{"array": "a"}, {"array": "b"}, {"array": "d"}, m, n, k]
    else:
        persistent = case.options.get("PERSISTENT", tiles)
        grid = (persistent,)
        boxes = ([bm, bk], [bn, bk], [bm, bn])
        maps = [TensorDescriptor.from_tensor(t, box) for t, box in zip((x, y, d), boxes, strict=True)]
        kernel = tma[grid](*maps, m, n, k, BM=bm, BN=bn, BK=bk, OUT=TYPES[case.d], PERSISTENT=persistent,
                           SPECIALIZE=False, **choice)  # fmt: skip
        arguments = []
        for name, meta in zip("abd", kernel.metadata.tensordesc_meta, strict=True):
            shape = names[name]
            tile = {"tile": name, "box": list(meta["block_size"]), "swizzle": SWIZZLES[meta["swizzle"]]}
            arguments += [tile, *shape, shape[1], 1]
        arguments += [v for v in (m, n, k) if v != 1]
    torch.cuda.synchronize()
    ptx = kernel.asm["ptx"]
    count = ptx.partition(".visible .entry")[2].partition(")")[0].count(".param ")
    scratch = getattr(kernel.metadata, "global_scratch_size", 0) * int(np.prod(grid))
    arguments += [{"scratch": scratch} if scratch else 0, 0][: count - len(arguments)]
    result = d.view(torch.uint8).cpu().numpy()
    launch = {
        "grid": list(grid),
        "block": int(ptx.partition(".reqntid ")[2].split()[0].strip(",")),
        "shared": kernel.metadata.shared,
        "arguments": arguments,
        "arrays": {name: [kinds.get(name, case.d), list(shape)] for name, shape in names.items()},
        "seed": seed,
        "operands": operands_digest(codes),
        "gpu": torch.cuda.get_device_name(0),
        "triton": triton.__version__,
    }
    return ptx, launch, result


def main() -> None:
    """Run all kernels on the GPU and write a record of each kernel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, metavar="FILE.npz")
    parser.add_argument("--results", action="store_true", help="write the results of the kernels, not only hashes")
    chosen = parser.parse_args()
    records: dict[str, np.ndarray] = {}
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    for seed, case in enumerate(CASES):
        try:
            ptx, launch, result = run(case, seed)
        except (triton.CompilationError, RuntimeError) as error:
            print(f"{case.name}: {str(error)[:200]}", flush=True)
            continue
        records |= fields(case.name, ptx, launch, result, whole=chosen.results)
        print(f"{case.name}: {result.size} bytes of results", flush=True)
    np.savez(chosen.file, **records)


if __name__ == "__main__":
    main()

"""Triton kernels that load operands through pointers, or through tensor maps of the host or of the kernel."""

import triton
import triton.language as tl

__all__ = ["device_maps", "host_maps", "pointers", "scaled"]


@triton.jit
def pointers(a_ptr, b_ptr, d_ptr, M, N, K, am, ak, bk, bn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
             SUM: tl.constexpr):  # fmt: skip
    """Multiply matrices tile by tile. Operands with any strides are loaded through pointers."""
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), dtype=SUM)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + rows[:, None] * am + (k + depth[None, :]) * ak)
        b = tl.load(b_ptr + (k + depth[:, None]) * bk + columns[None, :] * bn)
        sums = tl.dot(a, b, sums, out_dtype=SUM)
    tl.store(d_ptr + rows[:, None] * N + columns[None, :], sums)


@triton.jit
def host_maps(a, b, d, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Multiply tiles that are loaded and stored through tensor maps that the host creates."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        sums = tl.dot(a.load([row, k]), b.load([column, k]).T, sums)
    d.store([row, column], sums)


@triton.jit
def device_maps(a_ptr, b_ptr, d_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Multiply tiles that are loaded and stored through tensor maps that the kernel creates."""
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BN, BK])
    d = tl.make_tensor_descriptor(d_ptr, [M, N], [N, 1], [BM, BN])
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        sums = tl.dot(a.load([row, k]), b.load([column, k]).T, sums)
    d.store([row, column], sums)


@triton.jit
def scaled(a, b, d, sa, sb, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FORMAT: tl.constexpr,
           PACKED: tl.constexpr, GROUP: tl.constexpr):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth, groups = tl.arange(0, BK // PACKED), tl.arange(0, BK // GROUP)
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rows[:, None] * (K // PACKED) + k // PACKED + depth[None, :])
        y = tl.load(b + columns[None, :] * (K // PACKED) + k // PACKED + depth[:, None])
        p = tl.load(sa + rows[:, None] * (K // GROUP) + k // GROUP + groups[None, :])
        q = tl.load(sb + columns[:, None] * (K // GROUP) + k // GROUP + groups[None, :])
        sums = tl.dot_scaled(x, p, FORMAT, y, q, FORMAT, sums)
    tl.store(d + rows[:, None] * N + columns[None, :], sums)

"""Faults of sums, scales, types and rounding, made without the functions that search for these faults."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import sptc
from random_products import Case, Matrix, Product, Random, drawn, dtype
from sptc.gemm.choice import instructions_for

READ = "operand read from other places"

# Faults in slices of K and accumulators.


def slice_missing(p: Product) -> Case:
    """Fault: a slice of K is missing from the sum."""
    size = 64 if len(p.b) == 128 else int(p.rng.choice([64, 128]))
    first = int(p.rng.integers(0, len(p.b) // size)) * size
    wrong = p.b.copy()
    wrong[first : first + size] = 0
    return p.case(p.times(p.a, wrong), "slice of K", "accumulator", READ)


def slice_twice(p: Product) -> Case:
    """Fault: a slice of K is added twice."""
    size = 64
    first = int(p.rng.integers(0, len(p.b) // size)) * size
    index = np.r_[0 : first + size, first : len(p.b)]
    return p.case(p.times(p.a[:, index], p.b[index]), "slice of K")


def beyond_the_end(p: Product) -> Case:
    """Fault: the sum reads beyond the end of K, into the next row of A and the next column of B."""
    size = int(p.rng.choice([32, 64]))
    after = np.vstack([p.a[1:, :size], np.zeros_like(p.a[:1, :size])])
    following = np.hstack([p.b[:size, 1:], np.zeros_like(p.b[:size, :1])])
    return p.case(p.times(np.hstack([p.a, after]), np.vstack([p.b, following])), "slice of K")


def not_kept(p: Product) -> Case:
    """Fault: only the last K tile remains in the sum."""
    size = int(p.rng.choice([64, 128]))
    if size >= len(p.b):
        size = len(p.b) // 2
    return p.case(p.times(p.a[:, -size:], p.b[-size:]), "accumulator", "slice of K")


def not_cleared(p: Product) -> Case:
    """Fault: each output tile starts from the accumulator of the previous tile."""
    size, raw = 32 if len(p.a) == 64 else int(p.rng.choice([32, 64])), "s32" if p.fmt == "s8" else "f32"
    parts, start = [], None
    for row in range(0, p.shape[0], size):
        parts.append(p.times(p.a[row : row + size], p.b, c=start))
        start = p.times(p.a[row : row + size], p.b, c=start, result=raw)
    return p.case(np.vstack(parts), "accumulator")


# Faults in scales and addends.


def scale_of_another_column(p: Product) -> Case:
    """Fault: the scale of another column is applied."""
    scale = p.rng.uniform(0.5, 2, p.shape[1]).astype(np.float32)
    wrong = np.roll(scale, int(p.rng.choice([1, 8, -1])))
    return p.case(p.times(p.a, p.b, scale_b=wrong), "scale", scale_b=scale)


def scale_mod_64(p: Product) -> Case:
    """Fault: column n gets the scale of column n mod 64."""
    scale = p.rng.uniform(0.5, 2, p.shape[1]).astype(np.float32)
    size = 64 if p.shape[1] > 64 else p.shape[1] // 2
    return p.case(p.times(p.a, p.b, scale_b=scale[np.arange(p.shape[1]) % size]), "scale", scale_b=scale)


def bias_mod_64(p: Product) -> Case:
    """Fault: column n gets the bias of column n mod 64."""
    bias = p.rng.standard_normal(p.shape[1]).astype(np.float32) * np.float32(8)
    size = 64 if p.shape[1] > 64 else p.shape[1] // 2
    return p.case(p.times(p.a, p.b, bias=bias[np.arange(p.shape[1]) % size]), "bias", bias=bias)


def scale_of_another_row(p: Product) -> Case:
    """Fault: the scales of the rows are applied in another order."""
    scale = p.rng.uniform(0.5, 2, (p.shape[0], 1)).astype(np.float32)
    return p.case(p.times(p.a, p.b, scale_a=scale[p.rng.permutation(len(scale))]), "scale", scale_a=scale)


def scale_ignored(p: Product) -> Case:
    """Fault: no scale is applied."""
    scale = p.rng.uniform(0.5, 2, p.shape[1]).astype(np.float32)
    return p.case(p.y, "scale", scale_b=scale)


def scale_twice(p: Product) -> Case:
    """Fault: a scale is applied twice."""
    scale = p.rng.uniform(0.5, 2, (p.shape[0], 1)).astype(np.float32)
    return p.case(p.times(p.a, p.b, scale_a=scale * scale), "scale", scale_a=scale)


def c_otherwise(p: Product) -> Case:
    """Fault: C is added twice or not at all."""
    c = p.rng.standard_normal(p.shape).astype(np.float32) * np.float32(16)
    if p.rng.integers(0, 2):
        return p.case(p.y, "C", c=c, beta=1.0)
    return p.case(p.times(p.a, p.b, c=c, beta=2.0), "C", c=c, beta=1.0)


def block_scaled(p: Product, change: Callable[[Random, Matrix], Matrix]) -> Case:
    """Fault: the block scales of A are changed, in a product on sm_120."""
    rng, rows, columns, k = p.rng, 128, p.shape[1], 512
    i = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"
    a, b = (rng.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((rows, k), (k, columns)))
    scales = [rng.integers(120, 135, (lines, k // 32)).astype(np.uint8) for lines in (rows, columns)]
    words = {"instruction": i, "arch": "sm_120", "result": "f32"}
    y = sptc.gemm(a, b, block_scale_a=change(rng, scales[0]), block_scale_b=scales[1], backend="native", **words)
    return Case(a, b, y, ("scale",), {**words, "block_scale_a": scales[0], "block_scale_b": scales[1]})


def in_blocks_of_128x4(rng: Random, scales: Matrix) -> Matrix:
    """Fault: block scales are written in blocks of 128 x 4 and read row by row."""
    rows, blocks = scales.shape
    return scales.reshape(rows // 128, 4, 32, blocks // 4, 4).transpose(0, 3, 2, 1, 4).reshape(rows, blocks)


SCALES: dict[str, Callable[[Random, Matrix], Matrix]] = {
    "block scales in 128 x 4, read row by row": in_blocks_of_128x4,
    "block scales of another row": lambda rng, s: np.roll(s, int(rng.choice([1, 8, 16])), 0),
    "block scales of another block": lambda rng, s: np.roll(s, 1, 1),
    "block scales ignored": lambda rng, s: np.full_like(s, 127),
    "block scales transposed": lambda rng, s: s.T.reshape(s.shape),
}

# Faults in types and rounding.


def neighbouring_type(p: Product) -> Case:
    """Fault: the elements are interpreted as another type of the same size."""
    pairs = {"e4m3": "e5m2", "e5m2": "e4m3", "f16": "bf16", "bf16": "f16", "s8": "u8"}
    q = drawn(p.rng, (128, 64, 512), fmt=str(p.rng.choice([*pairs])), way=p.way if p.fmt != "s8" else {})
    q.way = {} if q.fmt == "s8" else q.way
    other = pairs[q.fmt]
    one = str(instructions_for(q.fmt, "sm_90", dense=q.dense)[0])
    wrong = one.replace(f".{q.fmt}.{q.fmt}", f".{other}.{other}")
    kind = np.uint8 if other == "u8" else dtype(other)
    y = q.times(*(x.view(kind) for x in (q.a, q.b)), instruction=wrong, format=None, nan="keep")
    return q.case(y, "type", nan="keep")


def words_rounded(p: Product) -> Case:
    """Variant: f32 operands are rounded to tf32 by cvt.rna."""
    q = drawn(p.rng, (128, 64, 512), fmt="tf32", way=p.way if p.fmt != "s8" else {})

    def rna(x: Matrix) -> Matrix:
        return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)

    return q.case(q.times(rna(q.a), rna(q.b)), "correct")  # a known conversion is no fault


def operands_truncated(p: Product) -> Case:
    """Fault: f32 operands are truncated to bf16."""
    q = drawn(p.rng, (128, 64, 512), fmt="bf16", way=p.way if p.fmt != "s8" else {})
    exact = [np.where(x == 0, 0, p.rng.standard_normal(x.shape)).astype(np.float32) for x in (q.a, q.b)]
    cut = [(x.view(np.uint32) >> 16).astype(np.uint16).view(ml_dtypes.bfloat16) for x in exact]
    y = q.times(*cut)
    q.a, q.b = exact
    return q.case(y, "rounding of operands")


ROUNDING = "rounding of the result"


def rounded_twice(p: Product) -> Case:
    """Fault: the result is rounded to another type before the final rounding."""
    q = drawn(p.rng, (256, 128, 512), fmt=str(p.rng.choice(["f16", "e4m3"])), result="f32", way={})
    middle, last = [(np.float16, "bf16"), (ml_dtypes.bfloat16, "f16")][int(p.rng.integers(0, 2))]
    y = q.y.astype(middle).astype(np.float32).astype(dtype(last))
    q.result = last
    return q.case(y, ROUNDING)


def result_truncated(p: Product) -> Case:
    """Fault: an f32 result is truncated or rounded to bf16."""
    q = drawn(p.rng, (128, 64, 512), fmt=str(p.rng.choice(["f16", "e4m3"])), result="f32")
    return (
        q.case((q.y.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32), ROUNDING)
        if p.rng.integers(0, 2)
        else (q.case(q.y.astype(ml_dtypes.bfloat16).astype(np.float32), ROUNDING))
    )


def overflow_saturates(p: Product) -> Case:
    """Saturate f16 results."""
    q = drawn(p.rng, (128, 64, 512), fmt="f16", result="f32")
    q.a = q.a * np.float16(8192)
    with np.errstate(over="ignore"):
        y = np.clip(q.y, -65504, 65504).astype(np.float16)
    q.result = "f16"
    return q.case(y, "special values")


def nan_otherwise(p: Product) -> Case:
    """Fault: NaN is stored as a quiet NaN with other bits."""
    q = drawn(p.rng, (128, 64, 512), fmt="f16", result="f32")
    q.b[3, 5] = np.nan
    y = q.times(q.a, q.b, nan="keep").view(np.uint32)
    return q.case(np.where(y == 0x7FFFFFFF, np.uint32(0x7FC00000), y).view(np.float32), "special values", nan="keep")

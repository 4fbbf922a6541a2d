"""Products with a fault in sums, scales, types or rounding, computed independently of the search for such faults."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import sptc
from random_products import Case, Matrix, Product, Random, drawn, dtype
from sptc.gemm.choice import instructions_for

READ = "operand read from other places"

# Functions that plant kernel faults: wrong sums of slices of K, and wrong use of accumulators.


def slice_missing(p: Product) -> Case:
    """Kernel fault: the products of some consecutive k are missing from the sum."""
    size = 64 if len(p.b) == 128 else int(p.rng.choice([64, 128]))
    first = int(p.rng.integers(0, len(p.b) // size)) * size
    wrong = p.b.copy()
    wrong[first : first + size] = 0
    return p.case(p.times(p.a, wrong), "slice of K", "accumulator", READ)


def slice_twice(p: Product) -> Case:
    """Kernel fault: the products of some consecutive k are added twice."""
    size = 64
    first = int(p.rng.integers(0, len(p.b) // size)) * size
    index = np.r_[0 : first + size, first : len(p.b)]
    return p.case(p.times(p.a[:, index], p.b[index]), "slice of K")


def beyond_the_end(p: Product) -> Case:
    """Kernel fault: the sum reads beyond the end of K, into the next row of A and the next column of B."""
    size = int(p.rng.choice([32, 64]))
    after = np.vstack([p.a[1:, :size], np.zeros_like(p.a[:1, :size])])
    following = np.hstack([p.b[:size, 1:], np.zeros_like(p.b[:size, :1])])
    return p.case(p.times(np.hstack([p.a, after]), np.vstack([p.b, following])), "slice of K")


def not_kept(p: Product) -> Case:
    """Kernel fault: the sum contains only the last tile along K."""
    size = int(p.rng.choice([64, 128]))
    if size >= len(p.b):
        size = len(p.b) // 2
    return p.case(p.times(p.a[:, -size:], p.b[-size:]), "accumulator", "slice of K")


def not_cleared(p: Product) -> Case:
    """Kernel fault: each output tile starts from the accumulator of the previous output tile."""
    size, raw = 32 if len(p.a) == 64 else int(p.rng.choice([32, 64])), "s32" if p.fmt == "s8" else "f32"
    parts, start = [], None
    for row in range(0, p.shape[0], size):
        parts.append(p.times(p.a[row : row + size], p.b, c=start))
        start = p.times(p.a[row : row + size], p.b, c=start, result=raw)
    return p.case(np.vstack(parts), "accumulator")


# Test products with a kernel fault in block scales, bias or C.


def scaled_otherwise(p: Product, name: str, change: Callable[[Random, Matrix], Matrix | None]) -> Case:
    """Kernel fault: the function `change` changes scales of rows (``scale_a``) or columns (``scale_b``), or a bias."""
    size = (p.shape[0], 1) if name == "scale_a" else (p.shape[1],)
    drawn = 8 * p.rng.standard_normal(size) if name == "bias" else p.rng.uniform(0.5, 2, size)
    values = drawn.astype(np.float32)
    return p.case(p.times(p.a, p.b, **{name: change(p.rng, values)}), name.partition("_")[0], **{name: values})


def mod_64(rng: Random, values: Matrix) -> Matrix:
    """Kernel fault: column n gets the value of column n mod 64, or of column n mod N/2 if N is 64 or less."""
    return values[np.arange(len(values)) % (64 if len(values) > 64 else len(values) // 2)]


#: For each fault in scales or bias: option of :func:`sptc.gemm`, function that changes its value, and operand format.
SCALED: dict[str, tuple[str, Callable[[Random, Matrix], Matrix | None], str]] = {
    "scale of another column": ("scale_b", lambda rng, s: np.roll(s, int(rng.choice([1, 8, -1]))), "f16"),
    "scale mod 64": ("scale_b", mod_64, "e4m3"),
    "bias mod 64": ("bias", mod_64, "bf16"),
    "scale of another row": ("scale_a", lambda rng, s: s[rng.permutation(len(s))], "f16"),
    "scale ignored": ("scale_b", lambda rng, s: None, "f16"),
    "scale twice": ("scale_a", lambda rng, s: s * s, "e5m2"),
}


def c_otherwise(p: Product) -> Case:
    """Kernel fault: C is added twice or not at all."""
    c = p.rng.standard_normal(p.shape).astype(np.float32) * np.float32(16)
    if p.rng.integers(0, 2):
        return p.case(p.y, "C", c=c, beta=1.0)
    return p.case(p.times(p.a, p.b, c=c, beta=2.0), "C", c=c, beta=1.0)


def block_scaled(p: Product, change: Callable[[Random, Matrix], Matrix]) -> Case:
    """Kernel fault in a block-scaled product on sm_120: the function `change` changes the block scales of A."""
    rng, rows, columns, k = p.rng, 128, p.shape[1], 512
    i = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"
    a, b = (rng.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((rows, k), (k, columns)))
    scales = [rng.integers(120, 135, (lines, k // 32)).astype(np.uint8) for lines in (rows, columns)]
    words = {"instruction": i, "arch": "sm_120", "result": "f32"}
    y = sptc.gemm(a, b, block_scale_a=change(rng, scales[0]), block_scale_b=scales[1], backend="native", **words)
    return Case(a, b, y, ("scale",), {**words, "block_scale_a": scales[0], "block_scale_b": scales[1]})


def in_blocks_of_128x4(rng: Random, scales: Matrix) -> Matrix:
    """Kernel fault: block scales are written in blocks of 128 x 4 and read row by row."""
    rows, blocks = scales.shape
    return scales.reshape(rows // 128, 4, 32, blocks // 4, 4).transpose(0, 3, 2, 1, 4).reshape(rows, blocks)


SCALES: dict[str, Callable[[Random, Matrix], Matrix]] = {
    "block scales in 128 x 4, read row by row": in_blocks_of_128x4,
    "block scales of another row": lambda rng, s: np.roll(s, int(rng.choice([1, 8, 16])), 0),
    "block scales of another block": lambda rng, s: np.roll(s, 1, 1),
    "block scales ignored": lambda rng, s: np.full_like(s, 127),
    "block scales transposed": lambda rng, s: s.T.reshape(s.shape),
}


def fp4_scaled(p: Product, change: Callable[[Product, dict[str, Any]], dict[str, Any]]) -> Case:
    """Replace a product by an mxfp4 or nvfp4 product with second-level scales, and plant a fault in the scales."""
    rng, rows, columns, k = p.rng, 128, 128, 512
    levels = [("mxf4.block_scale.scale_vec::2X", "ue8m0", 32), ("mxf4nvf4.block_scale.scale_vec::4X", "ue4m3", 16)]
    kind, scale_type, span = levels[int(rng.integers(0, 2))]
    a, b = (rng.standard_normal(shape).astype(ml_dtypes.float4_e2m1fn) for shape in ((rows, k), (k, columns)))
    low, high = (123, 131) if span == 32 else (0x28, 0x50)
    scales = [rng.integers(low, high, (lines, k // span)).astype(np.uint8) for lines in (rows, columns)]
    i = f"mma.sync.aligned.m16n8k64.row.col.kind::{kind}.f32.e2m1.e2m1.f32.{scale_type}"
    words = {"instruction": i, "arch": "sm_120", "result": str(rng.choice(["f32", "bf16"]))}
    scaled = {"block_scale_a": scales[0], "block_scale_b": scales[1], "alpha": 1 / 6}
    y = sptc.gemm(a, b, backend="native", **words, **scaled | change(p, scaled))
    return Case(a, b, y, ("scale",), {**words, **scaled})


FP4: dict[str, Callable[[Product, dict[str, Any]], dict[str, Any]]] = {
    "fp4 scales of A and B exchanged": lambda p, g: {
        "block_scale_a": g["block_scale_b"], "block_scale_b": g["block_scale_a"]
    },
    "fp4 scales of B written in blocks of 128 x 4": lambda p, g: {
        "block_scale_b": in_blocks_of_128x4(p.rng, g["block_scale_b"])
    },
    "fp4 scales of A and B written in blocks of 128 x 4": lambda p, g: {
        name: in_blocks_of_128x4(p.rng, g[name]) for name in ("block_scale_a", "block_scale_b")
    },
    "fp4 scales of another column": lambda p, g: {"block_scale_b": np.roll(g["block_scale_b"], 8, 0)},
    "fp4 scales of columns in any order": lambda p, g: {"block_scale_b": p.rng.permutation(g["block_scale_b"])},
    "fp4 second-level scale ignored": lambda p, g: {"alpha": 1.0},
    "fp4 second-level scale applied twice": lambda p, g: {"scale_a": np.float32(1 / 6)},
    "fp4 second-level scale inverted": lambda p, g: {"alpha": 6.0},
}  # fmt: skip


def group_scaled(p: Product, change: Callable[[Product, dict[str, Matrix]], dict[str, Any]]) -> Case:
    """Return an fp8 matrix product with group scales in place of product `p`. The function `change` changes the scales.

    A scale group of A has 1 x 128 elements; a scale group of B has 1 x 128 or 128 x 128 elements. In half of the cases,
    a scale is the largest magnitude in its group divided by a constant, and the scales are nearly equal. In the other
    cases, the scales are random.
    """
    rng, rows, columns = p.rng, 128, int(p.rng.choice([128, 256]))
    k = 512
    i = f"wgmma.mma_async.sync.aligned.m64n8k32.f32.{rng.choice(['e4m3.e4m3', 'e4m3.e5m2'])}"
    whole = [rng.standard_normal(shape).astype(np.float32) for shape in ((rows, k), (columns, k))]
    shared = [1, int(rng.choice([1, 128]))]
    group_scales = {}
    quantised = []
    for name, matrix, lines, fmt in zip("ab", whole, shared, i.split(".")[-2:], strict=True):
        cut = matrix.reshape(len(matrix) // lines, lines, k // 128, 128)
        scale = np.abs(cut).max((1, 3)) / np.float32(448 if fmt == "e4m3" else 57344)
        scale = scale if rng.integers(0, 2) else rng.uniform(0.5, 2, scale.shape).astype(np.float32)
        stored = (cut / scale[:, None, :, None]).reshape(matrix.shape)
        quantised.append(np.clip(stored, -240, 240).astype(dtype(fmt)))
        group_scales[f"group_scale_{name}"] = scale if name == "a" else np.ascontiguousarray(scale.T)
    a, b = quantised[0], np.ascontiguousarray(quantised[1].T)
    scalings = [f"{order}, {addition}" for order in ("product", "a then b") for addition in ("fused", "rounded")]
    way = {"promote": int(rng.choice([4, 2])), "group_scaling": str(rng.choice(scalings)), "instruction": i}
    result = str(rng.choice(["f32", "bf16"]))
    changed = change(p, group_scales)
    operands = changed.pop("operands", lambda a, b: (a, b))(a, b)
    y = sptc.gemm(*operands, result=result, backend="native", **{**way, **group_scales, **changed})
    if np.array_equal(y, sptc.gemm(a, b, result=result, backend="native", **way, **group_scales)):
        return group_scaled(p, change)  # The fault changes no bit of the result: draw other matrices.
    kinds = ("scale",) if operands[0] is a else ("slice of K", "accumulator")
    return Case(a, b, y, kinds, {"result": result, "dense": True, **group_scales})


def without_slice(a: Matrix, b: Matrix) -> tuple[Matrix, Matrix]:
    """Return A, and a copy of B in which 64 rows are zero, so that a slice of K is missing from the sum."""
    wrong = b.copy()
    wrong[192:256] = 0
    return a.copy(), wrong


def exchanged_groups(p: Product, given: dict[str, Matrix]) -> dict[str, Matrix]:
    """Kernel fault: the group scales of A of neighbouring groups along K are exchanged."""
    return {"group_scale_a": given["group_scale_a"][:, np.arange(given["group_scale_a"].shape[1]) ^ 1]}


#: Kernel faults in group scales. Scales of A have a row for each row of A; scales of B have a row for each group of K.
GROUPS: dict[str, Callable[[Product, dict[str, Matrix]], dict[str, Any]]] = {
    "group scales of another row": lambda p, g: {
        "group_scale_a": np.roll(g["group_scale_a"], int(p.rng.choice([1, 8, 16])), 0)
    },
    "group scales of rows in any order": lambda p, g: {"group_scale_a": p.rng.permutation(g["group_scale_a"])},
    "group scales of another column": lambda p, g: {"group_scale_b": np.roll(g["group_scale_b"], 1, 1)},
    "group scales of another group": exchanged_groups,
    "group scales of A and B of the previous group": lambda p, g: {
        "group_scale_a": np.roll(g["group_scale_a"], 1, 1), "group_scale_b": np.roll(g["group_scale_b"], 1, 0)
    },
    "group scales of the first row of a tile": lambda p, g: {
        "group_scale_a": g["group_scale_a"][np.arange(len(g["group_scale_a"])) // 128 * 128]
    },
    "group scales of A transposed": lambda p, g: {
        "group_scale_a": g["group_scale_a"].T.reshape(g["group_scale_a"].shape)
    },
    "group scales of A written in blocks of 128 x 4": lambda p, g: {
        "group_scale_a": in_blocks_of_128x4(p.rng, g["group_scale_a"])
    },
    "group scales of B transposed": lambda p, g: {
        "group_scale_b": g["group_scale_b"].reshape(g["group_scale_b"].T.shape).T
    },
    "group scales of A ignored": lambda p, g: {"group_scale_a": np.ones_like(g["group_scale_a"])},
    "group scales of B applied twice": lambda p, g: {"group_scale_b": g["group_scale_b"] ** 2},
    "group scales rounded up to powers of two": lambda p, g: {
        name: np.exp2(np.ceil(np.log2(scale))).astype(np.float32) for name, scale in g.items()
    },
    "group-scaled product with a slice of K missing": lambda p, g: {"operands": without_slice},
}  # fmt: skip

# Test products with a kernel fault in types or rounding.


def neighbouring_type(p: Product) -> Case:
    """Kernel fault: the elements are interpreted as a wrong type of the same size."""
    pairs = {"e4m3": "e5m2", "e5m2": "e4m3", "f16": "bf16", "bf16": "f16", "s8": "u8"}
    q = drawn(p.rng, (128, 64, 512), fmt=str(p.rng.choice([*pairs])), way=p.way)
    q.way = {} if q.fmt == "s8" else q.way
    other = pairs[q.fmt]
    one = str(instructions_for(q.fmt, "sm_90", dense=q.dense)[0])
    wrong = one.replace(f".{q.fmt}.{q.fmt}", f".{other}.{other}")
    kind = np.uint8 if other == "u8" else dtype(other)
    y = q.times(*(x.view(kind) for x in (q.a, q.b)), instruction=wrong, format=None, nan="keep")
    return q.case(y, "type", nan="keep")


def words_rounded(p: Product) -> Case:
    """Variant without a fault: f32 operands are rounded to tf32 by cvt.rna."""
    q = drawn(p.rng, (128, 64, 512), fmt="tf32", way=p.way)

    def rna(x: Matrix) -> Matrix:
        return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)

    return q.case(q.times(rna(q.a), rna(q.b)), "correct")  # `sptc.diagnose` must not call rounding by cvt.rna a fault.


def operands_truncated(p: Product) -> Case:
    """Kernel fault: f32 operands are truncated to bf16."""
    q = drawn(p.rng, (128, 64, 512), fmt="bf16", way=p.way)
    exact = [np.where(x == 0, 0, p.rng.standard_normal(x.shape)).astype(np.float32) for x in (q.a, q.b)]
    cut = [(x.view(np.uint32) >> 16).astype(np.uint16).view(ml_dtypes.bfloat16) for x in exact]
    y = q.times(*cut)
    q.a, q.b = exact
    return q.case(y, "rounding of operands")


ROUNDING = "rounding of the result"


def rounded_twice(p: Product) -> Case:
    """Kernel fault: the result is rounded to another type before the final rounding."""
    q = drawn(p.rng, (256, 128, 512), fmt=str(p.rng.choice(["f16", "e4m3"])), result="f32", way={})
    middle, last = [(np.float16, "bf16"), (ml_dtypes.bfloat16, "f16")][int(p.rng.integers(0, 2))]
    y = q.y.astype(middle).astype(np.float32).astype(dtype(last))
    q.result = last
    return q.case(y, ROUNDING)


def result_truncated(p: Product) -> Case:
    """Kernel fault: an f32 result is truncated or rounded to bf16."""
    q = drawn(p.rng, (128, 64, 512), fmt=str(p.rng.choice(["f16", "e4m3"])), result="f32")
    return (
        q.case((q.y.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32), ROUNDING)
        if p.rng.integers(0, 2)
        else (q.case(q.y.astype(ml_dtypes.bfloat16).astype(np.float32), ROUNDING))
    )


def overflow_saturates(p: Product) -> Case:
    """Kernel fault: f16 results that overflow are stored as the largest finite number instead of infinity."""
    q = drawn(p.rng, (128, 64, 512), fmt="f16", result="f32")
    q.a = q.a * np.float16(8192)
    with np.errstate(over="ignore"):
        y = np.clip(q.y, -65504, 65504).astype(np.float16)
    q.result = "f16"
    return q.case(y, "special values")


def nan_otherwise(p: Product) -> Case:
    """Kernel fault: NaN is stored as 0x7FC00000 instead of the hardware's 0x7FFFFFFF."""
    q = drawn(p.rng, (128, 64, 512), fmt="f16", result="f32")
    q.b[3, 5] = np.nan
    y = q.times(q.a, q.b, nan="keep").view(np.uint32)
    return q.case(np.where(y == 0x7FFFFFFF, np.uint32(0x7FC00000), y).view(np.float32), "special values", nan="keep")

"""Random copies of tiles by tensor maps (TMA), for a comparison of the interpreter with a GPU.

A kernel of one CTA loads a tile from a tensor to shared memory and stores the shared memory, or stores shared memory to
a tile of a tensor, or combines both by a reduction. Rank, type, shape, strides, box, swizzle, fill, position in shared
memory and coordinates are random; many tiles cross the edges of the tensor. An H200 stops with an error at other tiles:
if the first coordinate is not at a multiple of 16 bytes, or a coordinate of a store is negative. This module needs only
numpy, so that it also runs on a machine with a GPU but without this package.
"""

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Threads of the CTA, bytes of shared memory, and number of recorded kernels, with seeds from 0.
BLOCK, SHARED, KERNELS = 128, 8192, 1000
#: Bytes per element of each element type of a tensor map.
_BYTES = {"u8": 1, "u16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8,
          "f32.ftz": 4, "tf32": 4, "tf32.ftz": 4}  # fmt: skip
_FLOATS = ("f16", "bf16", "f32", "f64", "f32.ftz", "tf32", "tf32.ftz")
_BITS = ("and", "or", "xor")
#: Reduction operations of each element type.
_REDUCTIONS = {
    **dict.fromkeys(("f16", "bf16"), ("add", "min", "max")),
    **dict.fromkeys(("f32", "f32.ftz", "tf32", "tf32.ftz"), ("add",)),
    "u32": ("add", "min", "max", "inc", "dec", *_BITS), "s32": ("add", "min", "max", *_BITS),
    "u64": ("add", "min", "max", *_BITS), "s64": ("min", "max"),
}  # fmt: skip


def program(seed: int) -> tuple[str, dict[str, NDArray], dict[str, Any]]:
    """Return the PTX of a kernel, its arrays, and its tensor map as ``launch_kernels.Driver.tensor_map`` accepts it.

    The parameters of the kernel are the tensor map over the array ``tensor``, and pointers to the other two arrays.
    """
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    element = draw.choice([*_BYTES])
    size, rank, swizzle = _BYTES[element], draw.randrange(1, 6), draw.choice(["none", "32B", "64B", "128B"])
    rows = [row for row in range(1, 257) if row * size % 16 == 0]
    widest = SHARED // 2 if swizzle == "none" else int(swizzle[:-1])
    box = [draw.choice([row for row in rows if row * size <= widest])]
    left = SHARED // 2 // max(box[0] * size, 0 if swizzle == "none" else widest)  # rows that fit into shared memory
    for _ in range(rank - 1):
        box.append(draw.randrange(1, min(left, draw.choice([2, 4, 16, 256])) + 1))
        left //= box[-1]
    shape = [draw.randrange(1, 2 * side + 2) for side in box]
    strides, pitch = [size], -(-shape[0] * size // 16) * 16
    for side in shape[1:]:
        strides.append(pitch + 16 * draw.choice([0, 0, 1, 3]))
        pitch = strides[-1] * side
    operations = ("load", "load", "store", *_REDUCTIONS.get(element, ()))
    name = draw.choice(operations)
    corner = [draw.choice([0, draw.randrange(-side if name == "load" else 0, extent + 1)])
              for side, extent in zip(box, shape, strict=True)]  # fmt: skip
    corner[0] -= corner[0] % (16 // size)
    fill = draw.choice(["zeros", "nan"]) if element in _FLOATS else "zeros"
    start = 128 * draw.randrange(SHARED // 256)
    octets = int(np.prod(box)) * size
    where = f"[%rd1, {{{', '.join(map(str, corner))}}}]"
    if name == "load":
        copy = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
        copy = f"{copy} [tile+{start}], {where}, [barrier];"
        wait = "again: mbarrier.try_wait.parity.shared.b64 %p1, [barrier], 0; @!%p1 bra again;"
    else:
        kind = "cp.async" if name == "store" else "cp.reduce.async"
        copy = f"{kind}.bulk.tensor.{rank}d.global.shared::cta"
        copy = f"{copy}{'' if name == 'store' else f'.{name}'}.bulk_group {where}, [tile+{start}];"
        copy, wait = f"{copy} cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;", ""
    ptx = f""".version 8.6
.target sm_90
.address_size 64
.visible .entry kernel(.param .align 64 .b8 map[128], .param .u64 source, .param .u64 target)
{{
  .shared .align 1024 .b8 tile[{SHARED}]; .shared .align 8 .b64 barrier;
  .reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %rd<8>;
  mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1; ld.param.u64 %rd2, [source]; ld.param.u64 %rd3, [target];
  mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mad.lo.u32 %r2, %r1, 4, %r2;
  mad.wide.u32 %rd2, %r1, 4, %rd2; mad.wide.u32 %rd3, %r1, 4, %rd3;
  setp.ne.u32 %p2, %r1, 0;
  @!%p2 mbarrier.init.shared.b64 [barrier], 1;
  {" ".join(f"ld.global.u32 %r3, [%rd2+{at}]; st.shared.u32 [%r2+{at}], %r3;" for at in range(0, SHARED, 4 * BLOCK))}
  fence.mbarrier_init.release.cluster; fence.proxy.async; bar.sync 0;
  @%p2 bra done;
  mbarrier.arrive.expect_tx.shared.b64 _, [barrier], {octets};
  {copy}
done:
  {wait} bar.sync 0;
  {" ".join(f"ld.shared.u32 %r3, [%r2+{at}]; st.global.u32 [%rd3+{at}], %r3;" for at in range(0, SHARED, 4 * BLOCK))}
  ret;
}}
"""
    end = sum((side - 1) * stride for side, stride in zip(shape, strides, strict=True)) + size
    arrays = {
        "tensor": rng.integers(0, 256, -(-end // 16) * 16, dtype=np.uint8).view(f"u{size}"),
        "source": rng.integers(0, 1 << 32, SHARED // 4, dtype=np.uint32),
        "target": np.zeros(SHARED // 4, np.uint32),
    }
    sides = {"shape": tuple(shape[::-1]), "strides": tuple(strides[::-1]), "box": tuple(box[::-1])}
    return ptx, arrays, {**sides, "swizzle": swizzle, "fill": fill, "element": element}

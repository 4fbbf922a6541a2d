"""Write PTX kernels with float reductions in memory, and with tensor maps whose elements TMA rounds or flushes.

    python benchmarks/write_reductions.py KERNELS.npz [NAME ...]

``launch_kernels.py`` runs the kernels on a GPU.

Each thread combines one word of `a` with one word of `b`. The words are random bits. A mask clears most exponent bits,
so that sums become subnormal, are rounded, and cancel.
"""

import argparse
from pathlib import Path

import numpy as np
from kernel_records import fields

THREADS, CTAS = 256, 8
HEAD = """.version 8.6
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 a, .param .u64 b, .param .u64 d, .param .align 64 .b8 map[128])
{
  .shared .align 128 .b32 words[256];
  .shared .align 8 .b64 barrier;
  .reg .pred %p<4>;
  .reg .b32 %r<16>;
  .reg .f32 %f<8>;
  .reg .b64 %rd<16>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [d];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r1, 256, %r2;
  mad.wide.u32 %rd1, %r3, 4, %rd1;
  mad.wide.u32 %rd2, %r3, 4, %rd2;
  mad.wide.u32 %rd4, %r3, 4, %rd3;
  ld.global.u32 %r4, [%rd1];
  ld.global.u32 %r5, [%rd2];
"""
#: Bit masks that clear most exponent bits, so that magnitudes are similar: f32, pair of f16, pair of bf16.
KEPT = {"f32": "0x81FFFFFF", "f16x2": "0x8FFF8FFF", "bf16x2": "0x83FF83FF", "f16": "0x8FFF8FFF", "bf16": "0x83FF83FF"}
IN_GLOBAL = """  st.global.u32 [%rd4], %r5;
  red.global.{operation} [%rd4], {value};
  ret;
}}
"""
IN_SHARED = """  shl.b32 %r6, %r2, 2;
  mov.u32 %r7, words;
  add.u32 %r6, %r6, %r7;
  st.shared.u32 [%r6], %r5;
  atom.shared.{operation} {result}, [%r6], {value};
  ld.shared.u32 %r8, [%r6];
  st.global.u32 [%rd4], %r8;
  ret;
}}
"""
IN_BULK = """  st.global.u32 [%rd4], %r5;
  shl.b32 %r6, %r2, 2;
  mov.u32 %r7, words;
  add.u32 %r6, %r6, %r7;
  st.shared.u32 [%r6], %r4;
  fence.proxy.async;
  membar.gl;
  bar.sync 0;
  setp.ne.u32 %p1, %r2, 0;
  @%p1 bra done;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation} [%rd4], [%r7], 1024;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
done:
  ret;
}}
"""
IN_TILE = IN_BULK.replace(
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation} [%rd4], [%r7], 1024;",
    "shl.b32 %r8, %r1, 8;\n  mov.b64 %rd5, map;\n  cvta.param.u64 %rd5, %rd5;\n"
    "  cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [%rd5, {{%r8}}], [%r7];",
)
FROM_TILE = """  shl.b32 %r8, %r1, 8;
  mov.b64 %rd5, map;
  cvta.param.u64 %rd5, %rd5;
  mov.u32 %r7, words;
  mov.u32 %r9, barrier;
  setp.ne.u32 %p1, %r2, 0;
  @%p1 bra wait;
  mbarrier.init.shared.b64 [%r9], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r9], 1024;
  cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%rd5, {{%r8}}], [%r9];
wait:
  bar.sync 0;
again:
  mbarrier.try_wait.parity.shared.b64 %p2, [%r9], 0;
  @!%p2 bra again;
  shl.b32 %r6, %r2, 2;
  add.u32 %r6, %r6, %r7;
  ld.shared.u32 %r8, [%r6];
  st.global.u32 [%rd4], %r8;
  ret;
}}
"""
#: Element types of tensor maps that TMA rounds or flushes, or in which it adds f32 words.
ELEMENTS = ("f32", "f32.ftz", "tf32", "tf32.ftz")
CASES = {
    "red.f32": (IN_GLOBAL, "add.f32", "f32"),
    "red.f16x2": (IN_GLOBAL, "add.noftz.f16x2", "f16x2"),
    "red.bf16x2": (IN_GLOBAL, "add.noftz.bf16x2", "bf16x2"),
    "atom.shared.f32": (IN_SHARED, "add.f32", "f32"),
    "bulk.add.f32": (IN_BULK, "add.f32", "f32"),
    "bulk.add.f16": (IN_BULK, "add.noftz.f16", "f16"),
    "bulk.add.bf16": (IN_BULK, "add.noftz.bf16", "bf16"),
    "bulk.min.f16": (IN_BULK, "min.f16", "f16"),
    "bulk.max.bf16": (IN_BULK, "max.bf16", "bf16"),
    **{f"tile.add.{element}": (IN_TILE, element, "f32") for element in ELEMENTS},
    **{f"tile.load.{element}": (FROM_TILE, element, "") for element in ELEMENTS},
}


def main() -> None:
    """Write the PTX and the launch description of all kernels."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, metavar="KERNELS.npz", help="file to write")
    parser.add_argument("names", nargs="*", metavar="NAME", help="kernels to write (default: all)")
    chosen = parser.parse_args()
    records = {}
    for seed, (name, (body, operation, kind)) in enumerate(CASES.items()):
        if chosen.names and name not in chosen.names:
            continue
        keep = f"  and.b32 %r4, %r4, {KEPT[kind]};\n  and.b32 %r5, %r5, {KEPT[kind]};\n" if kind else ""
        keep += "  mov.b32 %f1, %r4;\n" if kind == "f32" else ""
        value, result = ("%f1", "%f2") if kind == "f32" else ("%r4", "%r9")
        ptx = HEAD + keep + body.format(operation=operation, value=value, result=result)
        arrays = {each: ["s32", [THREADS * CTAS]] for each in ("a", "b", "d")}
        tile = {"tile": "a" if body is FROM_TILE else "d", "shape": [THREADS * CTAS], "strides": [4], "box": [THREADS],
                "swizzle": "none", "element": operation if operation in ELEMENTS else "f32"}  # fmt: skip
        launch = {
            "entry": "kernel", "arch": "sm_90", "grid": [CTAS, 1, 1], "block": [THREADS, 1, 1], "shared": 0,
            "arguments": [*({"array": each} for each in arrays), tile], "arrays": arrays, "seed": seed,
        }  # fmt: skip
        records |= fields(name, ptx, launch)
    np.savez(chosen.file, **records)


if __name__ == "__main__":
    main()

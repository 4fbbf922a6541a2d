"""Write PTX kernels with float reductions in global memory, in shared memory and in bulk, for ``launch_kernels.py``.

    python benchmarks/write_reductions.py FILE.npz

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
.visible .entry kernel(.param .u64 a, .param .u64 b, .param .u64 d)
{
  .shared .align 128 .b32 words[256];
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
}


def main() -> None:
    """Write the PTX and the launch description of all kernels."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, metavar="FILE.npz")
    records = {}
    for seed, (name, (body, operation, kind)) in enumerate(CASES.items()):
        keep = f"  and.b32 %r4, %r4, {KEPT[kind]};\n  and.b32 %r5, %r5, {KEPT[kind]};\n"
        keep += "  mov.b32 %f1, %r4;\n" if kind == "f32" else ""
        value, result = ("%f1", "%f2") if kind == "f32" else ("%r4", "%r9")
        ptx = HEAD + keep + body.format(operation=operation, value=value, result=result)
        arrays = {each: ["s32", [THREADS * CTAS]] for each in ("a", "b", "d")}
        launch = {
            "entry": "kernel", "arch": "sm_90", "grid": [CTAS, 1, 1], "block": [THREADS, 1, 1], "shared": 0,
            "arguments": [{"array": each} for each in arrays], "arrays": arrays, "seed": seed,
        }  # fmt: skip
        records |= fields(name, ptx, launch)
    np.savez(parser.parse_args().file, **records)


if __name__ == "__main__":
    main()

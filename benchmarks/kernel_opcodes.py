"""Kernels that execute one PTX instruction in many threads, and their operands, for a comparison with a GPU.

``tests/kernels/opcodes-h200.npz`` holds the results of an H200, which ``record_opcodes.py`` recorded. This module needs
only numpy, so that it also runs on a machine with a GPU but without this package.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

THREADS = 512
#: Words that occur often among the operands: limits of integer and float types, numbers next to limits, and NaN codes.
SPECIAL = (
    "0 1 2 1f 20 21 40 ff 100 7fffff 800000 3f800000 3f000000 bf800000 7f800000 7f800001 7fc12345 ffc00001 ffffffff "
    "7fffffff 80000000 80000001 7f7fffff 3c003c00 7c007c01 fe010400 03ff8001 7bff0001 40490fdb 4f000000 cf000000 "
    "5f000000 c2ff0000 437f8000 43ff8000 3f802000 3fff0000 7ff00000 7ff80001 fff12345 38800000 33000000 477ff000 "
    "00ff00ff 41e00000 c1e00000 43e00000 40dfffff"
)
#: Opcodes, by result type and operand types. Letters: r is a register of 32 bits, q of 64 bits, h of 16 bits, f of f32
#: and d of f64; b is a number of 8 bits in a register of 32 bits, and p a predicate.
OPCODES = {
    "f ff": "add.f32 add.ftz.f32 sub.f32 mul.f32 mul.ftz.f32 add.sat.f32 mul.ftz.sat.f32 min.f32 max.f32 min.NaN.f32 "
    "max.ftz.f32 div.rn.f32 div.rn.ftz.f32 copysign.f32 add.rz.f32 add.rm.f32 add.rp.ftz.f32 sub.rm.f32 sub.rz.sat.f32 "
    "mul.rz.f32 mul.rm.ftz.f32 mul.rp.f32 set.gt.f32.f32 set.leu.ftz.f32.f32",
    "f f": "neg.f32 abs.f32 neg.ftz.f32 abs.ftz.f32 rcp.rn.f32 rcp.rn.ftz.f32 sqrt.rn.f32 sqrt.rn.ftz.f32 "
    "cvt.rni.f32.f32 cvt.rmi.ftz.f32.f32 cvt.sat.f32.f32 cvt.ftz.f32.f32 cvt.rzi.f32.f32 cvt.rpi.f32.f32",
    "f fff": "fma.rn.f32 fma.rn.ftz.f32 fma.rn.sat.f32 mad.rn.f32 fma.rz.f32 fma.rm.f32 fma.rp.ftz.f32 slct.f32.f32 "
    "slct.ftz.f32.f32",
    "d dd": "add.f64 sub.f64 mul.f64 min.f64 max.f64 div.rn.f64 copysign.f64",
    "d ddd": "fma.rn.f64",
    "d d": "neg.f64 abs.f64 sqrt.rn.f64 rcp.rn.f64 cvt.rzi.f64.f64 cvt.sat.f64.f64 cvt.rni.f64.f64",
    "r rr": "add.f16x2 add.ftz.f16x2 add.sat.f16x2 sub.f16x2 mul.f16x2 mul.ftz.sat.f16x2 min.f16x2 max.f16x2 "
    "max.NaN.f16x2 min.ftz.f16x2 add.bf16x2 sub.bf16x2 mul.bf16x2 min.bf16x2 max.bf16x2 max.NaN.bf16x2 add.s16x2 "
    "add.u16x2 min.s16x2 max.s16x2 min.u16x2 max.u16x2 div.u32 div.s32 rem.u32 rem.s32 mul.hi.s32 mul.hi.u32 "
    "mul.lo.s32 add.s32 sub.s32 min.s32 max.u32 and.b32 or.b32 xor.b32 shl.b32 shr.s32 shr.u32 shr.b32 set.lt.u32.s32 "
    "set.hs.s32.u32 set.gt.f16x2.f16x2 set.neu.ftz.f16x2.f16x2 set.nan.u32.f16x2 set.le.bf16x2.bf16x2 "
    "bmsk.clamp.b32 bmsk.wrap.b32 szext.clamp.s32 szext.wrap.u32 mul24.lo.s32 mul24.hi.u32 "
    "cvt.pack.sat.s16.s32 cvt.pack.sat.u16.s32",
    "r r": "neg.f16x2 abs.f16x2 neg.ftz.f16x2 abs.ftz.f16x2 neg.bf16x2 abs.bf16x2 brev.b32 clz.b32 popc.b32 cnot.b32 "
    "abs.s32 neg.s32 not.b32 bfind.u32 bfind.s32 bfind.shiftamt.u32 "
    "bfind.shiftamt.s32 cvt.sat.s8.s32 cvt.sat.u16.s32 cvt.u8.u32 cvt.s16.s32 cvt.sat.u32.s32 "
    "movmatrix.sync.aligned.m8n8.trans.b16",
    "r rrr": "fma.rn.f16x2 fma.rn.ftz.f16x2 fma.rn.sat.f16x2 fma.rn.bf16x2 fma.rn.relu.f16x2 "
    "fma.rn.relu.bf16x2 mad.hi.u32 mad.hi.s32 mad.lo.s32 sad.s32 "
    "sad.u32 prmt.b32 prmt.b32.f4e prmt.b32.b4e prmt.b32.rc8 prmt.b32.ecl prmt.b32.ecr prmt.b32.rc16 mad24.lo.s32 "
    "slct.s32.s32 slct.b32.s32 shf.l.clamp.b32 shf.r.clamp.b32 shf.l.wrap.b32 shf.r.wrap.b32 dp4a.s32.u32 dp4a.u32.s32 "
    "dp4a.s32.s32 dp2a.hi.u32.s32 dp2a.lo.s32.s32 cvt.pack.sat.s8.s32.b32 cvt.pack.sat.u8.s32.b32 "
    "cvt.pack.sat.s4.s32.b32 cvt.pack.sat.u4.s32.b32 cvt.pack.sat.u2.s32.b32",
    "r rbb": "bfe.s32 bfe.u32",
    "r rrbb": "bfi.b32",
    "q rr": "mul.wide.s32 mul.wide.u32",
    "q rrq": "mad.wide.s32 mad.wide.u32",
    "q qq": "div.u64 div.s64 rem.u64 rem.s64 mul.hi.s64 mul.hi.u64 mul.lo.u64 add.s64 sub.s64 min.s64 max.u64 xor.b64",
    "q qr": "shl.b64 shr.s64 shr.u64",
    "q qbb": "bfe.s64 bfe.u64",
    "q qqbb": "bfi.b64",
    "q q": "brev.b64 abs.s64 neg.s64 not.b64",
    "r q": "clz.b64 popc.b64 bfind.u64 bfind.shiftamt.s64 cvt.sat.u8.s64 cvt.sat.s32.u64 cvt.u32.u64",
    "q r": "cvt.s64.s32 cvt.u64.u32 cvt.sat.u64.s32",
    "h hh": "div.u16 div.s16 rem.s16 rem.u16 mul.hi.s16 mul.lo.u16 min.s16 max.u16 add.f16 sub.f16 mul.f16 min.f16 "
    "max.NaN.f16 add.sat.f16 mul.ftz.f16 add.bf16 sub.bf16 max.bf16",
    "h hhh": "fma.rn.f16 fma.rn.sat.f16 fma.rn.bf16",
    "h hr": "shl.b16 shr.s16 shr.u16",
    "h h": "neg.f16 abs.f16 neg.bf16 abs.bf16 cvt.rzi.f16.f16 cvt.rmi.f16.f16 cvt.rni.bf16.bf16 neg.s16 abs.s16",
    "r f": "cvt.rni.s32.f32 cvt.rzi.s32.f32 cvt.rmi.s32.f32 cvt.rpi.s32.f32 cvt.rpi.ftz.s32.f32 cvt.rni.u32.f32 "
    "cvt.rzi.s16.f32 cvt.rni.u16.f32 cvt.rni.s8.f32 cvt.rmi.u8.f32 cvt.rna.tf32.f32 cvt.rn.tf32.f32 "
    "cvt.rz.relu.tf32.f32",
    "r ff": "set.ltu.ftz.u32.f32 set.eq.s32.f32 cvt.rn.f16x2.f32 cvt.rz.f16x2.f32 cvt.rn.relu.f16x2.f32 "
    "cvt.rn.bf16x2.f32 cvt.rz.relu.bf16x2.f32",
    "h ff": "cvt.rn.satfinite.e4m3x2.f32 cvt.rn.satfinite.e5m2x2.f32 cvt.rn.satfinite.relu.e4m3x2.f32",
    "h r": "cvt.rn.satfinite.e4m3x2.f16x2 cvt.rn.satfinite.e5m2x2.f16x2 cvt.rn.f16.s32 cvt.rz.f16.s32 cvt.rp.f16.u32 "
    "cvt.rn.bf16.s32",
    "r h": "cvt.rn.f16x2.e4m3x2 cvt.rn.relu.f16x2.e5m2x2 cvt.rn.f16x2.e5m2x2 cvt.rni.s32.f16 cvt.rzi.u8.f16 "
    "cvt.rni.s32.bf16 cvt.s32.s16 cvt.u32.u8",
    "q h": "cvt.rni.s64.f16 cvt.rni.u64.bf16 cvt.s64.s8",
    "h f": "cvt.rn.f16.f32 cvt.rz.f16.f32 cvt.rm.f16.f32 cvt.rn.ftz.f16.f32 cvt.rn.sat.f16.f32 cvt.rn.relu.f16.f32 "
    "cvt.rn.bf16.f32 cvt.rz.bf16.f32 cvt.rn.relu.bf16.f32",
    "h hhf": "slct.b16.f32",
    "f rr": "set.ne.f32.s32",
    "q qqr": "slct.u64.s32",
    "f h": "cvt.f32.f16 cvt.f32.bf16 cvt.sat.f32.f16 cvt.rn.f32.s16",
    "f d": "cvt.rn.f32.f64 cvt.rz.f32.f64 cvt.rm.f32.f64 cvt.rp.f32.f64 cvt.rn.sat.f32.f64 cvt.rn.ftz.f32.f64",
    "d f": "cvt.f64.f32 cvt.ftz.f64.f32",
    "h d": "cvt.rn.f16.f64 cvt.rp.f16.f64",
    "d h": "cvt.f64.f16",
    "f r": "cvt.rn.f32.s32 cvt.rz.f32.s32 cvt.rm.f32.u32 cvt.rp.f32.s32 cvt.rn.sat.f32.s32",
    "f q": "cvt.rn.f32.u64 cvt.rn.f32.s64",
    "d q": "cvt.rn.f64.u64 cvt.rn.f64.s64",
    "r d": "cvt.rni.s32.f64 cvt.rzi.u32.f64 cvt.rzi.s16.f64 cvt.rni.u8.f64",
    "q d": "cvt.rni.s64.f64 cvt.rzi.u64.f64",
    "q f": "cvt.rni.s64.f32 cvt.rpi.u64.f32",
    "p ff": "setp.lt.f32 setp.lt.ftz.f32 setp.ltu.f32 setp.ne.f32 setp.neu.f32 setp.nan.f32 setp.num.f32 "
    "setp.eq.ftz.f32 setp.ge.f32 setp.geu.ftz.f32 setp.equ.f32",
    "p f": "testp.finite.f32 testp.infinite.f32 testp.number.f32 testp.notanumber.f32 testp.normal.f32 "
    "testp.subnormal.f32",
    "p d": "testp.finite.f64 testp.normal.f64 testp.subnormal.f64",
    "p hh": "setp.gt.f16 setp.ltu.f16 setp.eq.ftz.f16",
    "p dd": "setp.equ.f64 setp.lt.f64",
    "p rr": "setp.lt.s32 setp.hs.u32 setp.eq.b32",
}
_RESULTS = {
    "r": "", "f": "mov.b32 %r10, %f10;", "q": "mov.b64 {%r10, %r11}, %q10;", "d": "mov.b64 {%r10, %r11}, %d10;",
    "h": "cvt.u32.u16 %r10, %h10;", "p": "selp.b32 %r10, 1, 0, %p10;",
}  # fmt: skip


def operands() -> NDArray[np.uint32]:
    """Return four words for each thread, shape (THREADS, 4): special words, subnormal numbers and random words."""
    rng = np.random.default_rng(5)
    words = rng.integers(0, 1 << 32, (THREADS, 4), dtype=np.uint32)
    special = np.array([int(word, 16) for word in SPECIAL.split()], np.uint32)
    chosen = rng.random(words.shape) < 0.5
    words[chosen] = special[rng.integers(0, len(special), int(chosen.sum()))]
    small = rng.random(words.shape) < 0.15
    exponents = rng.integers(1, 8, int(small.sum()), dtype=np.uint32) << np.uint32(27)
    words[small] = words[small] & np.uint32(0x807FFFFF) | exponents
    return words


def programs() -> Iterator[tuple[str, str]]:
    """Yield the name and the PTX text of each kernel. A kernel reads 16 bytes in each thread, and writes 8 bytes."""
    for types, opcodes in OPCODES.items():
        result, sources = types.split()
        numbers = [sources[: place + 1].count(letter) for place, letter in enumerate(sources)]
        # 8-bit registers (%b2, %b3, %b4) are numbered by operand position, other registers by operand type.
        registers = [f"%b{place + 1}" if letter == "b" else f"%{letter}{number}"
                     for place, (letter, number) in enumerate(zip(sources, numbers, strict=True))]  # fmt: skip
        for opcode in opcodes.split():
            yield f"{opcode} {types}", _text(f"{opcode} %{result}10, {', '.join(registers)};\n  {_RESULTS[result]}")


def _text(body: str) -> str:
    return f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 source, .param .u64 target)
{{
  .reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<32>; .reg .b32 %b<8>; .reg .b64 %q<32>;
  .reg .f32 %f<16>; .reg .f64 %d<16>;
  ld.param.u64 %q20, [source]; ld.param.u64 %q21, [target];
  mov.u32 %r20, %ctaid.x; mov.u32 %r21, %ntid.x; mov.u32 %r22, %tid.x;
  mad.lo.u32 %r20, %r20, %r21, %r22;
  mad.wide.u32 %q20, %r20, 16, %q20; mad.wide.u32 %q21, %r20, 8, %q21;
  mov.u32 %r10, 0; mov.u32 %r11, 0;
  ld.global.v4.b32 {{%r1, %r2, %r3, %r4}}, [%q20];
  mov.b32 %f1, %r1; mov.b32 %f2, %r2; mov.b32 %f3, %r3;
  mov.b64 %q1, {{%r1, %r2}}; mov.b64 %q2, {{%r3, %r4}}; mov.b64 %d1, %q1; mov.b64 %d2, %q2;
  mov.b64 %q3, {{%r4, %r1}}; mov.b64 %d3, %q3;
  mov.b32 {{%h1, %h2}}, %r1; mov.b32 {{%h3, %h4}}, %r2;
  and.b32 %b2, %r3, 255; and.b32 %b3, %r4, 255; and.b32 %b4, %r1, 255;
  {body}
  st.global.v2.b32 [%q21], {{%r10, %r11}};
  ret;
}}
"""

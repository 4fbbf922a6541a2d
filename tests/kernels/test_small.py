"""Kernels of a few instructions give right results in threads, warps and CTAs. Invalid launches are rejected."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc import TensorMap, run_kernel
from sptc.errors import Error, KernelError
from sptc.kernels.summary import summaries

Random = np.random.Generator
WORDS = 64


def text(body: str, parameters: int = 2, head: str = "") -> str:
    """Return a kernel around `body`. %rd1 and %rd2 point to the thread's words of the first and of the last array."""
    declared = ", ".join(f".param .u64 p{i}" for i in range(parameters))
    return f"""
.version 8.7
.target sm_90a
.address_size 64
{head}
.visible .entry kernel({declared})
{{
  .reg .pred %p<8>;
  .reg .b16 %h<16>;
  .reg .b32 %r<32>;
  .reg .b64 %rd<16>;
  .reg .f32 %f<16>;
  ld.param.u64 %rd1, [p0];
  ld.param.u64 %rd2, [p{parameters - 1}];
  mov.u32 %r0, %tid.x;
  mad.wide.u32 %rd1, %r0, 4, %rd1;
  mad.wide.u32 %rd2, %r0, 4, %rd2;
  {body}
  ret;
}}
"""


def run(body: str, source: NDArray, threads: int = WORDS, **options: Any) -> NDArray[np.uint32]:
    """Run a kernel of one CTA. The body reads one word per thread in %r1 and returns one word per thread in %r2."""
    result = np.zeros(source.size, np.uint32)
    program = text(f"ld.global.u32 %r1, [%rd1];\n{body}\nst.global.u32 [%rd2], %r2;")
    done = run_kernel(program, 1, threads, [source.view(np.uint32), result], **options)
    after: NDArray[np.uint32] = done.after(result)
    return after


def test_variables_of_the_module() -> None:
    """Constant, global and shared variables have the right values. Dynamic shared memory follows static variables."""
    head = """
.const .align 4 .b32 table[4] = {0x10, 2, 30, -4};
.visible .global .align 4 .u32 counter;
.global .f32 scale = 0f40000000;
"""
    body = """
  and.b32 %r1, %r0, 3; shl.b32 %r1, %r1, 2; cvt.u64.u32 %rd3, %r1;
  mov.u64 %rd4, table; add.u64 %rd4, %rd4, %rd3; ld.const.u32 %r2, [%rd4];
  ld.const.u32 %r3, [table+4]; add.u32 %r2, %r2, %r3;
  ld.global.f32 %f1, [scale]; cvt.rzi.s32.f32 %r4, %f1; mul.lo.u32 %r2, %r2, %r4;
  mov.u64 %rd5, counter; atom.global.add.u32 %r5, [%rd5], 1;
  mad.lo.u32 %r2, %r5, 1000, %r2; st.global.u32 [%rd2], %r2;
"""
    result = np.zeros(WORDS, np.uint32)
    after = run_kernel(text(body, head=head), 1, WORDS, [result, result]).after(result)
    table = np.array([0x10, 2, 30, -4])[np.arange(WORDS) % 4]
    np.testing.assert_array_equal(after.view(np.int32), (table + 2) * 2 + 1000 * np.arange(WORDS))
    with pytest.raises(KernelError, match=r"^line 8: 'counter' is not modelled as an initial value of a variable$"):
        run_kernel(text("", head=f"{head.strip()}\n.global .u64 at = counter;"), 1, 32, [result, result])
    head = ".extern .shared .align 16 .b8 dynamic[]; .shared .align 4 .b8 fixed[4];"
    body = "mov.u32 %r3, fixed; mov.u32 %r4, dynamic; st.shared.u32 [%r3], 5; st.shared.u32 [%r4], 7;"
    result = np.zeros(32, np.uint32)
    module = text(f"{body} ld.shared.u32 %r2, [%r3]; st.global.u32 [%rd2], %r2;", head=head)
    assert (run_kernel(module, 1, 32, [result, result], shared=16).after(result) == 5).all()
    # The labels of a branch table are those of its own scope.
    body = "T: .branchtargets A, B; { mov.u32 %r3, 0; brx.idx %r3, T; A: mov.u32 %r2, 7; bra B; } A: mov.u32 %r2, 5; B:"
    assert (run_kernel(text(f"{body} st.global.u32 [%rd2], %r2;"), 1, 32, [result, result]).after(result) == 5).all()


def _dot(words: NDArray, parts: str, weights: tuple[int, ...]) -> NDArray[np.uint32]:
    return (words.view(parts).reshape(len(words), -1).astype(np.int64) @ np.array(weights) + 5).astype(np.uint32)


def test_integers(rng: Random) -> None:
    words = rng.integers(0, 1 << 32, WORDS, dtype=np.uint32)
    for body, function in (
        ("mul.hi.s32 %r2, %r1, -77;", lambda x: (x.view(np.int32).astype(np.int64) * -77 >> 32).astype(np.uint32)),
        ("mul.hi.u32 %r2, %r1, %r1;", lambda x: (x.astype(np.uint64) ** 2 >> np.uint64(32)).astype(np.uint32)),
        ("div.s32 %r2, %r1, -5;", lambda x: np.trunc(x.view(np.int32) / -5).astype(np.int64).astype(np.uint32)),
        ("rem.s32 %r2, %r1, 7;", lambda x: np.fmod(x.view(np.int32), 7).view(np.uint32)),
        ("dp4a.s32.u32 %r2, %r1, 0xFF02F003, 5;", lambda x: _dot(x, "i1", (0x03, 0xF0, 0x02, 0xFF))),
        ("dp2a.hi.s32.s32 %r2, %r1, 0xFF02F003, 5;", lambda x: _dot(x, "<i2", (0x02, -1))),
        ("dp2a.lo.u32.u32 %r2, %r1, 0xFF02F003, 5;", lambda x: _dot(x, "<u2", (0x03, 0xF0))),
        ("shl.b32 %r2, %r1, 33;", lambda x: x * 0),
        ("shr.s32 %r2, %r1, 40;", lambda x: (x.view(np.int32) >> 31).view(np.uint32)),
        ("shf.l.wrap.b32 %r2, %r1, %r1, 5;", lambda x: x << np.uint32(5) | x >> np.uint32(27)),
        ("lop3.b32 %r2, %r1, %r0, 255, 0xca;", lambda x: x & np.arange(WORDS, dtype=np.uint32) | ~x & np.uint32(255)),
        ("prmt.b32 %r2, %r1, 0, 0x4c01;", lambda x: (x >> 8 & 255) | (x & 255) << 8 | (x & 0) << 16),
        ("bfe.s32 %r2, %r1, 4, 6;", lambda x: ((x << np.uint32(22)).view(np.int32) >> 26).view(np.uint32)),
        ("bfi.b32 %r2, %r1, -1, 8, 4;", lambda x: x * 0 + ~np.uint32(0xF00) | (x & 15) << 8),
        ("popc.b32 %r2, %r1;", lambda x: np.bitwise_count(x).astype(np.uint32)),
        ("brev.b32 %r2, %r1;", lambda x: np.array([int(f"{v:032b}"[::-1], 2) for v in x.tolist()], np.uint32)),
        ("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %r1; mov.b32 %r2, {hi, lo}; }", lambda x: x << 16 | x >> 16),
        ("setp.lt.s32 %p1, %r1, 0; selp.b32 %r2, 1, 2, %p1;", lambda x: np.where(x >> 31, 1, 2).astype(np.uint32)),
        ("mov.u32 %r2, 3; setp.eq.u32 %p1, %r0, 5; @!%p1 mov.u32 %r2, %r0;", lambda x: np.arange(WORDS, dtype=np.uint32)
         - 2 * (np.arange(WORDS) == 5).astype(np.uint32)),
    ):  # fmt: skip
        np.testing.assert_array_equal(run(body, words), function(words), body)


def test_a_warp_with_one_thread_and_an_address_that_wraps() -> None:
    body = ".reg.b32 w; .shared .b32 x[33]; mov.u32 w, x; mad.lo.u32 w, %r0, 4, w; sub.u32 w, w, 768; bar.sync 0;"
    body += "st.shared.u32 [w+768], %r1; ld.shared.u32 %r2, [w+768]; add.u32 %r2, %r2, WARP_SZ;"
    np.testing.assert_array_equal(run(body, np.arange(33, dtype=np.uint32), 33), np.arange(33) + 32)


def test_floats(rng: Random) -> None:
    """Fused multiply-adds are rounded once, conversions saturate, and a NaN becomes the canonical NaN."""
    x = (rng.integers(0, 1 << 32, WORDS, dtype=np.uint32) & np.uint32(0x87FFFFFF)) + np.uint32(0x38000000)
    results = run("mov.b32 %f1, %r1; fma.rn.f32 %f2, %f1, %f1, %f1; mov.b32 %r2, %f2;", x).view(np.float32)
    for value, result in zip(x.view(np.float32).tolist(), results.tolist(), strict=True):
        exact = Fraction(value) ** 2 + Fraction(value)
        below, above = (Fraction(float(np.nextafter(np.float32(result), np.float32(way)))) for way in (-np.inf, np.inf))
        assert abs(Fraction(result) - exact) <= min(abs(below - exact), abs(above - exact))
    halves = rng.standard_normal(2 * WORDS).astype(np.float16)
    pairs = run("fma.rn.f16x2 %r2, %r1, %r1, %r1;", halves.view(np.uint32)).view(np.float16)
    exact = halves.astype(np.float64) ** 2 + halves.astype(np.float64)
    np.testing.assert_array_equal(pairs, exact.astype(np.float16))
    # 4097 * 4097 is halfway between two f32 numbers. Its sums with 2^-40 and -2^-40 have more bits than an f64.
    addends = np.where(np.arange(WORDS) % 2, 0x2B800000, 0xAB800000).astype(np.uint32)
    for factor, sign in (("0f45800800", 1), ("0fC5800800", -1)):
        body = f"mov.b32 %f1, %r1; mov.f32 %f3, {factor}; fma.rn.f32 %f2, %f3, 0f45800800, %f1; mov.b32 %r2, %f2;"
        expected = sign * np.where(addends.view(np.float32) * sign > 0, 16785410, 16785408)
        np.testing.assert_array_equal(run(body, addends).view(np.float32), expected)
    numbers = np.float32([2.5, -2.5, 3e9, -3e9, np.inf, np.nan, -0.5, 7.0] * 8).view(np.uint32)
    integers = run("mov.b32 %f1, %r1; cvt.rni.s32.f32 %r2, %f1;", numbers).view(np.int32)
    assert integers[:8].tolist() == [2, -2, 2**31 - 1, -(2**31), 2**31 - 1, 0, 0, 7]
    nan = run("mov.b32 %f1, %r1; add.f32 %f2, %f1, %f1; mov.b32 %r2, %f2;", np.full(WORDS, 0xFFC12345, np.uint32))
    assert (nan == 0x7FFFFFFF).all()


def test_numbers_have_the_type_of_their_parameter() -> None:
    program = text("ld.param.f32 %f1, [p1]; mov.b32 %r2, %f1; ld.param.u64 %rd2, [p2]; st.global.u32 [%rd2], %r2;", 3)
    program = program.replace(".param .u64 p1", ".param .f32 p1")
    result = np.zeros(WORDS, np.uint32)
    for value, bits in ((3, 0x40400000), (3.0, 0x40400000), (float("-inf"), 0xFF800000), (1e300, 0x7F800000)):
        assert run_kernel(program, 1, WORDS, [result, value, result]).after(result)[0] == bits
    with pytest.raises(KernelError, match=r"parameter p0 of type \.u64 must be an integer, not 0\.5"):
        run_kernel(program, 1, WORDS, [0.5, 1, result])


def test_clocks_advance() -> None:
    wait = "mov.u64 %rd3, %clock64; W: mov.u64 %rd4, %globaltimer; setp.eq.u64 %p1, %rd3, %rd4; @%p1 bra W;"
    assert not run(f"{wait} mov.u32 %r2, %clock_hi;", np.ones(32, np.uint32), 32, approximate=True).any()


def test_threads_of_a_warp_exchange(rng: Random) -> None:
    words, lane = rng.integers(0, 1 << 32, WORDS, dtype=np.uint32), np.arange(WORDS)
    for body, source in (
        ("shfl.sync.bfly.b32 %r2, %r1, 5, 0x1f, -1;", lane ^ 5),
        ("shfl.sync.up.b32 %r2, %r1, 3, 0, -1;", np.where(lane % 32 < 3, lane, lane - 3)),
        ("shfl.sync.down.b32 %r2, %r1, 9, 0x1f, -1;", np.where(lane % 32 + 9 > 31, lane, lane + 9)),
        ("shfl.sync.down.b32 %r2, %r1, 3, 0x181f, -1;", np.where(lane % 8 + 3 < 8, lane + 3, lane)),
        ("shfl.sync.idx.b32 %r2, %r1, 7, 0x181f, -1;", lane // 8 * 8 + 7),
    ):
        np.testing.assert_array_equal(run(body, words), words[source], err_msg=body)
    ballot = run("setp.lt.s32 %p1, %r1, 0; vote.sync.ballot.b32 %r2, %p1, -1;", words)
    bits = (words >> 31).reshape(2, 32) << np.arange(32, dtype=np.uint32)
    np.testing.assert_array_equal(ballot, bits.sum(1, dtype=np.uint32).repeat(32))


def test_declarations_in_blocks_and_of_vectors() -> None:
    """Blocks have their own registers and labels, and variables of vectors have space for all elements."""
    for body, expected, head in (
        ("{ { .reg .b64 y; mov.b64 y, 7; mov.b64 {%r3, %r2}, y; } .reg .b32 y; mov.b32 y, 9; }", 0, ""),
        ("mov.u32 %r2, 0; { { bra L; add.u32 %r2, %r2, 1; L: add.u32 %r2, %r2, 2; } bra L; add.u32 %r2, %r2, 4;"
         " L: add.u32 %r2, %r2, 8; }", 10, ""),
        ("mov.u32 %r3, second; mov.u32 %r4, first; sub.u32 %r2, %r3, %r4;", 512,
         ".shared .v4 .b32 first[32]; .shared .b32 second[32];"),
        ("ld.global.b32 %r2, [table+8];", 3, ".global .b32 table[2][2] = {{1}, {3}};"),
        ("ld.global.b32 %r2, [table+28];", 8, ".global .v4 .b32 table[] = {1, 2, 3, 4, 5, 6, 7, 8};"),
    ):  # fmt: skip
        result = np.ones(WORDS, np.uint32)
        program = text(f"{body} st.global.u32 [%rd2], %r2;", head=head)
        assert (run_kernel(program, 1, WORDS, [result, result]).after(result) == expected).all(), body


def test_a_barrier_and_shared_memory(rng: Random) -> None:
    """After a barrier, a warp reads the words that the other warp wrote. Without the barrier, the warp reads zeros."""
    words = rng.integers(0, 1 << 32, WORDS, dtype=np.uint32)
    head = ".shared .align 4 .b8 buffer[256];"
    body = """
  ld.global.u32 %r1, [%rd1]; mov.u32 %r3, buffer; mad.lo.u32 %r4, %r0, 4, %r3; xor.b32 %r5, %r4, 128;
  setp.lt.u32 %p1, %r0, 32; @%p1 bra READ;
  st.shared.u32 [%r4], %r1; bar.sync 1, 64; bra END;
READ: bar.sync 1, 64; ld.shared.u32 %r2, [%r5]; st.global.u32 [%rd2], %r2;
END:"""
    result = np.zeros(WORDS, np.uint32)
    result = run_kernel(text(body, head=head), 1, WORDS, [words, result]).after(result)
    np.testing.assert_array_equal(result[:32], words[32:])
    with pytest.raises(KernelError, match=r"^deadlock: 32 threads wait at line \d+ .*thread 0 of CTA \(0, 0, 0\)$"):
        run_kernel(text(body.replace("bar.sync 1, 64; bra END;", "bra END;"), head=head), 1, WORDS, [words, result])


def test_two_warps_write_the_same_words() -> None:
    body = """
  mov.u32 %r3, buffer; and.b32 %r4, %r0, 31; mad.lo.u32 %r4, %r4, 4, %r3; setp.lt.u32 %p1, %r0, 32;
  @%p1 st.shared.u32 [%r4], 1;
  @!%p1 st.shared.u32 [%r4], 2;"""
    words = np.zeros(WORDS, np.uint32)
    (finding,) = map(str, run_kernel(text(body, head=".shared .b32 buffer[32];"), 1, WORDS, [words, words]).findings)
    assert finding == (
        "line 21: st.shared.u32: the instruction overwrites shared memory that warp 0 wrote at line 20, and no barrier "
        "orders the two accesses; undefined by PTX (address 0x0, thread 32 of CTA (0, 0, 0))"
    )


CLUSTER = """
  mov.u32 %r6, %ctaid.x; mul.wide.u32 %rd4, %r6, 256; add.s64 %rd1, %rd1, %rd4; add.s64 %rd2, %rd2, %rd4;
  ld.global.u32 %r1, [%rd1]; mov.u32 %r3, buffer; mad.lo.u32 %r4, %r0, 4, %r3; st.shared.u32 [%r4], %r1;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  mov.u32 %r7, %cluster_ctarank; xor.b32 %r7, %r7, 1; mapa.shared::cluster.u32 %r5, %r4, %r7;
  ld.shared::cluster.u32 %r2, [%r5]; st.global.u32 [%rd2], %r2;"""


def test_a_cluster_reads_the_shared_memory_of_the_other_cta(rng: Random) -> None:
    words, result = rng.integers(0, 1 << 32, 2 * WORDS, dtype=np.uint32), np.zeros(2 * WORDS, np.uint32)
    finding = (
        "line 23: ld.shared::cluster.u32: the instruction reads shared memory that warp 0 of CTA (1, 0, 0) wrote at "
        "line 20, and no barrier orders the two accesses; undefined by PTX (address 0x0, thread 0 of CTA (0, 0, 0))"
    )
    for barrier, orders in (
        ("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", True),
        ("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;", True),
        ("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;", False),
        ("bar.sync 0;", False),
    ):
        body = CLUSTER.replace("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", barrier)
        done = run_kernel(text(body, head=".shared .align 4 .b8 buffer[256];"), 2, WORDS, [words, result], cluster=2)
        assert [*map(str, done.findings)] == ([] if orders else [finding]), barrier
        if orders:
            np.testing.assert_array_equal(done.after(result), np.roll(words, WORDS), barrier)
    beyond = text(CLUSTER.replace("[%r5]", "[%r5+1024]"), head=".shared .align 4 .b8 buffer[256];")
    with pytest.raises(KernelError, match="the address is not inside the shared memory of a CTA; thread 0 of CTA"):
        run_kernel(beyond, 2, WORDS, [words, result], cluster=2)


@pytest.mark.parametrize("_", range(4))
def test_consecutive_mma_equal_single_mma(_: int, rng: Random) -> None:
    """Consecutive mma, also with shared registers, give the same results as mma with instructions between them."""

    def registers(count: int, low: int, high: int) -> str:
        low, high = (0, 32) if rng.random() < 0.05 else (low, high)
        first = count * int(rng.integers(low // count, high // count))
        return "{" + ", ".join(f"%x{first + i}" for i in range(count)) + "}"

    run = []
    for _ in range(60):
        a, b, c = registers(4, 0, 8), registers(2, 8, 12), registers(4, 12, 32)
        d = c if rng.random() < 0.7 else registers(4, 12, 32)
        run.append(f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {d}, {a}, {b}, {c};")
    # A chain of mma whose intermediate accumulators are read by no other instruction.
    accumulators = ["{%x12, %x13, %x14, %x15}", "{%y0, %y1, %y2, %y3}", "{%y4, %y5, %y6, %y7}"]
    for c, d in pairwise([*accumulators, "{%x16, %x17, %x18, %x19}"]):
        a, b = registers(4, 0, 8), registers(2, 8, 12)
        run.append(f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {d}, {a}, {b}, {c};")
    words = rng.standard_normal(64 * WORDS).astype(np.float16).view(np.uint32)
    results = []
    for between in ("", "mov.u32 %r0, %r0;"):
        loads, stores = (
            [f"{word}.global.b32 {order.format(f'%x{i}', f'[%rd{rd}+{256 * i}]')};" for i in range(32)]
            for word, order, rd in (("ld", "{0}, {1}", 1), ("st", "{1}, {0}", 2))
        )
        program = text("\n".join((".reg .b32 %x<32>; .reg .b32 %y<8>;", *loads, between.join(run), *stores)))
        results.append(run_kernel(program, 1, WORDS, [words, result := np.zeros_like(words)]).after(result))
    np.testing.assert_array_equal(*results)


_WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"


def test_rejected_kernels() -> None:
    arrays = [np.zeros(WORDS, np.uint32), np.zeros(WORDS, np.uint32)]
    for body, message in (
        ("ld.global.u32 %r1, [%rd1+2];",
         r"^line 18: ld.global.u32: the address of an access is not a multiple of 4 bytes; thread 0 of CTA"),
        ("ld.global.u32 %r1, [%rd1+256];", "4 bytes is not inside global memory; thread 0"),
        ("mov.u32 %r3, 4096; st.shared.u32 [%r3], %r0;", "4 bytes is not inside shared memory; thread 0"),
        ("ex2.approx.f32 %f1, %f2;", r"^line 18: 'ex2.approx.f32' is not modelled"),
        ("mov.u64 %rd3, %clock64;", "^line 18: 'mov.u64' is not modelled: the results are not bit-exact"),
        ("mov.u32 %r1, %nothing;", "the operand '%nothing' is not modelled"),
        ("bra NOWHERE;", "^line 18: there is no label 'NOWHERE'$"),
        (".reg .v2 .b128 %w<2>;", "^line 18: registers of .b128 are not modelled$"),
        (".reg .b32 %w<9999999>;", "^line 18: the kernel declares more than 1048576 registers$"),
        (f"mov.b32 %r1, {1 << 64};", "^line 18: the constant 18446744073709551616 has more than 64 bits$"),
        (f"mov.b32 %r1, {'9' * 5000};", "^line 18: a number has too many digits$"),
        (f"mov.b32 %r1, {'{' * 999}%r2{'}' * 999};", "^line 18: '{{{.* is not an operand$"),
        ("ld.global.u32 %r1, [%rd1+4294967296];", r"^line 18: '%rd1\+4294967296' is not an address$"),
        ("mov.u64 %rd3, 0; ld.u32 %r1, [%rd3];", "^line 18: ld.u32: the generic address 0x0 lies in no state space"),
        ("shfl.sync.left.b32 %r1, %r2, 1, 0, -1;", "^line 18: 'shfl.sync.left.b32' is not modelled"),
        ("vote.sync.none.pred %p1, %p2, -1;", "^line 18: 'vote.sync.none.pred' is not modelled"),
        ("setp.eq.min.u32 %p1, %r1, %r2, %p2;", "^line 18: 'setp.eq.min.u32' is not modelled"),
        ("mul.wide.u64 %rd3, %rd1, %rd2;", "^line 18: 'mul.wide.u64' is not modelled"),
        ("trap;", "^line 18: trap: a thread stops the kernel; thread 0 of CTA"),
        ("L: L: bra L;", "^line 18: a second label has the name 'L'$"),
        (".local .b8 w[999999];", "^line 18: the module declares 999999 bytes of local memory, more than 524288$"),
        ("add.u32 %r1, %r2;", "^line 18: 'add.u32' is not modelled: .* 1 source operands instead of 2$"),
        ("mbarrier.init.b64 %r1, 1;", "^line 18: mbarrier.init.b64: the operands do not fit the instruction$"),
        ("bar.sync 16;", "the barrier number exceeds 15"),
        ("atom.global.nonsense.add.u32 %r1, [%rd1], 1;", "^line 18: .* the qualifier '.nonsense' is not supported$"),
        ("atom.global.and.f32 %f1, [%rd1], %f2;", "^line 18: 'atom.global.and.f32' is not modelled$"),
        ("red.global.xor.f16x2 [%rd1], %r1;", "^line 18: 'red.global.xor.f16x2' is not modelled$"),
        ("red.async.relaxed.cluster.add.u32 [%r1], %r2, [%r3];", "the qualifier '.async' is not supported$"),
        (".local .b32 w[4]; mov.u64 %rd3, w; cvta.local.u64 %rd3, %rd3; atom.add.u32 %r1, [%rd3], 1;",
         "^line 18: atom.add.u32: local memory has no atomic operations; thread 0"),
        ("cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd1], [%r1], 16, %h1;", "qualifier '.cp_mask' is not"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.and.f32 [%rd1], [%r1], 16;", "is not modelled$"),
        (".shared .b64 w; mov.u32 %r3, w; cp.async.mbarrier.arrive.shared.b64 [%r3];", "no mbarrier.init has init"),
        ("T: .branchtargets L; mov.u32 %r3, 1; brx.idx %r3, T; L:", "brx.idx: the index is not below 1; thread 0"),
        ("brx.idx 0, T; T: .branchtargets L; L:", "^line 18: 'brx.idx' is not modelled$"),
        ("set.eq.f32.f16x2 %f1, %r1, %r2;", "^line 18: 'set.eq.f32.f16x2' is not modelled$"),
        ("set.lo.u32.f32 %r1, %f1, %f2;", "^line 18: 'set.lo.u32.f32' is not modelled$"),
        ("fma.f64 %rd1, %rd2, %rd3, %rd4;", "^line 18: 'fma.f64' is not modelled: the rounding mode is missing$"),
        ("L: brx.idx %r1, L;", "^line 18: the label is not that of a list '.branchtargets'$"),
        ("add.sat.bf16x2 %r1, %r2, %r3;", "'add' of type bf16x2 has no qualifier '.sat'$"),
        ("sub.s16x2 %r1, %r2, %r3;", "^line 18: 'sub.s16x2' is not modelled$"),
        ("LOOP: bra LOOP;", "within the limit of thread instructions"),
        ("add.u32 %r1, %r2, %r3", "^line 18: '%r3 ret' is not an operand$"),
        ("mma.sync.aligned.m16n8k15.row.col.f32.f16.f16.f32 {%f0}, {%r0}, {%r1}, {%f0};", "^line 18: .*shape"),
        (f"{_WGMMA} {{%f1, %f2, %f3, %f4}}, %rd1, %rd2, 1, 1, 1, 0, 0;",
         "^line 18: .wgmma.*: a CTA has 64 threads, which is not a multiple of 128$"),
    ):  # fmt: skip
        with pytest.raises(KernelError, match=message):
            run_kernel(text(body), 1, WORDS, arrays, limit=1_000_000)


def test_a_kernel_without_instructions_and_one_without_operands() -> None:
    done = run_kernel(".version 8.7\n.target sm_90\n.visible .entry k() { }", 1, 32, [])
    assert (done.instructions, done.loops) == (0, [])
    (summary,) = summaries(text(f"{_WGMMA} %f1, %rd1;"))
    assert summary.unmodelled[0].startswith(f"line 18: {_WGMMA}")


def test_comments_without_an_end() -> None:
    """Unclosed comments are rejected in linear time. A search from each "/*" to the end of a text would take hours."""
    with pytest.raises(KernelError, match=r"^line 6: '/\* /\* .* is not an? "):
        summaries(".version 8.7\n.target sm_90\n/* a\n */ .entry k() /* b */ {\n// c\n" + "/* " * (1 << 20) + "; }")


def test_rejected_launches() -> None:
    """Invalid launches are rejected. The largest grid needs no memory for CTAs that have not started."""
    array, program = np.zeros(WORDS, np.uint32), text("")
    with pytest.raises(KernelError, match="within the limit of thread instructions"):
        run_kernel(text("bra END; END:"), (1 << 31) - 1, WORDS, [array, array], cluster=1, limit=1000)
    for changes, message in (
        ({"args": [array]}, "kernel takes 2 arguments, not 1"),
        ({"args": [array, TensorMap(array, (64,))]}, r"argument 1 \(p1\) has 8 bytes and takes no tensor map"),
        ({"args": [array, "x"]}, "must be an array, a number, a tensor map, a structure or bytes .*, not str"),
        ({"args": [array, array[::2]]}, "argument 1 .p1. must be a contiguous array"),
        ({"args": [array, array.astype(object)]}, "argument 1 .p1. must be an array of numbers .* not of |O"),
        ({"args": [array, array.astype(">u4")]},
         "argument 1 .p1. must be an array of numbers in little-endian order, not of >u4"),
        ({"args": [TensorMap([1], (1,)), array]}, r"map of argument 0 \(p0\) must hold an array, not list"),  # type: ignore[arg-type]
        ({"ptx": b"\n\xff" + program.encode()}, "^line 2: the text is not UTF-8$"),
        ({"ptx": None}, "'ptx' must be the text of a module, not NoneType"),
        ({"ptx": program[: program.index("{")]}, "^line 6: the text ends before a ';' or '{' of"),
        ({"ptx": program[: program.index(".reg")] + "ret"}, "^line 7: an opening bracket has no closing bracket$"),
        ({"ptx": program.replace("8.7", "new")}, "^line 2: 'new' is not a PTX version$"),
        ({"ptx": program.replace(".u64 p1", "u64")}, "^line 6: '.param u64' is not a parameter$"),
        ({"ptx": program.replace(".u64 p1", ".u32 p1"), "args": [array, 1 << 40]}, "not accept the number 1099511"),
        ({"ptx": program.replace(".u64 p1", ".f32 p1"), "args": [array, 10**400]}, "does not accept the number 1000"),
        ({"args": None}, "'args' must be a sequence of arguments, not NoneType"),
        ({"limit": 0}, "'limit' must be an integer above 0, not 0"),
        ({"cluster": 32, "grid": 32}, r"a cluster has at most 16 CTAs, not \(32, 1, 1\)"),
        ({"entry": []}, "the module has no kernel \\[\\]; its kernels are kernel"),
        ({"ptx": program.replace(".visible", ".shared .b8 w[999999]; .visible")},
         "declares 999999 bytes of shared memory, more than 232448"),
        ({"ptx": program.replace(".visible", ".shared .b8 w[many]; .visible")}, "'many' is not a number of elements"),
        ({"grid": 1 << 31}, r"a grid has at most 2147483647 x 65535 x 65535 CTAs, not \(2147483648, 1, 1\)"),
        ({"grid": (1, 65536)}, "a grid has at most"),
        ({"shared": 1.5}, "'shared' must be 0 to 232448 bytes, not 1.5"),
        ({"grid": (0, 1)}, r"grid must be one to three integers above 0, not \(0, 1\)"),
        ({"block": 2048}, "at most 1024 threads, not 2048"),
        ({"cluster": 2, "grid": 3}, r"is not a multiple of the cluster \(2, 1, 1\) along each axis"),
        ({"entry": "other"}, "the module has no kernel 'other'; its kernels are kernel"),
        ({"ptx": "int main() {}"}, "the text is not PTX"),
        ({"ptx": program.replace("8.7", "99.0")}, r"^line 2: PTX 99.0 is later than 9.5, the latest supported"),
    ):  # fmt: skip
        arguments: dict[str, Any] = {"ptx": program, "grid": 1, "block": WORDS, "args": [array, array]} | changes
        with pytest.raises(KernelError, match=message):
            run_kernel(**arguments)
    for name, message in (("arch", "'sm_70' is no known architecture"), ("backend", "backend must be .*, not 'sm_70'")):
        with pytest.raises(Error, match=message):
            run_kernel(program, 1, WORDS, [array, array], **{name: "sm_70"})
    program = text("mov.u32 %r2, {'a', 1}; // text\n st.global.u32 [%rd2], %r0;".replace("{'a', 1}", "%r0")).rstrip()
    for end in range(program.index(".visible"), len(program), 7):
        with pytest.raises(KernelError, match=r"^line \d+: .*|^the module has no .entry$"):
            run_kernel(program[:end], 1, WORDS, [array, array])

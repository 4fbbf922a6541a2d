"""Kernels of CUDA programs of other projects, and what compiled CUDA uses: functions, printf, cancelled clusters."""

from functools import partial

import numpy as np
import pytest
from sptc import StructParameter, run_kernel
from sptc.errors import KernelError
from sptc.tests.kernels.recorded import PROGRAMS, compiled_kernel
from sptc.tests.kernels.test_small import WORDS, text

BUFFER = ".shared .align 16 .b8 buffer[32];"


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    """All arrays have the contents that an H200 wrote, or with which a program of CUTLASS found its result right."""
    kernel = compiled_kernel(name)
    result, run = kernel.run(check=False)
    kernel.assert_equal(result)
    assert run.exact


#: A function that returns a structure: {2 x, x + n}, or {x, 0} if x is 3. Another function calls it twice.
FUNCTIONS = """
.func (.param .align 8 .b8 result[8]) outer(.param .b32 x);
.func (.param .align 8 .b8 result[8]) pair(.param .b32 x, .param .b32 n) {
  .reg .b32 %r<4>; .reg .pred %p;
  ld.param.b32 %r0, [x]; ld.param.b32 %r1, [n]; st.param.b32 [result], %r0; st.param.b32 [result+4], 0;
  setp.eq.u32 %p, %r0, 3; @%p ret;
  add.u32 %r1, %r0, %r1; shl.b32 %r0, %r0, 1; st.param.v2.b32 [result], {%r0, %r1}; ret;
}
.func (.param .align 8 .b8 result[8]) outer(.param .b32 x) {
  .reg .b32 %r<4>; .reg .pred %p; .param .b32 n; .param .align 8 .b8 one[8];
  ld.param.b32 %r0, [x]; st.param.b32 [n], 100; setp.gt.u32 %p, %r0, 9; st.param.b64 [one], 0;
  @!%p call.uni (one), pair, (x, n);
  ld.param.b32 %r1, [one+4]; { .param .b32 y; st.param.b32 [y], %r1; call (result), pair, (y, n); } ret;
}
"""
CALL = """
  { .param .b32 x; .param .align 8 .b8 two[8]; st.param.b32 [x], %r0; call.uni (two), outer, (x);
    ld.param.v2.b32 {%r3, %r4}, [two]; }
  mad.lo.u32 %r2, %r3, 1000, %r4; st.global.u32 [%rd2], %r2;"""


def test_called_functions() -> None:
    result = np.zeros(WORDS, np.uint32)
    after = run_kernel(text(CALL, head=FUNCTIONS), 1, WORDS, [result, result]).after(result)
    pair = {x: (x, 0) if x == 3 else (2 * x, x + 100) for x in range(2 * WORDS)}
    expected = [pair[pair[x][1] if x <= 9 else 0] for x in range(WORDS)]
    assert after.tolist() == [1000 * low + high for low, high in expected]
    for call, message in (
        ("call (two), outer, (x, x);", "a call of outer needs a total of 2 results and parameters in '.param'$"),
        ("call.uni missing;", "'call.uni' is not modelled: the module does not define the function 'missing'$"),
        ("call.uni (two), outer, x;", "'x' is not a list of parameters$"),
        ("call.uni (x), outer, (x);", "a variable that is both a result and a parameter of a call is not modelled$"),
        ("@x call.uni (two), outer, (x);", "'x' is not a register$"),
        ("call.uni vprintf, (x);", "vprintf needs 2 parameters in '.param'"),
    ):
        with pytest.raises(KernelError, match=message):
            run_kernel(text(CALL.replace("call.uni (two), outer, (x);", call), head=FUNCTIONS), 1, 32, [result, result])
    with pytest.raises(KernelError, match=r"the function outer calls itself, which is not modelled$"):
        run_kernel(text(CALL, head=FUNCTIONS.replace("pair, (y, n)", "outer, (y)")), 1, 32, [result, result])


def test_names_in_called_functions() -> None:
    """A function has its own variables and labels; its shared variables are the same in each call."""
    head = """
.shared .b32 same;
.func (.param .b32 sum) count(.param .b32 add) {
  .shared .align 4 .b8 other[64]; .shared .b32 calls; .local .b32 same; .reg .b32 %r<2>; .reg .pred %p;
  mov.u32 %r0, 0; ld.param.b32 %r1, [add]; st.local.b32 [same], 77;
count: add.u32 %r0, %r0, 1; setp.lt.u32 %p, %r0, 3; @%p bra count;
  red.shared.add.u32 [calls], %r1; st.shared.u32 [other], 6; bar.sync 0; ld.shared.u32 %r1, [calls];
  add.u32 %r0, %r0, %r1; st.param.b32 [sum], %r0; ret;
}"""
    body = """
  .local .b32 pad; .local .b32 calls; st.local.b32 [calls], 5; st.shared.b32 [same], 9; bar.sync 0;
  { .param .b32 x; .param .b32 y; st.param.b32 [x], 2; call.uni (y), count, (x); call.uni (y), count, (x);
  ld.param.b32 %r4, [y]; } ld.local.b32 %r2, [calls]; ld.shared.b32 %r3, [same]; mad.lo.u32 %r2, %r2, 100, %r3;
  mad.lo.u32 %r2, %r4, 1000, %r2; st.global.u32 [%rd2], %r2;"""
    result = np.zeros(32, np.uint32)
    run = run_kernel(text(body, head=head), 1, 32, [result, result])
    assert run.after(result).tolist() == [(2 * 64 + 3) * 1000 + 509] * 32
    for calls, count in (("call.uni f{0};", 99), ("call.uni f{0}; call.uni f{0};", 15)):
        functions = [f".func f{i}() {{ {calls.format(i + 1)} ret; }}" for i in range(count)]
        module = text("call.uni f0;", head="\n".join([*functions, f".func f{count}() {{ ret; }}"]))
        with pytest.raises(KernelError, match=r"calls are nested more than 64 deep, or there are more than 16384$"):
            run_kernel(module, 1, 32, [result, result])


def _bytes(name: str, value: str) -> str:
    return f".global .align 1 .b8 {name}[] = {{{', '.join(map(str, value.encode()))}, 0}};"


def test_printed_text_and_assertions() -> None:
    form, result = "%d of %5.1f %s|%-4u|%#llx%c %%", np.zeros(32, np.uint32)
    head = "\n".join([_bytes("form", f"{form}\n"), _bytes("word", "text"), _bytes("file", "f.cu")])
    body = """
  .local .align 8 .b8 values[48]; .param .b64 a; .param .b64 b; .param .b32 line; .param .b64 size;
  cvt.rn.f64.u32 %rd9, %r0; mov.b64 %rd3, word; mov.b64 %rd4, -1; setp.gt.u32 %p1, %r0, 29; neg.s32 %r3, %r0;
  st.local.b32 [values], %r3; st.local.f64 [values+8], %rd9; st.local.b64 [values+16], %rd3;
  st.local.b32 [values+24], %r3; st.local.b64 [values+32], %rd4; st.local.b32 [values+40], 90;
  mov.b64 %rd5, values; cvta.local.u64 %rd5, %rd5; st.param.b64 [b], %rd5; mov.b64 %rd6, form; st.param.b64 [a], %rd6;
  @%p1 call.uni (line), vprintf, (a, b);"""
    expected = [form.replace("ll", "") % (-n, n, "text", (1 << 32) - n, (1 << 64) - 1, "Z") for n in (30, 31)]
    assert run_kernel(text(body, head=head), 1, 32, [result] * 2).printed.splitlines() == expected
    numbers = _bytes("form", "%#o %#x %+u %hhd %.f|%-6d|%05f|%*d|%.*s\n"), _bytes("word", "text")
    values = (15, 0, 5, 300, 2.5, 42, float("inf"), 4, 7, 2, "word")
    place, stores = 0, ""
    for value in values:
        size = 4 if isinstance(value, int) else 8
        place = -(-place // size) * size
        number = f"0d{np.float64(value).view(np.uint64):016x}" if isinstance(value, float) else value
        stores += f"mov.b64 %rd3, {number}; st.local.b{8 * size} [values+{place}], %rd3;"
        place += size
    other = f"{body[: body.index('cvt.rn.f64')].replace('48', '80')} setp.eq.u32 %p1, %r0, 0; {stores}"
    other += f"{body[body.index('mov.b64 %rd5, values') :]} @%p1 ld.param.b32 %r2, [line];"
    other += "@%p1 st.global.u32 [%rd2], %r2;"
    run = run_kernel(text(other, head="\n".join(numbers)), 1, 32, [result] * 2)
    assert run.printed == "017 0 5 44 2|42    |  inf|   7|te\n"  # printed by glibc
    assert run.after(result)[0] == len(values)
    beyond = body.replace("st.param.b64 [b]", "add.u64 %rd5, %rd5, 1048576; st.param.b64 [b]")
    with pytest.raises(KernelError, match=r"call.uni: an argument of the function is not inside memory$"):
        run_kernel(text(beyond, head=head), 1, 32, [result] * 2)
    body += "mov.b64 %rd6, file; st.param.b64 [b], %rd6; st.param.b32 [line], 12;"
    body += "call __assertfail, (b, b, line, b, size);"
    with pytest.raises(KernelError, match=r"the assertion 'f.cu' fails \(f.cu:12, f.cu\); thread 0 of CTA"):
        run_kernel(text(body, head=head), 1, 32, [result] * 2)


CANCEL = """
  mov.u32 %r3, buffer; mov.u32 %r5, %ctaid.x; mov.u32 %r6, %ctaid.y; mov.u32 %r7, %cluster_ctarank; mov.u32 %r8, 0;
  mov.u32 %r11, %ctaid.z;
  setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p4, %r7, 0; and.pred %p4, %p4, %p1; .reg .b128 response;
  @%p1 mbarrier.init.shared.b64 [%r3+16], 1; barrier.cluster.arrive; barrier.cluster.wait;
LOOP:
  mov.u32 %r9, %nctaid.x; mov.u32 %r10, %nctaid.y; mad.lo.u32 %r10, %r11, %r10, %r6; mad.lo.u32 %r9, %r10, %r9, %r5;
  mad.wide.u32 %rd3, %r9, 4, %rd1;
  @%p1 atom.global.add.u32 %r2, [%rd3], 1;
  barrier.cluster.arrive; barrier.cluster.wait;
  @%p1 mbarrier.arrive.expect_tx.shared.b64 %rd4, [%r3+16], 16;
  barrier.cluster.arrive; barrier.cluster.wait;
  @%p4 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128
    [%r3], [%r3+16];
TRY: mbarrier.try_wait.parity.shared.b64 %p2, [%r3+16], %r8; @!%p2 bra TRY;
  ld.shared.b128 response, [%r3]; clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, response;
  xor.b32 %r8, %r8, 1; @!%p3 bra END;
  clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r5, %r6, %r11, _}, response;
  clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %r6, response;
  add.u32 %r5, %r5, %r7; atom.global.add.u32 %r2, [%rd2], 1; bra LOOP;
END: """


def test_cancelled_clusters() -> None:
    """Each CTA of the grid is executed once, by itself or by a CTA of an earlier cluster that cancelled its cluster."""
    tiles, cancelled = np.zeros(2 * 5 * 3, np.uint32), np.zeros(1, np.uint32)
    program = text(CANCEL, head=BUFFER).replace("mad.wide.u32 %rd1, %r0, 4, %rd1;", "")
    run = run_kernel(program, (2, 5, 3), 1, [tiles, cancelled], cluster=(2, 1, 1), arch="sm_100")
    assert run.after(tiles).tolist() == [1] * 30
    assert run.after(cancelled).tolist() == [2 * 7]  # of 15 clusters, 8 start together and cancel the others
    assert run.findings == []
    program = program.replace("@!%p3 bra END;", "").replace("bra LOOP;", "")
    run = run_kernel(program, (2, 1), 1, [tiles, cancelled], cluster=(2, 1, 1), arch="sm_100")
    assert {finding.kind for finding in run.findings} == {"index of no cluster"}


def test_scale_ids_in_registers() -> None:
    """Registers that always have the same constant select the same scales as constants in the instruction."""
    words, results = np.arange(1, 33, dtype=np.uint32) * np.uint32(0x01030507), []
    registers = "mov.b16 %h1, {}; mov.b16 %h2, 1; mov.b16 %h3, 0;".format
    for ids in (registers("2"), "", registers("%h4")):
        a, b = ("{%h1, %h3}", "{%h2, %h3}") if ids else ("{2, 0}", "{1, 0}")
        body = f"""{ids} ld.global.u32 %r1, [%rd1]; mov.b32 %f1, 0f00000000; and.b32 %r2, %r1, 0x03030303;
  add.u32 %r2, %r2, 0x7e7d7c7b;
  mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0
    {{%f2, %f3, %f4, %f5}}, {{%r1, %r1, %r1, %r1}}, {{%r1, %r1}}, {{%f1, %f1, %f1, %f1}}, {{%r2}}, {a}, {{%r2}}, {b};
  st.global.f32 [%rd2], %f2;"""
        run = partial(run_kernel, text(body), 1, 32, [words, words], arch="sm_120")
        if "%h4" in ids:
            with pytest.raises(KernelError, match=r"scale ids and immediate operands must be constants$"):
                run()
        else:
            results.append(run().after(words).tolist())
    assert results[0] == results[1]


def test_wide_registers_and_structures() -> None:
    """Registers of 128 bits and of vectors, ``atom.cas.b16``, and pointers in a structure."""
    words = np.arange(16, dtype=np.uint32)
    body = """
  { .reg .v2 .b32 two; .reg .b128 a, b; .param .b64 unused;
  ld.param.u64 %rd1, [p0+8]; ld.global.v2.b32 two, [%rd1+8]; add.u32 two.x, two.x, two.y;
  ld.global.b128 a, [%rd1+16]; mov.b128 {%rd3, %rd4}, a; mov.b128 b, {%rd4, %rd3}; mov.b128 a, b;
  st.global.b128 [%rd1+32], a; st.global.v2.b32 [%rd1], two; mov.b16 %h1, 0x55; mov.b16 %h2, 15;
  atom.global.cas.b16 %h3, [%rd1+60], %h2, %h1; }"""
    program = text(body, parameters=1).replace(".param .u64 p0", ".param .align 8 .b8 p0[24]")
    program = program.replace("mad.wide.u32", "// mad.wide.u32")
    longer = np.concatenate([np.zeros(4, np.uint32), words])
    after = run_kernel(program, 1, 1, [StructParameter(bytes(24), {8: (longer, 16)})]).after(longer)
    run = run_kernel(program, 1, 1, [StructParameter(bytes(24), {8: words})])
    np.testing.assert_array_equal(after, [0] * 4 + run.after(words).tolist())
    assert run.after(words).tolist() == [2 + 3, 3, 2, 3, 4, 5, 6, 7, 6, 7, 4, 5, 12, 13, 14, 0x55]
    for content, pointers, message in (
        (bytes(16), {8: words}, r"argument 0 \(p0\) needs a structure of 24 bytes$"),
        (bytes(24), {20: words}, r"argument 0 \(p0\) of 24 bytes needs an array or tensor map that fits at offset 20$"),
        (bytes(24), {8: (words, 65)}, "the pointer at offset 8 of .* needs an array, and a byte of this array$"),
        (bytes(24), {8: (words, np.int64(8), 1)}, "the pointer at offset 8 of .* needs an array, and a byte of this"),
        (bytes(24), {8: ()}, r"argument 0 \(p0\) of 24 bytes needs an array or tensor map that fits at offset 8$"),
        (bytes(24), [words], "the pointers of argument 0 .* must be a dictionary, not list$"),
        (bytes(24), {8: (5, 4)}, r"argument 0 \(p0\) of 24 bytes needs an array or tensor map that fits at offset 8$"),
        (bytes(24), {8: 5}, r"argument 0 \(p0\) of 24 bytes needs an array or tensor map that fits at offset 8$"),
    ):
        with pytest.raises(KernelError, match=message):
            run_kernel(program, 1, 1, [StructParameter(content, pointers)])  # type: ignore[arg-type]


@pytest.mark.parametrize(("qualifier", "findings"), [(".volatile", 0), (".relaxed.cta", 0), ("", 2)])
def test_flags_between_warps(qualifier: str, findings: int) -> None:
    """A strong flag in shared memory orders the accesses of two warps. A weak flag is a race, and so are its data."""
    body = """
  mov.u32 %r3, buffer; setp.lt.u32 %p1, %r0, 32; @%p1 bra READ;
  st.shared.u32 [%r3+4], 7; fence.acq_rel.cta; stQ.shared.u32 [%r3], 1; bra END;
READ: ldQ.shared.u32 %r4, [%r3]; setp.eq.u32 %p2, %r4, 0; @%p2 bra READ;
  fence.acq_rel.cta; ld.shared.u32 %r2, [%r3+4]; st.global.u32 [%rd2], %r2;
END: """.replace("Q", qualifier)
    result = np.zeros(WORDS, np.uint32)
    run = run_kernel(text(body, head=BUFFER), 1, WORDS, [result, result])
    assert run.after(result).tolist() == [7] * 32 + [0] * 32
    assert [finding.kind for finding in run.findings] == ["race"] * findings


def test_atomics_and_vectors_of_strong_accesses_do_not_race() -> None:
    vectors = "setp.lt.u32 %p1, %r0, 32; @%p1 st.volatile.shared.u32 [buffer+4], %r0; mov.u32 %r2, 128;"
    vectors += "@!%p1 ld.volatile.shared.v2.u32 {%r4, %r5}, [buffer];"
    atomics = "atom.shared.add.u32 %r2, [buffer], 2; red.shared.max.u32 [buffer], %r0; bar.sync 0;"
    atomics += "ld.shared.u32 %r2, [buffer];"
    for body in (vectors, atomics):
        result = np.zeros(WORDS, np.uint32)
        run = run_kernel(text(f"{body} st.global.u32 [%rd2], %r2;", head=BUFFER), 1, WORDS, [result, result])
        assert run.after(result).tolist() == [2 * WORDS] * WORDS
        assert run.findings == []


def test_a_commit_orders_the_accesses_of_its_thread() -> None:
    body = """
  mov.u32 %r3, buffer; setp.eq.u32 %p1, %r0, 0; @!%p1 bra WAIT; mbarrier.init.shared.b64 [%r3+16], 1;
WAIT: bar.sync 0; setp.lt.u32 %p2, %r0, 32; @!%p2 bra LATER;
  @%p1 st.shared.u32 [%r3], 5; @%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r3+16];
  bra END;
LATER: mbarrier.try_wait.parity.shared.b64 %p3, [%r3+16], 0; @!%p3 bra LATER; st.shared.u32 [%r3], %r0;
END: """
    result = np.zeros(WORDS, np.uint32)
    assert run_kernel(text(body, head=BUFFER), 1, WORDS, [result, result], arch="sm_100").findings == []
    body = body.replace("mbarrier.try_wait.parity.shared.b64 %p3, [%r3+16], 0; @!%p3 bra LATER;", "")
    assert run_kernel(text(body, head=BUFFER), 1, WORDS, [result, result], arch="sm_100").findings


PAIRS = """
  { .reg .f32 a, b, c, d, one; .reg .b64 p, q, r, s; mov.b32 one, 0x3f800000;
  ld.global.f32 a, [%rd1]; ld.global.f32 b, [%rd1+128]; ld.global.f32 c, [%rd1+256];
  mov.b64 p, {one, a}; mov.b64 q, {one, b}; mov.b64 r, {one, c};
  OP.f32 d, a, bC; OP.f32x2 s, p, qR; mov.b64 {a, b}, s;
  st.global.f32 [%rd2], d; st.global.f32 [%rd2+128], b; }"""


@pytest.mark.parametrize("opcode", ["add", "sub.rz.ftz", "mul.rp", "fma.rn", "fma.rm.ftz"])
def test_pairs_of_f32(opcode: str, rng: np.random.Generator) -> None:
    """An instruction on pairs of f32 equals two instructions on f32."""
    words, result = rng.integers(0, 1 << 32, 96, dtype=np.uint32), np.zeros(64, np.uint32)
    c, r = (", c", ", r") if "fma" in opcode else ("", "")
    program = text(PAIRS.replace("OP", opcode).replace("bC", f"b{c}").replace("qR", f"q{r}"))
    single, pair = run_kernel(program, 1, 32, [words, result]).after(result).reshape(2, 32)
    assert single.any()
    np.testing.assert_array_equal(single, pair)


def test_a_barrier_of_the_grid() -> None:
    """More CTAs than the model executes at once wait in the workspace to which ``%envreg1`` and ``%envreg2`` point."""
    body = """
  { .reg .b32 high, low; mov.u32 high, %envreg1; mov.u32 low, %envreg2; mov.b64 %rd5, {low, high}; }
  setp.eq.u32 %p1, %r0, 0; @%p1 red.release.gpu.global.add.u32 [%rd5+4], 1; mov.u32 %r5, %nctaid.x;
WAIT: ld.acquire.gpu.global.u32 %r4, [%rd5+4]; setp.lt.u32 %p2, %r4, %r5; @%p2 bra WAIT; st.global.u32 [%rd2], %r4;"""
    result = np.zeros(32, np.uint32)
    assert run_kernel(text(body), 1100, 32, [result, result], limit=10_000_000).after(result).tolist() == [1100] * 32

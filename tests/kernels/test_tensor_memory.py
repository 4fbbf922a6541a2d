"""Kernels of ``tcgen05``: a product from shared memory, on the model and through the hardware; loads and stores."""

from typing import Any

import numpy as np
import pytest
import sptc
from numpy.typing import NDArray
from sptc.isa.instruction_descriptor import InstructionDescriptor, encode_instruction_descriptor
from sptc.isa.tcgen05 import parse_shaped
from sptc.kernels.launch import run_kernel
from sptc.tests.kernels.test_small import text

ROWS, COLUMNS, K = 128, 32, 16
#: Places in shared memory: address of tensor memory, barrier, A and B as core matrices of 8 rows of 16 bytes.
ADDRESS, BARRIER, A, B = 0, 8, 1024, 1024 + ROWS * 2 * K
SIZE = B + COLUMNS * 2 * K
SHARED = f".shared .align 1024 .b8 buffer[{SIZE}];"
COMMIT = "@%p2 tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster{many}.b64 [%r3+8]{mask};"
#: Wait for the commit, and leave the address of the warp's lanes in %r4.
WAIT = """
again: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r3+8], 0; @!%p5 bra again;
  tcgen05.fence::after_thread_sync; shr.u32 %r6, %r0, 5; shl.b32 %r6, %r6, 21; add.u32 %r4, %r4, %r6;
"""


def begin(group: int) -> str:
    """Return the start of a kernel: shared memory at %r3, a barrier, and 32 columns of tensor memory at %r4."""
    return f"""
  mov.u32 %r3, buffer; setp.lt.u32 %p1, %r0, 32; setp.eq.u32 %p2, %r0, 0;
  @%p1 tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%r3+{ADDRESS}], 32;
  @%p2 mbarrier.init.shared::cta.b64 [%r3+{BARRIER}], 1; bar.sync 0; ld.shared.u32 %r4, [%r3+{ADDRESS}];
"""


def descriptor(start: int) -> int:
    """Return the descriptor of core matrices without a swizzle: 128 bytes along K, 256 along rows; of sm_100."""
    return start >> 4 | 128 >> 4 << 16 | 256 >> 4 << 32 | 1 << 46


def chain(group: int) -> str:
    return f"tcgen05.mma.cta_group::{group}.kind::f16 (m{ROWS * group}n{COLUMNS}k{K}.f32.f16.f16)"


def product(backend: Any, a: NDArray, b: NDArray, group: int, issuer: int = 0) -> NDArray:
    """Multiply with one instruction of a CTA or a pair, which CTA `issuer` issues; each thread reads its lane of D."""
    opcode, instruction = parse_shaped(chain(group))
    idesc = encode_instruction_descriptor(opcode, InstructionDescriptor(instruction=instruction))
    own = COLUMNS // group
    registers = ", ".join(f"%d{n}" for n in range(COLUMNS))
    commit = COMMIT.format(group=2, many=".multicast::cluster", mask=", %h0") if group == 2 else COMMIT.format(
        group=1, many="", mask=""
    )  # fmt: skip
    body = f"""
  .reg .b32 %d<{COLUMNS}>; .reg .b64 %q<8>; {begin(group)}
  mov.u32 %r10, %ctaid.x; mad.lo.u32 %r11, %r10, {ROWS}, %r0; mad.lo.u32 %r12, %r10, {own}, %r0;
  setp.lt.u32 %p3, %r0, {own}; ld.param.u64 %rd3, [p0]; mad.wide.u32 %rd3, %r11, {2 * K}, %rd3;
  ld.param.u64 %rd4, [p1]; mad.wide.u32 %rd4, %r12, {2 * K}, %rd4;
  shr.u32 %r13, %r0, 3; shl.b32 %r13, %r13, 8; and.b32 %r5, %r0, 7; shl.b32 %r5, %r5, 4;
  add.u32 %r13, %r13, %r5; add.u32 %r13, %r13, %r3;
  ld.global.v4.u32 {{%r6, %r7, %r8, %r9}}, [%rd3]; st.shared.v4.u32 [%r13+{A}], {{%r6, %r7, %r8, %r9}};
  ld.global.v4.u32 {{%r6, %r7, %r8, %r9}}, [%rd3+16]; st.shared.v4.u32 [%r13+{A + 128}], {{%r6, %r7, %r8, %r9}};
  @%p3 ld.global.v4.u32 {{%r6, %r7, %r8, %r9}}, [%rd4];
  @%p3 st.shared.v4.u32 [%r13+{B}], {{%r6, %r7, %r8, %r9}};
  @%p3 ld.global.v4.u32 {{%r6, %r7, %r8, %r9}}, [%rd4+16];
  @%p3 st.shared.v4.u32 [%r13+{B + 128}], {{%r6, %r7, %r8, %r9}};
  fence.proxy.async.shared::cta; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; bar.sync 0;
  mov.u32 %r5, {idesc}; setp.ne.u32 %p4, %r3, %r3; setp.eq.u32 %p6, %r11, {ROWS * issuer}; mov.u16 %h0, 3;
  mov.u64 %q0, {descriptor(A)}; mov.u64 %q1, {descriptor(B)}; and.pred %p2, %p2, %p6;
  @%p2 {opcode} [%r4], %q0, %q1, %r5, %p4;
  {commit} {WAIT}
  tcgen05.ld.sync.aligned.32x32b.x{COLUMNS}.b32 {{{registers}}}, [%r4]; tcgen05.wait::ld.sync.aligned;
  ld.param.u64 %rd2, [p2]; mad.wide.u32 %rd2, %r11, {4 * COLUMNS}, %rd2;
  {" ".join(f"st.global.u32 [%rd2+{4 * n}], %d{n};" for n in range(COLUMNS))}
"""
    d = np.zeros((ROWS * group, COLUMNS), np.float32)
    module = text(body, parameters=3, head=SHARED)
    run = run_kernel(module, group, ROWS, [a, b, d], arch="sm_100", backend=backend, cluster=group)
    assert run.findings == []
    assert run.cycles == (ROWS * group + COLUMNS) * 2 * K / 128  # the reads of A and B from shared memory
    return run.after(d)


@pytest.mark.parametrize(
    ("backend", "group"),
    [("native", 1), ("native", 2), *(pytest.param("tcgen05", n, marks=pytest.mark.regression) for n in (1, 2))],
)
def test_a_product_is_read_back(backend: str, group: int, rng: np.random.Generator) -> None:
    """The same through the elaborated hardware of a CTA and of a pair: operands, accumulators and control."""
    a, b = (rng.standard_normal((rows, K)).astype(np.float16) for rows in (ROWS * group, COLUMNS))
    expected = sptc.gemm(a, np.ascontiguousarray(b.T), instruction=chain(group), arch="sm_100")
    result = product(backend, a, b, group, int(rng.integers(group)))
    np.testing.assert_array_equal(result.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize(
    ("form", "rows", "lanes"),
    [
        ("32x128b.warpx4", 32, lambda lane: lane % 32),
        ("64x128b.warpx2::02_13", 64, lambda lane: lane % 64),
        ("128x128b", 128, lambda lane: lane),
    ],
)
def test_copies_to_tensor_memory(form: str, rows: int, lanes: Any) -> None:
    """Rows of 16 bytes, eight of them in 128 bytes and the next eight 256 bytes on."""
    body = f"""
  .reg .b64 %q<2>; {begin(1)}
  shl.b32 %r5, %r0, 2; add.u32 %r5, %r5, %r3; mov.u32 %r6, %r0;
fill: st.shared.u32 [%r5+{A}], %r6; add.u32 %r6, %r6, 128; add.u32 %r5, %r5, 512;
  setp.lt.u32 %p3, %r6, 1024; @%p3 bra fill;
  fence.proxy.async.shared::cta; bar.sync 0; mov.u64 %q0, {descriptor(A)};
  @%p2 tcgen05.cp.cta_group::1.{form} [%r4+4], %q0; {COMMIT.format(group=1, many="", mask="")} {WAIT}
  tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r2}}, [%r4+6]; tcgen05.wait::ld.sync.aligned; st.global.u32 [%rd2], %r2;"""
    result = np.zeros(128, np.uint32)
    done = run_kernel(text(body, head=SHARED), 1, 128, [result, result], arch="sm_100").after(result)
    row = np.array([lanes(lane) for lane in range(128)])
    np.testing.assert_array_equal(done, row // 8 * 64 + row % 8 * 4 + 2)
    assert rows == len({*row.tolist()})


def test_halves_of_a_warp_read_other_columns_of_tensor_memory() -> None:
    result = np.zeros(128, np.uint32)
    body = """
  mov.u32 %r3, buffer; setp.lt.u32 %p1, %r0, 32;
  @%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r3], 32; bar.sync 0; ld.shared.u32 %r4, [%r3];
  shr.u32 %r5, %r0, 5; shl.b32 %r5, %r5, 21; add.u32 %r4, %r4, %r5; add.u32 %r6, %r0, 1000; add.u32 %r7, %r0, 2000;
  tcgen05.st.sync.aligned.32x32b.x2.b32 [%r4], {%r6, %r7}; tcgen05.wait::st.sync.aligned;
  tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {%r2}, [%r4], 1; tcgen05.wait::ld.sync.aligned; st.global.u32 [%rd2], %r2;"""
    done = run_kernel(
        text(body, head=".shared .align 16 .b8 buffer[16];"), 1, 128, [result, result], arch="sm_100"
    ).after(result)
    thread = np.arange(128)
    lane = thread // 32 * 32 + thread % 16
    np.testing.assert_array_equal(done, lane + np.where(thread % 32 < 16, 1000, 2000))

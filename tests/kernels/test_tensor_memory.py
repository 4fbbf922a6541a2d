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
OPCODE = "tcgen05.mma.cta_group::1.kind::f16"
CHAIN = f"{OPCODE} (m{ROWS}n{COLUMNS}k{K}.f32.f16.f16)"
#: Places in shared memory: address of tensor memory, barrier, A and B as core matrices of 8 rows of 16 bytes.
ADDRESS, BARRIER, A, B = 0, 8, 1024, 1024 + ROWS * 2 * K
STORES = "\n".join(f"st.global.u32 [%rd2+{4 * n}], %d{n};" for n in range(COLUMNS))


def descriptor(start: int) -> int:
    """Return the descriptor of core matrices without a swizzle: 128 bytes along K, 256 along rows; of sm_100."""
    return start >> 4 | 128 >> 4 << 16 | 256 >> 4 << 32 | 1 << 46


def product(backend: Any, a: NDArray, b: NDArray) -> NDArray:
    """Multiply with one instruction, whose result each thread reads from its lane."""
    opcode, instruction = parse_shaped(CHAIN)
    idesc = encode_instruction_descriptor(opcode, InstructionDescriptor(instruction=instruction))
    registers = ", ".join(f"%d{n}" for n in range(COLUMNS))
    body = f"""
  .reg .b32 %d<{COLUMNS}>; .reg .b64 %q<8>;
  mov.u32 %r3, buffer; setp.lt.u32 %p1, %r0, 32; setp.eq.u32 %p2, %r0, 0; setp.lt.u32 %p3, %r0, {COLUMNS};
  @%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r3+{ADDRESS}], 32;
  @%p2 mbarrier.init.shared::cta.b64 [%r3+{BARRIER}], 1;
  ld.param.u64 %rd3, [p0]; mad.wide.u32 %rd3, %r0, {2 * K}, %rd3;
  ld.param.u64 %rd4, [p1]; mad.wide.u32 %rd4, %r0, {2 * K}, %rd4;
  shr.u32 %r4, %r0, 3; shl.b32 %r4, %r4, 8; and.b32 %r5, %r0, 7; shl.b32 %r5, %r5, 4;
  add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r3;
  ld.global.v4.u32 {{%r6, %r7, %r8, %r9}}, [%rd3]; st.shared.v4.u32 [%r4+{A}], {{%r6, %r7, %r8, %r9}};
  ld.global.v4.u32 {{%r6, %r7, %r8, %r9}}, [%rd3+16]; st.shared.v4.u32 [%r4+{A + 128}], {{%r6, %r7, %r8, %r9}};
  @%p3 ld.global.v4.u32 {{%r6, %r7, %r8, %r9}}, [%rd4];
  @%p3 st.shared.v4.u32 [%r4+{B}], {{%r6, %r7, %r8, %r9}};
  @%p3 ld.global.v4.u32 {{%r6, %r7, %r8, %r9}}, [%rd4+16];
  @%p3 st.shared.v4.u32 [%r4+{B + 128}], {{%r6, %r7, %r8, %r9}};
  fence.proxy.async.shared::cta; bar.sync 0;
  ld.shared.u32 %r4, [%r3+{ADDRESS}]; mov.u32 %r5, {idesc}; setp.ne.u32 %p4, %r3, %r3;
  mov.u64 %q0, {descriptor(A)}; mov.u64 %q1, {descriptor(B)};
  @%p2 {OPCODE} [%r4], %q0, %q1, %r5, %p4;
  @%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r3+{BARRIER}];
again: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r3+{BARRIER}], 0; @!%p5 bra again;
  tcgen05.fence::after_thread_sync; shr.u32 %r6, %r0, 5; shl.b32 %r6, %r6, 21; add.u32 %r4, %r4, %r6;
  tcgen05.ld.sync.aligned.32x32b.x{COLUMNS}.b32 {{{registers}}}, [%r4]; tcgen05.wait::ld.sync.aligned;
  ld.param.u64 %rd2, [p2]; mad.wide.u32 %rd2, %r0, {4 * COLUMNS}, %rd2;
  {STORES}
"""
    size = B + COLUMNS * 2 * K
    module = text(body, parameters=3, head=f".shared .align 1024 .b8 buffer[{size}];")
    d = np.zeros((ROWS, COLUMNS), np.float32)
    run = run_kernel(module, 1, ROWS, [a, b, d], arch="sm_100", backend=backend)
    assert run.findings == []
    assert run.cycles == (ROWS + COLUMNS) * 2 * K / 128  # the reads of A and B from shared memory
    return run.after(d)


@pytest.mark.parametrize("backend", ["native", pytest.param("tcgen05", marks=pytest.mark.regression)])
def test_a_product_is_read_back(backend: str, rng: np.random.Generator) -> None:
    """The same through the elaborated hardware of a CTA: operands, accumulators and control."""
    a, b = (rng.standard_normal((rows, K)).astype(np.float16) for rows in (ROWS, COLUMNS))
    expected = sptc.gemm(a, np.ascontiguousarray(b.T), instruction=CHAIN, arch="sm_100")
    np.testing.assert_array_equal(product(backend, a, b).view(np.uint32), expected.view(np.uint32))


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

"""Kernels with ``tcgen05`` multiply, load, store and copy correctly, on the C++ library and on simulated hardware."""

import re
from typing import Any

import numpy as np
import pytest
import sptc
from numpy.typing import NDArray
from sptc.errors import KernelError
from sptc.isa.instruction_descriptor import InstructionDescriptor, encode_instruction_descriptor
from sptc.isa.tcgen05 import parse_shaped
from sptc.kernels.launch import KernelRun, run_kernel
from sptc.tests.kernels.recorded import assert_reported
from sptc.tests.kernels.test_small import text

ROWS, COLUMNS, K = 128, 32, 16
#: Offsets in shared memory: tensor-memory address, mbarrier, and A and B as core matrices of 8 rows of 16 bytes.
ADDRESS, BARRIER, A, B = 0, 8, 1024, 1024 + ROWS * 2 * K
SIZE = B + COLUMNS * 2 * K
SHARED = f".shared .align 1024 .b8 buffer[{SIZE}];"
COMMIT = "@%p2 tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster{many}.b64 [%r3+8]{mask};"
#: Code that waits for the commit, then adds the number of the warp's first lane to the tensor-memory address in %r4.
WAIT = """
again: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r3+8], 0; @!%p5 bra again;
  tcgen05.fence::after_thread_sync; shr.u32 %r6, %r0, 5; shl.b32 %r6, %r6, 21; add.u32 %r4, %r4, %r6;
"""


def begin(group: int) -> str:
    """Return code for the start of a kernel, which puts addresses of shared memory in %r3, of tensor memory in %r4."""
    return f"""
  mov.u32 %r3, buffer; setp.lt.u32 %p1, %r0, 32; setp.eq.u32 %p2, %r0, 0;
  @%p1 tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%r3+{ADDRESS}], 32;
  @%p2 mbarrier.init.shared::cta.b64 [%r3+{BARRIER}], 1; bar.sync 0; ld.shared.u32 %r4, [%r3+{ADDRESS}];
"""


def end(group: int) -> str:
    """Return code for the end of a kernel, which frees the columns of tensor memory."""
    return f"""
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; bar.sync 0; ld.shared.u32 %r4, [%r3+{ADDRESS}];
  @%p1 tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %r4, 32;
"""


def descriptor(start: int) -> int:
    """Return a descriptor of core matrices that are 128 bytes apart along K and 256 bytes along rows."""
    return start >> 4 | 128 >> 4 << 16 | 256 >> 4 << 32 | 1 << 46


def chain(group: int) -> str:
    return f"tcgen05.mma.cta_group::{group}.kind::f16 (m{ROWS * group}n{COLUMNS}k{K}.f32.f16.f16)"


def product_module(group: int, issuer: int = 0) -> str:
    """Return a kernel in which CTA `issuer` issues one multiplication, and all threads read D."""
    opcode, instruction = parse_shaped(chain(group))
    idesc = encode_instruction_descriptor(opcode, InstructionDescriptor(instruction=instruction))
    own = COLUMNS // group
    registers = ", ".join(f"%d{n}" for n in range(COLUMNS))
    pair = {"many": ".multicast::cluster", "mask": ", %h0"} if group == 2 else {"many": "", "mask": ""}
    commit = COMMIT.format(group=group, **pair)
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
  {" ".join(f"st.global.u32 [%rd2+{4 * n}], %d{n};" for n in range(COLUMNS))} {end(group)}
"""
    return text(body, parameters=3, head=SHARED)


def run_product(module: str, backend: Any, a: NDArray, b: NDArray, group: int) -> tuple[NDArray, KernelRun]:
    """Run a kernel of one multiplication, and return D and the run."""
    d = np.zeros((ROWS * group, COLUMNS), np.float32)
    run = run_kernel(module, group, ROWS, [a, b, d], arch="sm_100", backend=backend, cluster=group)
    return run.after(d), run


@pytest.mark.parametrize(
    ("backend", "group"),
    [("native", 1), ("native", 2), *(pytest.param("tcgen05", n, marks=pytest.mark.regression) for n in (1, 2))],
)
def test_a_product_is_read_back(backend: str, group: int, rng: np.random.Generator) -> None:
    """D of one CTA or of a CTA pair equals `sptc.gemm`, with the C++ library and with the simulated hardware."""
    a, b = (rng.standard_normal((rows, K)).astype(np.float16) for rows in (ROWS * group, COLUMNS))
    expected = sptc.gemm(a, np.ascontiguousarray(b.T), instruction=chain(group), arch="sm_100")
    result, run = run_product(product_module(group, int(rng.integers(group))), backend, a, b, group)
    assert run.findings == []
    assert run.cycles == (ROWS * group + COLUMNS) * 2 * K / 128  # cycles of the reads of A and B from shared memory
    np.testing.assert_array_equal(result.view(np.uint32), expected.view(np.uint32))


def test_copies_to_tensor_memory() -> None:
    """``tcgen05.cp`` copies core matrices of 8 rows of 16 bytes. A change of the element format is rejected."""
    result = np.zeros(128, np.uint32)
    for form, rows, lanes in (
        ("32x128b.warpx4", 32, lambda lane: lane % 32),
        ("64x128b.warpx2::02_13", 64, lambda lane: lane % 64),
        ("128x128b", 128, lambda lane: lane),
    ):
        body = f"""
  .reg .b64 %q<2>; {begin(1)}
  shl.b32 %r5, %r0, 2; add.u32 %r5, %r5, %r3; mov.u32 %r6, %r0;
fill: st.shared.u32 [%r5+{A}], %r6; add.u32 %r6, %r6, 128; add.u32 %r5, %r5, 512;
  setp.lt.u32 %p3, %r6, 1024; @%p3 bra fill;
  fence.proxy.async.shared::cta; bar.sync 0; mov.u64 %q0, {descriptor(A)};
  @%p2 tcgen05.cp.cta_group::1.{form} [%r4+4], %q0; {COMMIT.format(group=1, many="", mask="")} {WAIT}
  tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r2}}, [%r4+6]; tcgen05.wait::ld.sync.aligned; st.global.u32 [%rd2], %r2;"""
        done = run_kernel(text(body, head=SHARED), 1, 128, [result, result], arch="sm_100").after(result)
        row = np.array([lanes(lane) for lane in range(128)])
        np.testing.assert_array_equal(done, row // 8 * 64 + row % 8 * 4 + 2, form)
        assert rows == len({*row.tolist()})
    body = f".reg .b64 %q<2>; {begin(1)} mov.u64 %q0, 0; tcgen05.cp.cta_group::1.128x256b.b8x16.b4x16_p64 [%r4], %q0;"
    message = r"^line \d+: 'tcgen05\.cp.*b4x16_p64' is not modelled: .*, and the elements must keep their format$"
    with pytest.raises(KernelError, match=message):
        run_kernel(text(body, head=SHARED), 1, 128, [result, result], arch="sm_100")


#: Layouts of tcgen05.ld and tcgen05.st by shape: bits of a row for one repetition, and a function. Its arguments are
#: the number of repetitions and the bits of a row. It returns (size, stride in bits) of each digit of the thread and of
#: the register, the lowest digit first, as in CUTLASS's ``copy_traits_sm100.hpp``.
LAYOUTS: dict[str, Any] = {
    "32x32b": (32, lambda n, r: ([(32, r)], [(n, 32)])),
    "16x64b": (64, lambda n, r: ([(2, 8 * r), (2, 32), (8, r)], [(n, 64)])),
    "16x128b": (128, lambda n, r: ([(4, 32), (8, r)], [(2, 8 * r), (n, 128)])),
    "16x256b": (256, lambda n, r: ([(4, 64), (8, r)], [(2, 32), (2, 8 * r), (n, 256)])),
    "16x32bx2": (64, lambda n, r: ([(16, r), (2, r // 2)], [(n, 32)])),
}


def offsets(digits: list[tuple[int, int]]) -> NDArray[np.int64]:
    """Return the offset of each index. The index has digits, the lowest first, with the given sizes and strides."""
    total = np.zeros(1, np.int64)
    for size, stride in digits:
        total = (np.arange(size)[:, None] * stride + total).reshape(-1)
    return total


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("is_load", [True, False])
@pytest.mark.parametrize("shape", LAYOUTS)
def test_shapes_of_loads_and_stores(shape: str, is_load: bool, packed: bool, rng: np.random.Generator) -> None:
    """``tcgen05.ld`` and ``tcgen05.st`` of each shape access the lanes and columns that CUTLASS's layouts state."""
    row, digits = LAYOUTS[shape]
    count = int(rng.choice([1, 2, 4]))
    bits = row * count
    thread, register = map(offsets, digits(count, bits))
    lane, column = np.divmod(thread[:, None] + register, bits)
    column, top = (1 + packed) * (column // 32), 0 if shape == "32x32b" else int(rng.integers(2)) * 16
    split = f", {bits // 64 * (1 + packed)}" if shape == "16x32bx2" else ""
    form = f"sync.aligned.{shape}.x{count}"
    registers = ", ".join(f"%w{n}" for n in range(register.size))
    all_columns = ", ".join(f"%v{n}" for n in range(64))
    moves = (
        f"tcgen05.ld.{form}{'.pack::16b' * packed}.b32 {{{registers}}}, [%r7]{split}; tcgen05.wait::ld.sync.aligned;"
        if is_load
        else f"""
  {" ".join(f"mad.lo.u32 %w{n}, %r0, {register.size * 65537}, {n * 65537 + 65536};" for n in range(register.size))}
  tcgen05.st.{form}{".unpack::16b" * packed}.b32 [%r7]{split}, {{{registers}}}; tcgen05.wait::st.sync.aligned;
  tcgen05.ld.sync.aligned.32x32b.x64.b32 {{{all_columns}}}, [%r4]; tcgen05.wait::ld.sync.aligned;"""
    )
    results = [f"%w{n}" for n in range(register.size)] if is_load else [f"%v{n}" for n in range(64)]
    body = f"""
  .reg .b32 %v<64>; .reg .b32 %w<{register.size}>; {begin(1).replace("], 32;", "], 64;")}
  shr.u32 %r6, %r0, 5; shl.b32 %r6, %r6, 21; add.u32 %r4, %r4, %r6; add.u32 %r7, %r4, {top << 16};
  {" ".join(f"mad.lo.u32 %v{n}, %r0, {64 * 65537}, {n * 65537 + 65536};" for n in range(64))}
  tcgen05.st.sync.aligned.32x32b.x64.b32 [%r4], {{{all_columns}}}; tcgen05.wait::st.sync.aligned; {moves}
  ld.param.u64 %rd2, [p1]; mad.wide.u32 %rd2, %r0, {4 * len(results)}, %rd2;
  {" ".join(f"st.global.u32 [%rd2+{4 * n}], {name};" for n, name in enumerate(results))}
  {end(1).replace("%r4, 32;", "%r4, 64;")}"""
    d = np.zeros((128, len(results)), np.uint32)
    run = run_kernel(text(body, head=SHARED), 1, 128, [d, d], arch="sm_100")
    assert run.findings == []
    filled = lambda rows, columns: ((np.arange(rows * columns) * 65537 + 65536) & 0xFFFFFFFF).reshape(rows, columns)  # noqa: E731
    memory, values = filled(128, 64).reshape(4, 32, 64), filled(128, register.size).reshape(4, 32, register.size)
    if is_load:
        expected = memory[:, top + lane, column]
        if packed:
            expected = expected & 0xFFFF | (memory[:, top + lane, column + 1] & 0xFFFF) << 16
    elif packed:
        memory[:, top + lane, column] = memory[:, top + lane, column] & ~0xFFFF | values & 0xFFFF
        memory[:, top + lane, column + 1] = memory[:, top + lane, column + 1] & ~0xFFFF | values >> 16
    else:
        memory[:, top + lane, column] = values
    np.testing.assert_array_equal(run.after(d), (expected if is_load else memory).reshape(128, -1))


#: Planted mistakes: edit of the kernel (pattern and replacement), opcode of the reported line, text of the finding.
STORE_TO_A = f"st.shared.u32 [%r13+{A}], %r6;\n"
PLANTED = [
    (r"again: mbarrier[^@]*@!%p5 bra again;", "", "tcgen05.ld", "reads tensor memory that line {mma} may still write"),
    (r"again: ", rf"{STORE_TO_A}again: ", "st.shared.u32", "overwrites shared memory that line {mma} may still read"),
    (r"fence\.proxy\.async\.shared::cta;", "", "tcgen05.mma", "wrote at line .*, and no fence.proxy.async lies"),
    (r"@%p1 tcgen05\.alloc[^;]*;", "", "tcgen05.mma", "accesses column 0 of tensor memory, which no tcgen05.alloc has"),
    (r"@%p1 tcgen05\.dealloc[^;]*;", "", "tcgen05.alloc", "no tcgen05.dealloc frees the allocated columns before the"),
    (r"(tcgen05\.ld\.)", r"@%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r4, 32;\nbar.sync 0;\n\1", "tcgen05.ld",
     "accesses column 0 of tensor memory, which line {dealloc} has freed"),
    (r"(tcgen05\.wait::ld[^;]*;)", r"\1\n@%p2 {opcode} [%r4], %q0, %q1, %r5, %p4;", "tcgen05.mma",
     "overwrites tensor memory that warp 1 loaded at line {ld}, and no barrier orders the two"),
    (r"@%p1 (tcgen05\.alloc)", r"@%p1 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n@%p1 \1",
     "tcgen05.alloc", "allocates after tcgen05.relinquish_alloc_permit of line {relinquish}"),
    (r"(tcgen05\.ld[^,]*), ([^[]*)\[%r4\]", r"\1, \2[%r4+496]", "tcgen05.ld", "tensor memory has no column 527"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "instead", "opcode", "what"), PLANTED)
def test_planted_mistakes(pattern: str, instead: str, opcode: str, what: str, rng: np.random.Generator) -> None:
    """Each planted mistake is reported with its line, by a finding of the checker or by an error."""
    a, b = (rng.standard_normal((rows, K)).astype(np.float16) for rows in (ROWS, COLUMNS))
    module = re.sub(pattern, instead.replace("{opcode}", str(parse_shaped(chain(1))[0])), product_module(1), count=1)
    numbered, words = [*enumerate(module.splitlines(), 1)], ("mma", "ld", "dealloc", "relinquish")
    line_of = {word: next((number for number, line in numbered if f"tcgen05.{word}" in line), 0) for word in words}
    assert_reported(lambda: run_product(module, "native", a, b, 1)[1], module, opcode, what.format(**line_of))

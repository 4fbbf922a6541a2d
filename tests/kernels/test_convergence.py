"""Threads wait at instructions ``.sync``, at barriers and at an ``mbarrier`` as long as on a GPU, and not longer."""

import numpy as np
import pytest
from sptc.errors import KernelError
from sptc.kernels.launch import run_kernel
from sptc.tests.kernels.test_small import WORDS, run, text

BUFFER = ".shared .align 128 .b8 buffer[256];"
#: Lanes 0 to 15 leave a loop after one iteration, and the others after 3000 iterations.
LOOP = """
  and.b32 %r4, %r0, 31; setp.lt.u32 %p1, %r4, 16; selp.b32 %r6, 1, 3000, %p1; mov.u32 %r5, 0;
LOOP: add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, %r6; @%p2 bra LOOP;
"""
ZEROS = np.zeros(WORDS, np.uint32)
LANE = np.arange(WORDS) % 32
LATE = np.where(LANE < 16, 1, 3000)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (LOOP + "shfl.sync.bfly.b32 %r2, %r5, 16, 31, -1;", LATE[LANE ^ 16]),
        (LOOP + "redux.sync.max.u32 %r2, %r5, -1;", np.full(WORDS, 3000)),
        (LOOP + "redux.sync.add.u32 %r2, %r5, %r7;", LATE * 16),
        (LOOP + "vote.sync.ballot.b32 %r2, %p1, -1;", np.full(WORDS, 0xFFFF)),
        (LOOP + "vote.sync.all.pred %p3, %p1, %r7; selp.b32 %r2, 1, 0, %p3;", LANE < 16),
        (LOOP + "elect.sync _|%p3, %r7; selp.b32 %r2, 1, 0, %p3;", LANE % 16 == 0),
        (  # the lower half jumps back over the branch of the upper half
            "setp.lt.u32 %p1, %r0, 16; @!%p1 bra OTHER; JOIN: vote.sync.ballot.b32 %r2, 1, -1; bra.uni DONE;"
            "OTHER: bra JOIN; DONE:",
            np.full(WORDS, 0xFFFFFFFF),
        ),
        (  # the upper half exits, and the lower half does not wait for it
            "setp.lt.u32 %p1, %r0, 16; mov.u32 %r3, 0; @!%p1 bra WAIT; vote.sync.ballot.b32 %r2, 1, -1; bra DONE;"
            "WAIT: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 9; @%p2 bra WAIT; ret; DONE:",
            np.where(np.arange(WORDS) < 16, 0xFFFF, 0),
        ),
        ("redux.sync.add.u32 %r2, %r0, -1;", np.where(np.arange(WORDS) < 32, 496, 1520)),
    ],
)  # fmt: skip
def test_threads_wait_for_their_member_mask(body: str, expected: np.ndarray) -> None:
    """%r7 is a member mask with the 16 lanes of the thread's half of the warp."""
    halves = "and.b32 %r3, %r0, 16; mov.u32 %r7, 0xffff; shl.b32 %r7, %r7, %r3; "
    np.testing.assert_array_equal(run(halves + body, ZEROS), expected)


def test_a_barrier_of_a_warp_orders_accesses_to_shared_memory() -> None:
    """The two halves of a warp execute different instructions ``bar.warp.sync``."""
    body = (
        "mov.u32 %r3, buffer; mad.lo.u32 %r3, %r0, 4, %r3; xor.b32 %r8, %r3, 64;" + LOOP + "st.shared.u32 [%r3], %r5;"
    )
    body += (
        "@%p1 bra LOWER; bar.warp.sync -1; bra READ; LOWER: bar.warp.sync 0xffffffff; READ: ld.shared.u32 %r2, [%r8];"
    )
    body += "st.global.u32 [%rd2], %r2;"
    done = run_kernel(text(body, head=BUFFER), 1, WORDS, [ZEROS, ZEROS], check=False).after(ZEROS)
    np.testing.assert_array_equal(done, LATE[LANE ^ 16])


def test_lanes_that_never_arrive_are_a_deadlock() -> None:
    body = "setp.lt.u32 %p1, %r0, 16; @!%p1 bra OTHER; shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1; OTHER: bar.sync 0;"
    held, waiting = (rf"{n} threads wait at line \d+ \({name}\), .*" for n, name in ((16, "shfl.*"), (48, "bar.sync")))
    with pytest.raises(KernelError, match=f"^deadlock: {held}; {waiting}"):
        run(body, ZEROS)


def test_a_test_of_an_mbarrier_is_false_if_no_thread_can_complete_the_phase() -> None:
    """All threads test before thread 0 arrives; without the arrival, waiting threads are a deadlock."""
    body = """
  mov.u32 %r8, buffer; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [%r8], 1; bar.sync 0;
  mbarrier.test_wait.parity.shared.b64 %p2, [%r8], 0; selp.b32 %r2, 1, 2, %p2; bar.sync 0;
  @%p1 mbarrier.arrive.shared.b64 %rd5, [%r8];
WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r8], 0; @!%p3 bra WAIT;
  selp.b32 %r3, 8, 16, %p3; add.u32 %r2, %r2, %r3; st.global.u32 [%rd2], %r2;"""
    done = run_kernel(text(body, head=BUFFER), 1, WORDS, [ZEROS, ZEROS]).after(ZEROS)
    assert (done == 10).all()
    without = body.replace("@%p1 mbarrier.arrive.shared.b64 %rd5, [%r8];", "")
    with pytest.raises(KernelError, match=r"^deadlock: 64 threads wait at line \d+ \((mbarrier\.try_wait|bra)"):
        run_kernel(text(without, head=BUFFER), 1, WORDS, [ZEROS, ZEROS])


def test_a_barrier_with_fewer_threads_than_arrive_completes_several_times() -> None:
    body = "setp.lt.u32 %p1, %r0, 96; @!%p1 bra LATE; bar.sync 1, 64; mov.u32 %r2, 1; bra DONE;"
    body += "LATE: bar.sync 1, 64; mov.u32 %r2, 2; DONE:"
    zeros = np.zeros(128, np.uint32)
    assert run(body, zeros, threads=128).tolist() == [1] * 96 + [2] * 32

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


def test_a_spinning_warp_does_not_stop_copies() -> None:
    """Warp 1 spins on a flag, which thread 0 stores after its bulk copy has arrived."""
    body = """
  mov.u32 %r3, buffer; setp.eq.u32 %p1, %r0, 0; setp.gt.u32 %p2, %r0, 31; ld.param.u64 %rd3, [p0];
  @%p1 mbarrier.init.shared.b64 [%r3], 1; @%p1 st.shared.u32 [%r3+8], 0; bar.sync 0; @%p2 bra SPIN;
  @%p1 mbarrier.arrive.expect_tx.shared.b64 %rd4, [%r3], 64;
  @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3+128], [%rd3], 64, [%r3];
WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r3], 0; @!%p3 bra WAIT;
  st.shared.u32 [%r3+8], 5; bra END;
SPIN: ld.volatile.shared.u32 %r4, [%r3+8]; setp.eq.u32 %p3, %r4, 0; @%p3 bra SPIN;
END: ld.shared.u32 %r2, [%r3+132]; st.global.u32 [%rd2], %r2;"""
    words = np.arange(WORDS, dtype=np.uint32)
    done = run_kernel(text(body, head=BUFFER), 1, WORDS, [words, ZEROS], check=False, limit=10_000_000).after(ZEROS)
    assert (done == 1).all()


def test_a_poll_continues_after_many_results_false() -> None:
    body = """
  mov.u32 %r3, buffer; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [%r3], 1; bar.sync 0; mov.u32 %r2, 0;
POLL: mbarrier.test_wait.parity.shared.b64 %p2, [%r3], 0; add.u32 %r2, %r2, 1; setp.lt.u32 %p3, %r2, 300;
  @%p3 bra POLL; st.global.u32 [%rd2], %r2;"""
    assert (run_kernel(text(body, head=BUFFER), 1, WORDS, [ZEROS, ZEROS]).after(ZEROS) == 300).all()


def test_arrivals_of_two_warps_complete_two_phases() -> None:
    body = """
  mov.u32 %r3, buffer; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [%r3], 32; bar.sync 0;
  mbarrier.arrive.shared.b64 %rd4, [%r3];
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 1; @!%p2 bra WAIT;
  cvt.u32.u64 %r2, %rd4; st.global.u32 [%rd2], %r2;"""
    done = run_kernel(text(body, head=BUFFER), 1, WORDS, [ZEROS, ZEROS]).after(ZEROS)
    assert len({*done[:32]}) == len({*done[32:]}) == 1
    assert done[0] != done[32]


def test_two_barriers_of_a_warp_in_turn() -> None:
    """The upper half arrives at its second ``bar.warp.sync`` where the lower half still executes its first."""
    body = """
  mov.u32 %r3, buffer; setp.lt.u32 %p1, %r0, 16; setp.eq.u32 %p2, %r0, 0; @%p2 st.shared.u32 [%r3], 0; bar.sync 0;
  @!%p1 bra UPPER;
LOWER: bar.warp.sync -1; @!%p1 bra READ;
  st.shared.u32 [%r3], 7; bar.warp.sync -1; bra END;
UPPER: bar.warp.sync -1; bra LOWER;
READ: ld.shared.u32 %r2, [%r3];
END: st.global.u32 [%rd2], %r2;"""
    program = text(body.replace("@%p2 st", "mov.u32 %r2, 9; @%p2 st"), head=BUFFER)
    done = run_kernel(program, 1, 32, [ZEROS, ZEROS], check=False).after(ZEROS)
    assert done[:32].tolist() == [9] * 16 + [7] * 16


def test_groups_with_different_member_masks_pass_one_instruction() -> None:
    """Lanes 16 to 31 exchange values before lanes 8 to 15, for which lanes 0 to 7 wait at the same instruction."""
    body = """
  setp.lt.u32 %p1, %r0, 16; selp.b32 %r7, 0xffff, 0xffff0000, %p1; setp.ge.u32 %p2, %r0, 8; and.pred %p3, %p1, %p2;
  @%p3 bra MIDDLE;
JOIN: shfl.sync.bfly.b32 %r2, %r0, 1, 31, %r7; @%p3 bra END; @%p1 bra END; bar.warp.sync 0xffffff00; bra END;
MIDDLE: bar.warp.sync 0xffffff00; bra JOIN;
END: st.global.u32 [%rd2], %r2;"""
    done = run_kernel(text(body), 1, 32, [ZEROS, ZEROS]).after(ZEROS)
    assert done[:32].tolist() == (np.arange(32) ^ 1).tolist()

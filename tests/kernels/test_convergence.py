"""Threads wait at instructions ``.sync``, at barriers and at an ``mbarrier`` as long as on a GPU, and not longer."""

import numpy as np
import pytest
from sptc.errors import KernelError
from sptc.kernels.launch import run_kernel
from sptc.tests.kernels.test_small import WORDS, text

#: Set-up of each program: %p1 selects lanes 0 to 15 of each warp, %r7 is the member mask of this half of the warp, %p2
#: selects thread 0, and %r3 is the address of a buffer.
SET_UP = """
  and.b32 %r4, %r0, 31; setp.lt.u32 %p1, %r4, 16; selp.b32 %r7, 0xffff, 0xffff0000, %p1; setp.eq.u32 %p2, %r0, 0;
  mov.u32 %r3, buffer; ld.param.u64 %rd3, [p0];
"""
#: Lanes 0 to 15 leave a loop after one iteration, and the others after 3000 iterations.
LOOP = """
  selp.b32 %r6, 1, 3000, %p1; mov.u32 %r5, 0;
LOOP: add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, %r6; @%p3 bra LOOP;
"""
MBARRIER = "@%p2 mbarrier.init.shared.b64 [%r3], {}; @%p2 st.shared.u32 [%r3+8], 0; bar.sync 0;".format
THREAD = np.arange(WORDS)
LANE = THREAD % 32
LATE = np.where(LANE < 16, 1, 3000)
POLL = """
  mbarrier.test_wait.parity.shared.b64 %p3, [%r3], 0; selp.b32 %r2, 1, 2, %p3; bar.sync 0;
  @%p2 mbarrier.arrive.shared.b64 %rd5, [%r3];
WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r3], 0; @!%p4 bra WAIT;
  selp.b32 %r5, 8, 16, %p4; add.u32 %r2, %r2, %r5;"""
PROGRAMS = {
    "shfl": (LOOP + "shfl.sync.bfly.b32 %r2, %r5, 16, 31, -1;", LATE[LANE ^ 16]),
    "redux": (LOOP + "redux.sync.max.u32 %r2, %r5, -1;", np.full(WORDS, 3000)),
    "redux of a half": ("redux.sync.add.u32 %r2, %r0, %r7;", 256 * (THREAD // 16) + 120),
    "vote": (LOOP + "vote.sync.ballot.b32 %r2, %p1, -1;", np.full(WORDS, 0xFFFF)),
    "vote of a half": ("vote.sync.ballot.b32 %r2, 1, %r7;", np.where(LANE < 16, 0xFFFF, 0xFFFF0000)),
    "vote of a late half": (LOOP + "vote.sync.all.pred %p3, %p1, %r7; selp.b32 %r2, 1, 0, %p3;", LANE < 16),
    "elect in a half": ("elect.sync _|%p3, %r7; selp.b32 %r2, 1, 0, %p3;", LANE % 16 == 0),
    "a loop of n iterations in thread n": (
        "mov.u32 %r2, 0; mov.u32 %r5, %r0; LOOP: setp.eq.u32 %p3, %r5, 0; @%p3 bra END;"
        "add.u32 %r2, %r2, %r5; sub.u32 %r5, %r5, 1; bra LOOP;",
        THREAD * (THREAD + 1) // 2,
    ),
    "a jump back": (
        "@!%p1 bra UPPER; JOIN: vote.sync.ballot.b32 %r2, 1, -1; bra END; UPPER: bra JOIN;",
        np.full(WORDS, 0xFFFFFFFF),
    ),
    "no wait for exited lanes": (
        "mov.u32 %r5, 0; @!%p1 bra UPPER; vote.sync.ballot.b32 %r2, 1, -1; bra END;"
        "UPPER: add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 9; @%p3 bra UPPER; ret;",
        np.where(LANE < 16, 0xFFFF, 0),
    ),
    "bar.warp.sync at two places": (
        "mad.lo.u32 %r8, %r0, 4, %r3; xor.b32 %r9, %r8, 64;" + LOOP + "st.shared.u32 [%r8], %r5; @%p1 bra LOWER;"
        "bar.warp.sync -1; bra READ; LOWER: bar.warp.sync -1; READ: ld.shared.u32 %r2, [%r9]; bar.sync 0;",
        LATE[LANE ^ 16],
    ),
    "two bar.warp.sync in turn": (  # The upper half arrives at its second barrier where the lower half is at its first.
        "mov.u32 %r2, 9; and.b32 %r8, %r0, 32; add.u32 %r8, %r8, %r3; st.shared.u32 [%r8], 0; bar.sync 0;"
        "@!%p1 bra UPPER; LOWER: bar.warp.sync -1; @!%p1 bra READ; st.shared.u32 [%r8], 7; bar.warp.sync -1; bra END;"
        "UPPER: bar.warp.sync -1; bra LOWER; READ: ld.shared.u32 %r2, [%r8];",
        np.where(LANE < 16, 9, 7),
    ),
    # Lanes 16 to 31 exchange values before lanes 8 to 15, for which lanes 0 to 7 wait at the same instruction.
    "two member masks at one place": (
        "setp.ge.u32 %p3, %r4, 8; and.pred %p3, %p1, %p3; @%p3 bra MIDDLE;"
        "JOIN: shfl.sync.bfly.b32 %r2, %r0, 1, 31, %r7; @%p1 bra END; bar.warp.sync 0xffffff00; bra END;"
        "MIDDLE: bar.warp.sync 0xffffff00; bra JOIN;",
        THREAD ^ 1,
    ),
    "a barrier of fewer threads than arrive": ("bar.sync 1, 32; mov.u32 %r2, 1;", np.full(WORDS, 1)),
    "a test before the arrival": (MBARRIER(1) + POLL, np.full(WORDS, 10)),
    "many tests": (
        MBARRIER(1) + "mov.u32 %r2, 0; POLL: mbarrier.test_wait.parity.shared.b64 %p3, [%r3], 0; add.u32 %r2, %r2, 1;"
        "setp.lt.u32 %p4, %r2, 300; @%p4 bra POLL;",
        np.full(WORDS, 300),
    ),
    "two phases by one arrival": (
        MBARRIER(32) + "mbarrier.arrive.shared.b64 %rd5, [%r3];"
        "WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r3], 1; @!%p3 bra WAIT; cvt.u32.u64 %r2, %rd5;",
        THREAD // 32,
    ),
    # Warp 1 spins on a flag, which warp 0 stores after a bulk copy of 64 zeros has arrived.
    "a spinning warp": (
        MBARRIER(1) + "setp.gt.u32 %p3, %r0, 31; @%p3 bra SPIN; st.shared.u32 [%r3+132], 6;"
        "@%p2 mbarrier.arrive.expect_tx.shared.b64 %rd4, [%r3], 64;"
        "@%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3+128], [%rd3], 64, [%r3];"
        "WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r3], 0; @!%p4 bra WAIT; st.shared.u32 [%r3+8], 5; bra READ;"
        "SPIN: ld.volatile.shared.u32 %r5, [%r3+8]; setp.eq.u32 %p4, %r5, 0; @%p4 bra SPIN;"
        "READ: ld.shared.u32 %r2, [%r3+132]; add.u32 %r2, %r2, 3;",
        np.full(WORDS, 3),
    ),
}


def launch(body: str) -> np.ndarray:
    """Run a program in two warps, and return %r2 of each thread."""
    zeros = np.zeros(WORDS, np.uint32)
    program = text(f"{SET_UP} {body} END: st.global.u32 [%rd2], %r2;", head=".shared .align 128 .b8 buffer[256];")
    return run_kernel(program, 1, WORDS, [zeros, zeros], check=False, limit=10_000_000).after(zeros)


@pytest.mark.parametrize("name", PROGRAMS)
def test_threads_wait_for_one_another(name: str) -> None:
    body, expected = PROGRAMS[name]
    np.testing.assert_array_equal(launch(body), expected)


def test_threads_that_never_arrive_are_a_deadlock() -> None:
    held, waiting = (rf"{n} threads wait at line \d+ \({name}\), .*" for n, name in ((32, "shfl.*"), (32, "bar.sync")))
    for body, message in (
        ("@!%p1 bra UPPER; shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1; UPPER: bar.sync 0;",
         f"^deadlock: {held}; {waiting}"),
        (MBARRIER(1) + POLL.replace("@%p2 mbarrier.arrive.shared.b64 %rd5, [%r3];", ""),
         r"^deadlock: 64 threads wait at line \d+ \(mbarrier\.try_wait"),
    ):  # fmt: skip
        with pytest.raises(KernelError, match=message):
            launch(body)

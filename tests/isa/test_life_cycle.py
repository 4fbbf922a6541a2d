"""The checker of wgmma accepts sequences that PTX defines. In other sequences, it reports the first misuse."""

import doctest
from collections.abc import Callable

import pytest
import sptc
from sptc.isa import life_cycle

MMA = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
WIDER = "wgmma.mma_async.sp.sync.aligned.m64n16k32.f16.f16.f16"
D, A = [f"d{index}" for index in range(4)], [f"a{index}" for index in range(4)]

Sequence = sptc.WgmmaSequence


def begun(a: list[str] | None = None) -> Sequence:
    """Return a sequence of three calls (write, fence, multiplication), which leaves the multiplication in flight."""
    sequence = Sequence()
    sequence.write(*D, *A)
    sequence.fence()
    sequence.mma_async(MMA, D, a)
    return sequence


def test_the_example() -> None:
    assert doctest.testmod(life_cycle).failed == 0
    assert doctest.testmod(life_cycle).attempted > 0


def test_sequences_that_are_defined() -> None:
    first, second = D, [f"e{index}" for index in range(4)]
    sequence = Sequence()
    sequence.write(*first, *second)
    sequence.fence()
    for _ in range(3):
        for registers in (first, second):
            sequence.mma_async(MMA, registers)
            sequence.mma_async(MMA, registers)
            sequence.commit_group()
        sequence.wait_group(1)
        sequence.read(*first)
        sequence.fence()
    sequence.wait_group(0)
    sequence.read(*second)
    sequence.end()
    # Without a fence, multiplications of one shape may share registers, and other registers may be written.
    sequence = begun(A)
    sequence.mma_async(MMA, D, A)
    sequence.write("other")
    sequence.mma_async(MMA, D)
    sequence.commit_group()
    sequence.fence()
    sequence.mma_async(WIDER, D)  # needs the fence before, because the shape differs
    sequence.commit_group()
    sequence.commit_group()
    sequence.wait_group(0)
    sequence.end()
    # Two buffers of shared memory alternate: one is written while the multiplication reads the other.
    sequence = Sequence()
    sequence.write_shared("one")
    sequence.fence_proxy()
    sequence.fence()
    for reads, writes in (("one", "two"), ("two", "one"), ("one", "two")):
        sequence.mma_async(MMA, D, shared=[reads])
        sequence.commit_group()
        sequence.write_shared(writes)
        sequence.fence_proxy()
        sequence.wait_group(0)
    sequence.write_shared("three")
    sequence.mma_async(MMA, D, shared=["one"])  # no proxy fence follows the write of "three", which is not read
    sequence.commit_group()
    sequence.wait_group(0)
    sequence.end()


WRITTEN = "call 3: register '{}' was written in call 2, and no wgmma.fence came in between"
ACCUMULATED = "call 4: register 'd0' was accumulated by m64n8k32 in call 3, and no wgmma.fence came in between"
BUSY = "call {}: register '{}' is {} while the multiplication of call 3 may still use it: no wgmma.{} came in between"
OVERWRITTEN = (
    "call {}: buffer 'b' is written while the multiplication of call {} may still use it: "
    "no wgmma.wait_group came in between"
)
UNFINISHED = "the multiplication of call 3 is never finished: no wgmma.{} follows it"
UNFENCED = "call {}: buffer '{}' of shared memory was written in call {}, and no fence.proxy.async came in between"
FENCE, COMMIT, MULTIPLY = ("fence",), ("commit_group",), ("mma_async", MMA, D)
#: Misuses by name: function that returns a new sequence or that of `begun`, further calls, and the error message.
MISUSES: dict[str, tuple[Callable[[], Sequence], list[tuple[object, ...]], str]] = {
    "unfenced": (Sequence, [MULTIPLY], "call 1: the first wgmma.mma_async needs a wgmma.fence before it"),
    "written": (Sequence, [FENCE, ("write", "d2"), MULTIPLY], WRITTEN.format("d2")),
    "a written": (Sequence, [FENCE, ("write", "a3"), (*MULTIPLY, A)], WRITTEN.format("a3")),
    "other shape": (begun, [("mma_async", WIDER, D)], ACCUMULATED),
    "accumulator as a": (begun, [("mma_async", MMA, ["e0", "e1", "e2", "e3"], D)], ACCUMULATED),
    "read before commit": (begun, [("read", "d0")], BUSY.format(4, "d0", "read", "commit_group")),
    "read before wait": (begun, [COMMIT, ("read", "d1")], BUSY.format(5, "d1", "read", "wait_group")),
    "wait for fewer": (begun, [COMMIT, ("wait_group", 1), ("read", "d1")], BUSY.format(6, "d1", "read", "wait_group")),
    "a overwritten": (lambda: begun(A), [COMMIT, ("write", "a0")], BUSY.format(5, "a0", "written", "wait_group")),
    "read without a fence": (begun, [COMMIT, ("wait_group", 0), ("read", "d0"), MULTIPLY],
                             "call 7: register 'd0' was read in call 6, and no wgmma.fence came in between"),
    "no proxy fence": (Sequence, [("write_shared", "tile"), FENCE, MULTIPLY], UNFENCED.format(3, "tile", 1)),
    "written after the proxy fence": (Sequence, [FENCE, ("fence_proxy",), ("write_shared", "x"), MULTIPLY],
                                       UNFENCED.format(4, "x", 3)),
    "b unfenced": (Sequence, [("write_shared", "a", "b"), FENCE, (*MULTIPLY, None, ["b"])], UNFENCED.format(3, "b", 1)),
    "buffer overwritten": (Sequence, [FENCE, (*MULTIPLY, A, ["b"]), COMMIT, ("write_shared", "b")],
                           OVERWRITTEN.format(4, 2)),
    "some buffer overwritten": (begun, [COMMIT, ("write_shared", "b")], OVERWRITTEN.format(5, 3)),
    "never committed": (begun, [("end",)], UNFINISHED.format("commit_group")),
    "never waited for": (begun, [COMMIT, ("end",)], UNFINISHED.format("wait_group")),
}  # fmt: skip


def test_the_first_misuse() -> None:
    for name, (start, calls, message) in MISUSES.items():
        sequence = start()
        *defined, (last, *operands) = calls
        for call, *arguments in defined:
            getattr(sequence, str(call))(*arguments)
        with pytest.raises(sptc.OrderError) as raised:
            getattr(sequence, str(last))(*operands)
        assert str(raised.value) == message, name


def test_operands_that_do_not_fit() -> None:
    sequence = Sequence()
    with pytest.raises(sptc.OperandError, match=r"^mma\.sp.* is not a wgmma instruction$"):
        sequence.mma_async("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", D)
    for pending in (-1, True, "0"):
        with pytest.raises(sptc.OperandError, match="takes a number of groups, 0 or more, not "):
            sequence.wait_group(pending)  # type: ignore[arg-type]
    sequence.fence()
    for registers, a, words in (
        (D[:3], None, r"^'d' of .* must be 4 different registers, not \['d0', 'd1', 'd2'\]$"),
        ([*D[:3], "d0"], None, "must be 4 different registers"),
        (D, A[:2], r"^'a' of .* must be 4 different registers, not \['a0', 'a1'\]$"),
        (D, [*A[:3], "d1"], "^operands D and A of .* share the register 'd1'$"),
    ):
        with pytest.raises(sptc.OperandError, match=words):
            sequence.mma_async(MMA, registers, a)

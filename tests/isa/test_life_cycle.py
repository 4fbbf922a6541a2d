"""The life cycle of wgmma: sequences that are defined, and the first misuse of others."""

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
    """Return a sequence with one multiplication in flight, of calls 1 to 3."""
    sequence = Sequence()
    sequence.write(*D, *A)
    sequence.fence()
    sequence.mma_async(MMA, D, a)
    return sequence


def test_the_example() -> None:
    assert doctest.testmod(life_cycle).failed == 0
    assert doctest.testmod(life_cycle).attempted > 0


def test_a_pipeline() -> None:
    """Two groups in flight on two accumulators; registers are read as soon as their own group is waited for."""
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


def test_what_needs_no_fence() -> None:
    """The same accumulator in one shape, A that is read again, and registers that no multiplication uses."""
    sequence = begun(A)
    sequence.mma_async(MMA, D, A)
    sequence.write("other")
    sequence.mma_async(MMA, D)
    sequence.commit_group()
    sequence.commit_group()
    sequence.wait_group(0)
    sequence.end()


def test_a_fence_lets_another_shape_go_on() -> None:
    sequence = begun()
    sequence.fence()
    sequence.mma_async(WIDER, D)
    sequence.commit_group()
    sequence.wait_group(0)
    sequence.end()


def _unfenced() -> None:
    Sequence().mma_async(MMA, D)


def _written_after_the_fence() -> None:
    sequence = Sequence()
    sequence.fence()
    sequence.write("d2")
    sequence.mma_async(MMA, D)


def _a_written() -> None:
    sequence = Sequence()
    sequence.fence()
    sequence.write("a3")
    sequence.mma_async(MMA, D, A)


def _other_shape() -> None:
    begun().mma_async(WIDER, D)


def _accumulator_as_a() -> None:
    begun().mma_async(MMA, [f"e{index}" for index in range(4)], D)


def _read_before_commit() -> None:
    begun().read("d0")


def _read_before_wait() -> None:
    sequence = begun()
    sequence.commit_group()
    sequence.read("d1")


def _waited_for_too_few() -> None:
    sequence = begun()
    sequence.commit_group()
    sequence.wait_group(1)
    sequence.read("d1")


def _a_overwritten() -> None:
    sequence = begun(A)
    sequence.commit_group()
    sequence.write("a0")


def _read_without_a_fence() -> None:
    sequence = begun()
    sequence.commit_group()
    sequence.wait_group(0)
    sequence.read("d0")
    sequence.mma_async(MMA, D)


def _never_committed() -> None:
    begun().end()


def _never_waited_for() -> None:
    sequence = begun()
    sequence.commit_group()
    sequence.end()


MISUSES: dict[Callable[[], None], str] = {
    _unfenced: "call 1: the first wgmma.mma_async needs a wgmma.fence before it",
    _written_after_the_fence: "call 3: register 'd2' was written in call 2, and no wgmma.fence came between",
    _a_written: "call 3: register 'a3' was written in call 2, and no wgmma.fence came between",
    _other_shape: "call 4: register 'd0' was accumulated by m64n8k32 in call 3, and no wgmma.fence came between",
    _accumulator_as_a: "call 4: register 'd0' was accumulated by m64n8k32 in call 3, and no wgmma.fence came between",
    _read_before_commit: "call 4: register 'd0' is read while the multiplication of call 3 may still use it: "
    "no wgmma.commit_group came between",
    _read_before_wait: "call 5: register 'd1' is read while the multiplication of call 3 may still use it: "
    "no wgmma.wait_group came between",
    _waited_for_too_few: "call 6: register 'd1' is read while the multiplication of call 3 may still use it: "
    "no wgmma.wait_group came between",
    _a_overwritten: "call 5: register 'a0' is written while the multiplication of call 3 may still use it: "
    "no wgmma.wait_group came between",
    _read_without_a_fence: "call 7: register 'd0' was read in call 6, and no wgmma.fence came between",
    _never_committed: "the multiplication of call 3 is never finished: no wgmma.commit_group follows it",
    _never_waited_for: "the multiplication of call 3 is never finished: no wgmma.wait_group follows it",
}


@pytest.mark.parametrize("misuse", MISUSES, ids=lambda misuse: misuse.__name__.strip("_"))
def test_the_first_misuse(misuse: Callable[[], None]) -> None:
    with pytest.raises(sptc.OrderError) as raised:
        misuse()
    assert str(raised.value) == MISUSES[misuse]


@pytest.mark.parametrize(
    ("registers", "a", "words"),
    [
        (D[:3], None, r"^d of .* must be 4 different registers, not \['d0', 'd1', 'd2'\]$"),
        ([*D[:3], "d0"], None, "must be 4 different registers"),
        (D, A[:2], r"^a of .* must be 4 different registers, not \['a0', 'a1'\]$"),
        (D, [*A[:3], "d1"], "^d and a of .* share the register 'd1'$"),
    ],
)
def test_registers_that_do_not_fit(registers: list[str], a: list[str] | None, words: str) -> None:
    sequence = Sequence()
    sequence.fence()
    with pytest.raises(sptc.OperandError, match=words):
        sequence.mma_async(MMA, registers, a)


def test_other_operands_that_do_not_fit() -> None:
    sequence = Sequence()
    with pytest.raises(sptc.OperandError, match=r"^mma\.sp.* is not a wgmma instruction$"):
        sequence.mma_async("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", D)
    for pending in (-1, True, "0"):
        with pytest.raises(sptc.OperandError, match="takes a number of groups, 0 or more, not "):
            sequence.wait_group(pending)  # type: ignore[arg-type]

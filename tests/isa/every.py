"""One test over every instruction: a test of its own for each of 850 would take longer to name than to run."""

from collections.abc import Callable, Iterable
from typing import Any

from sptc.isa.instructions import Instruction

Test = Callable[..., None]


def for_every(instructions: Iterable[Instruction]) -> Callable[[Test], Callable[[], None]]:
    """Call a test with one instruction after another; what fails says of which."""

    wanted = [*instructions]
    assert wanted

    def enter(test: Test) -> Callable[[], None]:
        def every() -> None:
            failed: dict[str, Any] = {}
            for instruction in wanted:
                try:
                    test(instruction)
                except AssertionError as error:
                    failed[str(instruction)] = error
            first = next(iter(failed), None)
            if first is not None:
                raise AssertionError(f"{first}, and {len(failed) - 1} more") from failed[first]

        every.__name__, every.__doc__ = test.__name__, test.__doc__
        every.__module__ = test.__module__
        return every

    return enter

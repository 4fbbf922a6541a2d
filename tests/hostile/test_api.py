"""Random calls of public functions with wrong arguments: each returns a result or raises :class:`sptc.Error`."""

import warnings
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.gemm.unpack import Matrices
from sptc.tests.hostile.api_calls import Call, calls
from sptc.tests.hostile.mutation import mutated_value

CALLS = calls()
#: Calls per share, and number of shares. The regression runs all shares (200,000 calls), the quick tier a few calls.
SHARE, SHARES, QUICK = 50_000, 4, 4_000


def _copied(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arguments.items()}


def _same(before: Any, after: Any) -> bool:
    return not isinstance(before, np.ndarray) or before.dtype.hasobject or before.tobytes() == after.tobytes()


def _try(call: Call, rng: np.random.Generator) -> bool:
    """Call a function with some arguments mutated, missing or superfluous. Return whether the call gave a result."""
    arguments = dict(call.arguments)
    for _ in range(1 + int(rng.random() < 0.3)):
        name = str(rng.choice([*arguments]))
        arguments[name] = mutated_value(arguments[name], rng)
    before = _copied(arguments)
    try:
        result = call.function(**arguments)
    except sptc.Error as error:
        message = str(error)
        assert message.isprintable()  # a printable message has only one line
        assert len(message) < 1_200, "a message that nobody reads"
        return False
    finally:
        assert all(_same(value, arguments[name]) for name, value in before.items()), "an operand was modified"
    assert result is None or isinstance(result, (np.ndarray, str, dict, Matrices))
    if isinstance(result, np.ndarray):
        assert result.flags.writeable
        arrays = [value for value in arguments.values() if isinstance(value, np.ndarray)]
        assert not any(np.may_share_memory(result, array) for array in arrays), "the result is part of an operand"
    return True


def _fuzz(count: int, rng: np.random.Generator) -> None:
    taken = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(count):
            call = CALLS[number % len(CALLS)]
            state = rng.bit_generator.state
            try:
                taken += _try(call, rng)
            except Exception as error:
                name, kind = call.function.__name__, type(error).__name__
                raise AssertionError(f"call {number}, {name}: {kind}: {error}; generator at {state}") from error
    assert 0.1 * count < taken < 0.5 * count, "nearly everything is taken, or nearly nothing"


def test_some(rng: np.random.Generator) -> None:
    for call in CALLS:  # unchanged calls
        call.function(**call.arguments)
    _fuzz(QUICK, rng)


@pytest.mark.regression
@pytest.mark.parametrize("share", range(SHARES))
def test_every_share(share: int, rng: np.random.Generator) -> None:
    _fuzz(SHARE, rng)


def test_a_mistake_is_seen(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    monkeypatch.setattr("sptc.api.matrix_moves._addresses", lambda addresses, move: addresses)
    with pytest.raises(AssertionError, match=r"(ld|st)matrix"):
        _fuzz(QUICK, rng)

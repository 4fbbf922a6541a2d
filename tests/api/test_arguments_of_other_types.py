"""What is no text, no word and no number where one is wanted: an error of one line, whatever it is."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sptc

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
STORE, LOAD = "stmatrix.sync.aligned.m8n8.x2.shared.b16", "ldmatrix.sync.aligned.m8n8.x2.shared.b16"
OTHERS = {
    "a list": ["sm_90"],
    "an array": np.array(["golden", "strict"]),
    "a 1-d string": np.array(["sm_90"]),
    "bytes": b"sm_90",
    "a table": {},
    "a number": 90,
    "numbers": np.array([1, 1]),
    "nothing": None,
}


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.uint32)


def mma(**changes: Any) -> np.ndarray:
    given = {"instruction": MMA, "a": zeros(32, 4), "b": zeros(32, 2), "c": zeros(32, 4)}
    return sptc.mma(**given | changes)


def wgmma(**changes: Any) -> np.ndarray:
    given = {"instruction": WGMMA, "d": zeros(128, 4), "a": zeros(128, 4), "b": 0, "smem": np.zeros(4096, np.uint8)}
    return sptc.wgmma(**given | changes)


def evidence(**changes: Any) -> str:
    return str(sptc.evidence(**{"instruction": MMA, "arch": "sm_90"} | changes))


ARGUMENTS = [
    *((mma, name) for name in ("instruction", "arch", "backend", "metadata", "a", "selector")),
    *((wgmma, name) for name in ("instruction", "backend", "metadata", "b", "scale_d", "imm_scale_a", "imm_trans_b")),
    *((evidence, name) for name in ("instruction", "arch")),
]


@pytest.mark.parametrize("value", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize(("call", "name"), ARGUMENTS, ids=lambda part: getattr(part, "__name__", part))
def test_a_value_of_another_type(call: Callable[..., object], name: str, value: object) -> None:
    with pytest.raises(sptc.Error) as caught:
        call(**{name: [] if name in ("b", "selector") and isinstance(value, int) else value})
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("call", [mma, wgmma, evidence])
def test_an_instruction_in_an_array_without_axes(call: Callable[..., object]) -> None:
    text = WGMMA if call is wgmma else MMA
    assert np.array_equal(call(instruction=np.array(text)), call())


def test_matrix_moves_of_no_batch() -> None:
    smem, addresses = np.zeros((0, 512), np.uint8), np.zeros((0, 32), np.int64)
    assert sptc.ldmatrix(np.array(LOAD), smem, addresses).shape == (0, 32, 2)
    assert sptc.stmatrix(STORE, smem, addresses, zeros(0, 32, 2)).shape == (0, 512)
    for value in OTHERS.values():
        with pytest.raises(sptc.InstructionError):
            sptc.ldmatrix(value, smem, addresses)

"""What is no text, no word and no number where one is wanted: an error of one line, whatever it is."""

from typing import Any

import numpy as np
import pytest
import sptc

from .calls import prepared

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
STORE, LOAD = "stmatrix.sync.aligned.m8n8.x2.shared.b16", "ldmatrix.sync.aligned.m8n8.x2.shared.b16"
OTHERS = [
    *(["sm_90"], np.array(["golden", "strict"]), np.array(["sm_90"]), b"sm_90", {}, 90, np.array([1, 1]), None),
]
NAMES = {
    "mma": ("instruction", "arch", "backend", "metadata", "a", "selector"),
    "wgmma": ("instruction", "backend", "metadata", "b", "scale_d", "imm_scale_a", "imm_trans_b"),
    "evidence": ("instruction", "arch"),
}


def calls(rng: np.random.Generator) -> dict[str, tuple[Any, dict[str, Any]]]:
    evidence = sptc.evidence, {"instruction": MMA, "arch": "sm_90"}
    return {"mma": prepared(MMA, 1, rng), "wgmma": prepared(WGMMA, 1, rng), "evidence": evidence}


def test_a_value_of_another_type(rng: np.random.Generator) -> None:
    for function, (call, operands) in calls(rng).items():
        for name in NAMES[function]:
            for value in OTHERS:
                changed = [] if name in ("b", "selector") and isinstance(value, int) else value
                with pytest.raises(sptc.Error) as caught:
                    call(**operands | {name: changed})
                assert len(str(caught.value).splitlines()) == 1, (function, name, changed)


def test_an_instruction_in_an_array_without_axes(rng: np.random.Generator) -> None:
    for call, operands in calls(rng).values():
        in_array = operands | {"instruction": np.array(operands["instruction"])}
        assert np.array_equal(call(**in_array), call(**operands))


def test_matrix_moves_of_no_batch() -> None:
    smem, addresses = np.zeros((0, 512), np.uint8), np.zeros((0, 32), np.int64)
    assert sptc.ldmatrix(np.array(LOAD), smem, addresses).shape == (0, 32, 2)
    assert sptc.stmatrix(STORE, smem, addresses, np.zeros((0, 32, 2), np.uint32)).shape == (0, 512)
    for value in OTHERS:
        with pytest.raises(sptc.InstructionError):
            sptc.ldmatrix(value, smem, addresses)

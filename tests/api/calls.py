"""Calls of ``mma`` and ``wgmma`` with random operands, and the errors that they raise."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.isa.fragments import a_fragment, accumulator_fragment
from sptc.isa.instructions import parse
from sptc.isa.memory import encode_descriptor
from sptc.sim.benches.random_operands import random_operands

Function = Callable[..., np.ndarray]


def prepared(text: str, cases: int, rng: np.random.Generator, selector: int = 0) -> tuple[Function, dict[str, Any]]:
    """Return the public function of an instruction, and all of its arguments for random tiles.

    For wgmma: any bits, each chunk selecting its first and second element. B starts at byte 0, without swizzle; its
    core matrices of 128 bytes follow each other along K, 64 bytes a column where A is sparse and 32 where it is dense.
    """
    i = parse(text)
    if i.family == "wgmma":
        d, a = (
            rng.integers(0, 1 << 32, (cases, 128, fragment(i).registers), dtype=np.uint32)
            for fragment in (accumulator_fragment, a_fragment)
        )
        column_bytes = 64 if i.sparse else 32
        smem = rng.integers(0, 256, (cases, column_bytes * i.n), dtype=np.uint8)
        operands = {"d": d, "a": a, "b": encode_descriptor(0, 128, 8 * column_bytes), "smem": smem}
        metadata = {"e": np.full((cases, 128), 0x44444444, np.uint32), "selector": selector}
        return sptc.wgmma, {"instruction": text, **operands, **(metadata if i.sparse else {})}
    distribution = "uniform" if i.a.is_integer else "mid"
    drawn = random_operands(i, distribution, cases, rng, sparsity_selector=selector)
    operands = {name: getattr(drawn, name) for name in ("a", "b", "c", "e", "scale_a", "scale_b")}
    arch = "sm_90" if "sm_90" in i.architectures else "sm_120"
    return sptc.mma, {"instruction": text, "selector": selector, "arch": arch} | operands


def refusal(kind: type[sptc.Error], function: Callable[..., object], operands: dict[str, Any]) -> str:
    """Return the message of the error that a call raises. The message must have one line."""
    with pytest.raises(sptc.Error) as caught:
        function(**operands)
    assert type(caught.value) is kind
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message

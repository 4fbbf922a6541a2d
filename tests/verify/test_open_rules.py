"""Each difference between public models of Blackwell follows from one rule. Model and RTL support both variants."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sptc.golden.matrix import multiply_by
from sptc.isa.formats import Format
from sptc.isa.instructions import Instruction
from sptc.isa.metadata import MUX_OF_ARCHITECTURE
from sptc.isa.numerics import NO_FLOOR, OPEN_RULES, numerics
from sptc.isa.operands import MatrixOperands
from sptc.isa.tcgen05 import every_opcode, instructions_of, parse_shaped
from sptc.native.backend import multiply
from sptc.operands.registers import CONTAINERS
from sptc.rtl.config import CoreConfig
from sptc.sim.engine.engine import Engine
from sptc.verify.candidates import far_scales

#: Operands on which the golden model and the model of sf-tensor/tcgen05 (commit 8fce64d) differ, one difference for
#: each code path, with both results. Elements are codes. A of a sparse instruction is compressed.
DIFFERENCES = json.loads(Path(__file__).with_name("differences.json").read_text(encoding="utf-8"))
NVFP4 = "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X (m128n8k64.f32.e2m1.e2m1.ue4m3)"
BF16 = "tcgen05.mma.cta_group::1.kind::f16 (m128n8k16.f32.bf16.bf16)"


def operands_of(i: Instruction, row: dict[str, str]) -> MatrixOperands:
    def codes(words: str) -> list[int]:
        return [int(word, 16) for word in words.split()]

    def elements(words: str, fmt: Format) -> np.ndarray:
        return np.array(codes(words), CONTAINERS[i.container_bits]) << (i.low_bit(fmt) if fmt.name == "e2m1" else 0)

    keys = row.keys() & {"nibbles", "scale_a", "scale_b"}
    bytes_of = {key: np.array(codes(row[key]), np.uint8)[None, None] for key in keys}
    c = np.array(codes(row["c"]), np.uint32)[None, None]
    return MatrixOperands(elements(row["a"], i.a)[None, None], elements(row["b"], i.b)[None, :, None], c, **bytes_of)


def word(result: np.ndarray) -> str:
    return f"{int(result[0, 0, 0]):08x}"


@pytest.mark.parametrize("row", DIFFERENCES, ids=lambda row: row["instruction"].split("kind::")[1])
def test_one_rule_explains_each_published_difference(row: dict[str, str]) -> None:
    _, i = parse_shaped(row["instruction"])
    operands, mux = operands_of(i, row), MUX_OF_ARCHITECTURE["sm_100"]
    results = {key: word(multiply_by(i, numerics(i, "sm_100", [key]), mux, operands)) for key in OPEN_RULES}
    assert results.pop(row["rule"]) == row["alternative"] != row["built"]
    assert {*results.values(), word(multiply_by(i, numerics(i, "sm_100"), mux, operands))} == {row["built"]}
    assert word(multiply(i, "sm_100", operands)) == row["built"]
    assert word(multiply(i, "sm_100", operands, numerics=numerics(i, "sm_100", OPEN_RULES))) == row["alternative"]


FEW = {"formats": ("bf16", "e4m3", "e2m1/4"), "scales": ("ue8m0", "ue4m3"), "mux": "mux3", "rows": 1, "columns": 1}
HARDWARE = {
    "built": CoreConfig(name="built", **FEW),
    "alternative": CoreConfig(name="alternative", exponent_floor=False, group=4, **FEW),
}


@pytest.mark.regression
@pytest.mark.parametrize("values", HARDWARE)
def test_the_hardware_has_both_values_of_each_rule(values: str) -> None:
    engine, rows = Engine(HARDWARE[values]), [row for row in DIFFERENCES if "tf32" not in row["instruction"]]
    assert {row["rule"] for row in rows} == OPEN_RULES.keys()
    for row in rows:
        _, i = parse_shaped(row["instruction"])
        assert word(engine.multiply(i, operands_of(i, row)).d) == row[values]


@pytest.mark.regression
@pytest.mark.parametrize("text", [NVFP4, NVFP4.replace("mma", "mma.sp").replace("k64", "k128")])
def test_separately_truncated_parts_of_groups(text: str, seed: int) -> None:
    rng, (_, i) = np.random.default_rng(seed), parse_shaped(text)
    operands = far_scales(i, rng, 8)
    exponents = rng.integers(12, 24, operands.c.shape)
    near = np.ldexp(rng.uniform(-2, 2, operands.c.shape), exponents).astype(np.float32).view(np.uint32)
    operands = replace(operands, c=np.where(rng.random(near.shape) < 0.5, near, operands.c))
    parameters, mux = numerics(i, "sm_100", ["group"]), MUX_OF_ARCHITECTURE["sm_100"]
    expected = multiply_by(i, parameters, mux, operands)
    assert (expected != multiply_by(i, numerics(i, "sm_100"), mux, operands)).mean() > 0.1
    np.testing.assert_array_equal(multiply(i, "sm_100", operands, numerics=parameters), expected)
    np.testing.assert_array_equal(Engine(HARDWARE["alternative"]).multiply(i, operands).d, expected)


def test_the_default_is_as_recorded_and_modelled() -> None:
    for opcode in every_opcode():
        parameters = numerics(next(instructions_of(opcode)), "sm_100")
        assert parameters.zero_exponent != NO_FLOOR
        assert parameters.group == 16

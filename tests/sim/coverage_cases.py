"""Directed cases for the tests of functional coverage. Each case is one output of one instruction."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sptc.golden.decode import WIDE, decode
from sptc.golden.matrix import multiply
from sptc.isa.formats import Format
from sptc.isa.instructions import Instruction, parse
from sptc.isa.operands import MatrixOperands
from sptc.operands.registers import CONTAINERS
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.rtl.step import row_result_layout
from sptc.sim.coverage.steps import StepCoverage
from sptc.sim.engine.steps import steps_of

INF, NAN = float("inf"), float("nan")
ARCHITECTURES = {"tiny": "sm_80", "ampere": "sm_80", "ada": "sm_89", "hopper": "sm_90", "rtx-blackwell": "sm_120"}
F16 = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
HALF = "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16"
BF16 = "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32"
SPARSE = "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
TF32 = "mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
FP8 = "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e5m2.e5m2"
MXF8 = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"
NVF4 = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
PRESET_OF = {F16: "tiny", HALF: "tiny", SPARSE: "tiny", BF16: "ampere", TF32: "ampere", FP8: "hopper",
             MXF8: "rtx-blackwell", NVF4: "rtx-blackwell"}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Operands of one output. Elements are zero by default. A number is a value, and a string is a hexadecimal code."""

    text: str
    a: dict[int, Any] = field(default_factory=dict)
    b: dict[int, Any] = field(default_factory=dict)
    c: Any = 0.0
    nibbles: dict[int, int] = field(default_factory=dict)
    scale_a: dict[int, int] = field(default_factory=dict)
    scale_b: dict[int, int] = field(default_factory=dict)
    preset: str = ""  #: Name of the datapath's preset. If empty, `PRESET_OF` has the preset for the instruction


def code_of(fmt: Format, value: float | str) -> int:
    """Return the container with the code of a number that the format represents exactly, or of a hexadecimal string."""
    if isinstance(value, str):
        return int(value, 16)
    if fmt.name == "f16":
        return int(np.float16(value).view(np.uint16))
    if fmt.exponent_bits == 8:
        return int(np.float32(value).view(np.uint32)) >> 32 - fmt.container_bits
    (found,) = np.nonzero(decode(np.arange(1 << fmt.bits), fmt, WIDE).values == value)
    return int(found[0])


def words_of(config: CoreConfig, i: Instruction, arch: str, operands: MatrixOperands) -> tuple[NDArray, NDArray]:
    """Return the step words of a one-step instruction, and result words with D of the golden model and right flags."""
    d = multiply(i, arch, operands)
    (step,) = steps_of(config, i, operands)
    results = d.astype(np.uint64)
    if i.rule:
        metadata = np.zeros((*operands.nibbles.shape[:2], config.chunks // (1 + (i.container_bits >= 16))), np.int64)
        metadata[..., : i.chunks] = operands.nibbles
        flags = ~np.isin(metadata, [*i.rule.legal])
        shifted = flags.astype(np.uint64) << np.arange(metadata.shape[-1], dtype=np.uint64)
        results |= (shifted.sum(axis=-1) << np.uint64(row_result_layout(config)["illegal"].offset))[..., None]
    return step.whole(operands.c).reshape(-1, step.words.total), results.reshape(-1)


def built(case: Case) -> tuple[CoreConfig, NDArray, NDArray]:
    """Return the datapath of a case, its step words, and its results."""
    i = parse(case.text)
    config = PRESETS[case.preset or PRESET_OF[case.text]]
    container = CONTAINERS[i.container_bits]
    a, b = np.zeros((1, 1, i.stored_k), container), np.zeros((1, i.k, 1), container)
    for slot, value in case.a.items():
        a[0, 0, slot] = code_of(i.a, value)
    for row, value in case.b.items():
        b[0, row, 0] = code_of(i.b, value)
    c = np.full((1, 1, 1), code_of(i.c, case.c), CONTAINERS[i.c.bits])
    nibbles = np.full((1, 1, i.chunks), 0b0100, np.uint8)
    for chunk, nibble in case.nibbles.items():
        nibbles[0, 0, chunk] = nibble
    scales = []
    for codes in (case.scale_a, case.scale_b):
        one = i.scale_format.bias << i.scale_format.fraction_bits if i.scale_format else 0
        scales.append(np.full((1, 1, i.scale_size or 0), one, np.uint8))
        for place, scale in codes.items():
            scales[-1][0, 0, place] = scale
    return config, *words_of(config, i, ARCHITECTURES[config.name], MatrixOperands(a, b, c, nibbles, *scales))


def sample(case: Case) -> StepCoverage:
    config, *step_and_result = built(case)
    coverage = StepCoverage(config)
    coverage.sample(*step_and_result)
    results = coverage.coverage[config.name, "results"]
    assert (results.hits.sum(), results.contradictions) == (1, 0)
    return coverage


def reached(coverage: StepCoverage, group: str) -> set[str]:
    result = coverage.coverage[coverage.config.name, group]
    assert not result.contradictions, result.contradicted()
    return {*result.names(result.hits > 0)}

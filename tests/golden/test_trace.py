"""The trace of a step: that watching changes nothing, and that what is traced adds up to the result."""

import numpy as np
import pytest
from sptc.golden.accumulator import decode_accumulator
from sptc.golden.decode import NARROW, WIDE, Precision, Scales, Terms, decode, decode_scale, precision_for
from sptc.golden.fused import fused_step
from sptc.golden.grouped import grouped_step
from sptc.golden.rounding import round_sum
from sptc.golden.trace import Trace
from sptc.isa.formats import FORMATS
from sptc.isa.instructions import ARCHITECTURES, Instruction, every_instruction, parse
from sptc.isa.numerics import BLOCK_GROUP, Method, numerics
from sptc.operands.registers import CONTAINERS
from sptc.sim.benches.random_operands import FLOAT_DISTRIBUTIONS, random_codes

Random = np.random.Generator
F16 = parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
NVF4 = parse("mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3")


def traced(
    i: Instruction, arch: str, a: Terms, b: Terms, c: np.ndarray, precision: Precision, scales: Scales | None = None
) -> Trace:
    """Return the trace of a step whose result is the same, to the bit, as without one."""
    parameters, found = numerics(i, arch), []
    results = []
    for traces in (None, found):
        given = Terms(b.values.copy(), b.exponents, b.classes)
        if parameters.method is Method.GROUPED:
            assert scales
            results.append(grouped_step(a, given, c, i.c, parameters, scales, traces))
        else:
            results.append(fused_step(a, given, c, i.c, parameters, precision, scales, traces))
    (trace,) = found
    assert trace.result is results[1]
    np.testing.assert_array_equal(*results)
    return trace


def check(trace: Trace, i: Instruction, arch: str) -> None:
    """Hold every quantity of a trace against those that it follows from."""
    parameters = numerics(i, arch)
    lowest = np.full_like(trace.e_max, parameters.zero_exponent)
    highest = np.where(trace.participates, trace.exponents, lowest).max(axis=0)
    c_exponents = np.where(trace.c_participates, trace.c_exponents, lowest)
    np.testing.assert_array_equal(trace.e_max, np.maximum(lowest, np.maximum(highest, c_exponents)))
    assert not trace.aligned[~trace.participates].any()
    np.testing.assert_array_equal(trace.truncated, np.trunc(trace.aligned))
    np.testing.assert_array_equal(trace.c_truncated, np.trunc(trace.c_aligned))
    total = trace.truncated.sum(axis=0) + trace.c_truncated
    np.testing.assert_array_equal(trace.total, np.ldexp(total, trace.e_max - parameters.alignment_bits))
    wanted = np.where(trace.ordinary, round_sum(trace.total.copy(), parameters.rounding), trace.special)
    np.testing.assert_array_equal(trace.result, wanted)


def of_each_format(arch: str) -> list[Instruction]:
    """Return an instruction of every set of float formats and scales that an architecture takes by itself."""
    found: dict[tuple[object, ...], Instruction] = {}
    for i in every_instruction():
        own = arch in i.architectures and numerics(i, arch).method in (Method.FUSED, Method.GROUPED)
        if own:
            found.setdefault((i.a, i.b, i.d, i.container_bits, i.scale_format), i)
    return [*found.values()]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_trace_adds_up(rng: Random, arch: str) -> None:
    """Of every format, any operands, outputs in rows and columns and in a line; both precisions where both hold it."""
    for i in of_each_format(arch):
        slots, kinds = numerics(i, arch).step, rng.permutation(FLOAT_DISTRIBUTIONS)[:3].tolist()
        for kind in kinds:
            shape = ((4, 3), (7,))[int(rng.integers(2))]
            codes = [random_codes(fmt, kind, (slots, *shape), rng) for fmt in (i.a, i.b)]
            c = decode_accumulator(random_codes(i.c, kind, shape, rng).astype(CONTAINERS[i.c.bits]))
            scales = None
            if i.scale_format:
                groups = slots // BLOCK_GROUP if numerics(i, arch).method is Method.GROUPED else 1
                parts = [
                    decode_scale(rng.integers(0, 256, (groups, *shape), dtype=np.uint8), i.scale_format) for _ in "ab"
                ]
                scales = Scales(parts[0][0] * parts[1][0], (parts[0][1] + parts[1][1]).astype(np.int32))
            results = []
            for precision in {precision_for(i.a, i.b), WIDE}:
                a, b = (decode(code, fmt, precision) for code, fmt in zip(codes, (i.a, i.b), strict=True))
                if a.classes is not None or b.classes is not None:
                    a, b = a.with_classes(), b.with_classes()
                trace = traced(i, arch, a, b, c, precision, scales)
                check(trace, i, arch)
                results.append(trace)
            first, last = results[0], results[-1]
            for name in ("participates", "e_max", "truncated", "total", "special", "result"):
                np.testing.assert_array_equal(getattr(first, name), getattr(last, name), err_msg=f"{i} {kind} {name}")


def terms(fmt: str, *values: float, precision: Precision = NARROW) -> Terms:
    codes = np.array(values, np.float16).view(np.uint16) if fmt == "f16" else np.array(values, np.uint8)
    return decode(codes.reshape(-1, 1), FORMATS[fmt], precision)


def test_quantities_of_a_step() -> None:
    """2.25, not normalised, beside a subnormal and 2**20: F is 25."""
    a, b = terms("f16", 1.5, 2.0**-24, 0.0, 2.0**10), terms("f16", 1.5, -(2.0**-14), 1.0, 2.0**10)
    trace = traced(F16, "sm_90", a, b, np.array([-(2.0**-5) - 2.0**-6], np.float32), NARROW)
    assert trace.participates.ravel().tolist() == [True, True, False, True]
    assert trace.exponents[trace.participates].tolist() == [0, -28, 20]
    assert (trace.c_exponents.item(), trace.c_participates.item(), trace.e_max.item()) == (-5, True, 20)
    assert trace.aligned.ravel().tolist() == [72.0, -(2.0**-33), 0.0, 2.0**25]
    assert trace.truncated.ravel().tolist() == [72, 0, 0, 2**25]
    assert (trace.c_aligned.item(), trace.c_truncated.item()) == (-1.5, -1.0)
    assert trace.total.item() == (2**25 + 71) / 32
    assert trace.result.item() == (2**25 + 68) / 32  # 24 bits of the sum


@pytest.mark.parametrize(("c", "ordinary"), [(1.0, True), (np.inf, False), (-np.inf, False), (np.nan, False)])
def test_a_special_accumulator(c: float, ordinary: bool) -> None:
    one = terms("f16", 1.0)
    trace = traced(F16, "sm_90", one, one, np.array([c], np.float32), NARROW)
    assert (trace.ordinary.item(), trace.c_participates.item(), trace.total.item()) == (
        ordinary,
        ordinary,
        1 + ordinary,
    )
    np.testing.assert_array_equal(trace.result, np.float32([2.0 if ordinary else c]))


def test_a_group_that_cancels_participates() -> None:
    """Unlike one whose products are zero, and one whose scale is; a NaN scale makes the result NaN."""
    two = terms("e2m1", *[4, 12, *[0] * 14, *[0] * 16, *[4] * 16, *[4] * 16])  # 4 is 2.0, 12 is -2.0
    ones = terms("e2m1", *[2] * 64)
    scale = np.array([8, 8, 0, 1], np.uint8).reshape(-1, 1) * np.uint8(7)
    significands, exponents = decode_scale(scale, FORMATS["ue4m3"])
    scales = Scales(significands, exponents.astype(np.int32))
    trace = traced(NVF4, "sm_120", two, ones, np.zeros(1, np.float32), NARROW, scales)
    assert trace.participates.ravel().tolist() == [True, False, False, True]
    assert (trace.e_max.item(), trace.result.item()) == (0, 32 * 7 * 2.0**-9)
    nan = Scales(np.where(scale == 0, np.nan, significands), exponents.astype(np.int32))
    trace = traced(NVF4, "sm_120", two, ones, np.zeros(1, np.float32), NARROW, nan)
    assert not trace.ordinary.any()
    assert np.isnan(trace.result).all()

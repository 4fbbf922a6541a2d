"""Checks of traced steps: every field is computed again from the operands' codes, in exact integers."""

import re
from functools import lru_cache

import numpy as np
from sptc.isa.formats import FORMATS, Format, Specials
from sptc.isa.instructions import Instruction
from sptc.isa.numerics import Method, numerics
from sptc.isa.operands import MatrixOperands
from sptc.verify.trace import OutputTrace, Product, Step, Term


@lru_cache(maxsize=1 << 18)
def fields_of(code: int, fmt: Format) -> tuple[int, int, int] | float:
    """Return signed significand, exponent of the last bit and exponent of a code; for Inf and NaN, return the float."""
    top = (1 << fmt.exponent_bits) - 1
    fraction, field = code & (1 << fmt.fraction_bits) - 1, code >> fmt.fraction_bits & top
    negative = bool(fmt.signed and code >> fmt.fraction_bits + fmt.exponent_bits & 1)
    if fmt.specials is Specials.IEEE and field == top:
        return float("nan") if fraction else float("-inf" if negative else "inf")
    if fmt.specials is Specials.NAN and field == top and fraction == (1 << fmt.fraction_bits) - 1:
        return float("nan")
    hidden = int(field > 0) if fmt.subnormals else 1
    exponent = max(field, int(fmt.subnormals)) - fmt.bias
    significand = fraction | hidden << fmt.fraction_bits
    return (-significand if negative else significand), exponent - fmt.fraction_bits, exponent


def widened(code: int, fmt: Format) -> tuple[int, int, int] | float:
    """Return the fields, as :func:`fields_of` does, of an fp8 code after conversion to f16."""
    fields = fields_of(code, fmt)
    if isinstance(fields, float) or not fields[0]:
        return fields
    significand, last, _ = fields
    return significand, last, max(abs(significand).bit_length() - 1 + last, FORMATS["f16"].minimum_exponent)


def truncated(significand: int, places: int) -> int:
    """Return a significand shifted left by `places` bits. Negative `places` shift right, and truncate toward zero."""
    magnitude = abs(significand) << places if places >= 0 else abs(significand) >> -places
    return -magnitude if significand < 0 else magnitude


def rounded(total: int, unit: int, rounding: str) -> float:
    """Return total * 2**unit, rounded once in the given rounding mode."""
    fmt = FORMATS["f16" if rounding == "RNE-f16" else "f32"]
    bits = 13 if rounding == "RZ-E8M13" else fmt.fraction_bits
    magnitude = abs(total)
    if not magnitude:
        return 0.0
    last = max(magnitude.bit_length() - 1 + unit, fmt.minimum_exponent) - bits
    drop = last - unit
    kept = magnitude >> drop if drop > 0 else magnitude << -drop
    if rounding == "RNE-f16" and drop > 0:
        rest, half = magnitude & (1 << drop) - 1, 1 << drop - 1
        kept += rest > half or (rest == half and kept & 1)
    value = float(np.ldexp(float(kept), last))
    value = np.inf if value >= 2.0 ** (fmt.maximum_exponent + 1) else value
    return -value if total < 0 and value else value


def code_of(value: float, bits: int) -> int:
    if np.isnan(value):
        return 0x7FFF if bits == 16 else 0x7FFFFFFF
    return int(np.array([value], np.float16 if bits == 16 else np.float32).view(f"u{bits // 8}")[0])


def check_product(product: Product, i: Instruction, emulated: bool) -> tuple[int, int, int] | float:
    """Check a traced product against the codes of both factors. Return its fields in the form of :func:`fields_of`."""
    factors = ((product.a, i.a), (product.b, i.b))
    if i.a.is_integer:
        values = []
        for code, fmt in factors:
            code &= (1 << fmt.bits) - 1
            values.append(code - (1 << fmt.bits) if fmt.signed and code >> fmt.bits - 1 else code)
        assert product.value == values[0] * values[1]
        return product.value, 0, 0
    read_code = widened if emulated else fields_of
    a, b = (read_code(code >> i.low_bit(fmt) & (1 << fmt.bits) - 1, fmt) for code, fmt in factors)
    if isinstance(a, float) or isinstance(b, float):
        numbers = [x if isinstance(x, float) else float(np.sign(x[0])) for x in (a, b)]
        with np.errstate(invalid="ignore"):
            expected = float(np.float64(numbers[0]) * np.float64(numbers[1]))
        np.testing.assert_equal(product.value, expected)
        return expected
    result = a[0] * b[0], a[1] + b[1], a[2] + b[2]
    assert product.value == float(np.ldexp(float(result[0]), result[1]))
    return result


def check_term(term: Term, number: tuple[int, int, int], e_max: int, bits: int, participates: bool) -> None:
    significand, last, exponent = number
    assert term.value == float(np.ldexp(float(significand), last))
    assert term.exponent == (exponent if participates else None)
    assert term.shift == (min(e_max - exponent, bits + 2) if participates else None)
    kept = truncated(significand, last - e_max + bits)
    assert term.kept == kept
    assert term.cut == float(np.ldexp(float(significand), last - e_max + bits)) - kept


def check_selected(product: Product, i: Instruction, b: np.ndarray) -> None:
    """Check that the multiplied element of B is in the row, or in the two rows, that the trace states as selected."""
    if product.selected == "none":
        assert product.b == 0
    elif product.selected.isdigit():
        assert product.b == b[int(product.selected)]
    else:
        expected = 0
        for place, word in enumerate(product.selected.split(" and ")):
            if half := re.fullmatch(r"half (\d+)", word):
                row, upper = divmod(int(half[1]), 2)
                expected |= (int(b[row]) >> 16 * upper & 0xFFFF) << 16 * place
        assert product.b == expected
    if product.nibble is not None and i.granularity and product.selected.isdigit():
        chunk = product.element // i.granularity.stored
        assert product.chunk == chunk == int(product.selected) // i.granularity.logical


def check_float_step(step: Step, i: Instruction, arch: str, scales: list[tuple[float, int]]) -> None:
    p = numerics(i, arch)
    emulated = p.method is Method.EMULATED
    products = [check_product(product, i, emulated) for product in step.products]
    c = fields_of(step.c, i.c)
    special = [x for x in [*products, c] if isinstance(x, float)]
    if special or any(np.isnan(significand) for significand, _ in scales):
        with np.errstate(invalid="ignore"):
            expected = np.nan if any(np.isnan(s) for s, _ in scales) else float(np.sum(np.array(special)))
        assert (step.e_max, step.total) == (None, None)
        assert step.d == code_of(expected, i.d.bits)
        return
    numbers = [x for x in products if not isinstance(x, float)]
    if p.method is Method.GROUPED:
        least = min(last for _, last, _ in numbers)
        groups = []
        for g, (significand, exponent) in enumerate(scales):
            members = numbers[16 * g : 16 * g + 16]
            whole = sum(s << last - least for s, last, _ in members)
            participates = any(s for s, _, _ in members) and significand != 0
            groups.append(((whole * int(significand * 64), least + exponent - 6, exponent), participates))
    else:
        ((_, offset),) = scales or [(1.0, 0)]
        groups = [((s, last + offset, e + offset), s != 0) for s, last, e in numbers]
    assert not isinstance(c, float)
    groups.append((c, c[0] != 0))
    e_max = max([p.zero_exponent, *(number[2] for number, participates in groups if participates)])
    assert (step.e_max, step.alignment_bits, step.rounding) == (e_max, p.alignment_bits, p.rounding.value)
    for term, (number, participates) in zip(step.terms, groups, strict=True):
        check_term(term, number, e_max, p.alignment_bits, participates)
    assert step.total == sum(term.kept or 0 for term in step.terms)
    assert step.d == code_of(rounded(step.total, e_max - p.alignment_bits, step.rounding), i.d.bits)


def scales_of(step: Step, i: Instruction, operands: MatrixOperands, place: tuple[int, int, int]) -> list:
    """Return, for each group of products of a step, significand and exponent of the product of the two block scales."""
    if i.scale_format is None:
        return []
    tile, row, column = place
    size = 16 if i.a.name == "e2m1" and i.kind in ("mxf4", "mxf4nvf4") else len(step.products)
    results = []
    for first in range(0, len(step.products), size):
        span = step.products[first].element * (2 if i.sparse else 1) // i.span
        parts = [
            fields_of(int(code) & (1 << i.scale_format.bits) - 1, i.scale_format)
            for code in (operands.scale_a[tile, row, span], operands.scale_b[tile, column, span])
        ]
        if any(isinstance(x, float) for x in parts):
            results.append((float("nan"), 0))
        else:
            significand = float(np.prod([float(np.ldexp(float(s), last - e)) for s, last, e in parts]))
            results.append((significand, sum(e for _, _, e in parts)))
    return results


def check_trace(found: OutputTrace, i: Instruction, arch: str, operands: MatrixOperands, place: tuple) -> None:
    tile, row, column = place
    emulated = numerics(i, arch).method is Method.EMULATED
    for step in found.steps:
        for product in step.products:
            check_selected(product, i, operands.b[tile, :, column])
            assert product.a == operands.a[tile, row, product.element]
            if product.chunk is not None and operands.nibbles is not None:
                assert product.nibble == operands.nibbles[tile, row, product.chunk]
    assert sorted(product.element for step in found.steps for product in step.products) == [*range(i.stored_k)]
    c = int(operands.c[place])
    if i.a.is_integer:
        (step,) = found.steps
        total = sum(check_product(product, i, emulated=False)[0] for product in step.products)  # type: ignore[index]
        total += c - (c >> 31 << 32)
        assert step.total == total
        assert (step.c, step.terms[0].kept) == (c, c - (c >> 31 << 32))
        assert found.d == step.d == (min(max(total, -(2**31)), 2**31 - 1) if i.satfinite else total) & 0xFFFFFFFF
        return
    at = 0 if emulated else c
    assert found.added == (c if emulated else None)
    for step in found.steps:
        assert step.c == at
        check_float_step(step, i, arch, scales_of(step, i, operands, place))
        at = step.d
    if not emulated:
        assert found.d == at

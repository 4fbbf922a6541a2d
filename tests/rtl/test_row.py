"""A row has only the submodules that its formats need, and right results for any widths."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.golden.matrix import multiply
from sptc.isa.formats import Format
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.numerics import Method, Numerics, Rounding, numerics, zero_exponent_for
from sptc.rtl.config import BLOCK_SCALES, CoreConfig
from sptc.rtl.convert import to_rtlil
from sptc.rtl.row import Row
from sptc.rtl.scale import ExponentOffset, GroupScale
from sptc.sim.benches.random_operands import distributions
from sptc.sim.engine.engine import Engine
from sptc.tests.sim.matrices import matrices

Random = np.random.Generator
WORDS = ("f16", "bf16", "tf32", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "e2m1/4", "s8", "u8", "s4", "u4")


def single(word: str, **fields: object) -> CoreConfig:
    scales = BLOCK_SCALES if word == "e2m1/4" else ()
    return CoreConfig(**{"name": word, "formats": (word,), "scales": scales, **fields})


@lru_cache(maxsize=32)
def netlist(config: CoreConfig) -> dict[str, str]:
    """Return the RTLIL text of each module of a row, by its path. Modules without logic are left out."""
    bodies = re.findall(r"^module \\(\S+)$(.*?)^end$", to_rtlil(Row(config), "row"), re.MULTILINE | re.DOTALL)
    return {re.sub(r"\$\d*", "", path): body for path, body in bodies}


def little(*words: str) -> dict[str, int]:
    """Return `step_bytes` of a small step: 16 bytes (two groups) with 4-bit formats, else 4 bytes."""
    return {"step_bytes": 16 if {"s4", "u4", "e2m1/4"} & {*words} else 4}


#: Names of submodules: a stage has the name of its cut. A stage that only passes its inputs on has no module.
EVERY_UNIT = {"decode", "metadata", "unit", "select", "select0", "select1", "unpack_a", "unpack_b"} | {
    *("multiply", "multiplier", "reduce", "tree", "adder", "round")
}
FLOAT_STAGES = {"accumulator", "offset", "floor", "align", "align_c", "leading", "increment"}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("word", WORDS)
def test_one_format_alone_builds_nothing_of_the_others(word: str) -> None:
    config = single(word, **little(word))
    (element,) = config.elements
    expected = EVERY_UNIT | (FLOAT_STAGES if not element.format.is_integer else set())
    groups = config.slots // 16 if element.container_bits == 4 else 0
    if element.packed_float:
        expected |= {"group", "scales", "e_max", "align_group"}
    elif groups:
        expected |= {"align", "group"}
    elif not element.fixed_point:
        expected |= {"format_a", "format_b"}
        if word != "tf32":  # a step of 4 bytes has a single product of tf32
            expected |= {"largest_of_products"}
    # Number of submodules of each kind in the row, at any depth.
    result = Counter(re.sub(r"_?\d+$", "", path.rpartition(".")[2]) for path in netlist(config) if "." in path)
    assert set(result) == expected
    # The stage and its slot multipliers are all named `multiply`, so the name occurs once more than there are slots.
    assert result["multiply"] - 1 == result["multiplier"] == result["unpack_a"] == result["unpack_b"] == config.slots
    assert result["align"] == ("align" in expected) + (0 if element.fixed_point else config.slots)
    assert result["tree"] == 1 + groups
    assert result["group"] == groups


@pytest.mark.parametrize(("word", "shifts", "clamps"), [("s8", False, True), ("f16", True, False)])
def test_the_rounding_of_one_format(word: str, shifts: bool, clamps: bool) -> None:
    body = netlist(single(word, **little(word)))["row.unit.round"]
    assert bool(re.search(r"^  cell \$s?shl ", body, re.MULTILINE)) == shifts
    assert (("32'1" + 31 * "0") in body) == clamps


def test_only_scales_held_are_built() -> None:
    """Logic for a scale format is built only if the datapath has the format. ue8m0 needs no multiplier."""

    def built(component: type[ExponentOffset | GroupScale], word: str, *scales: str) -> int:
        return to_rtlil(component(single(word, scales=scales)), "top").count("\n  cell $")

    assert built(ExponentOffset, "e4m3") < built(ExponentOffset, "e4m3", "ue8m0")
    both = built(GroupScale, "e2m1/4", *BLOCK_SCALES)
    assert built(GroupScale, "e2m1/4", "ue8m0") < built(GroupScale, "e2m1/4", "ue4m3") < both


def check_instruction(engine: Engine, i: Instruction, shape: tuple[int, int], distribution: str, rng: Random) -> None:
    """Compare the results of an instruction with the golden model. Its metadata nibbles are legal in all rules."""
    operands = matrices(i, (1, *shape), "mid" if distribution in ("least", "lone") else distribution, rng)
    a, b, c = operands.a, operands.b, operands.c
    if distribution == "least":  # only one nonzero product, whose result is subnormal
        low = max(0, i.a.bias - 75)
        high = max(low, i.a.bias - 62, 0) + 4
        a, b = (with_exponents(codes, i.a, i.low_bit(i.a), low, high, rng) for codes in (a, b))
        a[:, :, 1:], c = 0, np.zeros_like(c)
    elif distribution == "lone":  # one small product, other products of zero and a large number, and any accumulator
        a = with_exponents(a, i.a, i.low_bit(i.a), 1, 3, rng)
        b = with_exponents(b, i.b, i.low_bit(i.b), 1, (1 << i.b.exponent_bits) - 1, rng)
        a[:, :, 1:] = 0
        ranges = ((1, 2 * i.c.bias + 1), (i.c.bias - 8, i.c.bias + 8), (1, 2))
        c = with_exponents(c, i.c, 0, *ranges[rng.integers(3)], rng)
    if operands.nibbles is not None:
        operands.nibbles[:] = 0b1110
    operands = replace(operands, a=a, b=b, c=c)
    expected = multiply(i, i.architectures[-1], operands)
    np.testing.assert_array_equal(engine.multiply(i, operands).d, expected, err_msg=f"{i}, {distribution}")


def with_exponents(codes: NDArray, fmt: Format, low_bit: int, low: int, high: int, rng: Random) -> NDArray:
    """Return codes with random exponent fields from `low` up to, but not including, `high`."""
    field = rng.integers(low, high, codes.shape).astype(codes.dtype)
    place = low_bit + fmt.fraction_bits
    return codes & ~codes.dtype.type(((1 << fmt.exponent_bits) - 1) << place) | field << codes.dtype.type(place)


def numerics_of(config: CoreConfig) -> Callable[[Instruction, str], Numerics]:
    """Return a stand-in for `numerics` that returns the parameters of a given datapath, for any architecture."""

    def rules(i: Instruction, arch: str) -> Numerics:
        short = i.container_bits == 8 and config.fp8_alignment_bits < config.alignment_bits
        bits, half, grouped = config.alignment_bits, i.d.name == "f16", i.container_bits == 4
        method = Method.INTEGER if i.a.is_integer else Method.GROUPED if grouped else Method.FUSED
        kept = config.block_alignment_bits if grouped else bits
        return replace(
            numerics(i, arch),
            method=method,
            step=config.step_bytes * 8 // i.container_bits,
            alignment_bits=config.fp8_alignment_bits if short else kept,
            zero_exponent=zero_exponent_for(kept, half_result=half, grouped=grouped),
            rounding=Rounding.RNE_F16 if half else Rounding.RZ_E8M13 if short else Rounding.RZ_F32,
        )

    return rules


#: Small versions of preset datapaths: one with fewer alignment bits for fp8, one with block scales.
LITTLE = [
    CoreConfig(name="short", formats=("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"), step_bytes=16,
               fp8_alignment_bits=13, cuts=()),
    CoreConfig(name="scaled", formats=("e4m3", "s8", "e2m1", "e2m1/4", "s4"), scales=BLOCK_SCALES,
               step_bytes=16, cuts=()),
]  # fmt: skip
#: Element format, number of bytes per step, and number of alignment bits of datapaths with a single format.
ALONE = [
    *((word, 16, 25) for word in WORDS),
    *((word, 16, 24) for word in ("f16", "bf16", "tf32")),
    *((word, 32, 25) for word in ("f16", "tf32", "e4m3", "s8", "e2m1/4")),
]
OTHERS = [
    *(pytest.param(single(word, step_bytes=size, alignment_bits=bits, fp8_alignment_bits=bits, cuts=()),
                   marks=pytest.mark.regression, id=f"{word}-{size}-{bits}") for word, size, bits in ALONE),
    *(pytest.param(CoreConfig(name=name, **fields), marks=pytest.mark.regression, id=name)
    for name, fields in {
        "long": {"formats": ("tf32", "bf16", "s8"), "step_bytes": 16, "alignment_bits": 40},
        "least": {"formats": ("f16", "u8"), "step_bytes": 16, "alignment_bits": 20, "fp8_alignment_bits": 20},
        "low": {"formats": ("e5m2", "e2m1"), "alignment_bits": 12, "fp8_alignment_bits": 8, "cuts": ()},
        "far": {"formats": ("bf16", "e2m1/4"), "scales": ("ue4m3",), "alignment_bits": 14, "fp8_alignment_bits": 14,
                "block_alignment_bits": 40},
        "near": {"formats": ("e2m1/4", "u4"), "scales": ("ue8m0",), "step_bytes": 16, "alignment_bits": 8,
                 "fp8_alignment_bits": 8, "block_alignment_bits": 8},
    }.items()),
]  # fmt: skip


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("config", [*LITTLE, *OTHERS], ids=lambda config: config.name)
def test_other_widths(rng: Random, monkeypatch: pytest.MonkeyPatch, config: CoreConfig) -> None:
    """A datapath with unusual parameters equals the golden model with the same parameters, for any operands."""
    monkeypatch.setattr("sptc.golden.matrix.numerics", numerics_of(config))
    engine = Engine(config, "amaranth")
    actual = {(i.a, i.d, bool(i.sparse)): i for i in every_instruction("mma") if config.holds(i) and i.a == i.b}
    assert {i.a for i in actual.values()} == {element.format for element in config.elements}
    count, shape = (1, (1, 1)) if config in LITTLE else (3, (1, 2))
    for i in actual.values():
        few = [] if i.a.is_integer else ["least"] if i.sparse else ["least", "lone", "lone"]
        for distribution in [*rng.permutation(distributions(i))[:count].tolist(), *few]:
            check_instruction(engine, i, shape, distribution, rng)

"""Properties of the golden model that hold for any operands, whatever the numerics parameters."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sptc.golden.matrix import multiply
from sptc.isa.fragments import a_fragment, accumulator_fragment, b_fragment
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.metadata import Granularity
from sptc.isa.numerics import BLOCK_GROUP, Method, numerics
from sptc.isa.operands import MatrixOperands
from sptc.operands.registers import from_registers, unpack_nibbles, unpack_scales
from sptc.sim.benches.random_operands import FLOAT_DISTRIBUTIONS, Operands, distributions, random_operands

MMA = sorted(every_instruction("mma"), key=str)
SPARSE = [instruction for instruction in MMA if instruction.sparse]
FINITE = [name for name in FLOAT_DISTRIBUTIONS if name not in ("special", "bits")]
SEEDS = st.integers(0, 2**32 - 1)


def examples(count: int) -> settings:
    """Return settings for so many examples in the regression, and a part in the quick tier."""
    part = max(1, count * settings.default.max_examples // 150)
    return settings(max_examples=part, deadline=None, print_blob=True)


@st.composite
def instructions(draw: st.DrawFn, choices: list[Instruction] = MMA) -> tuple[Instruction, str, str]:
    """Draw an instruction, an architecture that has it, and a distribution that fits it."""
    name, kind = draw(st.sampled_from(sorted({(i.a.name, i.kind) for i in choices})))
    instruction = draw(st.sampled_from([i for i in choices if (i.a.name, i.kind) == (name, kind)]))
    arch = draw(st.sampled_from(instruction.architectures))
    return instruction, arch, draw(st.sampled_from(distributions(instruction)))


def matrices(operands: Operands, instruction: Instruction) -> dict[str, NDArray]:
    """Return operands as the matrices that ``multiply`` takes."""
    found = {
        "a": from_registers(operands.a, a_fragment(instruction)),
        "b": from_registers(operands.b, b_fragment(instruction)),
        "c": from_registers(operands.c, accumulator_fragment(instruction)),
    }
    if operands.e is not None:
        found["nibbles"] = unpack_nibbles(operands.e, instruction, operands.sparsity_selector)
    for name, scale in (("scale_a", operands.scale_a), ("scale_b", operands.scale_b)):
        if scale is not None:
            found[name] = unpack_scales(scale[0], instruction, name[-1], *scale[1:])
    return found


def granularity_of(instruction: Instruction) -> Granularity:
    assert instruction.granularity
    return instruction.granularity


def selected_columns(nibbles: NDArray, granularity: Granularity) -> NDArray[np.intp]:
    """Return the logical column of every stored element under legal nibbles, shape (..., m, stored K)."""
    units = np.stack([nibbles & 3, nibbles >> 2], -1).astype(np.intp)
    if granularity.stored == 1:
        columns = units[..., :1] // 2
    elif granularity.stored == 4:
        columns = (2 * units[..., None] + np.arange(2)).reshape(*nibbles.shape, 4)
    else:
        columns = units
    starts = granularity.logical * np.arange(nibbles.shape[-1])
    return (columns + starts[:, None]).reshape(*nibbles.shape[:-1], -1)


def interchangeable_chunks(instruction: Instruction, arch: str) -> list[list[int]]:
    """Return sets of chunks whose order the hardware cannot see."""
    row, stored = numerics(instruction, arch), granularity_of(instruction).stored
    chunks = list(range(instruction.chunks))
    if row.method is Method.EMULATED:  # a step takes every second pair of slots
        return [chunks[::2], chunks[1::2]]
    length = (BLOCK_GROUP if row.method is Method.GROUPED else row.step) // stored
    return [chunks[start : start + length] for start in range(0, len(chunks), length)]


@given(case=instructions(SPARSE), seed=SEEDS, any_nibble=st.booleans())
@examples(500)
def test_order_inside_a_step_is_invisible(case: tuple[Instruction, str, str], seed: int, any_nibble: bool) -> None:
    instruction, arch, distribution = case
    rng = np.random.default_rng(seed)
    operands = matrices(random_operands(instruction, distribution, 2, rng, any_nibble=any_nibble), instruction)
    order = np.arange(instruction.chunks)
    for chunks in interchangeable_chunks(instruction, arch):
        order[chunks] = rng.permutation(chunks)
    granularity = granularity_of(instruction)
    by_chunk = {
        "a": operands["a"].reshape(2, instruction.m, -1, granularity.stored)[:, :, order].reshape(operands["a"].shape),
        "b": operands["b"].reshape(2, -1, granularity.logical, instruction.n)[:, order].reshape(operands["b"].shape),
        "nibbles": operands["nibbles"][:, :, order],
    }
    assert np.array_equal(
        multiply(instruction, arch, MatrixOperands(**operands)),
        multiply(instruction, arch, MatrixOperands(**operands | by_chunk)),
    )


@given(case=instructions(SPARSE), seed=SEEDS, poisoned=st.integers(1, 4))
@examples(500)
def test_unselected_b_has_no_effect(case: tuple[Instruction, str, str], seed: int, poisoned: int) -> None:
    """NaN, Inf or any bits in B change no output whose row of A does not select them."""
    instruction, arch, distribution = case
    rng = np.random.default_rng(seed)
    operands = matrices(random_operands(instruction, distribution, 2, rng), instruction)
    columns = selected_columns(operands["nibbles"], granularity_of(instruction))
    taken = np.zeros((2, instruction.m, instruction.k), bool)
    np.put_along_axis(taken, columns, True, axis=-1)
    ks = rng.choice(np.flatnonzero(~taken[0, 0]), poisoned, replace=False)
    poison = operands["b"].copy()
    fmt = instruction.b
    infinity = ((1 << fmt.exponent_bits) - 1) << fmt.fraction_bits
    nan = infinity | (1 << fmt.fraction_bits) - 1  # formats without one have the largest number there
    codes = np.array([nan, infinity, rng.integers(0, 1 << fmt.bits)]) << instruction.low_bit(fmt)
    poison[:, ks] = rng.choice(codes, (2, poisoned, instruction.n))
    unaffected = ~taken[:, :, ks].any(axis=-1)
    assert unaffected[0, 0]
    before = multiply(instruction, arch, MatrixOperands(**operands))
    after = multiply(instruction, arch, MatrixOperands(**operands | {"b": poison}))
    assert np.array_equal(before[unaffected], after[unaffected])


def pairs_of_one_step() -> list[tuple[Instruction, Instruction, str]]:
    """Return sparse and dense instructions that cover the same k in one step on an architecture."""
    dense = {(i.shape, i.a, i.b, i.d, i.satfinite, i.kind): i for i in MMA if not i.sparse and not i.scale_format}
    found = []
    for sparse in SPARSE:
        twin = dense.get((sparse.shape, sparse.a, sparse.b, sparse.d, sparse.satfinite, sparse.kind))
        if twin is None or sparse.scale_format:
            continue
        for arch in sparse.architectures:
            row = numerics(twin, arch)
            if row.method is Method.INTEGER or (row.method is Method.FUSED and row.step >= twin.k):
                found.append((sparse, twin, arch))
    return found


PAIRS = pairs_of_one_step()


@given(pair=st.sampled_from(PAIRS), distribution=st.sampled_from(FINITE), seed=SEEDS)
@examples(400)
def test_sparse_equals_dense_on_expanded_a(
    pair: tuple[Instruction, Instruction, str], distribution: str, seed: int
) -> None:
    """A product with a zero has no effect while every operand is finite."""
    sparse, dense, arch = pair
    distribution = "uniform" if sparse.a.is_integer else distribution
    operands = matrices(random_operands(sparse, distribution, 2, np.random.default_rng(seed)), sparse)
    expanded = np.zeros((2, sparse.m, sparse.k), operands["a"].dtype)
    np.put_along_axis(expanded, selected_columns(operands["nibbles"], granularity_of(sparse)), operands["a"], axis=-1)
    of_sparse = multiply(sparse, arch, MatrixOperands(**operands))
    of_dense = multiply(dense, arch, MatrixOperands(expanded, operands["b"], operands["c"]))
    assert np.array_equal(of_sparse, of_dense)

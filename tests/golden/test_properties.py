"""Properties of the golden model that hold for any operands, whatever the numerics parameters."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sptc import mma, wgmma
from sptc.golden.integer import expand
from sptc.golden.matrix import multiply
from sptc.golden.registers import CONTAINERS, pack, pack_nibbles, unpack, unpack_nibbles, unpack_scales
from sptc.golden.select import kept_rows
from sptc.isa.fragments import Fragment, a_fragment, accumulator_fragment, b_fragment
from sptc.isa.instructions import ARCHITECTURES, Instruction, every_instruction, parse
from sptc.isa.memory import decode_descriptor, operand_map
from sptc.isa.metadata import GRANULARITIES, RULES, Granularity
from sptc.isa.numerics import BLOCK_GROUP, Method, numerics
from sptc.isa.operands import MatrixOperands
from sptc.sim.benches.random_operands import FLOAT_DISTRIBUTIONS, Operands, distributions, random_operands

MMA = sorted(every_instruction("mma"), key=str)
SPARSE = [instruction for instruction in MMA if instruction.sparse]
FINITE = [name for name in FLOAT_DISTRIBUTIONS if name not in ("special", "bits")]
#: Their operand selectors are two 4:1 multiplexers, which know no undefined nibble.
MUX4_ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90")
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
        "a": unpack(operands.a, a_fragment(instruction)),
        "b": unpack(operands.b, b_fragment(instruction)),
        "c": unpack(operands.c, accumulator_fragment(instruction)),
    }
    if operands.e is not None:
        found["nibbles"] = unpack_nibbles(operands.e, instruction, operands.sparsity_selector)
    for name, scale in (("scale_a", operands.scale_a), ("scale_b", operands.scale_b)):
        if scale is not None:
            found[name] = unpack_scales(scale[0], instruction, name[-1], *scale[1:])
    return found


def run(instruction: Instruction, arch: str, operands: Operands) -> NDArray[np.uint32]:
    return mma(
        str(instruction),
        operands.a,
        operands.b,
        operands.c,
        operands.e,
        operands.sparsity_selector,
        scale_a=operands.scale_a,
        scale_b=operands.scale_b,
        arch=arch,
    )


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


@given(case=instructions([i for i in SPARSE if i.sparse == "sp" and i.a.name != "tf32"]), seed=SEEDS)
@examples(300)
def test_slots_of_a_chunk_may_trade_places(case: tuple[Instruction, str, str], seed: int) -> None:
    instruction, arch, distribution = case
    rng = np.random.default_rng(seed)
    any_nibble = arch in MUX4_ARCHITECTURES
    operands = matrices(random_operands(instruction, distribution, 2, rng, any_nibble=any_nibble), instruction)
    swapped = {
        "a": operands["a"]
        .reshape(2, instruction.m, instruction.chunks, 2, -1)[:, :, :, ::-1]
        .reshape(operands["a"].shape),
        "nibbles": operands["nibbles"] >> 2 | (operands["nibbles"] & 3) << 2,
    }
    assert np.array_equal(
        multiply(instruction, arch, MatrixOperands(**operands)),
        multiply(instruction, arch, MatrixOperands(**operands | swapped)),
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


def compress(dense: NDArray[np.float32], granularity: Granularity) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Keep the units of every chunk that hold a non-zero, lowest first, padded with unused ones."""
    m, k = dense.shape
    chunks = dense.reshape(m, k // granularity.logical, granularity.logical)
    stored = np.zeros((*chunks.shape[:2], granularity.stored), np.float32)
    nibbles = np.zeros(chunks.shape[:2], np.uint8)
    for row, chunk in np.ndindex(nibbles.shape):
        values = chunks[row, chunk]
        if granularity.stored == 1:
            element = int(values[1] != 0)
            stored[row, chunk], nibbles[row, chunk] = values[element], (0b0100, 0b1110)[element]
            continue
        units = values.reshape(4, -1)
        used = [unit for unit in range(4) if units[unit].any()]
        i0, i1 = sorted((used + [unit for unit in range(4) if unit not in used])[:2])
        stored[row, chunk], nibbles[row, chunk] = units[[i0, i1]].ravel(), i0 | i1 << 2
    return stored.reshape(m, -1), nibbles


@given(name=st.sampled_from(sorted(GRANULARITIES)), seed=SEEDS, density=st.sampled_from([0.2, 0.6, 1.0]))
@examples(150)
def test_expand_undoes_compress(name: str, seed: int, density: float) -> None:
    granularity, m, k, rng = GRANULARITIES[name], 16, 64, np.random.default_rng(seed)
    units = 2 if granularity.stored == 1 else 4
    kept = 1 if granularity.stored == 1 else 2
    order = rng.permuted(np.tile(np.arange(units), (m, k // granularity.logical, 1)), axis=-1)
    mask = (order < kept).repeat(granularity.logical // units, axis=-1).reshape(m, k)
    dense = np.where(mask & (rng.random((m, k)) < density), rng.integers(-9, 10, (m, k)), 0).astype(np.float32)
    stored, nibbles = compress(dense, granularity)
    assert set(nibbles.ravel().tolist()) <= (RULES["tf32"].legal if units == 2 else RULES["ordered"].legal)
    assert np.array_equal(expand(stored, kept_rows(nibbles, granularity), k), dense)


@given(seed=SEEDS)
@examples(5)
def test_pack_and_unpack_are_inverse(seed: int) -> None:
    """For every instruction; a layout that several share is looked at once."""
    rng = np.random.default_rng(seed)
    seen = set()
    for instruction in every_instruction():
        fragments = [a_fragment(instruction), accumulator_fragment(instruction)]
        fragments += [b_fragment(instruction)] if instruction.family == "mma" else []
        for fragment in fragments:
            layout = (instruction.threads, fragment.shape, fragment.element_bits)
            if layout not in seen:
                seen.add(layout)
                check_fragment(fragment, instruction.threads, rng)
        metadata = (instruction.threads, instruction.container_bits, instruction.chunks)
        if instruction.sparse and metadata not in seen:
            seen.add(metadata)
            check_metadata(instruction, rng)
    assert len(seen) > 60


def check_fragment(fragment: Fragment, threads: int, rng: np.random.Generator) -> None:
    dtype = CONTAINERS[fragment.element_bits]
    matrix = rng.integers(0, 1 << fragment.element_bits, (2, *fragment.shape)).astype(dtype)
    registers = pack(matrix, fragment)
    assert registers.shape == (2, threads, fragment.registers)
    assert np.array_equal(unpack(registers, fragment), matrix)
    registers = rng.integers(0, 1 << 32, (2, threads, fragment.registers), dtype=np.uint32)
    assert np.array_equal(pack(unpack(registers, fragment), fragment), registers)


def check_metadata(instruction: Instruction, rng: np.random.Generator) -> None:
    for selector in range(instruction.sparsity_selectors):
        nibbles = rng.integers(0, 16, (2, instruction.m, instruction.chunks)).astype(np.uint8)
        others = rng.integers(0, 1 << 32, (2, instruction.threads), dtype=np.uint32)
        e = pack_nibbles(nibbles, instruction, selector, others)
        assert np.array_equal(unpack_nibbles(e, instruction, selector), nibbles)
        assert np.array_equal(
            pack_nibbles(unpack_nibbles(others, instruction, selector), instruction, selector, e), others
        )


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


def test_pairs_of_one_step_are_those_expected() -> None:
    texts = {(sparse.shape, sparse.a.name, arch) for sparse, _, arch in PAIRS if not sparse.a.is_integer}
    wide = ("sm_90", "sm_100", "sm_120")
    expected = {("m16n8k16", name, arch) for name in ("f16", "bf16") for arch in wide}
    assert texts == expected | {("m16n8k8", "tf32", arch) for arch in wide}
    integers = {(sparse.shape, sparse.a.name, arch) for sparse, _, arch in PAIRS if sparse.a.is_integer}
    shapes = {("m16n8k32", "s8"), ("m16n8k32", "u8"), ("m16n8k64", "s4"), ("m16n8k64", "u4")}
    assert integers == {(*shape, arch) for shape in shapes for arch in ARCHITECTURES}


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


@given(
    text=st.sampled_from([str(i) for i in MMA if i.a.name == "tf32"]),
    arch=st.sampled_from(ARCHITECTURES),
    distribution=st.sampled_from(FLOAT_DISTRIBUTIONS),
    seed=SEEDS,
)
@examples(200)
def test_low_bits_of_tf32_never_matter(text: str, arch: str, distribution: str, seed: int) -> None:
    instruction, rng = parse(text), np.random.default_rng(seed)
    operands = random_operands(instruction, distribution, 2, rng)
    flips = [rng.integers(0, 1 << 13, part.shape, dtype=np.uint32) for part in (operands.a, operands.b)]
    changed = replace(operands, a=operands.a ^ flips[0], b=operands.b ^ flips[1])
    assert np.array_equal(run(instruction, arch, operands), run(instruction, arch, changed))


@given(case=instructions(), seed=SEEDS)
@examples(200)
def test_batch_axes_broadcast(case: tuple[Instruction, str, str], seed: int) -> None:
    instruction, arch, distribution = case
    rng = np.random.default_rng(seed)
    whole = random_operands(instruction, distribution, 6, rng, sparsity_selector=instruction.sparsity_selectors - 1)
    rows, columns = slice(0, 2), slice(0, 3)
    batched = replace(
        whole,
        a=whole.a[rows, None],
        b=whole.b[columns],
        c=whole.c[0],
        e=None if whole.e is None else whole.e[rows, None],
        scale_a=whole.scale_a and (whole.scale_a[0][rows, None], *whole.scale_a[1:]),
        scale_b=whole.scale_b and (whole.scale_b[0][columns], *whole.scale_b[1:]),
    )
    d = run(instruction, arch, batched)
    assert d.shape == (2, 3, *whole.c.shape[1:])
    for row, column in np.ndindex(2, 3):
        alone = replace(
            whole,
            a=whole.a[row],
            b=whole.b[column],
            c=whole.c[0],
            e=None if whole.e is None else whole.e[row],
            scale_a=whole.scale_a and (whole.scale_a[0][row], *whole.scale_a[1:]),
            scale_b=whole.scale_b and (whole.scale_b[0][column], *whole.scale_b[1:]),
        )
        assert np.array_equal(d[row, column], run(instruction, arch, alone))


@given(case=instructions(), seed=SEEDS, locked=st.booleans())
@examples(250)
def test_operands_are_not_modified(case: tuple[Instruction, str, str], seed: int, locked: bool) -> None:
    instruction, arch, distribution = case
    operands = random_operands(instruction, distribution, 3, np.random.default_rng(seed))
    scales = [scale[0] for scale in (operands.scale_a, operands.scale_b) if scale]
    arrays = [array for array in (operands.a, operands.b, operands.c, operands.e, *scales) if array is not None]
    copies = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = not locked
    d = run(instruction, arch, operands)
    assert all(np.array_equal(array, copy) for array, copy in zip(arrays, copies, strict=True))
    assert not any(np.shares_memory(d, array) for array in arrays)


@given(text=st.sampled_from(sorted(str(i) for i in every_instruction("wgmma") if i.n == 8)), seed=SEEDS)
@examples(40)
def test_operands_of_wgmma_are_not_modified(text: str, seed: int) -> None:
    instruction, rng = parse(text), np.random.default_rng(seed)
    descriptor = (128 >> 4) << 16  # no swizzle, 128 bytes from one 16-byte column of B to the next
    size = operand_map(instruction, "b", decode_descriptor(descriptor)).addresses.max() + 4
    smem = rng.integers(0, 256, (3, size)).astype(np.uint8)
    shapes = [(f.rows.shape[0], f.registers) for f in (accumulator_fragment(instruction), a_fragment(instruction))]
    d, a, e = (rng.integers(0, 1 << 32, (3, *shape), dtype=np.uint32) for shape in (*shapes, (128,)))
    copies = [array.copy() for array in (d, a, e, smem)]
    metadata = {"e": e, "selector": 0} if instruction.sparse else {}
    result = wgmma(text, d, a, descriptor, **metadata, smem=smem, metadata="silicon")
    assert all(np.array_equal(array, copy) for array, copy in zip((d, a, e, smem), copies, strict=True))
    assert not np.shares_memory(result, d)

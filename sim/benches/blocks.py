"""Random inputs for benches of dot-product units (rows of A and columns of B), with the golden model's results.

The module does not depend on a simulator. Number formats, metadata rule, sparsity granularity and result type change
from block to block; metadata nibbles may be undefined.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...golden.matrix import multiply
from ...isa.formats import Format, Specials
from ...isa.instructions import Instruction, every_instruction
from ...isa.metadata import RULES, split_nibbles
from ...isa.operands import MatrixOperands
from ...operands.registers import CONTAINERS, random_nibbles
from ...rtl.config import WARP_COLUMNS, WARP_ROWS, CoreConfig
from ...rtl.metadata import RuleCode
from ...rtl.order import nibble_order
from ...rtl.step import control_layout, row_result_layout
from ..engine.steps import executes, step_count, step_words, steps_of
from .directed import directed_operands
from .random_operands import cancel, container, distributions, random_codes, special_codes

__all__ = ["ARCHITECTURE_OF_PRESET", "Block", "integer_results", "native", "random_blocks", "undefined_chunks"]

#: For each preset, an architecture whose instructions test the preset and use most formats of the preset.
ARCHITECTURE_OF_PRESET = {
    "ampere": "sm_80",
    "ada": "sm_89",
    "hopper": "sm_90",
    "blackwell": "sm_120",
    "rtx-blackwell": "sm_120",
    "tiny": "sm_80",
}
#: Fraction of float operand sets (A, B, C) in which each accumulator cancels its sum of products to at most one bit.
_RESIDUES = 0.2
#: Fraction of float operand sets (A, B, C) with exactly one special or huge element in each row of A and each column of
#: B. If a row had several such elements, one element could hide the effect of another.
_LONE = 0.25
#: Fraction of operand sets (A, B, C) in which nearly all elements have the largest magnitude and one sign, so that sums
#: approach the limit of the adder's range.
_LARGEST = 0.05
#: Fraction of float operand sets (A, B, C) in which many elements or scales differ in one bit from Inf or NaN, to test
#: that the Inf and NaN detectors examine all bits.
_NEARLY_SPECIAL = 0.2


@dataclass(frozen=True, eq=False)
class Block:
    """Dot products of one instruction in a bench: one for each pair of a row of A and a column of B."""

    name: str  #: Name in error messages: the instruction and the distribution of its operands
    #: Input words of each step, as :meth:`~sptc.sim.engine.steps.Steps.whole` packs them; shape (rows, columns, words).
    steps: NDArray[np.uint32]
    results: NDArray[np.uint64]  #: Expected result word of each step, shape (rows, columns)


@lru_cache(maxsize=8)
def native(config: CoreConfig, arch: str) -> tuple[Instruction, ...]:
    """Return every instruction that a datapath executes without emulation, with K reduced to that of one cycle.

    An instruction that takes several steps is cut to its first step. The fp8 instructions of sm_90 are those of
    ``wgmma``, since fp8 ``mma`` is emulated there.
    """
    by_use: dict[tuple[object, ...], Instruction] = {}
    for whole in every_instruction():
        if arch not in whole.architectures or not executes(config, whole, arch):
            continue
        steps = step_count(config, whole)
        scale_size = whole.scale_size // steps if whole.scale_size and steps > 1 else whole.scale_size
        instruction = replace(whole, k=whole.k // steps, m=WARP_ROWS, n=WARP_COLUMNS, scale_size=scale_size)
        key = (instruction.a, instruction.b, instruction.d, instruction.k, instruction.sparse, instruction.kind)
        by_use.setdefault((*key, instruction.satfinite, instruction.scale_format, scale_size), instruction)
    return tuple(by_use.values())


def random_blocks(
    config: CoreConfig, arch: str, rng: np.random.Generator, rows: int, columns: int, *, ordered: bool = True
) -> Iterator[Block]:
    """Yield the stored directed test operands that a datapath supports, then blocks of random operands without end.

    Each round of random blocks has one block for every instruction of the datapath, in random order. With `ordered`,
    the input words of the steps are those of a dot-product unit, otherwise those of an array of units.
    """
    instructions = native(config, arch)
    for instruction in instructions:
        for operands in directed_operands(instruction, rows, columns):
            yield _block(config, arch, instruction, rng, "directed", operands, ordered)
    while True:
        for place in rng.permutation(len(instructions)):
            instruction = instructions[place]
            distribution = str(rng.choice(distributions(instruction)))
            operands = _matrices(instruction, distribution, (rows, columns), rng)
            if not instruction.d.is_integer and rng.random() < _RESIDUES:
                operands = _with_residues(arch, instruction, operands, rng)
            yield _block(config, arch, instruction, rng, distribution, operands, ordered)


#: Accumulators and expected results, both as result words, shape (rows of A, columns of B).
_Outputs = tuple[NDArray[np.uint64], NDArray[np.uint64]]


def _block(
    config: CoreConfig,
    arch: str,
    instruction: Instruction,
    rng: np.random.Generator,
    distribution: str,
    operands: MatrixOperands,
    ordered: bool,
) -> Block:
    rows, columns = operands.c.shape[1:]
    (steps,) = steps_of(config, instruction, operands, ordered=ordered)
    words = step_words(config)
    outputs_of = _integer_outputs if instruction.d.is_integer else _float_outputs
    accumulators, results = outputs_of(arch, instruction, operands, rng)
    (step,) = steps.whole(accumulators[None])
    if not instruction.scale_format:
        step[..., words.scale_a] = rng.integers(0, 1 << 32, (rows, 1, 1))
        step[..., words.scale_b] = rng.integers(0, 1 << 32, (1, columns, 1))
    control = control_layout()
    rule = _any_rule(config, instruction, rng)
    noise = 0 if instruction.d.is_integer else int(rng.integers(2)) << control["saturate"].offset
    step[..., words.control] &= ~np.uint32(7 << control["rule"].offset)
    step[..., words.control] |= np.uint32(rule << control["rule"].offset | noise)
    flags = undefined_chunks(config, instruction, step[..., words.metadata], rule, ordered)
    flags <<= np.uint64(row_result_layout(config)["illegal"].offset)
    return Block(f"{instruction} {distribution}", step, results | flags)


def _matrices(
    instruction: Instruction, distribution: str, shape: tuple[int, int], rng: np.random.Generator
) -> MatrixOperands:
    """Return random operand matrices; stored bits that do not belong to an element are random, too."""
    rows, columns = shape

    def codes(fmt: Format, *shape: int) -> NDArray:
        drawn = random_codes(fmt, distribution, (1, *shape), rng)
        return container(instruction, fmt, drawn, rng).astype(CONTAINERS[instruction.container_bits])

    a, b = codes(instruction.a, rows, instruction.stored_k), codes(instruction.b, instruction.k, columns)
    if distribution == "cancelling":
        cancel(a, b, instruction.low_bit(instruction.a) + instruction.a.bits - 1)
    if rng.random() < _LARGEST:
        _enlarge(a, instruction, instruction.a, rng)
        _enlarge(b, instruction, instruction.b, rng)
    if not instruction.a.is_integer and rng.random() < _NEARLY_SPECIAL:
        # modify A or B, not both: most products of two numbers near the largest number overflow
        near, element = ((a, instruction.a), (b, instruction.b))[int(rng.integers(2))]
        _bring_near(near, element, instruction.low_bit(element), rng)
    c = random_codes(instruction.c, distribution, (1, rows, columns), rng).astype(CONTAINERS[instruction.c.bits])
    if not instruction.d.is_integer and rng.random() < _LONE:
        _plant(a, instruction, instruction.a, 2, rng)
        _plant(b, instruction, instruction.b, 1, rng)
    tile, any_nibble = replace(instruction, m=rows), rng.random() < 0.5
    nibbles = random_nibbles(tile, 1, rng, any_nibble=any_nibble) if instruction.rule else None
    scales: list[NDArray[np.uint8]] = []
    if fmt := instruction.scale_format:
        name, size = "bits" if rng.random() < 0.2 else "mid", instruction.scale_size or 0
        scales = [random_codes(fmt, name, (1, lines, size), rng).astype(np.uint8) for lines in (rows, columns)]
        if rng.random() < _NEARLY_SPECIAL:
            _bring_near(scales[int(rng.integers(2))], fmt, 0, rng)
    scale_a, scale_b = scales or (None, None)
    return MatrixOperands(a, b, c, nibbles, scale_a, scale_b)


def _integer_outputs(
    arch: str, instruction: Instruction, operands: MatrixOperands, rng: np.random.Generator
) -> _Outputs:
    accumulators = _integer_accumulators(operands.c.shape[1:], instruction.satfinite, rng)
    # The step under test may be any step of a longer instruction, so the golden model only supplies the unclamped sum
    # of products.
    unclamped = replace(instruction, satfinite=False)
    products = multiply(unclamped, arch, replace(operands, c=np.zeros_like(operands.c)))
    results = integer_results(accumulators + products[0].view(np.int32), instruction.satfinite)
    return integer_results(accumulators, False), results


def _float_outputs(arch: str, instruction: Instruction, operands: MatrixOperands, rng: np.random.Generator) -> _Outputs:
    """Return accumulators and results of float dot products; overflow bits and unused accumulator bits are random."""
    c = operands.c[0]
    overflow = rng.integers(0, 2, c.shape) << 32
    results = multiply(instruction, arch, operands)[0].astype(np.uint64)
    noise = rng.integers(0, 1 << 32, c.shape) >> instruction.c.bits << instruction.c.bits
    return (c | noise | overflow).astype(np.uint64), results


def _with_residues(
    arch: str, instruction: Instruction, operands: MatrixOperands, rng: np.random.Generator
) -> MatrixOperands:
    """Set each accumulator to minus its output's rounded sum of products, with a difference of at most one bit."""
    c = multiply(instruction, arch, replace(operands, c=np.zeros_like(operands.c)))
    c ^= c.dtype.type(1 << instruction.c.bits - 1)
    # After C cancels the sum of products, at most one bit remains. In half of the outputs, the remaining bit is the
    # lowest fraction bit; in all other outputs, it has a random position.
    place = rng.integers(-instruction.c.fraction_bits, instruction.c.fraction_bits + 1, c.shape).clip(0)
    c += (rng.integers(-1, 2, c.shape) << place).astype(c.dtype)
    return replace(operands, c=c)


def _enlarge(codes: NDArray, instruction: Instruction, fmt: Format, rng: np.random.Generator) -> None:
    """Set nearly all elements of an operand in place to the largest magnitude of the format, all with the same sign."""
    sign = int(rng.integers(1 + fmt.signed)) << fmt.bits - 1
    if fmt.is_integer:
        largest = sign or (1 << fmt.bits - fmt.signed) - 1
    else:
        fraction = (1 << fmt.fraction_bits) - 1 - (fmt.specials is Specials.NAN and fmt.fraction_bits > 0)
        largest = sign | fmt.maximum_exponent + fmt.bias << fmt.fraction_bits | fraction
    codes[rng.random(codes.shape) < rng.choice([0.95, 1.0])] = largest << instruction.low_bit(fmt)


def _bring_near(codes: NDArray, fmt: Format, low_bit: int, rng: np.random.Generator) -> None:
    """Replace half of the codes in place by codes that differ from Inf or NaN in one cleared bit, with random signs."""
    bits = fmt.exponent_bits + fmt.fraction_bits * (fmt.specials is Specials.NAN)
    free = fmt.exponent_bits + fmt.fraction_bits - bits
    near = (1 << bits) - 1 ^ 1 << rng.integers(0, bits, codes.shape)
    near = near << free | rng.integers(0, 1 << free, codes.shape)
    near |= rng.integers(0, 1 + fmt.signed, codes.shape) << fmt.bits - 1
    codes[...] = np.where(rng.random(codes.shape) < 0.5, near << low_bit, codes)


def _plant(codes: NDArray, instruction: Instruction, fmt: Format, axis: int, rng: np.random.Generator) -> None:
    """Write one zero, subnormal, Inf, NaN or huge element in place into each row of A or each column of B."""
    shape = tuple(1 if n == axis else size for n, size in enumerate(codes.shape))
    special = rng.random(shape) < 0.7
    lone = np.where(special, special_codes(fmt, shape, rng), random_codes(fmt, "huge", shape, rng))
    places = rng.integers(0, codes.shape[axis], shape)
    np.put_along_axis(codes, places, (lone << instruction.low_bit(fmt)).astype(codes.dtype), axis)


def _integer_accumulators(shape: tuple[int, int], saturate: bool, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return random integer accumulators within 32 bits, slightly beyond 32 bits, or near the ends of 33 bits.

    The sum of a step's products is at most 2**21 in magnitude. If results are not clamped, accumulators keep at least
    this distance from the ends of the 33-bit range, so that no sum leaves the range.
    """
    anywhere = rng.integers(-(1 << 31), 1 << 31, shape)
    ends = rng.choice([-(1 << 31), (1 << 31) - 1], shape) + rng.integers(-(1 << 18), 1 << 18, shape)
    inwards = rng.integers(0, 1 << rng.integers(1, 18, shape)) + (0 if saturate else 1 << 21)
    far = np.where(rng.integers(0, 2, shape), -(1 << 32) + inwards, (1 << 32) - 1 - inwards)
    return np.choose(rng.choice(3, shape, p=(0.45, 0.45, 0.1)), [anywhere, ends, far])


def integer_results(total: NDArray[np.int64], saturate: bool) -> NDArray[np.uint64]:
    """Return the result words of exact integer sums: clamped to 32 bits, or the low 32 bits and the overflow bit."""
    clamped = total.clip(-(1 << 31), (1 << 31) - 1)
    if saturate:
        return (clamped & 0xFFFFFFFF).astype(np.uint64)
    return (total & 0xFFFFFFFF | (total != clamped).astype(np.int64) << 32).astype(np.uint64)


def _any_rule(config: CoreConfig, instruction: Instruction, rng: np.random.Generator) -> int:
    """Return a random metadata rule code for the control word; it only affects which nibbles count as undefined.

    With 3:1 multiplexers the rule named ``plain`` also swaps operands, so instructions with this rule keep it, and no
    other instruction gets it. A code without a rule makes every nibble undefined.
    """
    own = RuleCode[instruction.rule.name.upper()] if instruction.rule else None
    if config.mux == "mux3" and own is RuleCode.PLAIN:
        return own.value
    return int(rng.integers(int(config.mux == "mux3"), 1 << control_layout()["rule"].width))


def undefined_chunks(
    config: CoreConfig, instruction: Instruction, metadata: NDArray[np.uint32], rule: int, ordered: bool
) -> NDArray[np.uint64]:
    """Return a mask of the undefined metadata nibbles in each step (cycle). Bit c belongs to nibble number c along K.

    The metadata words have the shape (..., words). With `ordered`, the nibbles are in the order of a row's input port.
    A code without a rule makes every nibble undefined. Nibbles that a step does not use have flags, too.
    """
    if not instruction.rule:
        return np.zeros(metadata.shape[:-1], np.uint64)
    nibbles = split_nibbles(np.ascontiguousarray(metadata).view(np.uint8))
    chunks = config.chunks // 2 if instruction.wide else config.chunks
    order = nibble_order(config, wide=instruction.wide) if ordered else range(chunks)
    nibbles = nibbles[..., [order.index(chunk) for chunk in range(chunks)]]
    legal = RULES[RuleCode(rule).name.lower()].legal if rule < len(RuleCode) else frozenset()
    broken = ~np.isin(nibbles, list(legal))
    return (broken.astype(np.uint64) << np.arange(chunks, dtype=np.uint64)).sum(axis=-1, dtype=np.uint64)

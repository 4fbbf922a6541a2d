"""Random work for the unit, the core and the warp, with the results that the golden model gives for it.

Free of any simulator. Formats, rules, granularity and result change from item to item; nibbles are legal or not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from amaranth.lib import data
from numpy.typing import NDArray

from ...golden.matrix import multiply
from ...golden.registers import CONTAINERS, gather_warp, pack, pack_nibbles
from ...isa.formats import Format
from ...isa.fragments import accumulator_fragment
from ...isa.instructions import Instruction, every_instruction
from ...isa.metadata import RULES, split_nibbles
from ...isa.numerics import Method, numerics
from ...isa.operands import MatrixOperands
from ...rtl.config import CoreConfig
from ...rtl.core import tile_layout, tile_result_layout
from ...rtl.metadata import RuleCode
from ...rtl.order import nibble_order
from ...rtl.step import control_layout, row_result_layout, row_step_layout
from ...rtl.warp import ScaleSizeCode, warp_operands_layout, warp_result_layout
from ..engine.steps import control_word, step_words, steps_of
from .random_operands import Operands, distributions, random_codes, random_operands, special_codes

__all__ = [
    "ARCHITECTURE_OF_PRESET",
    "TAG",
    "Block",
    "Item",
    "native",
    "random_blocks",
    "tiles",
    "warp_item",
    "warp_items",
]

#: An architecture whose instructions a preset has natively, as many of its formats as any.
ARCHITECTURE_OF_PRESET = {
    "ampere": "sm_80",
    "ada": "sm_89",
    "hopper": "sm_90",
    "blackwell": "sm_120",
    "rtx-blackwell": "sm_120",
    "tiny": "sm_80",
}
#: Tag that accompanies a tile through a core under test.
TAG = 9
_ROWS, _COLUMNS, _LANES, _REGISTERS = 16, 8, 32, 4
#: Share of blocks whose accumulator takes the rounded products away, so that only their last bits are left.
_RESIDUES = 0.2
#: Share of blocks with one extraordinary element among ordinary ones: where there are many they hide each other.
_LONE = 0.25
#: Values of the rule field.
_RULE_CODES = 8


@dataclass(frozen=True)
class Item:
    """One transfer into a stream and the transfer that must come out for it.

    Attributes
    ----------
    name : str
        What it is, for messages.
    payload, expected : int
        Bits of the two payloads.
    element : int
        Element code of A.
    """

    name: str
    payload: int
    expected: int
    element: int


@dataclass(frozen=True, eq=False)
class Block:
    """A block of steps that share an instruction, rows of A and columns of B.

    Attributes
    ----------
    name : str
        Instruction and distribution.
    steps : ndarray of uint32, shape (rows, columns, words)
        Steps as :func:`~sptc.sim.engine.steps.steps_of` packs them.
    results : ndarray of uint64, shape (rows, columns)
        Result words by the golden model.
    """

    name: str
    steps: NDArray[np.uint32]
    results: NDArray[np.uint64]


@lru_cache(maxsize=8)
def native(config: CoreConfig, arch: str) -> tuple[Instruction, ...]:
    """Return one-step forms of every instruction that a datapath computes as it is.

    An instruction of more bytes than a step is cut to its first step. ``wgmma`` stands for the fp8 of sm_90.
    """
    found: dict[tuple[object, ...], Instruction] = {}
    for whole in every_instruction():
        if arch not in whole.architectures or not config.holds(whole):
            continue
        if numerics(whole, arch).method is Method.EMULATED:
            continue
        steps = max(1, whole.stored_k * whole.container_bits // (8 * config.step_bytes))
        scale_size = whole.scale_size // steps if whole.scale_size and steps > 1 else whole.scale_size
        instruction = replace(whole, k=whole.k // steps, m=_ROWS, n=_COLUMNS, scale_size=scale_size)
        key = (instruction.a, instruction.b, instruction.d, instruction.k, instruction.sparse, instruction.kind)
        found.setdefault((*key, instruction.satfinite, instruction.scale_format, scale_size), instruction)
    return tuple(found.values())


def random_blocks(
    config: CoreConfig, arch: str, rng: np.random.Generator, rows: int, columns: int, *, ordered: bool = True
) -> Iterator[Block]:
    """Yield random blocks without end, in rounds that visit every instruction of the datapath once.

    Their steps are for a unit or, not `ordered`, for an array of units.
    """
    instructions = native(config, arch)
    while True:
        for place in rng.permutation(len(instructions)):
            yield _block(config, arch, instructions[place], rng, (rows, columns), ordered)


def _block(
    config: CoreConfig,
    arch: str,
    instruction: Instruction,
    rng: np.random.Generator,
    shape: tuple[int, int],
    ordered: bool,
) -> Block:
    rows, columns = shape
    distribution = str(rng.choice(distributions(instruction)))

    def codes(operand: str, *shape: int) -> NDArray:
        fmt = getattr(instruction, operand)
        drawn = random_codes(fmt, distribution, (1, *shape), rng) << instruction.low_bit(fmt)
        noise = rng.integers(0, 1 << instruction.container_bits, drawn.shape)
        kept = ((1 << fmt.bits) - 1) << instruction.low_bit(fmt)
        return (drawn | noise & ~kept).astype(CONTAINERS[instruction.container_bits])

    a, b = codes("a", rows, instruction.stored_k), codes("b", instruction.k, columns)
    if distribution == "cancelling":
        a[..., 1::2] = a[..., ::2] ^ a.dtype.type(1 << instruction.low_bit(instruction.a) + instruction.a.bits - 1)
        b[:, 1:] = b[:, :1]
    c = random_codes(instruction.c, distribution, (1, rows, columns), rng)
    if not instruction.d.is_integer and rng.random() < _LONE:
        _plant(a, instruction, instruction.a, 2, rng)
        _plant(b, instruction, instruction.b, 1, rng)
    any_nibble = rng.random() < 0.5
    legal = np.array(range(16) if any_nibble or not instruction.rule else sorted(instruction.rule.legal))
    nibbles = legal[rng.integers(0, len(legal), (1, rows, instruction.chunks))].astype(np.uint8)
    scales: list[NDArray[np.uint8] | None] = [None, None]
    if fmt := instruction.scale_format:
        shapes = [(1, lines, instruction.scale_size or 0) for lines in (rows, columns)]
        name = "bits" if rng.random() < 0.2 else "mid"
        scales = [random_codes(fmt, name, shape, rng).astype(np.uint8) for shape in shapes]

    accumulator = c.astype(CONTAINERS[instruction.c.bits])
    operands = MatrixOperands(a, b, accumulator, nibbles if instruction.rule else None, *scales)
    (steps,) = steps_of(config, instruction, operands, ordered=ordered)
    step, words = steps[0], step_words(config)
    if instruction.d.is_integer:
        accumulators = _integer_accumulators((rows, columns), rng)
        c = accumulators & 0xFFFFFFFF
        overflow = accumulators != accumulators.astype(np.int32)
        # Of a step inside an integer instruction the golden model knows only the exact sum of the products.
        unclamped = replace(instruction, satfinite=False)
        products = multiply(unclamped, arch, replace(operands, c=np.zeros_like(accumulator)))
        results = _integer_results(accumulators + products[0].view(np.int32), instruction.satfinite)
    else:
        overflow = rng.integers(0, 2, (rows, columns)) == 1
        if rng.random() < _RESIDUES:
            accumulator = multiply(instruction, arch, replace(operands, c=np.zeros_like(accumulator)))
            accumulator ^= accumulator.dtype.type(1 << instruction.c.bits - 1)
            accumulator += rng.integers(-1, 2, c.shape).astype(accumulator.dtype)
            c = accumulator.astype(np.int64)
        results = multiply(instruction, arch, replace(operands, c=accumulator))[0].astype(np.uint64)
        c = c[0] | rng.integers(0, 1 << 32, c[0].shape) >> instruction.c.bits << instruction.c.bits
    step[..., words.c] = c[..., None]
    if not instruction.scale_format:
        step[..., words.scale_a] = rng.integers(0, 1 << 32, (rows, 1, 1))
        step[..., words.scale_b] = rng.integers(0, 1 << 32, (1, columns, 1))
    control = control_layout()
    rule = _any_rule(config, instruction, rng)
    noise = 0 if instruction.d.is_integer else int(rng.integers(2)) << control["saturate"].offset
    step[..., words.control] &= ~np.uint32(7 << control["rule"].offset)
    step[..., words.control] |= np.uint32(rule << control["rule"].offset | noise)
    step[..., words.control] |= overflow[..., None].astype(np.uint32) << np.uint32(words.overflow_bit)
    flags = _illegal(config, instruction, step[..., words.metadata], rule, ordered)
    results |= flags << np.uint64(row_result_layout(config)["illegal"].offset)
    return Block(f"{instruction} {distribution}", step, results)


def _plant(codes: NDArray, instruction: Instruction, fmt: Format, axis: int, rng: np.random.Generator) -> None:
    """Put one zero, subnormal, special or huge element into every row of A or column of B, in place."""
    shape = tuple(1 if n == axis else size for n, size in enumerate(codes.shape))
    special = rng.random(shape) < 0.7
    lone = np.where(special, special_codes(fmt, shape, rng), random_codes(fmt, "huge", shape, rng))
    places = rng.integers(0, codes.shape[axis], shape)
    np.put_along_axis(codes, places, (lone << instruction.low_bit(fmt)).astype(codes.dtype), axis)


def _integer_accumulators(shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return sums such as an earlier step leaves: of 32 bits, or a little beyond either end."""
    anywhere = rng.integers(-(1 << 31), 1 << 31, shape)
    ends = rng.choice([-(1 << 31), (1 << 31) - 1], shape) + rng.integers(-(1 << 18), 1 << 18, shape)
    return np.where(rng.random(shape) < 0.5, anywhere, ends)


def _integer_results(total: NDArray[np.int64], saturate: bool) -> NDArray[np.uint64]:
    clamped = total.clip(-(1 << 31), (1 << 31) - 1)
    if saturate:
        return (clamped & 0xFFFFFFFF).astype(np.uint64)
    return (total & 0xFFFFFFFF | (total != clamped).astype(np.int64) << 32).astype(np.uint64)


def _any_rule(config: CoreConfig, instruction: Instruction, rng: np.random.Generator) -> int:
    """Return a rule code that changes nothing but the flags: behind 3:1 multiplexers the plain one exchanges operands.

    A code of no rule defines no nibble.
    """
    own = RuleCode[instruction.rule.name.upper()] if instruction.rule else None
    if config.mux == "mux3" and own is RuleCode.PLAIN:
        return own.value
    return int(rng.integers(int(config.mux == "mux3"), _RULE_CODES))


def _illegal(
    config: CoreConfig, instruction: Instruction, metadata: NDArray[np.uint32], rule: int, ordered: bool
) -> NDArray[np.uint64]:
    """Return the flags of every chunk of a step, those beyond a short instruction included."""
    if not instruction.rule:
        return np.zeros(metadata.shape[:-1], np.uint64)
    packed = np.ascontiguousarray(metadata).view(np.uint8)
    nibbles = split_nibbles(packed)
    wide = instruction.wide
    chunks = config.chunks // 2 if wide else config.chunks
    order = nibble_order(config, wide=wide) if ordered else range(chunks)
    nibbles = nibbles[..., [order.index(chunk) for chunk in range(chunks)]]
    legal = RULES[RuleCode(rule).name.lower()].legal if rule < len(RuleCode) else frozenset()
    broken = ~np.isin(nibbles, list(legal))
    return (broken.astype(np.uint64) << np.arange(chunks, dtype=np.uint64)).sum(axis=-1, dtype=np.uint64)


def tiles(config: CoreConfig, arch: str, rng: np.random.Generator) -> Iterator[Item]:
    """Yield random tiles of a core with results, a random tag on each.

    Parameters
    ----------
    config : CoreConfig
        Whose core, with a tag of :data:`TAG` bits.
    arch : str
        Architecture whose numerics apply.
    rng : Generator
        Source of randomness.
    """
    words, layout = step_words(config), tile_layout(config, TAG)
    result = tile_result_layout(config, TAG)
    step, of_unit = row_step_layout(config), row_result_layout(config)
    for block in random_blocks(config, arch, rng, config.rows, config.columns, ordered=False):
        lines = {"a": block.steps[:, 0], "metadata": block.steps[:, 0], "scale_a": block.steps[:, 0]}
        lines |= {"b": block.steps[0], "scale_b": block.steps[0]}
        outputs = block.steps.reshape(-1, words.total)
        tag = int(rng.integers(1 << TAG))
        payload = layout.const(
            {name: [_integer(line[getattr(words, name)]) for line in of_field] for name, of_field in lines.items()}
            | {
                "c": [int(c) for c in outputs[:, words.c.start]],
                "overflow": _bits(outputs[:, words.control.start] >> np.uint32(words.overflow_bit) & np.uint32(1)),
                "tag": tag,
            }
        )
        control = _integer(outputs[0, words.control]) & (1 << step["control"].width) - 1
        of_row, of_output = block.results[:, 0].tolist(), block.results.ravel()
        expected = result.const(
            {
                "d": [int(word) & 0xFFFFFFFF for word in of_output],
                "overflow": _bits(of_output >> np.uint64(of_unit["overflow"].offset) & np.uint64(1)),
                "illegal": [word >> of_unit["illegal"].offset for word in of_row],
                "tag": tag,
            }
        )
        bits = int(payload.as_value().value) | control << layout["control"].offset
        element = control & (1 << step["control"].shape["a"].width) - 1
        yield Item(block.name, bits, int(expected.as_value().value), element)


def _integer(words: NDArray[np.uint32]) -> int:
    return int.from_bytes(np.ascontiguousarray(words).tobytes(), "little")


def _bits(flags: NDArray) -> int:
    return sum(1 << place for place in np.flatnonzero(flags).tolist())


def warp_items(config: CoreConfig, arch: str, rng: np.random.Generator) -> Iterator[Item]:
    """Yield random instructions of a warp with results, in rounds that visit every one of the datapath once.

    Registers that an instruction does not read hold noise; metadata has all sixteen nibbles.

    Parameters
    ----------
    config : CoreConfig
        Whose warp.
    arch : str
        Architecture whose instructions and numerics apply.
    rng : Generator
        Source of randomness.
    """
    instructions = [
        instruction
        for instruction in every_instruction("mma")
        if arch in instruction.architectures
        and instruction.m == _ROWS
        and config.holds(instruction)
        and numerics(instruction, arch).method is not Method.EMULATED
    ]
    while True:
        for place in rng.permutation(len(instructions)):
            yield warp_item(config, arch, instructions[place], rng)


def warp_item(
    config: CoreConfig,
    arch: str,
    instruction: Instruction,
    rng: np.random.Generator,
    *,
    sparsity_selector: int | None = None,
    operands: Operands | None = None,
) -> Item:
    """Return one instruction of a warp.

    Parameters
    ----------
    config, arch, rng
        As for :func:`warp_items`.
    instruction : Instruction
        Of shape m16n8.
    sparsity_selector : int, optional
        Sparsity selector; a random one by default.
    operands : Operands, optional
        Registers; random ones by default.
    """
    if sparsity_selector is None:
        sparsity_selector = int(rng.integers(instruction.sparsity_selectors))
    if operands is None:
        distribution = str(rng.choice(distributions(instruction)))
        operands = random_operands(instruction, distribution, 1, rng, sparsity_selector=sparsity_selector)
        if instruction.sparse:
            operands = replace(operands, e=_every_nibble(instruction, sparsity_selector, rng))
    o = operands
    matrices = gather_warp(instruction, o.held)
    d = pack(multiply(instruction, arch, matrices), accumulator_fragment(instruction))[0]
    illegal = [0] * _ROWS
    if instruction.rule:
        assert matrices.nibbles is not None
        nibbles = matrices.nibbles[0].tolist()
        legal = instruction.rule.legal
        illegal = [sum(1 << chunk for chunk, nibble in enumerate(row) if nibble not in legal) for row in nibbles]
    fields = {
        "a": _filled(o.a, rng),
        "b": _filled(o.b, rng),
        "c": _filled(o.c, rng),
        "e": (_words(rng, _LANES) if o.e is None else o.e[0]).tolist(),
        "control": _control(config, instruction, rng),
        "long": o.a.shape[2] == _REGISTERS,
        "sparsity_selector": sparsity_selector if instruction.sparse else int(rng.integers(4)),
        "scale_size": ScaleSizeCode[f"X{instruction.scale_size or 1}"],
    }
    for side, scale, threads in (("a", o.scale_a, 2), ("b", o.scale_b, 4)):
        words, byte, thread = scale or (_words(rng, 1, _LANES), int(rng.integers(4)), int(rng.integers(threads)))
        fields |= {f"scale_{side}": words[0].tolist(), f"byte_{side}": byte, f"thread_{side}": thread}
    result = warp_result_layout()
    payload = warp_operands_layout().const(fields).as_value().value
    registers = np.zeros((_LANES, _REGISTERS), np.uint32)
    registers[:, : d.shape[1]] = d
    first_flag = result["illegal"].offset
    flags = sum(row << 16 * place for place, row in enumerate(illegal))
    return Item(
        f"{instruction} selector {sparsity_selector}",
        int(payload),
        _integer(registers) | flags << first_flag,
        config.element_code(instruction.a, instruction.container_bits),
    )


def _control(config: CoreConfig, instruction: Instruction, rng: np.random.Generator) -> data.Const:
    rule = RuleCode[instruction.rule.name.upper()] if instruction.rule else RuleCode(int(rng.integers(len(RuleCode))))
    word = control_word(config, instruction, last=True) & ~(7 << control_layout()["rule"].offset)
    return control_layout().from_bits(word | rule.value << control_layout()["rule"].offset)


def _words(rng: np.random.Generator, *shape: int) -> NDArray[np.uint32]:
    return rng.integers(0, 1 << 32, shape, np.uint32)


def _filled(registers: NDArray[np.uint32], rng: np.random.Generator) -> list[list[int]]:
    """Return a warp's registers with others behind those that the instruction reads: NaN in any format, or random."""
    others = _words(rng, _LANES, _REGISTERS - registers.shape[2])
    others[rng.random(others.shape) < 0.5] = 0xFFFFFFFF
    return np.concatenate([registers[0], others], axis=1).tolist()


def _every_nibble(instruction: Instruction, sparsity_selector: int, rng: np.random.Generator) -> NDArray[np.uint32]:
    nibbles = np.resize(np.arange(16, dtype=np.uint8), (1, instruction.m, instruction.chunks))
    shuffled = rng.permutation(nibbles.ravel()).reshape(nibbles.shape)
    return pack_nibbles(shuffled, instruction, sparsity_selector, _words(rng, 1, _LANES))

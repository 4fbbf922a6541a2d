"""Random input payloads for benches of a core (array of units) and of a warp, with the golden model's results.

The module does not depend on a simulator. Number formats, metadata rule, sparsity granularity and result type change
from item to item; metadata nibbles may be undefined.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from amaranth.lib import data
from numpy.typing import NDArray

from ...golden.matrix import multiply
from ...isa.fragments import accumulator_fragment
from ...isa.instructions import Instruction, every_instruction
from ...isa.memory import UNIT_BYTES
from ...isa.operands import HeldOperands
from ...operands.registers import gather_warp, pack_nibbles, to_registers
from ...rtl.config import CoreConfig
from ...rtl.core import tile_layout, tile_result_layout
from ...rtl.metadata import RuleCode
from ...rtl.step import control_layout, row_result_layout, row_step_layout
from ...rtl.warp import LANES, REGISTERS, ROWS, ScaleSizeCode, warp_operands_layout, warp_result_layout
from ..engine.ports import payload_bits
from ..engine.steps import control_word, executes, step_words
from .blocks import random_blocks
from .random_operands import distributions, random_operands

__all__ = [
    "TAG",
    "Item",
    "joined_words",
    "tiles",
    "undefined_bits",
    "units_of",
    "warp_instructions",
    "warp_item",
    "warp_items",
]

#: Width in bits of the tag that accompanies the operands of each cycle through the core (array of units) under test.
TAG = 9


@dataclass(frozen=True)
class Item:
    """Test item: an input payload of a stream, and the result payload that the golden model expects."""

    name: str  #: Name of the input payload in error messages
    #: Input payload and expected result payload, each as one integer.
    payload: int
    expected: int
    element: int  #: Code in the control word that selects the element format of A


def joined_words(words: NDArray[np.uint32]) -> int:
    """Concatenate 32-bit words into one integer; the first word is the least significant."""
    return int.from_bytes(np.ascontiguousarray(words, np.uint32).tobytes(), "little")


def units_of(shared: bytes) -> list[int]:
    """Split an image of shared memory into 16-byte units, each as an integer."""
    return [int.from_bytes(shared[place : place + UNIT_BYTES], "little") for place in range(0, len(shared), UNIT_BYTES)]


def tiles(config: CoreConfig, arch: str, rng: np.random.Generator) -> Iterator[Item]:
    """Yield random one-cycle inputs for a core (array of units), with expected results and tags to identify them."""
    words, layout = step_words(config), tile_layout(config, TAG)
    result = tile_result_layout(config, TAG)
    step, of_unit = row_step_layout(config), row_result_layout(config)
    for block in random_blocks(config, arch, rng, config.rows, config.columns, ordered=False):
        lines = {"a": block.steps[:, 0], "metadata": block.steps[:, 0], "scale_a": block.steps[:, 0]}
        lines |= {"b": block.steps[0], "scale_b": block.steps[0]}
        outputs = block.steps.reshape(-1, words.total)
        tag = int(rng.integers(1 << TAG))
        fields: dict[str, Any] = {
            name: [joined_words(line[getattr(words, name)]) for line in of_field] for name, of_field in lines.items()
        }
        fields["c"] = [int(c) for c in outputs[:, words.c.start]]
        fields["overflow"] = _bits(outputs[:, words.control.start] >> np.uint32(words.overflow_bit) & np.uint32(1))
        control = joined_words(outputs[0, words.control]) & (1 << step["control"].width) - 1
        payload = payload_bits(layout, fields | {"tag": tag}) | control << layout["control"].offset
        of_row, of_output = block.results[:, 0].tolist(), block.results.ravel()
        expected = {
            "d": [int(word) & 0xFFFFFFFF for word in of_output],
            "overflow": _bits(of_output >> np.uint64(of_unit["overflow"].offset) & np.uint64(1)),
            "illegal": [word >> of_unit["illegal"].offset for word in of_row],
            "tag": tag,
        }
        element = control & (1 << step["control"].shape["a"].width) - 1
        yield Item(block.name, payload, payload_bits(result, expected), element)


def _bits(flags: NDArray) -> int:
    return sum(1 << place for place in np.flatnonzero(flags).tolist())


def warp_instructions(config: CoreConfig, arch: str) -> list[Instruction]:
    """Return every ``mma`` instruction that a warp with this datapath executes without emulation."""
    return [
        instruction
        for instruction in every_instruction("mma")
        if arch in instruction.architectures and instruction.m == ROWS and executes(config, instruction, arch)
    ]


def warp_items(config: CoreConfig, arch: str, rng: np.random.Generator) -> Iterator[Item]:
    """Yield random test inputs for a warp in rounds; each round includes every supported ``mma`` instruction once.

    Registers that an instruction does not read are random; metadata has all sixteen nibbles.
    """
    instructions = warp_instructions(config, arch)
    while True:
        for place in rng.permutation(len(instructions)):
            yield warp_item(config, arch, instructions[place], rng)


def warp_item(config: CoreConfig, arch: str, instruction: Instruction, rng: np.random.Generator) -> Item:
    """Return a test item for an m16n8 instruction, with random registers and a random sparsity selector."""
    sparsity_selector = int(rng.integers(instruction.sparsity_selectors))
    distribution = str(rng.choice(distributions(instruction)))
    operands = random_operands(instruction, distribution, 1, rng, sparsity_selector=sparsity_selector)
    if instruction.sparse:
        operands.arrays["e"] = _every_nibble(instruction, sparsity_selector, rng)
    matrices = gather_warp(instruction, operands)
    d = to_registers(multiply(instruction, arch, matrices), accumulator_fragment(instruction))[0]
    fields = _warp_fields(config, instruction, operands, rng)
    registers = np.zeros((LANES, REGISTERS), np.uint32)
    registers[:, : d.shape[1]] = d
    flags = undefined_bits(instruction, None if matrices.nibbles is None else matrices.nibbles[0])
    return Item(
        f"{instruction} selector {sparsity_selector}",
        payload_bits(warp_operands_layout(), fields),
        joined_words(registers) | flags << warp_result_layout()["illegal"].offset,
        config.element_code(instruction.a, instruction.container_bits),
    )


def _warp_fields(
    config: CoreConfig, instruction: Instruction, operands: HeldOperands, rng: np.random.Generator
) -> dict[str, Any]:
    """Return the values of all payload fields for an instruction; fields that the instruction ignores are random."""
    arrays, immediates = operands.arrays, operands.immediates
    fields = {
        **{name: _filled(arrays[name], rng) for name in ("a", "b", "c")},
        "e": (arrays["e"][0] if "e" in arrays else _words(rng, LANES)).tolist(),
        "control": _control(config, instruction, rng),
        "long": arrays["a"].shape[2] == REGISTERS,
        "sparsity_selector": immediates.sparsity_selector if instruction.sparse else int(rng.integers(4)),
        "scale_size": ScaleSizeCode[f"X{instruction.scale_size or 1}"],
    }
    for side, ids, threads in (("a", immediates.scale_ids[:2], 2), ("b", immediates.scale_ids[2:], 4)):
        scale = f"scale_{side}"
        words = arrays[scale][0] if scale in arrays else _words(rng, LANES)
        byte, thread = ids if scale in arrays else (int(rng.integers(4)), int(rng.integers(threads)))
        fields |= {scale: words.tolist(), f"byte_{side}": byte, f"thread_{side}": thread}
    return fields


def undefined_bits(instruction: Instruction, nibbles: NDArray[np.uint8] | None) -> int:
    """Return one integer with the flags of undefined `nibbles`, shape (rows, nibbles per row): bit 16 * row + index."""
    if instruction.rule is None or nibbles is None:
        return 0
    undefined = ~np.isin(nibbles, sorted(instruction.rule.legal))
    return sum(1 << 16 * row + chunk for row, chunk in np.argwhere(undefined).tolist())


def _control(config: CoreConfig, instruction: Instruction, rng: np.random.Generator) -> data.Const:
    rule = RuleCode[instruction.rule.name.upper()] if instruction.rule else RuleCode(int(rng.integers(len(RuleCode))))
    word = control_word(config, instruction, last=True) & ~(7 << control_layout()["rule"].offset)
    return control_layout().from_bits(word | rule.value << control_layout()["rule"].offset)


def _words(rng: np.random.Generator, *shape: int) -> NDArray[np.uint32]:
    return rng.integers(0, 1 << 32, shape, np.uint32)


def _filled(registers: NDArray[np.uint32], rng: np.random.Generator) -> list[list[int]]:
    """Return a warp's registers; registers that an instruction does not use are random or all ones (a float NaN)."""
    others = _words(rng, LANES, REGISTERS - registers.shape[2])
    others[rng.random(others.shape) < 0.5] = 0xFFFFFFFF
    return np.concatenate([registers[0], others], axis=1).tolist()


def _every_nibble(instruction: Instruction, sparsity_selector: int, rng: np.random.Generator) -> NDArray[np.uint32]:
    nibbles = np.resize(np.arange(16, dtype=np.uint8), (1, instruction.m, instruction.chunks))
    shuffled = rng.permutation(nibbles.ravel()).reshape(nibbles.shape)
    return pack_nibbles(shuffled, instruction, sparsity_selector, _words(rng, 1, LANES))

"""Conversion of instructions to input words of rows (dot-product units): A, B, metadata, scales, control words."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...isa.instructions import Instruction
from ...isa.metadata import join_nibbles
from ...isa.numerics import BLOCK_GROUP, Method, numerics
from ...isa.operands import MatrixOperands
from ...rtl.config import CoreConfig
from .row_interface import row_interface

__all__ = ["StepWords", "Steps", "control_word", "executes", "octets", "step_count", "step_words", "steps_of"]

_BYTE = 8
_WORD = 32


def octets(codes: NDArray, container_bits: int) -> NDArray[np.uint8]:
    """Return element codes, shape (matrices, rows, elements), as bytes; two 4-bit elements share one byte."""
    if container_bits == 4:
        return join_nibbles(codes)
    return np.ascontiguousarray(codes).view(np.uint8)


@dataclass(frozen=True)
class StepWords:
    """Positions of the fields in the 32-bit input words of a dot product, and of the overflow bit in a result word."""

    #: For each input field of a dot-product unit, the slice of its 32-bit input words that contains the field.
    a: slice
    b: slice
    metadata: slice
    c: slice
    scale_a: slice
    scale_b: slice
    control: slice
    overflow_bit: int  #: Position, in the control word, of the overflow bit of the previous cycle
    total: int  #: Total number of 32-bit input words of a step
    result_overflow: int  #: Position of the step's overflow bit in a result word


@dataclass(frozen=True, eq=False)
class Steps:
    """Input words of one step (dot product) for each output of a batch of matrices D.

    The input words of an output are the bitwise OR of the words of its row and the words of its column. The accumulator
    is the result of the previous step of the output.
    """

    #: Input words of each row: A, metadata, scales of A and control; all other bits are 0. Shape (batch, m, words).
    row: NDArray[np.uint32]
    #: Input words of each column: B and scales of B; all other bits are 0. Shape (batch, n, words).
    column: NDArray[np.uint32]
    words: StepWords

    @classmethod
    def of_words(cls, steps: NDArray[np.uint32], words: StepWords) -> "Steps":
        """Return input words, shape (steps, words), as a matrix with one column, and one row per step (cycle)."""
        return cls(np.ascontiguousarray(steps)[None], np.zeros((1, 1, words.total), np.uint32), words)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of matrices in the batch, number of rows of a matrix, and number of columns of a matrix."""
        return (*self.row.shape[:2], self.column.shape[1])

    def whole(self, previous: NDArray | None = None) -> NDArray[np.uint32]:
        """Return all input words of the dot product of each output, shape (batch, m, n, words).

        `previous` holds the result words of the previous steps, shape (batch, m, n). By default, the accumulators are
        those in the words, or zero.
        """
        steps = self.row[:, :, None] | self.column[:, None]
        if previous is not None:
            steps[..., self.words.c.start] = previous.astype(np.uint32)
            overflow = previous.astype(np.uint64) >> np.uint64(self.words.result_overflow) & np.uint64(1)
            steps[..., self.words.control.start] |= overflow.astype(np.uint32) << np.uint32(self.words.overflow_bit)
        return steps


def step_words(config: CoreConfig) -> StepWords:
    """Return the positions of the fields in a dot product's input words, for a datapath configuration."""
    layout = row_interface(config).step
    assert config.step_bytes % 16 == 0, "step_bytes must be a multiple of 16, so that all fields are whole words"
    fields = {
        name: slice(field.offset // _WORD, -(-(field.offset + field.width) // _WORD))
        for name, field in layout.items()
        if name != "overflow"
    }
    overflow = layout["overflow"].offset - fields["control"].start * _WORD
    assert overflow < _WORD, "the overflow bit must be in the first word of the control field"
    total = max(-(-(field.offset + field.width) // _WORD) for field in layout.values())
    result_overflow = row_interface(config).result["overflow"].offset
    return StepWords(**fields, overflow_bit=overflow, total=total, result_overflow=result_overflow)


def executes(config: CoreConfig, instruction: Instruction, arch: str) -> bool:
    """Return whether a datapath executes an instruction of an architecture without emulation."""
    return config.holds(instruction) and numerics(instruction, arch).method is not Method.EMULATED


def control_word(config: CoreConfig, instruction: Instruction, last: bool) -> int:
    """Return the control word for one cycle of an instruction. Only the `last` cycle along K may clamp the result."""
    interface = row_interface(config)
    short = config.fp8_alignment_bits < config.alignment_bits and instruction.container_bits == _BYTE
    names = {
        "result": "E8M13" if short and instruction.d.name == "f32" else instruction.d.name.upper(),
        "rule": instruction.rule.name.upper() if instruction.rule else "PLAIN",
        "scale": instruction.scale_format.name.upper() if instruction.scale_format else "NONE",
    }
    fields = {
        "a": config.element_code(instruction.a, instruction.container_bits),
        "b": config.element_code(instruction.b, instruction.container_bits),
        "saturate": int(instruction.satfinite and last),
        "sparse": int(bool(instruction.sparse)),
        **{field: interface.codes[field][name] for field, name in names.items()},
    }
    return sum(value << interface.control[field].offset for field, value in fields.items())


def step_count(config: CoreConfig, instruction: Instruction) -> int:
    """Return the number of cycles along K that a dot-product unit needs for one output of an instruction."""
    return -(-instruction.stored_k * instruction.container_bits // (8 * config.step_bytes))


def steps_of(
    config: CoreConfig, instruction: Instruction, operands: MatrixOperands, *, ordered: bool = True
) -> list[Steps]:
    """Return input words for a batch of instructions, without accumulators: a list along K with an entry per cycle.

    If `ordered`, B and metadata are in the order of a row's inputs, see :mod:`sptc.rtl.order`. Otherwise they are in
    their original order, for an array, which reorders them itself.
    """
    words, interface, wide = step_words(config), row_interface(config), instruction.wide
    order = interface.byte_order[wide][bool(instruction.sparse)]
    bits = instruction.container_bits
    a, columns = octets(operands.a, bits), octets(np.ascontiguousarray(operands.b.transpose(0, 2, 1)), bits)
    (tiles, m, stored), n = a.shape, columns.shape[1]
    ratio = 2 if instruction.sparse else 1
    steps = []
    for first in range(0, stored, config.step_bytes):
        row, column = (np.zeros((tiles, lines, words.total), np.uint32) for lines in (m, n))
        _put(row[..., words.a], a[..., first : first + config.step_bytes])
        b = columns[..., ratio * first : ratio * (first + config.step_bytes)]
        _put(column[..., words.b], _in_order(b, order) if ordered and config.sparse else b)
        if instruction.granularity:
            assert operands.nibbles is not None
            size = instruction.chunk_bytes
            nibbles = operands.nibbles[..., first // size : (first + config.step_bytes) // size]
            nibbles = _in_order(nibbles, interface.nibble_order[wide]) if ordered else nibbles
            _put(row[..., words.metadata], join_nibbles(nibbles))
        elif ordered:
            row[..., words.metadata] = interface.dense_nibble * 0x11111111
        if instruction.scale_size:
            assert operands.scale_a is not None
            assert operands.scale_b is not None
            spans = _spans(instruction, first, config.step_bytes)
            _put(row[..., words.scale_a], operands.scale_a[..., spans])
            _put(column[..., words.scale_b], operands.scale_b[..., spans])
        row[..., words.control] = control_word(config, instruction, first + config.step_bytes >= stored)
        steps.append(Steps(row, column, words))
    return steps


def _spans(instruction: Instruction, first: int, step_bytes: int) -> NDArray[np.intp]:
    """Return which block scale each group of 16 products in a cycle has; for 8-bit elements, which one all have."""
    assert instruction.span
    per_byte = _BYTE // instruction.container_bits
    groups = step_bytes * per_byte // BLOCK_GROUP if instruction.container_bits == 4 else 1
    kept = first * per_byte + BLOCK_GROUP * np.arange(groups)
    return kept * (2 if instruction.sparse else 1) // instruction.span


def _in_order(values: NDArray[np.uint8], order: Sequence[int | None]) -> NDArray[np.uint8]:
    """Reorder bytes or nibbles: output i is input `order[i]`, or zero if `order[i]` is None or too large."""
    missing = values.shape[-1]
    padded = np.concatenate([values, np.zeros((*values.shape[:-1], 1), np.uint8)], axis=-1)
    return np.take(padded, [missing if source is None else min(source, missing) for source in order], axis=-1)


def _put(words: NDArray[np.uint32], octets: NDArray[np.uint8]) -> None:
    """Write bytes to the first 32-bit words of a field; the rest of the last written word becomes zero."""
    size = -(-octets.shape[-1] // 4) * 4
    padded = np.zeros((*octets.shape[:-1], size), np.uint8)
    padded[..., : octets.shape[-1]] = octets
    words[..., : size // 4] = padded.view("<u4")

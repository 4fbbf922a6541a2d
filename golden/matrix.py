"""Matrix products of the golden model: matrices of codes in, matrices of codes out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import FORMATS
from ..isa.instructions import Instruction
from ..isa.metadata import MUX_OF_ARCHITECTURE
from ..isa.numerics import BLOCK_GROUP, Method, Numerics, numerics
from ..isa.operands import MatrixOperands
from .accumulator import decode_accumulator, encode_accumulator
from .decode import WIDE, Scales, decode, decode_scale, precision_for
from .emulated import emulated_instruction, even_and_odd_pairs, widen
from .fused import fused_step
from .grouped import grouped_step
from .integer import accumulate, decode_integer, expand
from .select import WHOLE_ELEMENT_NIBBLES, kept_rows, splice_candidates, undelivered
from .trace import Step, Trace

__all__ = ["multiply", "multiply_by", "traced"]

#: Outputs per block, so that the terms of a step fit into the second-level cache.
_BLOCK_OUTPUTS = 8192


@dataclass(frozen=True, eq=False)
class _Block:
    """Inputs of the K loop for a block: part of the rows of part of the tiles."""

    instruction: Instruction
    numerics: Numerics
    mux: str
    operands: MatrixOperands
    steps: list[Step] | None = None

    @property
    def nibbles(self) -> NDArray[np.uint8]:
        """Metadata, which a sparse instruction has."""
        assert self.operands.nibbles is not None
        return self.operands.nibbles


def multiply(instruction: Instruction, arch: str, operands: MatrixOperands) -> NDArray:
    """Return D = A B + C, bit for bit as a chain of the instruction computes it.

    Parameters
    ----------
    instruction : Instruction
        Its k must divide K. Each k columns are one instruction, whose result is the accumulator of the next. m and n
        of the matrices are free.
    arch : str
        Architecture whose numerics apply.
    operands : MatrixOperands
        The matrices. Any metadata is allowed: the model selects what the multiplexers deliver.

    Returns
    -------
    ndarray, type and shape of `operands.c`
    """
    return multiply_by(instruction, numerics(instruction, arch), MUX_OF_ARCHITECTURE[arch], operands)


def multiply_by(instruction: Instruction, parameters: Numerics, mux: str, operands: MatrixOperands) -> NDArray:
    """Return D = A B + C, bit for bit as a datapath with the given parameters computes it.

    Parameters
    ----------
    instruction, operands : Instruction, MatrixOperands
        As for :func:`multiply`.
    parameters : Numerics
        Method, step, alignment and rounding; they need not be those of an architecture. F must not exceed, by more than
        one, the largest that :func:`~sptc.isa.numerics.numerics` returns for the instruction on any architecture.
    mux : str
        ``mux4`` or ``mux3``.

    Returns
    -------
    ndarray, type and shape of `operands.c`
    """
    result = np.empty_like(operands.c)
    batch, m, n = operands.c.shape
    tiles = max(1, _BLOCK_OUTPUTS // (m * n))
    rows = m if tiles > 1 else max(1, _BLOCK_OUTPUTS // n)
    compute = _integer_block if parameters.method is Method.INTEGER else _float_block
    for tile in range(0, batch, tiles):
        for row in range(0, m, rows):
            part = (slice(tile, tile + tiles), slice(row, row + rows))
            block = _Block(instruction, parameters, mux, operands.take(*part))
            result[part] = compute(block)
    return result


def traced(instruction: Instruction, arch: str, operands: MatrixOperands) -> tuple[NDArray, list[Step]]:
    """Return D and a trace of every step.

    Parameters
    ----------
    instruction, arch, operands : Instruction, str, MatrixOperands
        As for :func:`multiply`. Use few tiles: every intermediate value is stored.

    Returns
    -------
    tuple of ndarray and list of Step
        D, and the steps in order. The rows of a step are the rows of all tiles.
    """
    steps: list[Step] = []
    parameters = numerics(instruction, arch)
    block = _Block(instruction, parameters, MUX_OF_ARCHITECTURE[arch], operands, steps)
    compute = _integer_block if parameters.method is Method.INTEGER else _float_block
    return compute(block), steps


def _integer_block(block: _Block) -> NDArray:
    instruction = block.instruction
    if block.steps is not None:
        selected, b_codes = _selected_rows(block)
        a_codes = block.operands.a.reshape(-1, len(selected)).T[..., None]
        for start in range(0, len(selected), instruction.stored_k):
            part = np.arange(start, start + instruction.stored_k)
            block.steps.append(Step(part, a_codes[part], b_codes[selected[part]], None))
    d = block.operands.c.view(np.int32)
    a = decode_integer(block.operands.a, instruction.a)
    b = decode_integer(block.operands.b, instruction.b)
    for start in range(0, b.shape[1], instruction.k):
        stored = start // 2 if instruction.sparse else start
        a_part = a[..., stored : stored + instruction.stored_k]
        if instruction.granularity:
            chunk = start // instruction.granularity.logical
            nibbles = block.nibbles[..., chunk : chunk + instruction.chunks]
            missing = _undelivered(block, nibbles)
            if missing is not None:
                a_part = np.where(missing, np.float32(0), a_part)
            a_part = expand(a_part, kept_rows(nibbles, instruction.granularity), instruction.k)
        d = accumulate(a_part, b[:, start : start + instruction.k], d, instruction.satfinite)
    return d.view(np.uint32)


def _undelivered(block: _Block, nibbles: NDArray[np.uint8]) -> NDArray[np.bool_] | None:
    rule, granularity = block.instruction.rule, block.instruction.granularity
    assert rule
    assert granularity
    return undelivered(nibbles, granularity, rule.name, block.mux)


def _selected_rows(block: _Block) -> tuple[NDArray[np.intp], NDArray]:
    """Return the row of flattened B for every kept slot, shape (slots, tiles * rows), and flattened B."""
    tiles, k, n = block.operands.b.shape
    granularity = block.instruction.granularity
    b = block.operands.b
    if granularity is None:
        rows = np.broadcast_to(np.arange(k), (tiles, block.operands.a.shape[1], k))
    else:
        if granularity.stored == 1 and not np.isin(block.nibbles, WHOLE_ELEMENT_NIBBLES).all():
            b = splice_candidates(b, block.mux)
            rows = 16 * np.arange(block.nibbles.shape[-1]) + block.nibbles
        else:
            rows = kept_rows(block.nibbles, granularity)
            missing = _undelivered(block, block.nibbles) if granularity.stored > 1 else None
            if missing is not None:
                b = np.concatenate([b, np.zeros_like(b[:, :1])], axis=1)
                rows = np.where(missing, k, rows)
    rows = rows + np.arange(0, tiles * b.shape[1], b.shape[1])[:, None, None]
    return np.ascontiguousarray(rows.reshape(-1, rows.shape[-1]).T), b.reshape(-1, n)


def _float_block(block: _Block) -> NDArray:
    instruction, parameters = block.instruction, block.numerics
    tiles, rows, n = block.operands.c.shape
    selected, b_codes = _selected_rows(block)
    a_codes = np.ascontiguousarray(block.operands.a.reshape(tiles * rows, -1).T)[..., None]
    a_format, b_format = instruction.a, instruction.b
    a_held, b_held = a_codes, b_codes
    if parameters.method is Method.EMULATED:
        a_codes, b_codes = widen(a_codes, a_format), widen(b_codes, b_format)
        a_format = b_format = FORMATS["f16"]
    precision = precision_for(a_format, b_format) if block.steps is None else WIDE
    a = decode(a_codes, a_format, precision, instruction.low_bit(a_format))
    b = decode(b_codes, b_format, precision, instruction.low_bit(b_format))
    if a.classes is not None or b.classes is not None:
        a, b = a.with_classes(), b.with_classes()

    d = decode_accumulator(block.operands.c.reshape(tiles * rows, n))
    traces: list[Trace] | None = None if block.steps is None else []
    for start in range(0, len(selected), instruction.stored_k):
        parts = _steps(np.arange(start, start + instruction.stored_k), parameters)
        if parameters.method is Method.EMULATED:
            given = [(a.take(part), b.take(selected[part])) for part in parts]
            d = emulated_instruction(given, d, instruction.c, parameters, precision, traces)
        for part in parts if parameters.method is not Method.EMULATED else ():
            a_step, b_step = a.take(part), b.take(selected[part])
            if parameters.method is Method.GROUPED:
                d = grouped_step(a_step, b_step, d, instruction.c, parameters, _scales(block, part), traces)
            else:
                scales = _scales(block, part[:BLOCK_GROUP]) if instruction.scale_format else None
                d = fused_step(a_step, b_step, d, instruction.c, parameters, precision, scales, traces)
        if block.steps is not None and traces is not None:
            for part, trace in zip(parts, traces, strict=True):
                block.steps.append(Step(part, a_held[part], b_held[selected[part]], trace))
            traces.clear()
    return encode_accumulator(d, block.operands.c.dtype).reshape(block.operands.c.shape)


def _steps(slots: NDArray[np.intp], parameters: Numerics) -> list[NDArray[np.intp]]:
    """Split the kept slots of an instruction by step."""
    lines = even_and_odd_pairs(slots) if parameters.method is Method.EMULATED else (slots,)
    return [part for line in lines for part in np.split(line, range(parameters.step, len(line), parameters.step))]


def _scales(block: _Block, step: NDArray[np.intp]) -> Scales:
    """Return the scales of each group of 16 kept products, shape (groups, rows, n)."""
    instruction = block.instruction
    assert instruction.scale_format
    assert instruction.span
    assert block.operands.scale_a is not None
    assert block.operands.scale_b is not None
    logical = step[::BLOCK_GROUP] * (2 if instruction.sparse else 1)
    spans = logical // instruction.span
    tiles, rows, n = block.operands.c.shape
    a_significand, a_exponent = decode_scale(block.operands.scale_a[..., spans], instruction.scale_format)
    b_significand, b_exponent = decode_scale(block.operands.scale_b[..., spans], instruction.scale_format)
    shape = (len(spans), tiles * rows, n)
    significands = a_significand[:, :, None] * b_significand[:, None]
    exponents = (a_exponent[:, :, None] + b_exponent[:, None]).astype(np.int32)
    return Scales(np.moveaxis(significands, -1, 0).reshape(shape), np.moveaxis(exponents, -1, 0).reshape(shape))

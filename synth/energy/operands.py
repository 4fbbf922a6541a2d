"""Operands for energy measurements, from random distributions or from matrices, as inputs of one dot-product unit."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...errors import Error
from ...golden.matrix import multiply
from ...gpu.distributions import DISTRIBUTIONS, numbers
from ...isa.formats import Format, low_bit
from ...isa.instructions import Instruction
from ...isa.operands import MatrixOperands
from ...operands.registers import random_nibbles
from ...rtl.config import CoreConfig
from ...sim.engine.steps import step_words, steps_of

__all__ = ["CHAIN", "Compute", "cut", "drawn", "share_of_zeros", "streamed"]

#: Function that computes the results of a dot-product unit for inputs of shape (cycles, words). For each cycle, it
#: returns the 32-bit result, and a flag that tells whether the sum exceeds 32 bits.
Compute = Callable[[NDArray[np.uint32]], tuple[NDArray[np.uint32], NDArray[np.bool_]]]
#: Share of zeros in each distribution of :mod:`sptc.gpu.distributions` whose nonzero numbers are normally distributed.
_SHARES = {"normal": 0.0, "half": 0.5, "zeros": 1.0}
_SHARE = re.compile(r"(\d{1,2})%")
#: Number of instructions per chain along K. The accumulators of each chain start at zero.
CHAIN = 8


def share_of_zeros(distribution: str) -> float | None:
    """Return the share of zeros in a distribution whose other numbers are normal, or None for other distributions.

    The distribution is one of :data:`~sptc.gpu.distributions.DISTRIBUTIONS`, or a share in whole per cent: ``25%``.
    """
    match = _SHARE.fullmatch(distribution)
    return int(match[1]) / 100 if match else _SHARES.get(distribution)


def drawn(instruction: Instruction, distribution: str, tiles: int, rng: np.random.Generator) -> MatrixOperands:
    """Choose random operands for `tiles` output tiles. Each is a chain of instructions along K without block scales.

    A's stored elements and B have a distribution of :func:`sptc.gpu.distributions.numbers`, or a share of zeros as for
    :func:`share_of_zeros`. K is that of the instruction times :data:`CHAIN`; accumulators begin at zero.
    """
    i, dtype = instruction, f"u{max(1, instruction.container_bits // 8)}"

    share = None if distribution in DISTRIBUTIONS else share_of_zeros(distribution)

    def codes(fmt: Format, *shape: int) -> NDArray:
        values = numbers(fmt, distribution if share is None else "normal", shape, rng)
        if share is not None:
            values = values * (rng.random(shape) >= share)
        return (values << low_bit(fmt, i.container_bits)).astype(dtype)

    nibbles = [random_nibbles(i, tiles, rng) for _ in range(CHAIN)] if i.rule else None
    return MatrixOperands(
        a=codes(i.a, tiles, i.m, CHAIN * i.stored_k),
        b=codes(i.b, tiles, CHAIN * i.k, i.n),
        c=np.zeros((tiles, i.m, i.n), f"u{i.d.bits // 8}"),
        nibbles=None if nibbles is None else np.concatenate(nibbles, axis=-1),
    )


def cut(
    instruction: Instruction,
    a: NDArray,
    b: NDArray,
    nibbles: NDArray[np.uint8] | None,
    tiles: int,
    rng: np.random.Generator,
) -> MatrixOperands:
    """Cut up to `tiles` distinct tiles (M x N of the instruction) out of A and B at random. Each tile has the whole K.

    The instruction has no block scales. `a` and `b` hold codes in containers, shapes (M, stored K) and (K, N); K is a
    multiple of that of the instruction. Partial tiles in M and N are padded with zeros. `nibbles` is the metadata,
    shape (M, chunks); padding rows get the metadata of the first row.
    """
    m, n = instruction.m, instruction.n
    filled = -len(a) % m
    a, b = np.pad(a, ((0, filled), (0, 0))), np.pad(b, ((0, 0), (0, -b.shape[1] % n)))
    of_rows = a.reshape(-1, m, a.shape[1])
    of_columns = b.reshape(len(b), -1, n).swapaxes(0, 1)
    total = len(of_rows) * len(of_columns)
    rows, columns = np.divmod(rng.choice(total, min(tiles, total), replace=False), len(of_columns))
    if nibbles is not None:
        nibbles = np.concatenate([nibbles, np.repeat(nibbles[:1], filled, axis=0)]).reshape(-1, m, nibbles.shape[1])
    return MatrixOperands(
        a=of_rows[rows],
        b=of_columns[columns],
        c=np.zeros((len(rows), m, n), f"u{instruction.d.bits // 8}"),
        nibbles=None if nibbles is None else nibbles[rows],
    )


def of_one_unit(operands: MatrixOperands, config: CoreConfig) -> MatrixOperands:
    """Return the operands of the first dot-product unit: each `config.rows`-th row, `config.columns`-th column."""
    nibbles = operands.nibbles
    return replace(
        operands,
        a=operands.a[:, :: config.rows],
        b=operands.b[:, :, :: config.columns],
        c=operands.c[:, :: config.rows, :: config.columns],
        nibbles=None if nibbles is None else nibbles[:, :: config.rows],
    )


def streamed(
    config: CoreConfig, instruction: Instruction, arch: str, operands: MatrixOperands, compute: Compute
) -> NDArray[np.uint32]:
    """Return the inputs of an array's first dot-product unit in each cycle, in order, shape (cycles, words).

    For every chain and every step along K, the unit computes all of its outputs, row by row. The accumulator of an
    output is therefore ready before the next step of this output. The operands are as from :func:`drawn`, `compute` is
    the function of the unit, and the words are those of :func:`~sptc.sim.engine.steps.step_words`. Raise an `Error` if
    results of unit and golden model differ.
    """
    words, own = step_words(config), of_one_unit(operands, config)
    c = own.c.astype(np.uint32)
    steps = []
    for of_instruction in own.steps(instruction):
        previous = c.astype(np.uint64)
        for step in steps_of(config, instruction, of_instruction):
            inputs = step.whole(previous)
            d, overflow = compute(inputs.reshape(-1, words.total))
            c = d.reshape(c.shape)
            previous = c | overflow.reshape(c.shape).astype(np.uint64) << np.uint64(words.result_overflow)
            steps.append(inputs)
    if (c.astype(own.c.dtype) != multiply(instruction, arch, own)).any():
        raise Error(f"the netlist of the unit gives wrong results for {instruction} of {arch}, so no energy is given")
    return np.stack(steps, axis=1).reshape(-1, words.total)

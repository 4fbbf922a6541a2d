"""Cut matrices into tiles of the size of an instruction, and place the tiles in registers and shared memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..isa.fragments import a_fragment, accumulator_fragment, b_fragment
from ..isa.instructions import Instruction
from ..isa.operands import HeldOperands, Immediates, MatrixOperands, Product, StepFlags
from ..operands.packing import metadata_to_registers, scales_to_registers, to_shared_memory
from ..operands.registers import to_registers

__all__ = ["multiply_held"]

#: Type of a function that executes an instruction once for each element of a batch of operands.
Execute = Callable[[Instruction, str, HeldOperands], Product]
_Value = TypeVar("_Value")


def multiply_held(execute: Execute, instruction: Instruction, arch: str, operands: MatrixOperands) -> Product:
    """Compute D by `execute`, which runs one instruction on each element of a batch of operands.

    If the matrices are larger than the instruction's matrices, they are cut into tiles and steps along K. Operands that
    already are in registers and shared memory are passed on unchanged. Other arguments are those of
    :meth:`~sptc.api.backends.Backend.multiply`.
    """
    if isinstance(operands.held, HeldOperands):
        return execute(instruction, arch, operands.held)
    d, flags, cycles = operands.c, list[StepFlags | None](), list[int | None]()
    for step in operands.steps(instruction):
        batch = [replace(step, c=d).take(slice(i, i + 1)) for i in range(len(d))]
        products = [_in_tiles(execute, instruction, arch, one) for one in batch]
        d = np.concatenate([product.d for product in products])
        flags += _joined([product.flags for product in products])
        cycles += [product.cycles for product in products]
    return Product(d, _all_of(flags), None if (counts := _all_of(cycles)) is None else sum(counts))


def _all_of(values: Sequence[_Value | None]) -> tuple[_Value, ...] | None:
    """Return all values as a tuple, or None if any value is None."""
    present = tuple(value for value in values if value is not None)
    return present if len(present) == len(values) else None


def _joined(of_batch: Sequence[tuple[StepFlags, ...] | None]) -> Iterator[StepFlags | None]:
    """Yield the flags of undefined metadata of each hardware step (cycle), concatenated for all tiles and matrices."""
    batch = _all_of(of_batch)
    if batch is None:
        yield None
        return
    for steps in zip(*batch, strict=True):
        nibbles = np.concatenate([step.nibbles for step in steps if step.nibbles is not None])
        yield StepFlags(steps[0].instruction, nibbles, np.concatenate([step.illegal for step in steps]))


def _in_tiles(execute: Execute, instruction: Instruction, arch: str, operands: MatrixOperands) -> Product:
    """Multiply the matrices of one batch element, padded with zeros to whole tiles."""
    (_, rows, columns), m, n = operands.c.shape, instruction.m, instruction.n
    down, across = -(-rows // m), -(-columns // n)
    tiles, accumulators = (down, across), accumulator_fragment(instruction)
    below, right, none = (0, down * m - rows), (0, across * n - columns), (0, 0)

    def of_rows(part: NDArray) -> NDArray:
        return np.pad(part[0], (below, none)).reshape(down, m, -1)

    def each_tile(part: NDArray, axis: int) -> NDArray:
        """Repeat the tiles of A (or B) for all tiles of D in the same row (or column) of tiles."""
        whole = np.broadcast_to(np.expand_dims(part, axis), (*tiles, *part.shape[1:]))
        return whole.reshape(-1, *part.shape[1:])

    b = np.pad(operands.b[0], (none, right)).reshape(-1, across, n).swapaxes(0, 1)
    c = np.pad(operands.c[0], (below, right)).reshape(down, m, across, n).swapaxes(1, 2).reshape(-1, m, n)
    arrays: dict[str, NDArray] = {
        "a": each_tile(to_registers(of_rows(operands.a), a_fragment(instruction)), 1),
        "c": to_registers(c, accumulators),
    }
    if operands.nibbles is not None:
        arrays["e"] = each_tile(metadata_to_registers(instruction, of_rows(operands.nibbles), 0), 1)
    if operands.scale_a is not None and operands.scale_b is not None:
        scales = np.pad(operands.scale_b[0], (right, none)).reshape(across, n, -1)
        for name, codes, axis in (("scale_a", of_rows(operands.scale_a), 1), ("scale_b", scales, 0)):
            arrays[name] = each_tile(scales_to_registers(instruction, name, codes, 0, 0)[0], axis)
    descriptors = (0, 0)
    if instruction.family == "mma":
        arrays["b"] = each_tile(to_registers(b, b_fragment(instruction)), 0)
    else:
        packed = to_shared_memory(instruction, {"b": b.swapaxes(1, 2)}, "none")
        arrays["b"], descriptors = each_tile(packed["smem"], 0), (0, packed["b"])  # A in registers has no descriptor
    product = execute(instruction, arch, HeldOperands(arrays, Immediates(), descriptors))
    codes = product.d.reshape(*tiles, m, n).swapaxes(1, 2)
    return replace(product, d=codes.reshape(1, down * m, across * n)[:, :rows, :columns])

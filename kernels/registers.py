"""Registers of the threads of a batch of CTAs, and the operands that instructions read.

A register is one array over all threads of all CTAs of the batch, or an array of one element while all threads have the
same value.
"""

from collections.abc import Callable, Iterable, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from ..errors import KernelError
from .geometry import Launch, special_registers
from .memory import UNSIGNED, GlobalMemory
from .program import Immediate, Kernel, Negated, Operand, Register, Sink, Special, Symbol, items_of, size_of
from .values import constant, numpy_type, register_type

__all__ = ["CLUSTER_SHIFT", "Mask", "Reader", "Registers", "Writer"]

Mask = NDArray[np.bool_] | None
Reader = Callable[[], NDArray]
Writer = Callable[[Mask, NDArray], None]
#: Lowest bit of the CTA rank in a shared-memory address of a cluster. As on a GPU, kernels clear this bit to address
#: the first CTA of a pair.
CLUSTER_SHIFT = 24


class Registers:
    """Registers and special registers of the CTAs with the linear numbers `ctas`, and the addresses of symbols."""

    def __init__(self, kernel: Kernel, launch: Launch, ctas: NDArray[np.int64], memory: GlobalMemory) -> None:
        self.kernel, self.launch = kernel, launch
        #: Number of threads. Each lane counts as a thread; a lane without a thread never executes an instruction.
        self.count = len(ctas) * launch.lanes
        self.numbers = {name: number for number, name in enumerate(kernel.registers)}
        self.registers: list[NDArray] = [np.zeros(1, register_type(t)) for t in kernel.registers.values()]
        self.special, self.rank_of_thread = special_registers(launch, np.asarray(ctas))
        halves = zip(("%envreg1", "%envreg2"), divmod(memory.workspace, 1 << 32), strict=True)
        self.special |= {name: np.array([half], np.uint32) for name, half in halves}
        #: Address of each symbol that has the same address in all threads.
        self.symbols = {parameter.name: parameter.offset for parameter in kernel.parameters} | memory.variables
        self.symbols |= {name: start for name, (start, _) in kernel.local.items()}

    def every(self, values: NDArray) -> NDArray:
        """Broadcast a single value, or one value per thread, to an array with one value per thread."""
        return values if values.size == self.count else np.broadcast_to(values, (self.count,))

    def value(self, read: Reader, thread: int) -> int:
        """Return the value of an operand in one thread."""
        values = read()
        return int(values[0] if values.size == 1 else values[thread])

    def reader(self, operand: Operand, type_: str) -> Reader:
        """Return a function that reads an operand as a PTX type: a value per thread, or one value for all threads."""
        registers, dtype = self.registers, numpy_type(type_)
        if isinstance(operand, Register):
            number = self.numbers[operand.name]
            if registers[number].dtype == dtype:
                return lambda: registers[number]
            if registers[number].dtype.itemsize == dtype.itemsize:
                return lambda: registers[number].view(dtype)
            bits = UNSIGNED[dtype.itemsize]
            return lambda: registers[number].astype(bits).view(dtype)
        if isinstance(operand, Negated):
            inner = self.reader(operand.operand, type_)
            return lambda: ~inner()
        fixed = self._fixed(operand, type_).astype(dtype, copy=False)
        return lambda: fixed

    def _fixed(self, operand: Operand, type_: str) -> NDArray:
        if isinstance(operand, Immediate):
            return constant(operand, type_)
        if isinstance(operand, Special) and operand.name in self.special:
            return self.special[operand.name].astype(UNSIGNED[size_of(type_)])
        if isinstance(operand, Symbol):
            bits = UNSIGNED[size_of(type_)]
            if operand.name in self.kernel.shared:
                rank = self.rank_of_thread if self.launch.cluster_size > 1 else np.zeros(1, np.int64)
                return (self.kernel.shared[operand.name][0] + (rank << CLUSTER_SHIFT)).astype(bits)
            if operand.name in self.symbols:
                return np.array([self.symbols[operand.name]], np.uint64).astype(bits)
        name = getattr(operand, "name", type(operand).__name__.lower())
        raise KernelError(f"the operand '{name}' is not modelled in this position")

    def writer(self, operand: Operand, type_: str) -> Writer:
        """Return a function that writes values of a type to a register, for the threads of a mask."""
        if isinstance(operand, Sink):
            return lambda mask, values: None
        if not isinstance(operand, Register):
            raise KernelError("a destination must be a register")
        registers, number = self.registers, self.numbers[operand.name]
        kept = registers[number].dtype
        signed = type_[0] == "s"

        def write(mask: Mask, values: NDArray) -> None:
            if values.dtype != kept:
                if values.dtype.itemsize == kept.itemsize:
                    values = values.view(kept)
                else:  # The register is wider than the type: sign- or zero-extend the value.
                    values = (values.astype(np.int64) if signed else values).astype(kept)
            registers[number] = values if mask is None else np.where(mask, values, registers[number])

        return write

    def register_numbers(self, operand: Operand) -> tuple[int, ...]:
        """Return the indices of the registers in a vector operand, or of a single register."""
        items = items_of(operand)
        if not all(isinstance(item, Register) for item in items):
            raise KernelError("all elements of a vector operand must be registers")
        return self.numbers_of(item.name for item in items if isinstance(item, Register))

    def numbers_of(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return the indices of registers that are given by name."""
        return tuple([self.numbers[name] for name in names])

    def stacked(
        self, numbers: Sequence[int] | NDArray, group: int, groups: NDArray | None = None
    ) -> NDArray[np.uint32]:
        """Return register contents arranged by groups of threads, for all groups, or only for the groups in `groups`.

        `numbers` are the numbers of the registers. For shape (registers,), the result has the shape (groups, threads of
        a group, registers); for (stacks, ..., registers), it has (stacks, groups, ..., threads, registers).
        """
        numbers = np.asarray(numbers)
        *lead, count = numbers.shape
        stacks, tiles = (lead[0] if lead else 1), prod(lead[1:])
        chosen = slice(None) if groups is None else groups
        number_of_groups = self.count // group if groups is None else len(groups)
        result = np.empty((stacks, number_of_groups, tiles, group, count), np.uint32)
        for (stack, tile, place), number in np.ndenumerate(numbers.reshape(stacks, tiles, count)):
            values = self.registers[number]
            result[stack, :, tile, :, place] = values if values.size == 1 else values.reshape(-1, group)[chosen]
        return result.reshape(*lead[:1], number_of_groups, *lead[1:], group, count)

    def spread(self, numbers: Sequence[int] | NDArray, values: NDArray, groups: NDArray | None, group: int) -> None:
        """Write values to registers of all groups of threads or of `groups`. Shape of `values`: see :meth:`stacked`."""
        numbers = np.asarray(numbers)
        if numbers.ndim > 1:
            values = np.moveaxis(values, 1, -3)
        values = np.ascontiguousarray(np.moveaxis(values, -1, -3)).reshape(numbers.size, *values.shape[-3:-1])
        for number, column in zip(numbers.ravel().tolist(), values, strict=True):
            if groups is None:
                self.registers[number] = column.reshape(-1)
            else:
                whole = np.array(self.every(self.registers[number])).reshape(-1, group)
                whole[groups] = column
                self.registers[number] = whole.reshape(-1)

"""Operands as words: of eight columns of D, of rows of A and of columns of B, as registers of arrays of 16 rows."""

import numpy as np
from numpy.typing import NDArray
from sptc.isa.memory import decode_descriptor, shared_map

ALL_COLUMNS, COLUMNS, ROWS, LANES, REGISTERS = 512, 8, 16, 32, 4
UNIT_BYTES, MEMORY_BYTES = 16, 1 << 18
_LANE, _REGISTER = np.indices((LANES, REGISTERS))


def accumulator_registers(words: NDArray[np.uint32], half: bool) -> NDArray[np.uint32]:
    """Return the registers of each array that hold eight columns of its rows.

    Register 2 h + s of lane 4 g + t has row 8 h + g and column 2 t + s; of 16 bits, register h has both columns.
    """
    g, t = _LANE // 4, _LANE % 4
    of_array = words.reshape(-1, ROWS, COLUMNS)
    if not half:
        return of_array[:, 8 * (_REGISTER // 2) + g, 2 * t + _REGISTER % 2]
    row = 8 * _REGISTER[:, :2] + g[:, :2]
    low, high = (of_array[:, row, 2 * t[:, :2] + side] & 0xFFFF for side in range(2))
    return np.pad(low | high << np.uint32(16), ((0, 0), (0, 0), (0, 2)))


def accumulator_words(registers: NDArray[np.uint32], half: bool) -> NDArray[np.uint32]:
    """Return eight columns of all rows from registers, the way back."""
    row, column = np.indices((ROWS, COLUMNS))
    h, g, t, side = row // 8, row % 8, column // 2, column % 2
    if not half:
        return registers[:, 4 * g + t, 2 * h + side].reshape(-1, COLUMNS)
    return (registers[:, 4 * g + t, h] >> (16 * side).astype(np.uint32) & 0xFFFF).reshape(-1, COLUMNS)


def a_registers(octets: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return A of an array from 32 bytes of each row.

    Register 2 h + u of lane 4 g + t is bytes 16 h + 4 t on of row 8 u + g.
    """
    return octets.view("<u4")[8 * (_REGISTER % 2) + _LANE // 4, 4 * (_REGISTER // 2) + _LANE % 4]


def b_registers(octets: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return B from 64 bytes of each of eight columns, or 32 of a dense instruction, which has two registers.

    Register r of lane 4 g + t is bytes 16 r + 4 t on of column g.
    """
    kept = octets.shape[1] // UNIT_BYTES
    return octets.view("<u4")[_LANE[:, :kept] // 4, 4 * _REGISTER[:, :kept] + _LANE[:, :kept] % 4]


def columns_from(first: int) -> NDArray[np.int64]:
    """Return eight columns of tensor memory, which wrap."""
    return (first + np.arange(COLUMNS)) % ALL_COLUMNS


def write_columns(memory: NDArray[np.uint32], first: int, words: NDArray[np.uint32], half: bool) -> None:
    """Write eight columns of all lanes, or the lower half of each word."""
    mask, places = np.uint32(0xFFFF if half else 0xFFFFFFFF), columns_from(first)
    memory[:, places] = memory[:, places] & ~mask | words & mask


def bits_of(words: NDArray[np.uint32]) -> int:
    """Return words as one number, the first one lowest."""
    return int.from_bytes(np.ascontiguousarray(words, "<u4").tobytes(), "little")


def words_of(number: int, count: int) -> NDArray[np.uint32]:
    """Return a number as so many words, the way back."""
    return np.frombuffer(number.to_bytes(4 * count, "little"), "<u4")


def shared_octets(
    memory: NDArray[np.uint8], descriptor: int, lines: int, line_bytes: int, element_bits: int = 16, *,
    mn_major: int = 0, family: str = "wgmma",
) -> NDArray[np.uint8]:  # fmt: skip
    """Return the bytes of rows of A or of columns of B in shared memory, K ascending, by the index map."""
    k, major = 8 * line_bytes // element_bits, "mn" if mn_major else "k"
    addresses = shared_map(decode_descriptor(descriptor, family), lines, k, element_bits, major=major).addresses
    if element_bits < 8:
        addresses = addresses[:, :: 8 // element_bits]
    addresses = addresses[..., None] + np.arange(max(1, element_bits // 8))
    return np.ascontiguousarray(memory[addresses % MEMORY_BYTES].reshape(lines, line_bytes))


def unit_of(memory: NDArray[np.uint8], address: int) -> int:
    """Return a unit of shared memory as a number."""
    return int.from_bytes(memory[UNIT_BYTES * address : UNIT_BYTES * (address + 1)].tobytes(), "little")


async def serve_shared_memory(ctx, port, memory: NDArray[np.uint8]) -> None:
    """Answer reads of units of shared memory in the next cycle, as a process beside a testbench."""
    async for _, _, reads, *addresses in ctx.tick().sample(port.read, *port.address):
        for row, address in enumerate(addresses):
            ctx.set(port.data[row], unit_of(memory, address) if reads else -1)


async def serve_accumulators(ctx, port, memory: NDArray[np.uint32]) -> None:
    """Read and write eight columns of accumulators in a cycle, as a process beside a testbench."""
    names = ("read", "read_column", "write", "write_column", "write_half")
    ports = (*(getattr(port, name) for name in names), port.write_data.as_value())
    async for _, _, read, column, write, target, half, data in ctx.tick().sample(*ports):
        if read:
            ctx.set(port.read_data.as_value(), bits_of(memory[:, columns_from(column)]))
        if write:
            write_columns(memory, target, words_of(data, memory.shape[0] * COLUMNS).reshape(-1, COLUMNS), half)

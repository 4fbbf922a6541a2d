"""Helpers for operand panels of arrays: registers, shared memory, descriptors, and a stand-in for an array."""

from typing import Any

import numpy as np
from amaranth.hdl import Module
from numpy.typing import NDArray
from sptc.isa.fragments import a_fragment, b_fragment
from sptc.isa.instructions import parse
from sptc.isa.memory import decode_descriptor, encode_descriptor, shared_map
from sptc.operands.registers import to_registers
from sptc.rtl.config import CoreConfig
from sptc.rtl.fetch import descriptor_layout
from sptc.rtl.step import control_layout
from sptc.rtl.warp import Warp
from sptc.sim.engine.steps import control_word

COLUMNS, ROWS, LANES, REGISTERS = 8, 16, 32, 4
UNIT_BYTES, MEMORY_BYTES = 16, 1 << 18
#: Instructions with one-byte elements. Their fragments state the register of each byte of A and B.
DENSE = parse("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
SPARSE = parse("mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32")


def a_registers(octets: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return the registers of A for an array. `octets` has 32 bytes of each of 16 rows."""
    return to_registers(octets[None], a_fragment(DENSE))[0]


def b_registers(octets: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return the registers of B. `octets` has 64 bytes of each of 8 columns, or 32 bytes for dense instructions."""
    return to_registers(octets.T[None], b_fragment(DENSE if octets.shape[1] == 32 else SPARSE))[0]


def bits_of(words: NDArray[np.uint32]) -> int:
    return int.from_bytes(np.ascontiguousarray(words, "<u4").tobytes(), "little")


def words_of(number: int, count: int) -> NDArray[np.uint32]:
    return np.frombuffer(number.to_bytes(4 * count, "little"), "<u4")


def lanes_of(ctx, port, registers: int) -> NDArray[np.uint32]:
    """Return the registers of all lanes, read from a port of the hardware."""
    return words_of(ctx.get(port.as_value()), LANES * registers).reshape(LANES, registers)


def draw_descriptors(rng: np.random.Generator, family: str) -> dict[str, int]:
    """Return random descriptors of A and B with different addresses, offsets and swizzles."""
    numbers, swizzles = rng.choice(60, (3, 2), replace=False), rng.permutation(["none", "32B", "64B", "128B"])
    fields = (([UNIT_BYTES * int(one) for one in numbers[:, side]], str(swizzles[side])) for side in range(2))
    every = (encode_descriptor(*places, swizzle, int(rng.integers(8)), family) for places, swizzle in fields)
    return dict(zip("ab", every, strict=True))


def offer(ctx, payload, operation, config: CoreConfig, one: Any) -> None:
    """Set an input payload to an operation with the control word, fields and descriptors of an instruction."""
    ctx.set(payload.operation, operation)
    ctx.set(payload.control, control_layout().from_bits(control_word(config, one.instruction, last=True)))
    for name, value in one.fields.items():
        ctx.set(payload[name], value)
    for name, value in one.descriptors.items():
        ctx.set(payload[f"{name}_descriptor"], descriptor_layout().from_bits(value))


def shared_octets(
    memory: NDArray[np.uint8], bits: int, descriptor: int, lines: int, line_bytes: int, *, mn_major: int, family: str
) -> NDArray[np.uint8]:
    """Return the bytes of rows of A or columns of B, with ascending K, from the addresses that the index map states."""
    k, major = 8 * line_bytes // bits, "mn" if mn_major else "k"
    addresses = shared_map(decode_descriptor(descriptor, family), lines, k, bits, major=major).addresses
    if bits < 8:
        addresses = addresses[:, :: 8 // bits]
    addresses = addresses[..., None] + np.arange(max(1, bits // 8))
    return np.ascontiguousarray(memory[addresses % MEMORY_BYTES].reshape(lines, line_bytes))


async def serve_shared_memory(ctx, port, memory: NDArray[np.uint8]) -> None:
    """Simulation process that answers reads of 16-byte words of shared memory in the next cycle."""
    async for _, _, reads, *addresses in ctx.tick().sample(port.read, *port.address):
        for row, address in enumerate(addresses):
            unit = memory[UNIT_BYTES * address : UNIT_BYTES * (address + 1)]
            ctx.set(port.data[row], int.from_bytes(unit.tobytes(), "little") if reads else -1)


class Inverting(Warp):
    """Stand-in for an array. In the next cycle, it returns the inverted accumulators of an instruction or panel."""

    made: list["Inverting"]

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self.made.append(self)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.i.ready.eq(~self.o.valid)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [self.o.valid.eq(1), self.o.payload.d.eq(~self.i.payload.c.as_value())]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        return m

"""What a warpgroup hands to its four arrays: every panel's operands by the index maps, and whose results come back."""

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from amaranth.hdl import Module
from numpy.typing import NDArray
from sptc.isa.memory import encode_descriptor
from sptc.rtl.fetch import descriptor_layout
from sptc.rtl.life_cycle import Operation
from sptc.rtl.tensor_core import TENSOR_CORE
from sptc.rtl.tensor_cores import WARPS
from sptc.rtl.warpgroup import Warpgroup
from sptc.tests.rtl.busy_warp import AnsweringWarp
from sptc.tests.rtl.operand_words import (
    LANES,
    MEMORY_BYTES,
    REGISTERS,
    ROWS,
    UNIT_BYTES,
    a_registers,
    b_registers,
    bits_of,
    serve_shared_memory,
    shared_octets,
    words_of,
)
from sptc.tests.rtl.simulation import simulate_clocked

#: Bytes of a row of A, and of a column of a sparse B.
A_BYTES, B_BYTES = 32, 64
INSTRUCTIONS = 16


@dataclass(frozen=True, eq=False)
class Work:
    """One instruction of 16-bit floats, and the operands that its descriptors lead to."""

    fields: dict[str, int]
    descriptors: dict[str, int]
    registers_of_a: NDArray[np.uint32]  # (warps, lanes, registers)
    metadata: NDArray[np.uint32]  # (warps, lanes)
    a: NDArray[np.uint8]  # bytes of rows, if A is in shared memory
    b: NDArray[np.uint8]  # bytes of columns

    @property
    def panels(self) -> int:
        return self.fields["last_panel"] + 1

    def expected_a(self, warp: int) -> NDArray[np.uint32]:
        """Return A of a warp's lanes."""
        signs = np.uint32(0x80008000 if self.fields["negated"] else 0)
        if not self.fields["a_shared"]:
            return self.registers_of_a[warp] ^ signs
        return a_registers(self.a[ROWS * warp : ROWS * (warp + 1)]) ^ signs

    def expected_b(self, panel: int) -> NDArray[np.uint32]:
        """Return B of a warp's lanes."""
        return b_registers(self.b[8 * panel : 8 * (panel + 1)])


def draw(memory: NDArray[np.uint8], number: int, rng: np.random.Generator) -> Work:
    """Draw an instruction; A and B differ in their descriptors and majors."""
    a_transposed = int(rng.integers(2))
    fields = {"a_transposed": a_transposed, "b_transposed": 1 - a_transposed, "sparse": int(rng.integers(2))}
    fields |= {"a_shared": number % 2 if number < 4 else int(rng.integers(2)), "last_panel": int(rng.integers(3))}
    fields |= {name: int(rng.integers(2)) for name in ("negated", "add")}
    fields["sparsity_selector"] = int(rng.integers(4))
    numbers, swizzles = rng.choice(60, (3, 2), replace=False), rng.permutation(["none", "32B", "64B", "128B"])
    descriptors = {
        name: encode_descriptor(
            *(UNIT_BYTES * int(one) for one in numbers[:, side]), str(swizzles[side]), int(rng.integers(8))
        )
        for side, name in enumerate("ab")
    }
    return Work(
        fields,
        descriptors,
        rng.integers(0, 1 << 32, (WARPS, LANES, REGISTERS), np.uint32),
        rng.integers(0, 1 << 32, (WARPS, LANES), np.uint32),
        shared_octets(memory, descriptors["a"], ROWS * WARPS, A_BYTES, mn_major=fields["a_transposed"]),
        shared_octets(
            memory,
            descriptors["b"],
            8 * (fields["last_panel"] + 1),
            B_BYTES if fields["sparse"] else B_BYTES // 2,
            mn_major=fields["b_transposed"],
        ),
    )


class Echoing(AnsweringWarp):
    """Gives for every operand its first accumulator and its first word of A, some cycles later."""

    cycles = TENSOR_CORE.warp_blocks
    made: list["Echoing"]

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self.made.append(self)

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [
                self.o.payload.d[0][0].eq(self.i.payload.c[0][0]),
                self.o.payload.d[0][1].eq(self.i.payload.a[0][0]),
            ]
        return m


def operands_of(ctx, warp: Echoing) -> dict[str, Any]:
    """Return what a warp is given."""
    payload = warp.i.payload
    words = {
        name: words_of(ctx.get(payload[name].as_value()), LANES * count)
        for name, count in (("a", REGISTERS), ("b", REGISTERS), ("c", REGISTERS), ("e", 1))
    }
    given: dict[str, Any] = {name: found.reshape(LANES, -1) for name, found in words.items()}
    return given | {"sparsity_selector": ctx.get(payload.sparsity_selector), "sparse": ctx.get(payload.control.sparse)}


def test_every_array_gets_what_the_maps_say(rng: np.random.Generator) -> None:
    """A from registers and from shared memory, B of either major, sparse and dense, and everything else of a panel."""
    memory = rng.integers(0, 256, MEMORY_BYTES, dtype=np.uint8)
    work = [draw(memory, number, rng) for number in range(INSTRUCTIONS)]
    panels = deque((number, panel) for number, one in enumerate(work) for panel in range(one.panels))
    expected_results: deque[list[tuple[int, int]]] = deque()
    warps: list[Echoing] = []
    dut = Warpgroup(TENSOR_CORE, warp_class=type("EchoingWarp", (Echoing,), {"made": warps}))

    async def bench(ctx) -> None:
        accepted = cycle = 0
        accumulators = rng.integers(0, 1 << 32, (WARPS, LANES, REGISTERS), np.uint32)
        offer(ctx, dut, work[0])
        while panels or expected_results:
            assert cycle < 100 * INSTRUCTIONS, "nothing is multiplied any more"
            ctx.set(dut.i.valid, accepted < INSTRUCTIONS and int(rng.integers(2)))
            ctx.set(dut.c.valid, int(rng.random() < 0.8))
            ctx.set(dut.c.payload.as_value(), bits_of(accumulators))
            ctx.set(dut.o.ready, 1)
            if ctx.get(dut.o.valid):
                got = [tuple(ctx.get(dut.o.payload[warp].d[0][place]) for place in range(2)) for warp in range(WARPS)]
                assert got == expected_results.popleft(), "the results are not those of the panel that is due"
            if ctx.get(dut.c.valid) and ctx.get(dut.c.ready):
                number, panel = panels.popleft()
                one = work[number]
                c = accumulators if one.fields["add"] else np.zeros_like(accumulators)
                for warp, array in enumerate(warps):
                    given = operands_of(ctx, array)
                    where = f"instruction {number} ({one.fields}), panel {panel}, warp {warp}"
                    np.testing.assert_array_equal(given["a"], one.expected_a(warp), f"A of {where}")
                    b = one.expected_b(panel)
                    np.testing.assert_array_equal(given["b"][:, : b.shape[1]], b, f"B of {where}")
                    np.testing.assert_array_equal(given["c"], c[warp], f"accumulators of {where}")
                    np.testing.assert_array_equal(given["e"][:, 0], one.metadata[warp], f"metadata of {where}")
                    for name in ("sparsity_selector", "sparse"):
                        assert given[name] == one.fields[name], f"{name} of {where}"
                expected_results.append(
                    [(int(c[warp, 0, 0]), int(one.expected_a(warp)[0, 0])) for warp in range(WARPS)]
                )
                accumulators = rng.integers(0, 1 << 32, accumulators.shape, np.uint32)
            taken = ctx.get(dut.i.valid) and ctx.get(dut.i.ready)
            await ctx.tick()
            cycle += 1
            if taken:
                accepted += 1
                if accepted < INSTRUCTIONS:
                    offer(ctx, dut, work[accepted])

    simulate_clocked(dut, bench, partial(serve_shared_memory, port=dut.memory, memory=memory))


def offer(ctx, dut: Warpgroup, one: Work) -> None:
    """Put an instruction at the input."""
    payload = dut.i.payload
    ctx.set(payload.operation, Operation.MULTIPLY)
    code = TENSOR_CORE.formats.index("f16")
    for name, value in {**one.fields, "a": code, "b": code}.items():
        ctx.set(payload.control[name] if name in ("a", "b", "sparse") else payload[name], value)
    for name, value in one.descriptors.items():
        ctx.set(payload[f"{name}_descriptor"], descriptor_layout().from_bits(value))
    ctx.set(payload.a.as_value(), bits_of(one.registers_of_a))
    ctx.set(payload.e.as_value(), bits_of(one.metadata))

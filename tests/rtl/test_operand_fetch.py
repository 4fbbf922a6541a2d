"""The fetch of a warpgroup: a core matrix in every cycle, B first, nothing lost or exchanged, whatever waits."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from sptc.isa.memory import encode_descriptor
from sptc.rtl.fetch import descriptor_layout
from sptc.rtl.operand_fetch import OperandFetch
from sptc.tests.rtl.operand_words import MEMORY_BYTES, UNIT_BYTES, serve_shared_memory, shared_octets
from sptc.tests.rtl.simulation import simulate_clocked

PANELS, A_PANELS = 12, 8


def two_descriptors(rng: np.random.Generator) -> dict[str, int]:
    """Draw the descriptors of A and B; no field is the same in both."""
    pairs = [rng.choice(64, 2, replace=False) for _ in range(3)]
    swizzles = rng.choice(["none", "32B", "64B", "128B"], 2, replace=False)
    offsets = rng.choice(8, 2, replace=False)
    return {
        name: encode_descriptor(
            *(UNIT_BYTES * int(pair[side]) for pair in pairs), str(swizzles[side]), int(offsets[side])
        )
        for side, name in enumerate("ab")
    }


class Run:
    """Panels of B and of A through a fetch, from a memory of random bytes.

    `b_major` is that of B, and A has the other one: nothing of one operand may be taken for the other's.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        short: bool,
        takes: Iterator[bool],
        asks: Iterator[bool],
        a_panels: int = A_PANELS,
        b_major: str = "k",
    ) -> None:
        self.memory = rng.integers(0, 256, MEMORY_BYTES, dtype=np.uint8)
        self.descriptors = two_descriptors(rng)
        self.majors = {"a": "k" if b_major == "mn" else "mn", "b": b_major}
        self.reads: list[int] = []
        self.panels: list[list[int]] = []
        self.taken: list[int] = []
        self.a: list[tuple[int, int, list[int]]] = []
        self._dut = OperandFetch()

        async def bench(ctx) -> None:
            await self._bench(ctx, short, takes, asks, a_panels)

        simulate_clocked(self._dut, bench, partial(serve_shared_memory, port=self._dut.memory, memory=self.memory))

    def expected(self, operand: str, panels: int, row_bytes: int) -> list[list[int]]:
        """Return the rows of so many panels by the index map, as numbers."""
        descriptor, mn_major = self.descriptors[operand], self.majors[operand] == "mn"
        octets = shared_octets(self.memory, descriptor, 8 * panels, row_bytes, mn_major=mn_major)
        rows = [int.from_bytes(row.tobytes(), "little") for row in octets]
        return [rows[8 * panel : 8 * panel + 8] for panel in range(panels)]

    async def _bench(self, ctx, short: bool, takes: Iterator[bool], asks: Iterator[bool], a_panels: int) -> None:
        dut, of_b, of_a = self._dut, 0, 0
        waits = {"a": False, "b": False}
        for name, requests in (("a", dut.a), ("b", dut.b)):
            ctx.set(requests.payload.descriptor, descriptor_layout().from_bits(self.descriptors[name]))
            ctx.set(requests.payload.mn_major, self.majors[name] == "mn")
        ctx.set(dut.b.payload.short, short)
        ctx.set(dut.a.payload.short, 1)
        for cycle in range(1000):
            # What is once asked for stays.
            waits = {
                "b": of_b < PANELS and (waits["b"] or next(asks)),
                "a": of_a < a_panels and (waits["a"] or next(asks)),
            }
            ctx.set(dut.b.valid, waits["b"])
            ctx.set(dut.a.valid, waits["a"])
            ctx.set(dut.b.payload.panel, of_b)
            ctx.set(dut.a.payload.panel, of_a)
            ctx.set(dut.a_tag, of_a % 2)
            ctx.set(dut.panels.ready, next(takes))
            if ctx.get(dut.memory.read):
                self.reads.append(cycle)
            if ctx.get(dut.panels.valid) and ctx.get(dut.panels.ready):
                self.taken.append(cycle)
                self.panels.append([ctx.get(row) for row in dut.panels.payload])
            if ctx.get(dut.arriving):
                arrived = dut.core_matrix
                assert ctx.get(arrived.tag) == ctx.get(arrived.panel) % 2
                rows = [ctx.get(row) for row in arrived.rows]
                self.a.append((ctx.get(arrived.panel), ctx.get(arrived.segment), rows))
            taken_b = waits["b"] and ctx.get(dut.b.ready)
            taken_a = waits["a"] and ctx.get(dut.a.ready)
            of_b, of_a = of_b + taken_b, of_a + taken_a
            waits = {"b": waits["b"] and not taken_b, "a": waits["a"] and not taken_a}
            await ctx.tick()
            if len(self.panels) == PANELS and len(self.a) == 2 * a_panels:
                return
        raise AssertionError("something was not delivered")


def always() -> Iterator[bool]:
    while True:
        yield True


def sometimes(rng: np.random.Generator, share: float) -> Iterator[bool]:
    while True:
        yield bool(rng.random() < share)


@pytest.mark.parametrize("b_major", ["k", "mn"])
@pytest.mark.parametrize("short", [False, True])
def test_every_core_matrix_arrives(rng: np.random.Generator, short: bool, b_major: str) -> None:
    """In order and at its place, with gaps in what is asked for and stalls in what is taken."""
    run = Run(rng, short, sometimes(rng, 0.4), sometimes(rng, 0.6), b_major=b_major)
    k = 16 if short else 32
    panels = [[row & (1 << 16 * k) - 1 for row in rows] for rows in run.panels]
    assert panels == run.expected("b", PANELS, 2 * k)
    expected = [
        (panel, segment, [row >> 128 * segment & (1 << 128) - 1 for row in rows])
        for panel, rows in enumerate(run.expected("a", A_PANELS, 32))
        for segment in range(2)
    ]
    assert run.a == expected


def test_the_port_never_rests(rng: np.random.Generator) -> None:
    """As long as something is asked for and there is room."""
    for short, core_matrices in ((False, 4), (True, 2)):
        run = Run(rng, short, always(), always())
        assert run.reads == list(range(PANELS * core_matrices + 2 * A_PANELS)), f"short panels: {short}"


def test_b_comes_first(rng: np.random.Generator) -> None:
    """A is read in the cycles that B leaves: a panel of two core matrices every fourth cycle leaves half of them."""

    def every_fourth() -> Iterator[bool]:
        return (cycle % 4 == 3 for cycle in range(10**6))

    beside, alone = (Run(rng, True, every_fourth(), always(), a_panels) for a_panels in (A_PANELS, 0))
    assert beside.taken == alone.taken
    assert beside.reads[:32] == list(range(32))

"""Descriptors to addresses and panels, against the index map."""

import numpy as np
import pytest
from amaranth.sim import Simulator
from sptc.isa.memory import decode_descriptor, encode_descriptor, shared_map, unit_address
from sptc.rtl.fetch import CoreMatrixAddress, PanelFetcher, descriptor_layout
from sptc.tests.rtl.simulation import simulate_clocked

Random = np.random.Generator
SWIZZLES = ("none", "32B", "64B", "128B")


def random_descriptor(rng: Random, reach: int) -> int:
    start, leading, stride = (16 * int(number) for number in rng.integers(0, reach, 3))
    return encode_descriptor(start, leading, stride, str(rng.choice(SWIZZLES)), int(rng.integers(8)))


def request(value: int, panel: int, mn_major: bool, short: bool) -> dict[str, object]:
    descriptor = descriptor_layout().from_bits(value)
    return {"descriptor": descriptor, "panel": panel, "mn_major": mn_major, "short": short}


def test_addresses_wrap_at_the_end_of_the_memory(rng: Random) -> None:
    dut = CoreMatrixAddress()

    async def bench(ctx) -> None:
        for _ in range(500):
            value, panel, segment = random_descriptor(rng, 1 << 14), int(rng.integers(32)), int(rng.integers(4))
            mn_major = bool(rng.integers(2))
            ctx.set(dut.request, request(value, panel, mn_major, False))
            ctx.set(dut.segment, segment)
            outer, unit = (8 * segment, panel) if mn_major else (8 * panel, segment)
            for row in range(8):
                place = decode_descriptor(value)
                wanted = unit_address(place, outer + row, unit, "mn" if mn_major else "k") % (1 << 18)
                assert 16 * ctx.get(dut.address[row]) == wanted

    simulator = Simulator(dut)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("mn_major", [False, True])
@pytest.mark.parametrize("short", [False, True])
def test_a_panel_holds_what_the_map_says(mn_major: bool, short: bool, rng: Random) -> None:
    """Also in how many cycles: five for a panel of B, three for one of A; and it stays while it waits."""
    dut = PanelFetcher()
    memory = rng.integers(0, 256, 1 << 14, dtype=np.uint8)

    def unit(address: int) -> int:
        return int.from_bytes(memory[16 * address : 16 * address + 16].tobytes(), "little")

    async def shared_memory(ctx) -> None:
        async for _, _, read, *addresses in ctx.tick().sample(dut.memory.read, *dut.memory.address):
            for row, address in enumerate(addresses):
                ctx.set(dut.memory.data[row], unit(address) if read else int(rng.integers(1 << 62)))

    async def bench(ctx) -> None:
        for _ in range(20):
            ctx.set(dut.o.ready, 0)
            value, panel = random_descriptor(rng, 1 << 5), int(rng.integers(4))
            ctx.set(dut.i.payload, request(value, panel, mn_major, short))
            ctx.set(dut.i.valid, 1)
            cycles = 0
            while not ctx.get(dut.o.valid):
                assert cycles < 10, "the fetcher hangs"
                taken = ctx.get(dut.i.ready)
                await ctx.tick()
                cycles += 1
                if taken:
                    ctx.set(dut.i.valid, 0)
            assert cycles == (3 if short else 5)
            await ctx.tick().repeat(int(rng.integers(1, 4)))
            ctx.set(dut.o.ready, 1)
            k = 16 if short else 32
            where = shared_map(decode_descriptor(value), 8 * panel + 8, k, 16, major="mn" if mn_major else "k")
            addresses = where.addresses[-8:]
            for row in range(8):
                octets = np.stack([memory[addresses[row]], memory[addresses[row] + 1]], 1)
                got = ctx.get(dut.o.payload[row]) & (1 << 16 * k) - 1
                assert got == int.from_bytes(octets.tobytes(), "little")
            await ctx.tick()

    simulate_clocked(dut, bench, shared_memory)

"""Descriptors to addresses, against the index map."""

import numpy as np
from amaranth.sim import Simulator
from sptc.isa.memory import decode_descriptor, encode_descriptor, unit_address
from sptc.rtl.fetch import CoreMatrixAddress, descriptor_layout

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

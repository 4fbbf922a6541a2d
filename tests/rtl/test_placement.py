"""What the hardware flags of where operands are, on either side of D, and of reserved bits."""

from collections.abc import Callable
from itertools import product

import numpy as np
from amaranth.sim import Simulator
from sptc.isa.memory import encode_descriptor
from sptc.rtl.fetch import descriptor_layout
from sptc.rtl.placement import Placement
from sptc.tests.rtl.descriptors import check_every_bit

ALL_COLUMNS = 512
#: Fields that make an operand present, and its first column; wide metadata has one column, the others as many as said.
OPERANDS: list[tuple[dict[str, int], str, int, int]] = [
    ({"sparse": 1}, "metadata_column", 0, 2),
    ({"sparse": 1, "wide": 1}, "metadata_column", 0, 1),
    ({"sparse": 1, "wide": 1, "sparsity_selector": 1}, "metadata_column", 1, 1),
    ({"scaled": 1}, "scale_a_column", 0, 4),
    ({"scaled": 1}, "scale_b_column", 0, -1),
    ({"a_shared": 0}, "a_column", 0, 8),
]


def run(dut: Placement, bench: Callable) -> None:
    simulator = Simulator(dut)
    simulator.add_testbench(bench)
    simulator.run()


def test_an_overlap_on_either_side(rng: np.random.Generator) -> None:
    """Each operand alone, from before D to behind it; what an instruction has not lies on D and is not flagged."""
    dut = Placement()

    async def bench(ctx) -> None:
        ctx.set(dut.taken, 1)
        for descriptor in (dut.a_descriptor, dut.b_descriptor):
            ctx.set(descriptor.reserved2, 1)
        for (fields, column, skipped, count), panels in product(OPERANDS, (1, 2, 5, 31)):
            width = 8 * panels
            columns = (panels - 1) // 4 + 1 if count < 0 else count
            for d in (0, ALL_COLUMNS - width, int(rng.integers(ALL_COLUMNS - width))):
                for name, value in {"sparse": 0, "wide": 0, "sparsity_selector": 0, "scaled": 0, "a_shared": 1}.items():
                    ctx.set(dut.request[name], fields.get(name, value))
                for name in ("metadata_column", "scale_a_column", "scale_b_column", "a_column"):
                    ctx.set(dut.request[name], d)
                if "scaled" in fields:  # the other block scales are as far away as they can be
                    other = "scale_a_column" if column == "scale_b_column" else "scale_b_column"
                    ctx.set(dut.request[other], 0 if d > ALL_COLUMNS // 2 - 4 else ALL_COLUMNS - 8)
                ctx.set(dut.d_column, d)
                ctx.set(dut.request.last_panel, panels - 1)
                for first in {*range(d - columns - 2, d + 3), *range(d + width - 3, d + width + 2)}:
                    if not 0 <= first < ALL_COLUMNS:
                        continue
                    ctx.set(dut.request[column], first)
                    used = {first + skipped + number for number in range(columns)}
                    where = f"{column} {first} with {fields}, D of {width} columns from {d} on"
                    beyond = max(used) >= ALL_COLUMNS
                    assert ctx.get(dut.undefined.beyond) == beyond, where
                    if not beyond:
                        overlap = bool(used & {*range(d, d + width)})
                        assert ctx.get(dut.undefined.overlap) == overlap, where
                    assert ctx.get(dut.undefined.misaligned) == (first % 2 and "sparse" in fields), where
                ctx.set(dut.request[column], 0)
                for end in (ALL_COLUMNS, ALL_COLUMNS + 1):
                    ctx.set(dut.d_column, end - width)
                    assert ctx.get(dut.undefined.beyond) == (end > ALL_COLUMNS), f"D up to column {end}"

    run(dut, bench)


def test_reserved_bits_of_tcgen05() -> None:
    """Swizzles in atoms of 32 bytes count as reserved, since the hardware lacks them."""
    dut = Placement()

    async def bench(ctx) -> None:
        ctx.set(dut.taken, 1)
        good = encode_descriptor(64, 128, 256, "64B", family="tcgen05")
        for place, a_shared in ((dut.b_descriptor, 0), (dut.a_descriptor, 1)):
            ctx.set(dut.request.a_shared, a_shared)

            def check(value: int, place=place) -> bool:
                ctx.set(place, descriptor_layout().from_bits(value))
                return bool(ctx.get(dut.undefined.reserved))

            check_every_bit(check, "tcgen05", good)
            ctx.set(place, descriptor_layout().from_bits(good))
        atoms = encode_descriptor(64, 128, 256, "128B with 32B atoms", family="tcgen05")
        ctx.set(dut.a_descriptor, descriptor_layout().from_bits(atoms))
        assert ctx.get(dut.undefined.reserved)

    run(dut, bench)

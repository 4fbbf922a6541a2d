"""What the hardware flags of where operands are, against the index maps, and on either side of D."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from amaranth.sim import Simulator
from sptc.errors import OperandError
from sptc.isa.instructions import Instruction
from sptc.isa.memory import encode_descriptor
from sptc.isa.tcgen05 import parse_shaped
from sptc.isa.tensor_memory import LAYOUTS, a_map, accumulator_map, metadata_map, scale_map
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

    run(dut, bench)


def undefined_of(i: Instruction, columns: dict[str, int], selector: int, a_shared: bool) -> set[str]:
    """Return what the index maps say of first columns, by the hardware's flags."""
    found, words = set(), {}
    makers = {
        "d": lambda at: accumulator_map(LAYOUTS["D"], i.n, i.d.bits, at),
        "e": lambda at: metadata_map(LAYOUTS["D"], i, selector, at),
        "scale_a": lambda at: scale_map("scale_a", 128, i.scale_size, 0, at),
        "scale_b": lambda at: scale_map("scale_b", i.n, i.scale_size, 0, at),
        "a": lambda at: a_map(LAYOUTS["D"], i, at),
    }
    for name, make in makers.items():
        if (name == "e" and not i.sparse) or ("scale" in name and not i.scale_size) or (name == "a" and a_shared):
            continue
        at = columns[name]
        if name == "e" and at % 2:
            found.add("misaligned")
            at -= 1  # where it would be, the other checks are of the columns that are read
            if columns[name] + (selector if i.wide else 1) > 511:
                found.add("beyond")
            words[name] = {columns[name] + (selector if i.wide else n) for n in range(1 if i.wide else 2)}
            continue
        try:
            words[name] = set(np.nonzero(make(at).words().any(0))[0].tolist())
        except OperandError:
            found.add("beyond")
            words[name] = None
    if words["d"] is not None and any(of and of & words["d"] for name, of in words.items() if name != "d"):
        found.add("overlap")
    return found


TCGEN05 = [
    "tcgen05.mma.sp.cta_group::1.kind::f16 (m128n64k32.f32.f16.f16)",
    "tcgen05.mma.cta_group::1.kind::f16 (m128n256k16.f32.f16.f16)",
    "tcgen05.mma.sp.cta_group::1.kind::i8 (m128n8k64.s32.s8.s8)",
    "tcgen05.mma.sp.cta_group::1.kind::mxf8f6f4.block_scale (m128n128k64.f32.e4m3.e4m3.ue8m0)",
]


@pytest.mark.parametrize("text", TCGEN05)
def test_placement(text: str, seed: int) -> None:
    """Random columns, either end likely: what the maps refuse is flagged, and nothing else."""
    _, i = parse_shaped(text)
    rng, dut = np.random.default_rng(seed), Placement()
    seen = set()

    async def bench(ctx) -> None:
        ctx.set(dut.taken, 1)
        ctx.set(dut.b_descriptor.reserved2, 1)
        ctx.set(dut.a_descriptor.reserved2, 1)
        request = dut.request
        for name, value in (
            ("sparse", bool(i.sparse)), ("wide", i.wide), ("scaled", bool(i.scale_size)), ("last_panel", i.n // 8 - 1)
        ):  # fmt: skip
            ctx.set(request[name], value)
        for _ in range(300):
            at = {name: int(rng.choice([rng.integers(512), rng.integers(8), 511 - rng.integers(8)])) for name in NAMES}
            selector, a_shared = int(rng.integers(i.sparsity_selectors or 1)), bool(rng.integers(2))
            ctx.set(dut.d_column, at["d"])
            for name, field in NAMES.items():
                if field:
                    ctx.set(request[field], at[name])
            ctx.set(request.sparsity_selector, selector)
            ctx.set(request.a_shared, a_shared)
            found = {name for name in ("overlap", "misaligned", "beyond", "reserved") if ctx.get(dut.undefined[name])}
            wanted = undefined_of(i, at, selector, a_shared)
            if "beyond" in wanted:  # of what reaches beyond the last column the maps say no more
                wanted, found = wanted - {"overlap"}, found - {"overlap"}
            assert found == wanted, (at, selector, a_shared)
            seen.update(found)

    run(dut, bench)
    assert {"overlap", "beyond"} <= seen


NAMES = {"d": "", "e": "metadata_column", "a": "a_column", "scale_a": "scale_a_column", "scale_b": "scale_b_column"}


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
